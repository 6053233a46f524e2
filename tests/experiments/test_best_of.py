"""Best of N: several attempts at a turn, of which the best goes on."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.contract.judge import (
    JudgeRequest,
    ScriptedJudge,
    TokenChoice,
    token_text,
)
from evaltap.evaluator.scoring.evaluators.judged.verifier import LETTERS, pairwise
from evaltap.experiments.service import (
    AgentCall,
    AgentEvaluator,
    BestOf,
    Chosen,
    NoBestError,
    RecordedAgent,
)
from evaltap.experiments.stores import memory_stores
from evaltap.schemas.errors import ConfigurationError

KEYWORDS = {
    "metricName": "keyword_coverage",
    "threshold": 1,
    "criterion": {"keywords": {"values": ["red", "green"]}},
}
SHORT = {
    "metricName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "short", "type": "length", "max": 12}]}},
}
VERIFIER = {
    "metricName": "llm_verifier_pairwise",
    "threshold": 0.5,
    "criterion": {"llmJudge": {"rubrics": [{"id": "1", "content": {"text": "It is long."}}]}},
}


def saying(*answers: Any) -> Callable[[AgentCall], str]:
    """Return an agent whose attempts say these, one after the other; an exception is raised."""
    left = [*answers]

    def agent(call: AgentCall) -> str:
        said = left.pop(0)
        if isinstance(said, Exception):
            raise said
        return str(said)

    return agent


def by_length(request: JudgeRequest) -> str:
    """A judge that gives longer answers the better letters."""
    _, a, b = request.prompt.split("begin answer ")
    letters = [LETTERS[max(0, 19 - len(one.split(">>>\n")[1].split("\n<<<")[0]))] for one in (a, b)]
    parts = ("<score_A>", letters[0], "<score_B>", letters[1])
    return token_text([TokenChoice(one, 0.0)] for one in parts)


def best(agent: Any, *metrics: Any, **options: Any) -> tuple[str, Chosen]:
    chosen: list[Chosen] = []
    runner = BestOf(agent, metrics, report=chosen.append, **options)
    turn = asyncio.run(runner(AgentCall("u", "s", {"role": "user", "content": "colours?"})))
    return turn["finalResponse"]["content"], chosen[0]


def verified(agent: Any, attempts: int) -> tuple[str, Chosen, int]:
    judge = ScriptedJudge(by_length)
    services = Services(judge=lambda _: judge)
    registry = Registry({"llm_verifier_pairwise": pairwise})
    said, chosen = best(
        agent, VERIFIER, attempts=attempts, compare="pairwise", services=services, registry=registry
    )
    return said, chosen, len(judge.requests)


@pytest.mark.parametrize(
    ("answers", "metrics", "wins"),
    [
        (("red", "red green", "green"), (KEYWORDS,), 1),
        (("red", "green"), (KEYWORDS,), 0),
        (("red green and more", "red"), (KEYWORDS, SHORT), 1),
        ((ValueError("no"), "blue"), (KEYWORDS,), 1),
    ],
)
def test_the_highest_mean_wins_and_of_equal_ones_the_first(
    answers: tuple[Any, ...], metrics: tuple[Any, ...], wins: int
) -> None:
    said, chosen = best(saying(*answers), *metrics, attempts=len(answers))

    assert (said, chosen.place) == (answers[wins], wins)


def test_of_equal_means_one_that_passed_wins() -> None:
    half = {**KEYWORDS, "metricName": "half", "evaluatorName": "keyword_coverage", "threshold": 0.5}
    none = {
        **SHORT, "metricName": "none", "evaluatorName": "rule_avg_score", "threshold": 0.5,
        "criterion": {"rules": {"rules": [{"id": "b", "type": "contains", "values": ["blue"]},
                                          {"id": "l", "type": "length", "max": 99}]}},
    }  # fmt: skip

    _, chosen = best(saying("x blue", "red"), half, none)

    assert [rating and rating[0] for rating in chosen.ratings] == [0.5, 0.5]
    assert chosen.place == 1


def test_the_winner_must_pass_even_if_another_has_a_higher_mean() -> None:
    lax = {**KEYWORDS, "threshold": 0}
    again = {**lax, "metricName": "again", "evaluatorName": "keyword_coverage"}
    answers = ("red green and more", "blue")

    usual, _ = best(saying(*answers), lax, again, SHORT)
    said, chosen = best(saying(*answers), lax, again, SHORT, must_pass=True)

    assert (usual, said) == answers
    assert [rating and rating[1] for rating in chosen.ratings] == [0.0, 1.0]


def test_all_pairs_are_compared_and_the_most_wins_count() -> None:
    said, chosen, asked = verified(saying("aaa", "aaaaaaaa", "a"), 3)

    assert (said, asked) == ("aaaaaaaa", 3)
    assert [rating and rating[0] for rating in chosen.ratings] == [1, 2, 0]


def test_a_failed_attempt_loses_without_a_question() -> None:
    said, chosen, asked = verified(saying(ValueError("no"), "a"), 2)

    assert (said, asked) == ("a", 0)
    assert chosen.ratings == [(0.0, -0.5), (1.0, 0.5)]


@pytest.mark.parametrize(
    ("answers", "options", "why"),
    [
        ((ValueError("broken"), ValueError("too")), {}, "all attempts failed: ValueError: broken"),
        (("red", "green"), {"must_pass": True}, "no attempt passed"),
    ],
)
def test_a_turn_without_a_best_attempt_fails(
    answers: tuple[Any, ...], options: dict[str, Any], why: str
) -> None:
    with pytest.raises(NoBestError, match=why):
        best(saying(*answers), KEYWORDS, **options)


def test_without_any_score_there_is_no_best() -> None:
    judge = ScriptedJudge(lambda _: "no probabilities")
    services = Services(judge=lambda _: judge)
    registry = Registry({"llm_verifier_pairwise": pairwise})

    with pytest.raises(NoBestError, match="no two attempts were compared"):
        best(saying("a", "b"), VERIFIER, compare="pairwise", services=services, registry=registry)


@pytest.mark.parametrize("options", [{"attempts": 0}, {"compare": "best"}])
def test_wrong_options_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        BestOf(saying(), [KEYWORDS], **options)


@pytest.mark.parametrize("parallel", [False, True])
def test_a_conversation_goes_on_with_the_best_attempt(parallel: bool) -> None:
    def agent(messages: list[dict[str, Any]]) -> str:
        heard = " | ".join(one["content"] for one in messages)
        asked.append(heard)
        return "red green" if len(asked) % 2 == 0 else "red"

    asked: list[str] = []
    turns = [{"userContent": {"role": "user", "content": text}} for text in ("one", "two")]
    stores = memory_stores()
    stores.sets.create("app", "set")
    stores.sets.add_case("app", "set", {"evalId": "c", "conversation": turns, "sessionInput": {}})
    stores.metrics.add("app", "set", KEYWORDS)
    recorded = RecordedAgent(agent)

    runner = BestOf(recorded, [KEYWORDS], parallel=parallel)
    found = AgentEvaluator("app", runner, stores=stores).evaluate("set")
    recorded.close()

    assert found.overall_status == "passed"
    assert asked == ["one", "one", *["one | red green | two"] * 2]
