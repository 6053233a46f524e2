"""Metrics that ask a scripted judge."""

from typing import Any

import orjson

from evaltap.evaluator import CaseScorer, MetricOutcome, Registry, ScriptedJudge, Services
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_turn

RUBRICS = [{"id": "1", "content": {"text": "It names the day."}}]


def metric(name: str, samples: int = 1, **judge: Any) -> EvalMetric:
    return EvalMetric.model_validate(
        {
            "metricName": name,
            "threshold": 0.6,
            "criterion": {
                "llmJudge": {"judgeModel": {"modelName": "m", "numSamples": samples}, **judge}
            },
        }
    )


def score(
    judge: ScriptedJudge,
    one: EvalMetric,
    *,
    turns: list[dict[str, Any]] | None = None,
    expected: str | None = "Delivered on Monday.",
    registry: Registry | None = None,
) -> MetricOutcome:
    actual = turns or [make_turn()]
    case = make_case(turns=actual)
    if expected is not None:
        case["conversation"] = [make_turn(f"e-{place}", expected) for place in range(len(actual))]
    services = Services(judge=lambda _: judge)
    return CaseScorer([one], services=services, registry=registry).score(case).metrics[0]


def grades(*scores: float) -> str:
    rows = [{"id": str(n), "score": s, "reason": f"r{n}"} for n, s in enumerate(scores, start=1)]
    return orjson.dumps({"rubricScores": rows}).decode()
