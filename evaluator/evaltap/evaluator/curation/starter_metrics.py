"""Starter metrics: bounds that the recorded traffic meets, without metrics that need a reference.

A bound is one and a half times the 95th percentile of the turns, so that today's traffic passes and a
deterioration fails.
"""

import math
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.store.database import Store
from evaltap.schemas.data import CaseData

MARGIN: Final = 1.5
FEWEST: Final = 20
"""The number of turns below which the slowest percent is not informative."""


@dataclass(frozen=True, slots=True)
class Observed:
    """Statistics of landed turns; None if nothing was recorded."""

    turns: int = 0
    seconds: float | None = None
    """The time within which 95 of 100 turns ended, at least 1."""
    cost_usd: float | None = None
    tokens: int | None = None
    calls: int | None = None
    """The maximum number of tool calls in a turn."""
    answers: bool = True
    """Whether answers were captured."""


def observed(store: Store) -> Observed:
    """Return the statistics of the landed turns in a store."""
    turns, milliseconds, cost, tokens, calls, answers = store.rows(_OBSERVED)[0]
    return Observed(
        turns,
        None if milliseconds is None else max(1.0, milliseconds / 1000),
        cost,
        None if tokens is None else math.ceil(tokens),
        calls,
        bool(answers),
    )


_OBSERVED = """
SELECT count(*), quantile_cont(latency_ms, 0.95), quantile_cont(cost_usd, 0.95),
       quantile_cont(input_tokens + output_tokens, 0.95), max(tool_count),
       count(*) FILTER (coalesce(final_text, '') <> '') > 0
FROM latest_turns
"""


def starter_metrics(found: Observed, judge_model: str = "") -> list[CaseData]:
    """Return metrics in the form of a metrics file; with a model, including two rubrics for a judge."""
    metrics: list[CaseData] = [
        {"metricName": "run_succeeded", "threshold": 1},
        {
            "metricName": "trajectory_no_loop",
            "threshold": 1,
            "criterion": {"trajectory": {"repeats": 3, "maxPeriod": 4}},
        },
    ]
    if found.turns >= FEWEST:
        metrics += _bounds(found)
    if judge_model and found.answers:
        metrics.append(_rubrics(judge_model))
    return metrics


def _bounds(found: Observed) -> list[CaseData]:
    bounds: list[CaseData] = []
    if found.calls:
        bounds.append(
            {
                "metricName": "trajectory_max_calls",
                "threshold": 1,
                "criterion": {"trajectory": {"maxCalls": math.ceil(found.calls * MARGIN)}},
            }
        )
    operations = {
        "completed_within": ("maxSeconds", found.seconds),
        "cost_within": ("maxCostUsd", found.cost_usd),
        "tokens_within": ("maxTokens", found.tokens),
    }
    for name, (setting, value) in operations.items():
        if value:
            bound = round_up(value * MARGIN)
            bounds.append(
                {
                    "metricName": name,
                    "threshold": 1,
                    "criterion": {"operations": {setting: int(bound) if bound >= 10 else bound}},
                }
            )
    return bounds


def round_up(value: float) -> float:
    """Return the next number with two digits: 0.0132 gives 0.014, 1234 gives 1300."""
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    digits = max(0, -math.floor(math.log10(step)))
    return round(math.ceil(value / step - 1e-9) * step, digits)


def _rubrics(model: str) -> CaseData:
    texts = {
        "answers-the-question": "The answer addresses what the user asked for.",
        "says-what-happens": "The answer says plainly what was done, or what the user has to do next.",
    }
    return {
        "metricName": "llm_rubric_response",
        "threshold": 1,
        "criterion": {
            "llmJudge": {
                "rubrics": [
                    {"id": name, "content": {"text": text}} for name, text in texts.items()
                ],
                "judgeModel": {"modelName": model, "numSamples": 3},
            }
        },
    }
