"""The cost of an answer: from configured prices, otherwise from the package genai-prices.

This module does not use the network: genai-prices includes its table.
"""

from datetime import UTC, datetime
from typing import Protocol

from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.schemas.formats.metric import JudgePrices


class Pricing(Protocol):
    """The prices of one model's tokens."""

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of one request in USD."""
        ...


class GivenPrices:
    def __init__(self, prices: JudgePrices) -> None:
        self._prices = prices

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        prices = self._prices
        total = input_tokens * prices.input_per_million + output_tokens * prices.output_per_million
        return total / 1_000_000


class ListedPrices:
    """Prices of a model in the table of genai-prices; raises LookupError if the model is not in it."""

    def __init__(self, settings: JudgeSettings) -> None:
        from genai_prices import Usage, calc_price

        self._usage, self._calc = Usage, calc_price
        self._model = settings.model
        # A local server may serve a model under a provider's name, so the table is searched by
        # address.
        self._provider = {"provider_api_url": settings.base_url}
        self._when = datetime.now(UTC)
        self.cost_usd(1, 1)

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of one request in USD, assuming that the provider had cached none of it."""
        price = self._calc(
            self._usage(input_tokens=input_tokens, output_tokens=output_tokens),
            self._model,
            genai_request_timestamp=self._when,
            provider_api_url=self._provider["provider_api_url"],
        )
        return float(price.total_price)


def pricing_of(settings: JudgeSettings) -> Pricing | None:
    """Return the prices of a judge; None if they are unknown."""
    if settings.prices is not None:
        return GivenPrices(settings.prices)
    try:
        return ListedPrices(settings)
    except (LookupError, ImportError):
        return None
