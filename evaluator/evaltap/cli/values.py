"""Turn the texts of options into values; raise ArgumentTypeError with what was found and expected."""

import argparse
import math
import re
from collections.abc import Callable, Collection
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NoReturn

from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean_one_of

PeriodOrSet = tuple[datetime, datetime] | Path
"""Beginning and end, or an eval set."""
FAIL_ON: Final = ("never", "failed", "error", "not_evaluated")
"""The values of FailOn, which help must not import."""


def _refuse(text: str, expected: str) -> NoReturn:
    raise argparse.ArgumentTypeError(f"found {text!r}; expected {expected}") from None


def _number(expected: str, within: Callable[[float], bool], about: str) -> Callable[[str], float]:
    def parse(text: str) -> float:
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        return number if within(number) else _refuse(text, expected)

    parse.__doc__ = about
    return parse


amount = _number("an amount, 0 or more", lambda x: 0 <= x < math.inf, "Parse an amount.")
seconds = _number("seconds above 0, up to a day", lambda x: 0 < x <= 86400, "Parse a time limit.")
milliseconds = _number("milliseconds, more than 0", lambda x: 0 < x < math.inf, "Parse a latency.")
share = _number("a share from 0 to 1", lambda x: 0 <= x <= 1, "Parse a share.")
level = _number(
    "a share from 0.0001 to 0.5", lambda x: 0.0001 <= x <= 0.5, "Parse a significance level."
)
ratio = _number("a number, 1 or more", lambda x: 1 <= x <= 1e9, "Parse a ratio.")


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    return number if number >= 1 else _refuse(text, "a whole number, 1 or more")


def reviewers(text: str) -> int:
    """Parse the number of people who review a turn."""
    return int(text) if text in ("1", "2", "3") else _refuse(text, "1, 2 or 3 reviewers")


def whole_amount(text: str) -> int:
    """Parse an amount of things that can be counted."""
    return int(amount(text))


def counts(text: str) -> list[int]:
    """Parse comma-separated whole numbers, each 1 or more."""
    return [positive(part.strip()) for part in text.split(",")]


def names(text: str) -> list[str]:
    """Parse comma-separated names."""
    found = [part.strip() for part in text.split(",")]
    return found if all(found) else _refuse(text, "names separated by commas")


def partitions(text: str) -> tuple[int, ...]:
    """Parse partition numbers: `0-3`, or `0,2,5-7`."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        ends = (first, last if dash else first)
        if not all(one.isascii() and one.isdigit() and len(one) < 7 for one in ends):
            _refuse(text, "numbers, e.g. 0-3 or 0,2,5-7")
        numbers = range(int(ends[0]), int(ends[1]) + 1)
        if not numbers:
            _refuse(part.strip(), "the lower number first")
        found.update(numbers)
    return tuple(sorted(found))


def threshold(text: str) -> tuple[str, float]:
    """Parse `metric=0.8`."""
    name, _, value = text.rpartition("=")
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    return (name, number) if name and math.isfinite(number) else _refuse(text, "METRIC=NUMBER")


def of_tool(text: str) -> tuple[str, str]:
    """Parse `tool=value`."""
    name, _, value = (part.strip() for part in text.partition("="))
    return (name, value) if name and value else _refuse(text, "TOOL=VALUE")


def argument_of(text: str) -> tuple[str, list[str]]:
    """Parse an argument of a tool, `get_order.request_id` or deeper `get_order.meta.time`."""
    tool, *path = (part.strip() for part in text.split("."))
    return (tool, path) if tool and path and all(path) else _refuse(text, "TOOL.ARGUMENT")


def duration(text: str) -> timedelta:
    """Parse a length of time in hours or days (`24h`, `7d`), or 0."""
    found = timedelta(0) if text == "0" else _duration(text)
    return _refuse(text, "hours or days, e.g. 24h or 7d") if found is None else found


def _duration(text: str) -> timedelta | None:
    found = re.fullmatch(r"(\d{1,5})([hd])", text)
    return timedelta(hours=int(found[1]) * (24 if found[2] == "d" else 1)) if found else None


def moment(text: str) -> datetime:
    """Parse a time: RFC 3339, a date or a time without a zone in UTC, or an age (`24h`, `7d`)."""
    if (ago := _duration(text)) is not None:
        return datetime.now(UTC) - ago
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        _refuse(text, "a time (2026-11-21 or 2026-11-21T12:00:00Z), or an age such as 24h or 7d")


def period_or_set(text: str) -> PeriodOrSet:
    """Parse `A/B`, or `set:FILE`."""
    if text.startswith("set:"):
        return Path(text.removeprefix("set:"))
    try:
        first, last = map(datetime.fromisoformat, text.split("/"))
    except ValueError:
        _refuse(text, "A/B, e.g. 2026-11-01/2026-11-08, or set:FILE")
    begin, end = (one if one.tzinfo else one.replace(tzinfo=UTC) for one in (first, last))
    return (begin, end) if begin < end else _refuse(text, "the earlier time first")


def host_and_port(text: str) -> tuple[str, int] | None:
    """Split `HOST:PORT`, None if invalid; a port alone means 127.0.0.1."""
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or len(port) > 5 or int(port) > 65535:
        return None
    return host.strip("[]") or "127.0.0.1", int(port)


def address(text: str) -> tuple[str, int]:
    """Parse a host and a port; a port alone means this machine."""
    if (found := host_and_port(text)) is None:
        raise argparse.ArgumentTypeError(
            f"'{text}' is not an address; expected HOST:PORT, e.g. 127.0.0.1:9464"
        )
    return found


def fail_on(text: str) -> str:
    """Parse the verdicts that make a command fail."""
    return _one_of(text, FAIL_ON)


def cost_classes(text: str) -> list[str]:
    """Parse comma-separated cost classes."""
    # loads pydantic: not for help
    from evaltap.evaluator.scoring.contract.evaluator import CostClass

    return [_one_of(part.strip(), [one.value for one in CostClass]) for part in text.split(",")]


def _one_of(text: str, known: Collection[str]) -> str:
    if text not in known:
        raise argparse.ArgumentTypeError(f"found {text!r}; {did_you_mean_one_of(text, known)}")
    return text


def report_file(text: str) -> Path:
    """Parse the file name of a report; its suffix determines the format."""
    from evaltap.evaluator.reports.formats import format_of  # loads pydantic: not for help

    try:
        format_of(Path(text))
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return Path(text)


def yes_or_no(text: str) -> bool:
    """Parse a switch: 1, true or yes; 0, false or no."""
    found = text.lower()
    if found not in ("1", "true", "yes", "0", "false", "no"):
        _refuse(text, "1 or 0")
    return found in ("1", "true", "yes")


def switched_on(text: str) -> bool:
    """Check whether a switch is on; anything but 1, true, yes and on is off."""
    return text.lower() in ("1", "true", "yes", "on")
