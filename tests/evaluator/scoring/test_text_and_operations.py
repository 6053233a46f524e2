"""Lexical similarity, keywords, bounds on cost, time and tokens, and requirements on tools."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import JaroWinkler, Levenshtein

from evaltap.evaluator import CaseScorer, MetricOutcome, Registry
from evaltap.evaluator.scoring.criteria.content.lexical import MEASURES, dice
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_tool, make_turn

REGISTRY = Registry()


def outcome(
    name: str,
    criterion: dict[str, Any],
    *turns: dict[str, Any],
    expected: str | None = None,
    **case: Any,
) -> MetricOutcome:
    """Score turns; `expected` is the final response that was expected of each."""
    key = {"lexical_similarity": "lexical", "keyword_coverage": "keywords", "tool_use": "toolUse",
           "compression_ratio": "compression"}  # fmt: skip
    metric = EvalMetric.model_validate(
        {
            "metricName": name,
            "threshold": 1.0,
            "criterion": {key.get(name, "operations"): criterion},
        }
    )
    made = make_case(turns=turns, **case)
    if expected is not None:
        made["conversation"] = [make_turn(f"e-{place}", expected) for place in range(len(turns))]
    return CaseScorer([metric], registry=REGISTRY).score(made).metrics[0]


# -- lexical ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "one", "other", "score"),
    [
        ("dice", "night", "nacht", 2 / 8),
        ("dice", "aaaa", "aa", 2 / 4),
        ("dice", "a", "b", 0),
        ("levenshtein", "kitten", "sitting", 1 - 3 / 7),
        ("jaro_winkler", "martha", "marhta", 0.961111),
        ("jaro_winkler", "abc", "xyz", 0),
    ],
)
def test_known_values(algorithm: str, one: str, other: str, score: float) -> None:
    measure = MEASURES[algorithm]

    assert measure(one, other) == pytest.approx(score, abs=1e-6)


@pytest.mark.parametrize(
    ("algorithm", "oracle"),
    [
        ("levenshtein", Levenshtein.normalized_similarity),
        ("jaro_winkler", JaroWinkler.similarity),
    ],
)
@given(data=st.data())
def test_similarities_are_those_of_rapidfuzz(
    algorithm: str, oracle: Callable[[str, str], float], data: st.DataObject
) -> None:
    # Few letters, so that texts have much in common; more than one machine word of them.
    texts = st.text("abé😀", max_size=150)
    one, other = data.draw(texts), data.draw(texts)
    measure = MEASURES[algorithm]

    assert measure(one, other) == pytest.approx(oracle(one, other))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["dice", "levenshtein", "jaro_winkler"])
@given(one=st.text(max_size=12), other=st.text(max_size=12))
def test_likeness_is_symmetric_bounded_and_1_for_equal_texts(
    algorithm: str, one: str, other: str
) -> None:
    measure = MEASURES[algorithm]

    assert measure(one, one) == 1
    assert 0 <= measure(one, other) <= 1
    assert measure(one, other) == pytest.approx(measure(other, one))


def levenshtein(one: str, other: str) -> int:
    """The distance by its recursive definition, row by row."""
    row: list[int] = [*range(len(other) + 1)]
    for place, letter in enumerate(one, start=1):
        above = row
        row = [place]
        for column, found in enumerate(other):
            row.append(min(above[column + 1] + 1, row[-1] + 1, above[column] + (letter != found)))
    return row[-1]


@given(st.text("ab", max_size=8), st.text("ab", max_size=8))
def test_levenshtein_is_one_minus_the_distance_over_the_longer_text(one: str, other: str) -> None:
    measure = MEASURES["levenshtein"]

    longer = max(len(one), len(other))
    assert measure(one, other) == pytest.approx(
        1 - levenshtein(one, other) / longer if longer else 1
    )
    assert measure("abcde", "a") == 1 / 5, "a threshold of 0.2 is reached"


def test_responses_are_compared_without_regard_to_case_and_space() -> None:
    turn = make_turn(answer="  It  is HERE\n")

    assert outcome("lexical_similarity", {}, turn, expected="it is here").score == 1
    strict = {"caseSensitive": True, "keepSpace": True}
    assert (outcome("lexical_similarity", strict, turn, expected="it is here").score or 0) < 1
    other = outcome(
        "lexical_similarity", {"algorithm": "levenshtein"}, turn, expected="it is there"
    )
    assert other.score == pytest.approx(1 - 1 / 11)
    assert other.reason == "levenshtein 0.909"
    composed, decomposed = "caf\u00e9", make_turn(answer="cafe\u0301")
    assert outcome("lexical_similarity", {}, decomposed, expected=composed).score == 1


def test_likeness_misses_negation_which_the_page_warns_of() -> None:
    assert dice("the order was shipped", "the order was not shipped") > 0.8


def test_both_texts_must_be_there() -> None:
    turn = make_turn(answer="a", capture={"finalResponse": "truncated"})

    assert outcome("lexical_similarity", {}, turn, expected="a").reason == (
        "evidence missing: finalResponse is truncated"
    )
    assert outcome("lexical_similarity", {}, make_turn(answer="a")).reason == (
        "evidence missing: expected finalResponse is absent"
    )


# -- keywords --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("criterion", "answer", "score"),
    [
        ({"values": ["refund", "30 days"]}, "A Refund takes 30  days.", 1),
        ({"values": ["refund", "30 days"]}, "Refunds take 30 days.", 1 / 2),
        ({"values": ["refund"], "partial": True}, "Refunds take 30 days.", 1),
        ({"values": ["Refund"], "caseSensitive": True}, "refund", 0),
        ({"values": ["30 days"], "keepSpace": True}, "30  days", 0),
        ({"values": ["C++", "C"]}, "I know C++.", 1),
        ({"values": ["C++"]}, "I know C.", 0),
        ({"values": ["a", "A ", "b"]}, "a", 1 / 2),
        ({"values": ["订单"], "partial": True}, "您的订单已发货", 1),
        ({"values": ["订单", "30", "Python"]}, "您的订单在30天内用Pythons处理", 2 / 3),
        ({"values": ["양"]}, "고양이", 0),
        ({"values": ["a", "b", "c", "d", "e"]}, "a", 1 / 5),
        ({"values": ["caf\u00e9"]}, "Das Cafe\u0301", 1),
        ({"values": ["don't"]}, "I don\u2019t.", 1),
        ({"values": ["दि", "दिन"]}, "अच्छा दिन।", 1 / 2),
    ],
)
def test_keywords_of_the_metric(criterion: dict[str, Any], answer: str, score: float) -> None:
    assert outcome("keyword_coverage", criterion, make_turn(answer=answer)).score == score


def test_keywords_of_the_reference_are_its_longer_words() -> None:
    turn = make_turn(answer="It was shipped yesterday")
    by_reference = {"source": "reference"}

    found = outcome("keyword_coverage", by_reference, turn, expected="shipped on Monday, shipped")
    assert (found.score, found.reason) == (1 / 2, "missing: 'Monday'")
    shorter = by_reference | {"minLength": 2}
    assert outcome("keyword_coverage", shorter, turn, expected="on Monday").score == 0
    assert outcome("keyword_coverage", by_reference, turn).reason.endswith("there are no keywords")


@pytest.mark.parametrize("keywords", ["blue, Monday", ["blue", "Monday"]])
def test_keywords_of_the_case(keywords: object) -> None:
    session = {"appName": "a", "userId": "u", "state": {"want": {"keywords": keywords}}}
    criterion = {"source": "context", "path": "$.sessionInput.state.want.keywords"}

    found = outcome(
        "keyword_coverage", criterion, make_turn(answer="A blue one."), sessionInput=session
    )
    assert (found.score, found.reason) == (1 / 2, "missing: 'Monday'")
    absent = outcome("keyword_coverage", criterion, make_turn(answer="A blue one."))
    assert absent.status == "not_evaluated"
    assert "keywords of the case: key 'state' not found" in absent.reason


# -- operations ------------------------------------------------------------------------------------


def telemetry(**given: Any) -> dict[str, Any]:
    return make_turn(telemetry=given)


def test_cost_is_bounded_by_turn_or_by_case() -> None:
    turns = telemetry(costUsd=0.01), telemetry(costUsd=0.03)

    by_turn = outcome("cost_within", {"maxCostUsd": 0.02}, *turns)
    assert (by_turn.score, by_turn.turns[1].reason) == (0.5, "cost 0.03 USD, at most 0.02 USD")
    assert outcome("cost_within", {"maxCostUsd": 0.04, "wholeCase": True}, *turns).score == 1
    whole = outcome("cost_within", {"maxCostUsd": 0.035, "wholeCase": True}, *turns)
    assert (whole.score, len(whole.turns)) == (0, 2)
    rounded = outcome(
        "cost_within", {"maxCostUsd": 0.3, "wholeCase": True}, *[telemetry(costUsd=0.1)] * 3
    )
    assert rounded.score == 1


def test_a_cost_that_was_not_recorded_is_not_free() -> None:
    unknown = outcome("cost_within", {"maxCostUsd": 1.0}, make_turn())
    assert (unknown.status, unknown.reason) == (
        "not_evaluated",
        "evidence missing: cost was not recorded",
    )
    partly = {"maxCostUsd": 1.0, "wholeCase": True}
    assert outcome("cost_within", partly, make_turn(), telemetry(costUsd=0.5)).score is None
    assert outcome("cost_within", partly, make_turn(), telemetry(costUsd=1.5)).score == 0
    assert outcome("cost_within", {"maxCostUsd": 0.0}, telemetry(costUsd=0.0)).score == 1


@pytest.mark.parametrize(
    ("name", "limits"),
    [
        ("cost_within", {"maxCostUsd": 1.0}),
        ("completed_within", {"maxSeconds": 1.0}),
        ("tokens_within", {"maxTokens": 10}),
        ("tokens_within", {"maxOutputTokens": 10}),
    ],
)
def test_an_amount_below_0_was_not_recorded(name: str, limits: dict[str, Any]) -> None:
    turn = telemetry(costUsd=-1.0, latencyMs=-1.0, inputTokens=5, outputTokens=-1)

    assert outcome(name, limits, turn).status == "not_evaluated"


def test_completed_in_time() -> None:
    limit = {"maxSeconds": 2.0}

    assert outcome("completed_within", limit, telemetry(latencyMs=2000.0, status="ok")).score == 1
    assert outcome("completed_within", limit, telemetry(latencyMs=2001.0)).score == 0
    broken = outcome("completed_within", limit, telemetry(latencyMs=1.0, status="incomplete"))
    assert (broken.score, broken.reason) == (0, "the run did not end; it did not complete")
    assert outcome("completed_within", limit, make_turn()).status == "not_evaluated"


def test_tokens() -> None:
    turn = telemetry(inputTokens=100, outputTokens=50)

    assert outcome("tokens_within", {"maxTokens": 150}, turn).score == 1
    found = outcome("tokens_within", {"maxTokens": 149, "maxOutputTokens": 10}, turn)
    assert found.reason == "tokens 150, at most 149; output tokens 50, at most 10"
    half = telemetry(inputTokens=100)
    assert outcome("tokens_within", {"maxInputTokens": 100}, half).score == 1
    assert outcome("tokens_within", {"maxTokens": 500}, half).status == "not_evaluated"
    exceeded = outcome("tokens_within", {"maxTokens": 500, "maxInputTokens": 99}, half)
    assert (exceeded.score, exceeded.reason) == (0, "input tokens 100, at most 99")


# -- tool use --------------------------------------------------------------------------------------


def test_wishes_about_tools_share_the_score() -> None:
    tools = [
        make_tool("search", arguments={"q": "x", "page": 1}),
        make_tool("search", arguments={"q": "y"}),
        make_tool("pay", arguments={"amount": 5}, error={"type": "E", "message": "no"}),
        make_tool("note"),
    ]
    turn = make_turn(tools=tools)
    wishes = [
        {"name": "search", "arguments": {"q": "y"}, "maxCalls": 2},
        {"name": "pay"},
        {"name": "refund", "optional": True, "arguments": {"amount": 1}},
    ]

    found = outcome("tool_use", {"tools": wishes, "noOthers": True}, turn)

    assert [(row.id, row.score) for row in found.turns[0].rubric_scores] == [
        ("search", 1), ("pay", 0), ("refund", 1), ("no others", 0)
    ]  # fmt: skip
    assert found.score == 2 / 4
    assert found.reason == "pay: 0 calls, at least 1; no others: note"
    assert outcome("tool_use", {"tools": [{"name": "pay"}], "attempts": "all"}, turn).score == 1


def test_arguments_must_hold_in_as_many_calls_as_are_required() -> None:
    tools = [make_tool("s", arguments={"a": 1, "b": 1}), make_tool("s", arguments={"a": 1, "b": 2})]
    wish = {"name": "s", "arguments": {"a": 1, "b": 1}}

    assert outcome("tool_use", {"tools": [wish]}, make_turn(tools=tools)).score == 1
    optional = {"tools": [wish | {"optional": True}]}
    assert outcome("tool_use", optional, make_turn(tools=tools)).score == 1 / 2
    twice = {"tools": [wish | {"minCalls": 2}]}
    assert outcome("tool_use", twice, make_turn(tools=tools)).score == 1 / 2
    few = {"tools": [{"name": "s", "maxCalls": 1}]}
    assert outcome("tool_use", few, make_turn(tools=tools)).reason == "s: 2 calls, at most 1"


def amount_is_even(arguments: dict[str, Any]) -> bool | str:
    return arguments["amount"] % 2 == 0 or f"{arguments['amount']} is odd"


@pytest.mark.parametrize(
    ("wish", "score", "reason"),
    [
        ({"arguments": {"id": r"^A-\d+$"}, "paths": [{"path": "id", "match": "regex"}]}, 1, ""),
        ({"arguments": {"id": r"^B-\d+$"}, "paths": [{"path": "id", "match": "regex"}]}, 0,
         "pay: other arguments than wanted"),
        ({"arguments": {"amount": 6}, "paths": [{"path": "amount", "tolerance": 1.0}]}, 1, ""),
        ({"function": f"{__name__}:amount_is_even"}, 0, "pay: 5 is odd"),
    ],
)  # fmt: skip
def test_arguments_are_compared_by_paths_and_functions(
    wish: dict[str, Any], score: float, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules[amount_is_even.__module__])
    turn = make_turn(tools=[make_tool("pay", arguments={"id": "A-7", "amount": 5})])

    found = outcome("tool_use", {"tools": [{"name": "pay", **wish}]}, turn)

    assert (found.score, found.reason) == (score, reason)


def test_a_function_that_fails_is_an_error_of_the_turn() -> None:
    turn = make_turn(tools=[make_tool("pay", arguments={})])

    found = outcome("tool_use", {"tools": [{"name": "pay", "function": "operator:neg"}]}, turn)

    assert found.turns[0].status == "error"
    assert found.reason.startswith("function 'operator:neg' failed: TypeError")


@pytest.mark.parametrize(
    ("said", "answer", "score", "value"),
    [
        ("one two three four", "one, two", 1, 0.5),
        ("one two three four", "one two three", 0, 0.75),
        ("订单已经发货", "已发货", 1, 0.5),
        ("...", "hm", None, None),
    ],
)
def test_an_answer_is_short_beside_the_message(
    said: str, answer: str, score: float | None, value: float | None
) -> None:
    turn = make_turn(answer=answer, userContent={"role": "user", "content": said})

    found = outcome("compression_ratio", {"max": 0.5}, turn)

    assert (found.score, found.turns[0].value) == (score, value)
    assert (found.reason == "") == (score == 1)


# -- other texts than the final response -----------------------------------------------------------

DRAFT = make_turn(
    answer="short",
    tools=[make_tool(result={"draft": "the whole story"})],
    state={"brief": "the whole story"},
)
STATE = {"appName": "app", "userId": "u", "state": {"truth": "the whole story"}}


@pytest.mark.parametrize(
    ("name", "criterion"),
    [
        ("lexical_similarity", {"target": "$.tools[0].result.draft",
                                "reference": "$.sessionInput.state.truth"}),
        ("lexical_similarity", {"target": "$.state.brief", "reference": "$.finalResponse.content"}),
        ("keyword_coverage", {"target": "$.tools[0].result", "values": ["story", "draft"]}),
    ],
)  # fmt: skip
def test_a_path_in_turn_or_case_names_the_text(name: str, criterion: dict[str, Any]) -> None:
    found = outcome(name, criterion, DRAFT, expected="the whole story", sessionInput=STATE)

    assert found.score == 1


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (make_turn(tools=[]), "$.tools[0].result: index 0 is out of range; the array has 0"),
        (make_turn(tools=[make_tool("q", capture={"result": "redacted"})]), "result of tool q is redacted"),
        (make_turn(tools=[], capture={"tools": "missing"}), "tools is missing"),
    ],
)  # fmt: skip
def test_a_text_that_is_not_there_has_no_score(turn: dict[str, Any], said: str) -> None:
    found = outcome("keyword_coverage", {"target": "$.tools[0].result", "values": ["a"]}, turn)

    assert (found.score, found.reason) == (None, f"evidence missing: {said}")
