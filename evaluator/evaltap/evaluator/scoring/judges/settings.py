"""Numeric settings of judges in the environment: timeout, retries, limits, prices."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.criteria import EmbeddingModel
from evaltap.schemas.formats.metric import (
    Criterion,
    EvalMetric,
    JudgeModel,
    JudgePrices,
    LlmJudgeCriterion,
)

DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
DEFAULT_RETRIES: Final = 2

_PRICES: Final = ("EVALTAP_JUDGE_PRICE_INPUT", "EVALTAP_JUDGE_PRICE_OUTPUT")


@dataclass(frozen=True, slots=True)
class JudgeLimits:
    """Limits of one judge on concurrent requests, and on requests and tokens per minute; None: no limit."""

    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


NO_LIMITS: Final = JudgeLimits()


def timeout_of(variable: str, environ: Mapping[str, str]) -> timedelta:
    """Return the seconds that a variable holds, or the default of a minute."""
    text = environ.get(variable, "").strip()
    seconds = _number(text)
    if text and not 0 < seconds < 86400:
        raise ConfigurationError(
            f"{variable} is '{text}'; expected seconds above 0 and below a day"
        )
    return timedelta(seconds=seconds) if text else DEFAULT_TIMEOUT


def judge_retries(environ: Mapping[str, str]) -> int:
    """Return EVALTAP_JUDGE_RETRIES: how often a failed request is retried."""
    if not (text := environ.get("EVALTAP_JUDGE_RETRIES", "").strip()):
        return DEFAULT_RETRIES
    if not (text.isascii() and text.isdigit() and len(text) < 3):
        raise ConfigurationError(f"EVALTAP_JUDGE_RETRIES is '{text}'; expected 0 to 99")
    return int(text)


def judge_limits(environ: Mapping[str, str]) -> JudgeLimits:
    """Return EVALTAP_JUDGE_CONCURRENCY, EVALTAP_JUDGE_RPM and EVALTAP_JUDGE_TPM."""

    def whole(name: str) -> int | None:
        if not (text := environ.get(name, "").strip()):
            return None
        if not (text.isascii() and text.isdigit() and int(text[:16]) > 0 and len(text) <= 16):
            raise ConfigurationError(f"{name} is '{text}'; expected a whole number, 1 or more")
        return int(text)

    return JudgeLimits(
        whole("EVALTAP_JUDGE_CONCURRENCY"), whole("EVALTAP_JUDGE_RPM"), whole("EVALTAP_JUDGE_TPM")
    )


def divided_limits(environ: Mapping[str, str], parts: int) -> dict[str, str]:
    """Return the environment of one of `parts` processes, which together stay within the limits.

    As each process needs at least one request, there must not be more processes than a limit allows.
    """
    limits = judge_limits(environ)
    given = {
        "EVALTAP_JUDGE_CONCURRENCY": limits.concurrency,
        "EVALTAP_JUDGE_RPM": limits.requests_per_minute,
        "EVALTAP_JUDGE_TPM": limits.tokens_per_minute,
    }
    shares = {name: str(max(1, value // parts)) for name, value in given.items() if value}
    return {**environ, **shares}


def most_parts(environ: Mapping[str, str]) -> int | None:
    """Return the maximum number of processes that can divide the limits; None without limits."""
    limits = judge_limits(environ)
    given = (limits.concurrency, limits.requests_per_minute, limits.tokens_per_minute)
    return min((value for value in given if value), default=None)


def judge_prices(model: JudgeModel, environ: Mapping[str, str]) -> JudgePrices | None:
    """Return the prices of a million tokens: the metric's own, otherwise the environment's.

    The environment sets one price, possibly for several models, so here the metric takes precedence.
    """
    if model.prices is not None:
        for price in (model.prices.input_per_million, model.prices.output_per_million):
            if not 0 <= price < math.inf:
                raise ConfigurationError(f"judgeModel.prices contains {price}; expected 0 or more")
        return model.prices
    texts = [environ.get(name, "").strip() for name in _PRICES]
    if not any(texts):
        return None
    numbers = [_number(text) for text in texts]
    if not all(0 <= number < math.inf for number in numbers):
        given = ", ".join(f"{name} is '{text}'" for name, text in zip(_PRICES, texts, strict=True))
        raise ConfigurationError(f"{given}; expected both, in USD for a million tokens")
    return JudgePrices(input_per_million=numbers[0], output_per_million=numbers[1])


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def judge_models(criterion: LlmJudgeCriterion) -> list[JudgeModel | None]:
    """Return the models of all judges of a metric: its own, its panel, the second of its cascade."""
    models: list[JudgeModel | None] = [criterion.judge_model, *criterion.panel]
    if criterion.cascade is not None:
        models.append(criterion.cascade.judge_model)
    return models


def judge_models_of(metric: EvalMetric) -> list[JudgeModel | None]:
    """Return the judge models of a metric, including those of the metrics in its suite."""
    judges = [one.llm_judge for one in criteria_of(metric) if one.llm_judge]
    return [model for judge in judges for model in judge_models(judge)]


def embedding_models_of(metric: EvalMetric) -> list[EmbeddingModel | None]:
    """Return the embedding models of a metric, including those of the metrics in its suite."""
    return [one.embedding.model for one in criteria_of(metric) if one.embedding]


def criteria_of(metric: EvalMetric) -> Iterator[Criterion]:
    """Yield the criteria of a metric and of the metrics in its suite."""
    if metric.criterion is not None:
        yield metric.criterion
        for member in metric.criterion.suite.metrics if metric.criterion.suite else ():
            yield from criteria_of(member)
