"""The cost of an answer: from configured prices, otherwise from the package genai-prices.

Nothing here uses a network: genai-prices contains its table.
"""

from datetime import UTC, datetime
from typing import Protocol

from evaltap.evaluator.judges.endpoint import JudgeSettings
from evaltap.schemas.formats.metric import JudgePrices


class Pricing(Protocol):
    """What tokens of one model cost."""

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of one request in USD."""
        ...


class GivenPrices:
    """Prices that a user set."""

    def __init__(self, prices: JudgePrices) -> None:
        self._prices = prices

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of one request in USD."""
        prices = self._prices
        total = input_tokens * prices.input_per_million + output_tokens * prices.output_per_million
        return total / 1_000_000


class ListedPrices:
    """Prices of a model in the table of genai-prices; raises LookupError when it is not there."""

    def __init__(self, settings: JudgeSettings) -> None:
        from genai_prices import Usage, calc_price

        self._usage, self._calc = Usage, calc_price
        self._model = settings.model
        # A server at home may serve a model of a provider's name: only who bills has prices.
        self._provider = {"provider_api_url": settings.base_url}
        self._when = datetime.now(UTC)
        self.cost_usd(1, 1)

    def cost_usd(self, input_tokens: int, output_tokens: int) -> float:
        """Return the cost of one request in USD, as if nothing of it was in the provider's cache."""
        price = self._calc(
            self._usage(input_tokens=input_tokens, output_tokens=output_tokens),
            self._model,
            genai_request_timestamp=self._when,
            provider_api_url=self._provider["provider_api_url"],
        )
        return float(price.total_price)


def pricing_of(settings: JudgeSettings) -> Pricing | None:
    """Return the prices of a judge, None when nobody knows them."""
    if settings.prices is not None:
        return GivenPrices(settings.prices)
    try:
        return ListedPrices(settings)
    except (LookupError, ImportError):
        return None
