"""`llm_verifier_pairwise`: the probabilities of a judge's letters, not only the letter that it said."""

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.contract.judge import (
    Judge,
    JudgeInvalid,
    JudgeRequest,
    ScriptedJudge,
    TokenChoice,
    token_text,
)
from evaltap.evaluator.scoring.evaluators.judged.verifier import pairwise, read_letters
from evaltap.evaluator.scoring.judges.cache import JudgeCache
from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.schemas.files.documents import metrics_of
from support.servers.judge_server import Answer, judge_server

METRIC = {
    "metricName": "llm_verifier_pairwise",
    "threshold": 0.5,
    "criterion": {"llmJudge": {"rubrics": [{"id": "1", "content": {"text": "It is short."}}]}},
}


def token(text: str, *others: tuple[str, float], logprob: float = 0.0) -> list[TokenChoice]:
    return [TokenChoice(text, logprob), *(TokenChoice(*one) for one in others)]


def answer(*tokens: list[TokenChoice]) -> str:
    return token_text(tokens)


def plain(a: str, b: str) -> str:
    return answer(
        token("<score_A>"), token(a), token("</score_A>\n<score_B>"), token(b), token("</score_B>")
    )


@pytest.mark.parametrize(
    ("a", "b", "score"),
    [("A", "T", 1.0), ("T", "A", 0.0), ("C", "C", 0.5), ("A", "B", 0.5 + 1 / 38)],
)
def test_the_score_is_above_a_half_if_the_answer_has_the_better_letter(
    a: str, b: str, score: float
) -> None:
    assert read_letters(plain(a, b)).score == pytest.approx(score)


def test_a_letter_counts_once_by_its_most_probable_token() -> None:
    # The letter that was said is listed again, rounded, and in other spellings.
    said = token("B", ("B", -0.1001), (" b", -3.0), ("T", -2.0), ("t", -9.0), logprob=-0.1)

    found = read_letters(answer(token("<score_A>"), said, token("<score_B>"), token("A")))

    b, t = math.exp(-0.1), math.exp(-2.0)
    assert found.rubric_scores[0].score == pytest.approx(b * 18 / 19 / (b + t))


def test_letters_count_by_their_probabilities_and_what_is_no_letter_does_not() -> None:
    half, quarter = math.log(0.5), math.log(0.25)
    found = read_letters(
        answer(
            token("<score_A>"),
            token("A", ("T", quarter), ("Z", half), ("a", quarter), ("AB", half), logprob=half),
            token("<score_B>"),
            token("T"),
        )
    )

    assert found.rubric_scores[0].score == pytest.approx((0.5 * 1 + 0.25 * 0) / 0.75)
    assert found.score == pytest.approx(0.5 + (2 / 3) / 2)


@pytest.mark.parametrize(
    "tokens",
    [
        [token("<score_A>"), token(" "), token("A"), token("<score_B>T")],
        [token("I think <score"), token("_A>A", ("_A>T", -50.0)), token("</score_A><score_B>"),
         token(" T")],
        [token("first <score_A>T, no: "), token("<score_A"), token(">A", (" A", -9.0)),
         token("\n<score_B>\n"), token("T")],
    ],
)  # fmt: skip
def test_a_letter_may_share_its_token_and_the_last_tag_counts(
    tokens: Sequence[list[TokenChoice]],
) -> None:
    assert read_letters(answer(*tokens)).score == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("<score_A>A</score_A><score_B>B</score_B>", "no probabilities of tokens"),
        ('{"tokens": [[["<score_A>A", null]]]}', "no probabilities of tokens"),
        (answer(token("<score_A>A"), token("<score"), token("_C>B")), "<score_B> is missing"),
        (answer(token("<score_A>"), token("great"), token("<score_B>T")), "no letter from A to T"),
        (answer(token("<score_B>T"), token("<score_A>")), "no letter from A to T"),
    ],
)
def test_an_answer_without_probabilities_tag_or_letter_is_no_verdict(text: str, why: str) -> None:
    with pytest.raises(JudgeInvalid, match=why):
        read_letters(text)


def scored(judge: Judge, **more: Any) -> CaseScore:
    turn = {"invocationId": "1", "userContent": {"role": "user", "content": "hi"}}
    case = {
        "evalId": "c", "evalMode": "trace", "sessionInput": {},
        "actualConversation": [turn | {"finalResponse": {"role": "assistant", "content": "short"}}],
        "conversation": [turn | {"finalResponse": {"role": "assistant", "content": "long"}}],
        **more,
    }  # fmt: skip
    scorer = CaseScorer(
        metrics_of([METRIC]),
        services=Services(judge=lambda _: judge),
        registry=Registry({"llm_verifier_pairwise": pairwise}),
    )
    return scorer.score(case)


def test_the_judge_sees_both_answers_and_the_criteria() -> None:
    judge = ScriptedJudge(lambda _: plain("A", "C"))

    found = scored(judge)

    (request,) = judge.requests
    assert request.tokens
    for part in ("short", "long", "1: It is short."):
        assert part in request.prompt
    assert found.status.value == "passed"
    assert found.metrics[0].score == pytest.approx(0.5 + 1 / 19)


def test_without_an_expected_answer_nothing_is_compared() -> None:
    judge = ScriptedJudge(lambda _: plain("A", "A"))

    found = scored(judge, conversation=[])

    assert found.metrics[0].score is None
    assert judge.requests == []


@pytest.mark.slow
def test_an_endpoint_is_asked_for_probabilities_and_its_answer_is_cached(tmp_path: Any) -> None:
    def said(text: str, *others: tuple[str, float]) -> dict[str, Any]:
        top = [{"token": one, "logprob": log} for one, log in others]
        return {"token": text, "logprob": -0.1, "top_logprobs": top}

    content = [
        said("<score_A>"), said("B", ("B", -0.1), ("A", -2.5)), said("</score_A><score_B>"),
        said("B", ("B", -0.1), ("C", float("-inf"))),
    ]  # fmt: skip
    body = {
        "model": "m",
        "choices": [{"message": {"content": "<score_A>B"}, "logprobs": {"content": content}}],
    }

    with judge_server(lambda _: Answer(body=json.dumps(body).encode())) as server:
        cache = JudgeCache(tmp_path / "cache.db")
        environ = {"EVALTAP_JUDGE_MODEL": "m", "EVALTAP_JUDGE_BASE_URL": server.url}
        judge = EnvironmentJudges(environ, cache=cache)(None)
        first, again = scored(judge), scored(judge)
        judge.close()
        cache.close()

    assert len(server.requests) == 1
    sent = server.requests[0][1]
    assert (sent["logprobs"], sent["top_logprobs"]) == (True, 20)
    assert first.metrics[0].score == again.metrics[0].score
    assert first.metrics[0].score is not None
    assert first.metrics[0].score > 0.5


def test_a_judge_that_ignores_the_wish_leaves_an_error_and_no_score() -> None:
    def says(request: JudgeRequest) -> str:
        return "<score_A>A</score_A><score_B>A</score_B>"

    found = scored(ScriptedJudge(says))

    assert found.metrics[0].score is None
    assert "logprobs" in found.metrics[0].reason
