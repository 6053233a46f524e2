"""The tokens of a model call: input tokens count those of the cache, as OpenTelemetry's conventions have it.

Anthropic, and Bedrock for all its models, count what was read from the cache and written to it apart.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Tokens(NamedTuple):
    """What a model call used; None is not known."""

    input: int | None
    """All of them, cached or not."""
    output: int | None
    cache_read: int | None = None
    cache_write: int | None = None


def tokens(
    given: object,
    output: object,
    cache_read: object = None,
    cache_write: object = None,
    *,
    apart: bool = False,
    total: object = None,
) -> Tokens:
    """Return tokens as a provider counts them; `apart` when it does not count cached ones to the input.

    Where that is not known it shows: more came from the cache than went in, or only with them do the
    tokens make the stated total.
    """
    used, said, whole = _count(given), _count(output), _count(total)
    read, written = _count(cache_read), _count(cache_write)
    cached = (read or 0) + (written or 0)
    if used is not None and cached:
        adds_up = said is not None and whole == used + said + cached
        if apart or cached > used or adds_up:
            used += cached
    return Tokens(used, said, read, written)


def of_anthropic(usage: object) -> Tokens:
    """Return the tokens of the `usage` of an Anthropic message."""
    found = usage if isinstance(usage, Mapping) else {}
    return tokens(
        found.get("input_tokens"),
        found.get("output_tokens"),
        found.get("cache_read_input_tokens"),
        found.get("cache_creation_input_tokens"),
        apart=True,
    )


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
