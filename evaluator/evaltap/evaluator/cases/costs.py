"""The cost of a turn: from its telemetry, otherwise computed from its tokens and list prices.

Prices come from the package genai-prices, which contains its table, so nothing here uses a network.  Cached
tokens cost what the table says; discounts for batches and contracts are not considered.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

Telemetry = Mapping[str, Any]
"""The `telemetry` of a turn, as JSON."""

Price = Callable[[int, int, int, int], float]
"""Returns USD for input and output tokens, and for those of the input that a cache gave and took."""

MARK: Final = '"costUsd":"synthesized"'
"""How `capture` of a landed turn says that its cost was computed."""

_MOST_MODELS: Final = 4096
_COUNTS: Final = ("inputTokens", "outputTokens", "cachedTokens", "cacheWriteTokens")


class ModelUsage(NamedTuple):
    """Tokens of the calls of one model."""

    model: str
    input_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = None
    """Of the input tokens, those that were read from the provider's cache."""
    cache_write_tokens: int | None = None


def cost_of(telemetry: Telemetry) -> float | None:
    """Return the cost of a turn in USD, None where neither it nor all tokens and prices are known."""
    given = telemetry.get("costUsd")
    if given is not None:
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
    """Return what tokens cost by list prices: those of `usage`, or all of them where there is one model."""
    each = list(usage)
    if not each and len(models) == 1:
        each = [ModelUsage(models[0], input_tokens, output_tokens)]
    total = 0.0
    for model, inputs, outputs, cached, written in each:
        price = _price_of(model) if inputs is not None and outputs is not None else None
        if price is None:
            return None
        total += price(inputs or 0, outputs or 0, cached or 0, written or 0)
    return total if each else None


@lru_cache(maxsize=_MOST_MODELS)
def _price_of(model: str) -> Price | None:
    """Return what tokens of a model cost, None for a model that the table does not have."""
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
        # A count that contradicts the others, more cached than all, is not priced apart.
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
