"""Cases with only a decoded outline score like fully decoded cases."""

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.cases.outline import lazy_case
from evaltap.evaluator.scoring.batch import add_rows
from evaltap.evaluator.scoring.results.rows import ScoreRows
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas.files.documents import read_case
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import make_case

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=4,
)
CALLS = st.fixed_dictionaries(
    {"name": st.sampled_from(["find", "send", "größe"])},
    optional={
        "id": st.text(max_size=2),
        "arguments": VALUES,
        "result": VALUES,
        "error": st.just({"type": "Timeout", "message": "slow"}),
        "durationMs": st.floats(0, 9),
        "capture": st.fixed_dictionaries(
            {"arguments": st.sampled_from(["redacted", "ambiguous", "missing"])}
        ),
    },
)
TURNS = st.fixed_dictionaries(
    {"invocationId": st.text(max_size=3), "tools": st.lists(CALLS, max_size=4)},
    optional={
        "userContent": st.just({"role": "user", "content": "Hi"}),
        "finalResponse": st.builds(
            lambda text: {"role": "assistant", "content": text}, st.sampled_from(["", "a", "b"])
        ),
        "capture": st.just({"finalResponse": "redacted"}),
        "telemetry": st.just({"models": ["m"], "costUsd": 0.5}),
    },
)
STRATEGIES: list[dict[str, Any]] = [
    {"defaultStrategy": {"name": {}, "arguments": {}, "result": {}}},
    {"defaultStrategy": {"name": {}, "arguments": {}}, "subsetMatching": True},
    {"defaultStrategy": {"name": {}}, "orderSensitive": True},
    {"defaultStrategy": {"name": {}}, "toolStrategy": {"find": {"arguments": {"ignoreTree": {"a": True}}}}},
    {"defaultStrategy": {"name": {"caseInsensitive": True}, "arguments": {"numberTolerance": 0.5}}},
]  # fmt: skip


def scorer(strategy: dict[str, Any]) -> CaseScorer:
    metrics = [
        {"metricName": "tool_trajectory_avg_score", "threshold": 1,
         "criterion": {"toolTrajectory": strategy}},
        {"metricName": "final_response_avg_score", "threshold": 1,
         "criterion": {"finalResponse": {"text": {"matchStrategy": "contains"}}}},
    ]  # fmt: skip
    return CaseScorer([EvalMetric.model_validate(metric) for metric in metrics])


SCORERS = [scorer(strategy) for strategy in STRATEGIES]


def rows(scored_by: CaseScorer, case: Any) -> ScoreRows:
    found = ScoreRows()
    add_rows(found, case_identity(case, "set"), case, scored_by.score(case), (0, 1))
    return found


def line_of(case: dict[str, Any], **style: Any) -> bytes:
    return json.dumps(case, **style).encode()


@pytest.mark.slow
@given(
    actual=st.lists(TURNS, min_size=1, max_size=2),
    written=st.none() | st.lists(TURNS, min_size=1, max_size=2),
    seed=st.integers(),
    spaced=st.booleans(),
    number=st.integers(0, len(SCORERS) - 1),
)
def test_an_outlined_case_has_the_scores_of_the_decoded_one(
    actual: list[Any], written: list[Any] | None, seed: int, spaced: bool, number: int
) -> None:
    shuffled = json.loads(json.dumps(actual))
    for turn in shuffled:
        random.Random(seed).shuffle(turn["tools"])
    case = make_case(actualConversation=actual, conversation=written or shuffled)
    line = line_of(case, separators=None if spaced else (",", ":"), ensure_ascii=spaced)
    lazy = lazy_case(line)

    assert lazy is not None
    assert rows(SCORERS[number], lazy) == rows(SCORERS[number], read_case(line))


@given(turns=st.lists(TURNS, min_size=1, max_size=2))
def test_all_that_the_outline_leaves_out_is_decoded_when_it_is_asked_for(turns: list[Any]) -> None:
    line = line_of(make_case(actualConversation=turns, conversation=[]))
    lazy, whole = lazy_case(line), read_case(line)
    assert lazy is not None
    for turn, data in zip(
        lazy.turns("actualConversation"), whole["actualConversation"], strict=True
    ):
        assert turn.data == data
        assert turn.tools == (data.get("tools") or [])
        assert turn.user_text == (data.get("userContent") or {}).get("content")
    assert {key: lazy.get(key) for key in whole} == whole
    assert lazy.get("rubrics", "none") == "none"


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"evalId": ""}, id="no id"),
        pytest.param({"EvalSetID": "x"}, id="a key in another case"),
        pytest.param({"mine": 1}, id="an unknown key"),
        pytest.param({"creationTimestamp": None}, id="a null"),
        pytest.param({"evalMode": 3}, id="a wrong type"),
        pytest.param({"conversation": [None]}, id="a null turn"),
        pytest.param({"conversation": [{"references": []}]}, id="a field that holds turns again"),
    ],
)
def test_a_case_that_needs_a_closer_look_has_no_outline(changed: dict[str, Any]) -> None:
    assert lazy_case(line_of(make_case(**changed))) is None


@pytest.mark.parametrize("broken", [b"NaN", b'"\\ud800"', b'"\xff"', b"01", b"{", b"[" * 3000])
def test_broken_text_within_arguments_is_not_taken_for_a_case(broken: bytes) -> None:
    case = make_case(actualConversation=[{"tools": [{"name": "find", "arguments": "HERE"}]}])
    assert lazy_case(line_of(case).replace(b'"HERE"', broken)) is None


def test_a_case_with_fields_that_change_its_layout_is_scored_like_the_decoded_one() -> None:
    changes: list[dict[str, Any]] = [
        {"contextMessages": [{"role": "system", "content": "Be kind."}]},
        {"evalMode": ""},
        {"sessionInput": None},
        {"expectedRunnerEnabled": True},
        {"actualConversation": []},
        {"conversation": []},
    ]
    for changed in changes:
        given_fields = {**make_case(), **changed}
        line = line_of({key: value for key, value in given_fields.items() if value is not None})
        lazy = lazy_case(line)
        assert lazy is not None
        assert rows(SCORERS[0], lazy) == rows(SCORERS[0], read_case(line))


def test_a_number_beyond_a_double_is_an_error_of_the_metric_that_looks_at_it() -> None:
    def turn(value: str) -> dict[str, Any]:
        call = {"name": "find", "arguments": {"n": value}}
        return {"userContent": {"role": "user", "content": "Hi"}, "tools": [call]}

    case = make_case(actualConversation=[turn("HUGE")], conversation=[turn("1")])
    lazy = lazy_case(line_of(case).replace(b'"HUGE"', b"1e999"))
    assert lazy is not None
    calls, answer = SCORERS[0].score(lazy).metrics
    assert (calls.status, calls.score, calls.error_type) == ("error", None, "FormatError")
    assert answer.status == "passed"
