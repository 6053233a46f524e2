"""A criterion that makes no sense is refused when its metric is built, and the message names the place."""

from typing import Any

import pytest

from evaltap.evaluator import MetricError, Registry
from evaltap.schemas import EvalMetric

REGISTRY = Registry()
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("lexical_similarity", {"lexical": {"algorithm": "soundex"}}, "'soundex'; expected dice"),
    ("lexical_similarity", {}, "criterion.lexical not configured"),
    ("keyword_coverage", {"keywords": {}}, "keywords.values is empty"),
    ("keyword_coverage", {"keywords": {"source": "web"}}, "source is 'web'"),
    ("keyword_coverage", {"keywords": {"source": "context"}}, "keywords.path is empty"),
    ("cost_within", {"operations": {}}, "maxCostUsd is not given"),
    ("cost_within", {"operations": {"maxCostUsd": -1.0}}, "expected 0 or more"),
    ("completed_within", {"operations": {}}, "maxSeconds is not given"),
    ("tokens_within", {"operations": {}}, "no bound on tokens"),
    ("tool_use", {"toolUse": {}}, "tools is empty"),
    ("tool_use", {"toolUse": {"tools": [{"name": "a", "minCalls": 2, "maxCalls": 1}]}}, "expected a name"),
    ("tool_use", {"toolUse": {"tools": [{"name": "a", "maxCalls": 0}]}}, "minCalls 1, maxCalls 0"),
    ("tool_use", {"toolUse": {"tools": [{"name": "a", "paths": [{"path": "b"}]}]}}, "add arguments"),
    ("tool_use", {"toolUse": {"tools": [{"name": "a", "function": "support.builders:nothing"}]}},
     "no attribute"),
    ("compression_ratio", {"compression": {"max": 0}}, "expected a share above 0"),
    ("lexical_similarity", {"lexical": {"target": "tools"}}, "or a path such as"),
    ("sentiment_score", {"sentiment": {"mode": "mood"}}, "mode is 'mood'"),
    ("sentiment_score", {"sentiment": {"mode": "raw"}}, "needs min or max"),
    ("sentiment_score", {"sentiment": {"mode": "raw", "min": 1.0, "max": 0.0}}, "min <= max"),
    ("sentiment_score", {"sentiment": {"min": 1.0}}, "not normalized"),
    ("sentiment_score", {"sentiment": {"mode": "category"}}, "one or more of positive"),
    ("sentiment_score", {"sentiment": {"positiveFrom": 0.2}}, "are for mode category"),
    ("sentiment_score", {"sentiment": {"mode": "category", "categories": ["neutral"],
                                       "positiveFrom": -0.2}}, "negativeFrom < positiveFrom"),
    ("sentiment_score", {"sentiment": {"lexicon": "afin"}}, "did you mean 'afinn'"),
    ("sentiment_score", {"sentiment": {"target": "$"}}, "expected a key first"),
    ("sentiment_score", {"sentiment": {"categories": ["sad"], "mode": "category"}}, "sad"),
    ("sentiment_score", {"sentiment": {"categories": ["neutral"]}}, "for mode category"),
    ("sentiment_score", {"sentiment": {"target": "tools"}}, r"sentiment\.target is 'tools'"),
    ("toxic_words", {"toxicWords": {}}, "neither values nor languages"),
    ("toxic_words", {"toxicWords": {"languages": ["klingon"]}}, "'klingon'; expected some of arabic"),
    ("toxic_words", {}, r"criterion\.toxicWords not configured"),
]  # fmt: skip
TRAJECTORIES: list[tuple[str, dict[str, Any], str]] = [
    ("exact", {"atempts": "all"}, "has the unknown key 'atempts'"),
    ("exact", {"attempts": "some"}, "attempts is 'some'"),
    ("exact", {"agents": "each"}, "agents is 'each'"),
    ("exact", {"arguments": {"mode": "x"}}, "mode is 'x'"),
    ("edit_similarity", {"costs": {"insert": -1.0}}, "expected costs of 0 or more"),
    ("edit_similarity", {"costs": {"remove": 1.0}}, "has the unknown key 'remove'"),
    ("partial_order", {"agents": "per_agent"}, "spans all agents"),
    ("partial_order", {"maxStates": 0}, "maxStates is 0"),
    ("step_efficiency", {"optimalSteps": 0}, "optimalSteps is 0"),
    ("forbidden", {}, "forbidden is empty"),
    ("max_calls", {}, "neither maxCalls nor maxCallsPerTool"),
    ("single_tool_use", {}, "requiredTools is empty"),
    ("no_loop", {"repeats": 1}, "repeats is 1"),
    ("error_recovery", {"attempts": "all"}, "leave trajectory.attempts out"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "criterion", "told"),
    [
        *REFUSED,
        *((f"trajectory_{name}", {"trajectory": one}, told) for name, one, told in TRAJECTORIES),
    ],
)
def test_a_criterion_that_makes_no_sense_is_refused(
    name: str, criterion: dict[str, Any], told: str
) -> None:
    metric = EvalMetric.model_validate({"metricName": name, "criterion": criterion})

    with pytest.raises(MetricError, match=told):
        REGISTRY.build(metric)
