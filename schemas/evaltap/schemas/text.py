"""Helpers for texts in messages: counts, times, truncation, suggestions."""

import re
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from typing import Final

PIPE_WIDTH: Final = 160
"""Width in columns of output that does not go to a terminal."""
_FAILED: Final = re.compile(r"\s*(?:error|exception|traceback)\b\s*[:(]", re.IGNORECASE)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, `1 turn` or `2 turns`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def some_of(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first texts, and how many others there are: `a, b, and 3 more`."""
    left = len(texts) - most
    return separator.join([*texts[:most], *([f"and {left:,} more"] if left > 0 else [])])


def begins_as_error(text: str) -> bool:
    """Return whether a tool's result begins like a failure, for formats that have no field for it."""
    return _FAILED.match(text) is not None


def utc_text(moment: datetime, timespec: str = "auto") -> str:
    """Return a time in UTC, with or without its zone, as RFC 3339; `timespec` is that of `isoformat`."""
    return moment.replace(tzinfo=None).isoformat(timespec=timespec) + "Z"


def cut_text(text: str, max_bytes: int, note: str = "...") -> str:
    """Return the text if its UTF-8 has at most `max_bytes`, otherwise its beginning and the note.

    The cut is at a nearby space if there is one: half a key or address would escape redaction.
    """
    if len(text) * 4 <= max_bytes:
        return text
    written = text.encode("utf-8", "replace")
    if len(written) <= max_bytes:
        return text
    kept = written[: max(0, max_bytes - len(note.encode()))].decode("utf-8", "ignore")
    blank = max(kept.rfind(" ", -256), kept.rfind("\n", -256))
    return (kept[:blank] if blank > 0 else kept) + note


def did_you_mean(found: str, known: Iterable[str]) -> str:
    """Return a question suggesting the nearest known word, empty when none is near."""
    near = nearest(found, known)
    return f"did you mean '{near}'?" if near else ""


def did_you_mean_one_of(found: str, known: Collection[str]) -> str:
    """Return a question suggesting the nearest known word, or which words are expected."""
    return did_you_mean(found, known) or f"expected one of {', '.join(known)}"


def nearest(found: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return the known word most similar to `found`, or ""; a `cutoff` of 1 requires equality."""
    from difflib import get_close_matches  # only for a message; the recorder imports this module

    return next(iter(get_close_matches(found, list(known), n=1, cutoff=cutoff)), "")
