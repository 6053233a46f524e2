"""What judges cost: bounds, prices, retries, panels."""

from dataclasses import replace

import pytest

from evaltap.evaluator.scoring.contract.judge import (
    BudgetSpentError,
    JudgeInvalid,
    JudgeReply,
    JudgeRequest,
    ScriptedJudge,
)
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.judge_session import JudgeSettings as SessionSettings
from evaltap.evaluator.scoring.judges.budget import Budget, BudgetedJudge, BudgetLimits
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.evaluator.scoring.judges.limits import Limiter
from evaltap.evaluator.scoring.judges.prices import pricing_of
from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges, JudgeChain, PricedJudge
from evaltap.evaluator.scoring.judges.settings import judge_prices
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import (
    EvalMetric,
    GenerationConfig,
    JudgeModel,
    JudgePrices,
    OtherJudge,
)
from support.builders.cases import RUBRIC
from support.builders.judge_requests import PRICED, REQUEST, SETTINGS
from support.servers.judge_server import Answer, judge_server


def test_a_question_without_a_bound_on_its_answer_cannot_be_budgeted() -> None:
    unbounded = JudgeRequest("q", generation=GenerationConfig())
    bounded = replace(SETTINGS, extra_body={"max_completion_tokens": 10})
    limits = BudgetLimits(tokens=10**9)

    with pytest.raises(BudgetSpentError, match="max_tokens"):
        BudgetedJudge(ScriptedJudge(["y"]), Budget(limits), SETTINGS).answer(unbounded)
    BudgetedJudge(ScriptedJudge(["y"]), Budget(limits), bounded).answer(unbounded)


def test_a_budget_in_usd_needs_prices() -> None:
    chain = JudgeChain(SETTINGS, Limiter(), budget=Budget(BudgetLimits(usd=1.0)))

    with pytest.raises(ConfigurationError, match="those of m-1 at judge are unknown"):
        chain.check()
    JudgeChain(SETTINGS, Limiter(), budget=Budget(BudgetLimits(tokens=1))).check()


def test_prices_are_those_given_else_those_of_the_one_who_bills() -> None:
    listed = JudgeSettings("gpt-4o-mini", "https://api.openai.com/v1", "k")
    at_home = replace(listed, base_url="http://localhost:8000/v1")

    given, known = pricing_of(PRICED), pricing_of(listed)

    assert given is not None
    assert given(1000, 100) == pytest.approx(0.0012)
    assert known is not None
    assert known(1000, 200) > 0
    assert pricing_of(at_home) is None
    assert pricing_of(replace(listed, model="no-such-model-1")) is None


def test_an_answer_with_a_price_and_tokens_has_a_cost_and_any_other_has_none() -> None:
    replies = [JudgeReply("y", "m", 1000, 100), JudgeReply("y", "m", None, 100)]
    judge = PricedJudge(ScriptedJudge(replies), pricing_of(PRICED))

    assert judge.answer(REQUEST).cost_usd == pytest.approx(0.0012)
    assert judge.answer(REQUEST).cost_usd is None
    assert PricedJudge(ScriptedJudge(replies), None).answer(REQUEST).cost_usd is None


@pytest.mark.parametrize("end", ["length", "content_filter", "stop"])
def test_an_answer_that_is_cut_off_or_empty_has_a_cost_too(end: str) -> None:
    answer = Answer("" if end == "stop" else "half of it", finish_reason=end)
    with judge_server(lambda _: answer) as server:
        priced = replace(PRICED, base_url=server.url)
        with pytest.raises(JudgeInvalid) as caught:
            JudgeChain(priced, Limiter()).answer(REQUEST)

    assert caught.value.reply is not None
    assert caught.value.reply.cost_usd


def test_prices_of_the_environment_come_in_twos() -> None:
    environ = {"EVALTAP_JUDGE_PRICE_INPUT": "0.15", "EVALTAP_JUDGE_PRICE_OUTPUT": "0.6"}
    own = JudgeModel(prices=JudgePrices(input_per_million=1, output_per_million=1))

    assert judge_prices(JudgeModel(), environ) == JudgePrices(
        input_per_million=0.15, output_per_million=0.6
    )
    assert judge_prices(own, environ) == own.prices
    assert judge_prices(JudgeModel(), {}) is None
    for broken in (
        {"EVALTAP_JUDGE_PRICE_INPUT": "1"},
        {**environ, "EVALTAP_JUDGE_PRICE_INPUT": "x"},
    ):
        with pytest.raises(ConfigurationError, match="expected both"):
            judge_prices(JudgeModel(), broken)


def test_a_retry_goes_through_limits_and_budget_again() -> None:
    answers = iter([Answer("later", status=503), Answer("7")])
    budget = Budget(BudgetLimits(calls=2))
    with judge_server(lambda body: next(answers)) as server:
        chain = JudgeChain(replace(SETTINGS, base_url=server.url), Limiter(), budget=budget)

        assert chain.answer(REQUEST).text == "7"
        chain.close()

    assert budget.spent.calls == 2
    with pytest.raises(BudgetSpentError):
        chain.answer(REQUEST)
    assert len(server.requests) == 2


def test_scorers_of_one_session_share_its_judges_and_their_limits() -> None:
    with JudgeSession(SessionSettings("off")) as session:
        first, second = (session.services([EvalMetric.model_validate(RUBRIC)]) for _ in range(2))
        assert first is not None
        assert second is not None

        assert first.judge is second.judge


def test_a_session_that_begins_again_continues_with_its_budget(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", "k")
    metric = EvalMetric.model_validate(RUBRIC)
    session = JudgeSession(SessionSettings("off", BudgetLimits(calls=2)))
    with judge_server(lambda body: Answer("7")) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        refused = []
        for _ in range(3):
            with session:
                services = session.services([metric])
                assert services is not None
                assert services.judge is not None
                try:
                    services.judge(JudgeModel(model_name="m-1")).answer(REQUEST)
                except BudgetSpentError:
                    refused.append(len(server.requests))

    assert refused == [2]


def test_samples_are_sent_seeds_of_their_own() -> None:
    with judge_server(lambda body: Answer("7")) as server:
        chain = JudgeChain(replace(SETTINGS, base_url=server.url), Limiter())
        for sample in range(3):
            chain.answer(JudgeRequest("q", generation=GenerationConfig(seed=40), sample=sample))
        chain.answer(JudgeRequest("q"))
        chain.close()

    assert [body.get("seed") for _, body in server.requests] == [40, 41, 42, None]


def test_what_a_member_of_a_panel_says_itself_goes_before_the_environment() -> None:
    environ = {
        "EVALTAP_JUDGE_MODEL": "everywhere",
        "EVALTAP_JUDGE_BASE_URL": "http://env/v1",
        "EVALTAP_JUDGE_API_KEY": "k",
    }
    judges = EnvironmentJudges(environ)

    assert "everywhere" in repr(judges(JudgeModel(model_name="own")))
    assert "own at env" in repr(judges(OtherJudge(model_name="own")))
