"""What the metrics of a case share changes no score and no reason."""

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator import CaseScorer, MetricOutcome
from evaltap.evaluator.cases.outline import lazy_case
from evaltap.evaluator.scoring.criteria.calls.shape import shared_shapes
from evaltap.schemas import EvalMetric
from evaltap.schemas.files.documents import read_case

USER = {"role": "user", "content": "q"}
NAMES = [
    f"trajectory_{name}"
    for name in (
        "exact", "strict", "in_order", "any_order", "superset", "subset", "unordered", "precision",
        "recall", "f1", "edit_similarity", "partial_order", "args_score", "result_match",
        "step_efficiency",
    )
]  # fmt: skip
CRITERIA: list[dict[str, Any]] = [
    {},
    {"ordered": True},
    {"attempts": "all"},
    {"attempts": "final", "agents": "flattened"},
    {"arguments": {"mode": "ignore"}},
    {"arguments": {"tolerance": 0.5}, "results": {"mode": "subset"}},
    {"toolArguments": {"a": {"paths": [{"path": "x", "match": "regex"}]}}},
    {"references": [{"tools": [{"name": "a", "arguments": {"x": 1}}]}]},
    {"agents": "per_agent"},
    {"costs": {"insert": 0.5, "swap": 0.7}},
]

VALUES = st.sampled_from(
    [1, 1.0, 2, True, None, "(", "1", [1], [True], ["1"], {"y": 2, "z": 3}, {"z": 3, "y": 2}]
)
ARGUMENTS = st.none() | st.dictionaries(st.sampled_from("xyz"), VALUES, max_size=3)
CALLS = st.fixed_dictionaries(
    {"name": st.sampled_from(["a", "a", "b", ""]), "arguments": ARGUMENTS},
    optional={
        "id": st.sampled_from(["1", "2"]),
        "agent": st.sampled_from(["one", "two"]),
        "result": VALUES,
        "error": st.sampled_from([{}, {"type": "Timeout"}]),
        "capture": st.sampled_from([{"arguments": "redacted"}, {"result": "missing"}]),
    },
)


@st.composite
def turns(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return a turn and its reference, often the same calls, in another order, or with one replaced."""
    wanted = draw(st.lists(CALLS, max_size=4))
    others = draw(st.lists(CALLS, max_size=4))
    made = draw(st.sampled_from([wanted, draw(st.permutations(wanted)), others]))
    if draw(st.booleans()) and made:
        made = [*made[:-1], draw(CALLS)]
    expected: dict[str, Any] = {"userContent": USER, "tools": wanted}
    if draw(st.sampled_from([False, False, True])):
        expected["references"] = [{"userContent": USER, "tools": draw(st.lists(CALLS, max_size=3))}]
    status = draw(st.sampled_from(["ok", "ok", "ok", "error"]))
    turn = {"userContent": USER, "tools": made, "telemetry": {"status": status}}
    return turn, draw(st.sampled_from([expected, expected, expected, None]))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    pairs = draw(st.lists(turns(), min_size=1, max_size=3))
    return {
        "evalId": "c",
        "evalMode": "trace",
        "actualConversation": [made for made, _ in pairs],
        "conversation": [wanted for _, wanted in pairs],
        "sessionInput": {"appName": "a", "userId": "u"},
        "source": {"service": "shop"},
    }


def reordered(value: Any) -> Any:
    """Return the same value with other bytes: keys in reverse order."""
    if isinstance(value, dict):
        return {key: reordered(item) for key, item in reversed(value.items())}
    return [*map(reordered, value)] if isinstance(value, list) else value


def other_values(value: Any) -> Any:
    """Return the same value with other numbers in its arguments and results."""
    if isinstance(value, dict):
        return {key: other_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [*map(other_values, value)]
    return value + 7 if type(value) in (int, float) else value


def metrics_of(number: int) -> list[EvalMetric]:
    criterion = CRITERIA[number]
    return [
        EvalMetric.model_validate(
            {
                "metricName": f"{name} {number}",
                "evaluatorName": name,
                "threshold": 0.5,
                "criterion": {"trajectory": criterion},
            }
        )
        for name in NAMES
        if (name, criterion.get("agents")) != ("trajectory_partial_order", "per_agent")
    ]


def rows(outcome: MetricOutcome) -> list[tuple[str, float]]:
    return [(row.id, row.score) for turn in outcome.turns for row in turn.rubric_scores]


METRICS = [metric for number in range(len(CRITERIA)) for metric in metrics_of(number)]
TOGETHER = CaseScorer(METRICS)
CHOSEN = st.sets(st.sampled_from(range(len(CRITERIA))), min_size=1, max_size=3)


def places(criteria: set[int]) -> list[int]:
    """Return the places of the metrics with these criteria."""
    names = {str(number) for number in criteria}
    return [at for at, one in enumerate(METRICS) if one.metric_name.split()[1] in names]


@pytest.mark.slow
@settings(deadline=None)
@given(cases(), CHOSEN)
def test_metrics_that_share_work_score_as_each_does_alone(
    case: dict[str, Any], criteria: set[int]
) -> None:
    together = TOGETHER.only(places(criteria)).score(case)

    for place, outcome in zip(places(criteria), together.metrics, strict=True):
        (alone,) = TOGETHER.only([place]).score(case).metrics
        assert outcome == alone


@pytest.mark.slow
@settings(deadline=None)
@given(st.lists(cases(), min_size=2, max_size=3), CHOSEN)
def test_what_the_turns_of_a_shape_share_changes_no_outcome(
    some: list[dict[str, Any]], criteria: set[int]
) -> None:
    """Neither those of other cases, nor those that differ in values only."""
    scorer = TOGETHER.only(places(criteria))
    some += [other_values(case) for case in some]
    after_others = [scorer.score(case) for case in some]

    for case, outcome in zip(some, after_others, strict=True):
        shared_shapes.cache_clear()
        assert scorer.score(case) == outcome


@pytest.mark.slow
@settings(deadline=None)
@given(cases(), CHOSEN)
def test_neither_equal_bytes_nor_outlines_change_an_outcome(
    case: dict[str, Any], criteria: set[int]
) -> None:
    line, scorer = orjson.dumps(case), TOGETHER.only(places(criteria))
    other_bytes = {**case, "conversation": [*map(reordered, case["conversation"])]}

    decoded = scorer.score(read_case(line)).metrics

    assert scorer.score(lazy_case(line) or read_case(line)).metrics == decoded
    for found, wanted in zip(scorer.score(other_bytes).metrics, decoded, strict=True):
        assert (found.status, found.score) == (wanted.status, wanted.score)
        assert rows(found) == rows(wanted)
