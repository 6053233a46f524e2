"""The cost of a turn: from its telemetry, or computed from its tokens and list prices.

Prices come from the package genai-prices, which includes its table, so nothing here uses the network.  Cached
tokens have their own prices in the table; discounts for batches and contracts are not considered.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

Telemetry = Mapping[str, Any]
"""The `telemetry` of a turn, as JSON."""

Price = Callable[[int, int, int, int], float]
"""Returns the USD for input tokens, output tokens, and the input tokens read from and written to a cache."""

MARK: Final = '"costUsd":"synthesized"'
"""The entry in a landed turn's `capture` that marks a computed cost."""

_MOST_MODELS: Final = 4096
_COUNTS: Final = ("inputTokens", "outputTokens", "cachedTokens", "cacheWriteTokens")


class ModelUsage(NamedTuple):
    """The tokens of all calls of a model."""

    model: str
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = None
    """The part of the input tokens that was read from the provider's cache."""
    cache_write_tokens: int | None = None


def cost_of(telemetry: Telemetry) -> float | None:
    """Return the cost of a turn in USD; None if it is unknown and cannot be computed."""
    given = telemetry.get("costUsd")
    if given is not None and given >= 0:
        return float(given)
    usage = [
        ModelUsage(str(one.get("model")), *(one.get(name) for name in _COUNTS))
        for one in telemetry.get("usage") or ()
    ]
    return computed_cost(
        usage,
        telemetry.get("models") or (),
        telemetry.get("inputTokens"),
        telemetry.get("outputTokens"),
    )


def computed_cost(
    usage: Iterable[ModelUsage],
    models: Sequence[str],
    input_tokens: int | None,
    output_tokens: int | None,
) -> float | None:
    """Return the cost in USD by list prices, of `usage` or, with a single model, of the total tokens."""
    each = list(usage)
    if not each and len(models) == 1:
        each = [ModelUsage(models[0], input_tokens, output_tokens)]
    total = 0.0
    for model, inputs, outputs, cached, written in each:
        if inputs is None or outputs is None or min(inputs, outputs) < 0:
            return None
        if (price := _price_of(model)) is None:
            return None
        total += price(inputs, outputs, cached or 0, written or 0)
    return total if each else None


@lru_cache(maxsize=_MOST_MODELS)
def _price_of(model: str) -> Price | None:
    """Return the price function of a model; None if the table does not have the model."""
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    try:
        found = calc_price(Usage(input_tokens=1, output_tokens=1), model).model_price
    except LookupError:
        return None
    first, second = found.input_mtok, found.output_mtok
    if first is None or second is None:
        return None

    def listed(inputs: int, outputs: int, cached: int, written: int) -> float:
        # Cache counts that exceed the input tokens are ignored.
        known = cached + written <= inputs
        used = Usage(
            input_tokens=inputs,
            output_tokens=outputs,
            cache_read_tokens=cached if known else 0,
            cache_write_tokens=written if known else 0,
        )
        return float(calc_price(used, model).total_price)

    try:
        per_input, per_output = float(first) / 1e6, float(second) / 1e6  # type: ignore[arg-type]
    except TypeError:  # a price with tiers
        return listed

    def flat(inputs: int, outputs: int, cached: int, written: int) -> float:
        if cached or written:
            return listed(inputs, outputs, cached, written)
        return inputs * per_input + outputs * per_output

    return flat
