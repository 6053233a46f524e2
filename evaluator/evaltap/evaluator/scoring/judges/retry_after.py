"""The delay that a server requests before the next attempt, whoever the client is."""

import email.utils
import math
import time
from collections.abc import Mapping
from datetime import timedelta


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the delay that a server requests, in milliseconds, in seconds or as a date; None without one."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return timedelta(seconds=min(seconds, 86400.0))
    if (date := email.utils.parsedate_tz(headers.get("retry-after", ""))) is None:
        return None
    try:
        seconds = email.utils.mktime_tz(date) - time.time()
    except (OverflowError, ValueError):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), 86400.0))
