"""Token usage of a model call: input tokens include cached ones, as in OpenTelemetry's conventions.

Anthropic, and Bedrock for all its models, count cache reads and writes separately.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Tokens(NamedTuple):
    """The usage of a model call; None is unknown."""

    input: int | None = None
    """All of them, cached or not."""
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None


UNKNOWN: Final = Tokens()


def tokens(
    given: object,
    output: object,
    cache_read: object = None,
    cache_write: object = None,
    *,
    apart: bool = False,
    total: object = None,
) -> Tokens:
    """Normalize a provider's token counts; `apart` if its input tokens exclude cached ones.

    If unknown, that is inferred: the cached tokens exceed the input tokens, or the counts add up to
    the stated total only if cached tokens are added.

    No tokens at all are unknown: frameworks report zeros if the provider reports nothing.
    """
    used, produced, whole = _count(given), _count(output), _count(total)
    if used == 0 and produced == 0:
        used = produced = None
    read, written = _count(cache_read), _count(cache_write)
    cached = (read or 0) + (written or 0)
    if used is not None and cached:
        adds_up = produced is not None and whole == used + produced + cached
        if apart or cached > used or adds_up:
            used += cached
    return Tokens(used, produced, read, written)


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


def added_by_block(usage: object, name: str | None, counted: dict[str, int]) -> Tokens | None:
    """Return what a block of an Anthropic message adds to the tokens of its earlier blocks; None for nothing.

    Each block comes with the usage of the whole message as far as it had got.  `counted` keeps the output
    tokens of each message by its name.
    """
    used = of_anthropic(usage)
    if name is None:
        return used
    known = counted.get(name)
    counted[name] = max(used.output or 0, known or 0)
    if known is None:
        return used
    return Tokens(0, counted[name] - known) if counted[name] > known else None


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None
