"""Figures as text."""

import math
import re
from datetime import datetime
from typing import Final

_PER_CENT: Final = re.compile(r"(?<=\d)%")
_MINUS: Final = re.compile(r"(?<![\w.:-])-(?=\d)")


def number(value: float | None) -> str:
    """Return a score with at most three decimals."""
    return "–" if value is None else f"{value:.3f}".rstrip("0").rstrip(".") or "0"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a share in per cent."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def duration(milliseconds: float) -> str:
    """Return a duration for display: `850 ms`, `3.6 s`, `2 min 5 s`."""
    if milliseconds < 1_000:
        return f"{milliseconds:.0f} ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1_000:.1f} s"
    minutes, seconds = divmod(round(milliseconds / 1_000), 60)
    return f"{minutes} min {seconds} s"


def money(usd: float) -> str:
    """Return an amount in US dollars: in cents, below 10 cents with two significant digits (`$0.000061`)."""
    if usd >= 0.1 or usd <= 0:
        return f"${usd:,.2f}"
    places = 1 - math.floor(math.log10(usd))
    return f"${usd:.{places}f}".rstrip("0")


def amount(count: float) -> str:
    """Return a large number in short form: `14.4 M`."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= limit:
            return f"{count / (1e3 if unit == 'k' else limit):,.1f} {unit}"
    return f"{count:,.0f}"


def typeset(text: str) -> str:
    """Return figures of the command line in a page's typography: `93.8 % → 75.0 %`, with a true minus."""
    return _MINUS.sub("−", _PER_CENT.sub("\u00a0%", text)).replace("->", "→")


def when(at: datetime | None) -> str:
    """Return a time in UTC as `23 Nov 14:02:11`."""
    return "" if at is None else f"{at.day} {at:%b %H:%M:%S}"


def day_time(at: datetime | None) -> str:
    """Return a time in UTC as `23 Nov 14:02`."""
    return "" if at is None else f"{at.day} {at:%b %H:%M}"
