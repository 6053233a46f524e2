"""The cost of an answer: from configured prices, otherwise from the package genai-prices.

This module does not use the network: genai-prices includes its table.
"""

from collections.abc import Callable
from datetime import UTC, datetime

from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings

Pricing = Callable[[int, int], float]
"""Returns the cost in USD of a request with so many input and output tokens."""


def pricing_of(settings: JudgeSettings) -> Pricing | None:
    """Return the prices of a judge; None if they are unknown.

    Listed prices assume that the provider had cached no tokens.  The table is searched by address, because a
    local server may serve a model under a provider's name.
    """
    if (prices := settings.prices) is not None:
        first, second = prices.input_per_million, prices.output_per_million
        return lambda read, written: (read * first + written * second) / 1_000_000
    try:
        from genai_prices import Usage, calc_price
    except ImportError:
        return None
    now = datetime.now(UTC)

    def listed(read: int, written: int) -> float:
        found = calc_price(
            Usage(input_tokens=read, output_tokens=written),
            settings.model,
            genai_request_timestamp=now,
            provider_api_url=settings.base_url,
        )
        return float(found.total_price)

    try:
        listed(1, 1)
    except (LookupError, ImportError):  # of the table, which is imported on first use
        return None
    return listed
