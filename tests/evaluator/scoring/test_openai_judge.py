"""The OpenAI client against a real local server: forms of answer, faults, and the destination of the key."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer, Services
from evaltap.evaluator.scoring.contract.judge import (
    Judge,
    JudgeError,
    JudgeInvalid,
    JudgeNotConfigured,
    JudgeRejected,
    JudgeRequest,
    JudgeUnavailable,
    ScriptedJudge,
)
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings, judge_settings
from evaltap.evaluator.scoring.judges.limits import Limiter
from evaltap.evaluator.scoring.judges.openai import OpenAIJudge
from evaltap.evaluator.scoring.judges.provider import EnvironmentJudges, JudgeChain, judge_from
from evaltap.evaluator.scoring.results.runs import start_run
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.store.database import Store
from evaltap.schemas import EvalMetric
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import GenerationConfig, JudgeModel, OtherJudge
from support.servers.judge_server import Answer, JudgeServer, judge_server

KEY = "sk-secret-0123456789"
REQUEST = JudgeRequest("Is it so?", "verdict", {"type": "object"})


@contextmanager
def judge_of(script: Any, **given: Any) -> Iterator[tuple[JudgeChain, JudgeServer]]:
    with judge_server(script) as server:
        judge = JudgeChain(JudgeSettings("m-1", server.url, KEY, **given), Limiter())
        try:
            yield judge, server
        finally:
            judge.close()


def test_an_answer_comes_with_model_tokens_and_latency() -> None:
    with judge_of(lambda body: Answer("yes")) as (judge, server):
        reply = judge.answer(REQUEST)

    assert (reply.text, reply.model) == ("yes", "served-model")
    assert (reply.input_tokens, reply.output_tokens) == (11, 7)
    assert reply.latency is not None
    assert reply.latency > timedelta(0)
    headers, body = server.requests[0]
    assert headers["authorization"] == f"Bearer {KEY}"
    assert body["model"] == "m-1"
    assert body["messages"] == [{"role": "user", "content": "Is it so?"}]
    assert (body["max_tokens"], body["temperature"]) == (2000, 0.0)
    assert body["response_format"]["json_schema"] == {
        "name": "verdict",
        "strict": True,
        "schema": {"type": "object"},
    }
    assert body.get("stream") is False


def test_a_given_generation_config_replaces_the_default_as_a_whole() -> None:
    generation = GenerationConfig(temperature=0.0, stop=["END"], stream=True, thinking_tokens=5)
    with judge_of(lambda body: Answer("yes"), extra_body={"seed": 7}) as (judge, server):
        judge.answer(JudgeRequest("q", generation=generation))

    body = server.requests[0][1]
    assert "max_tokens" not in body
    assert (body["temperature"], body["stop"], body["stream"]) == (0.0, ["END"], False)
    assert (body["seed"], body["thinking_tokens"]) == (7, 5)
    assert "response_format" not in body


def test_a_server_without_json_schema_is_asked_in_a_simpler_form_and_remembered() -> None:
    def old_server(body: dict[str, Any]) -> Answer:
        form = body.get("response_format", {"type": "text"})["type"]
        if form == "text":
            return Answer("plain")
        return Answer(f"{form} is not supported", status=400)

    with judge_of(old_server) as (judge, server):
        assert judge.answer(REQUEST).text == "plain"
        assert judge.answer(REQUEST).text == "plain"

    forms = [body.get("response_format", {}).get("type") for _, body in server.requests]
    assert forms == ["json_schema", "json_object", None, None]


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_key_is_said_without_the_key(status: int) -> None:
    with (
        judge_of(lambda body: Answer(f"bad key {KEY}", status=status)) as (judge, server),
        pytest.raises(JudgeRejected) as caught,
    ):
        judge.answer(REQUEST)

    assert str(status) in str(caught.value)
    assert KEY not in str(caught.value)
    assert KEY not in repr(judge)
    assert caught.value.__context__ is None
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 503])
def test_an_overloaded_server_is_unavailable_after_retries(status: int) -> None:
    with (
        judge_of(lambda body: Answer("later", status=status)) as (judge, server),
        pytest.raises(JudgeUnavailable, match=str(status)),
    ):
        judge.answer(REQUEST)

    assert len(server.requests) == 3


def test_a_passing_overload_is_survived() -> None:
    answers = iter([Answer("later", status=503), Answer("now")])
    with judge_of(lambda body: next(answers)) as (judge, _):
        assert judge.answer(REQUEST).text == "now"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(""),
        Answer(None),
        Answer(None, message={"refusal": "I must not"}),
        Answer(body=b"not json"),
        Answer(body=b"[]"),
        Answer(body=b"null"),
        Answer(body=b'{"choices": []}'),
        Answer(body=b'{"choices": null}'),
        Answer(body=b'{"choices": [{"message": null}]}'),
        Answer(body=b'{"choices": [{"message": {"content": 7}}]}'),
        Answer(body=b'{"choices": [{"message": {"content": [7, {"text": null}]}}]}'),
    ],
    ids=lambda answer: str(answer.body or answer.message or answer.text),
)
def test_an_answer_without_text_is_invalid(answer: Answer) -> None:
    with judge_of(lambda body: answer) as (judge, _), pytest.raises(JudgeInvalid):
        judge.answer(REQUEST)


def test_an_answer_in_parts_is_read_without_the_thoughts() -> None:
    thoughts = {"type": "thinking", "thinking": [{"type": "text", "text": "no"}]}
    reasoning = {"type": "reasoning", "text": "no"}
    parts = [thoughts, reasoning, {"type": "text", "text": "yes"}]
    with judge_of(lambda body: Answer(message={"content": parts})) as (judge, _):
        assert judge.answer(REQUEST).text == "yes"


@pytest.mark.parametrize(
    ("end", "reason"),
    [
        ("length", "raise max_tokens"),
        ("MAX_TOKENS", "raise max_tokens"),
        ("content_filter", "content filter"),
    ],
)
def test_an_answer_that_is_cut_off_is_no_verdict(end: str, reason: str) -> None:
    cut = Answer("reasoning: fine\nis_the_agent_response_valid: val", finish_reason=end)

    with (
        judge_of(lambda body: cut) as (judge, _),
        pytest.raises(JudgeInvalid, match=reason) as raised,
    ):
        judge.answer(REQUEST)

    assert raised.value.reply is not None
    assert raised.value.reply.output_tokens == 7


def test_a_server_that_is_not_there_is_unavailable() -> None:
    with judge_server(lambda body: Answer("yes")) as server:
        url = server.url
    judge = OpenAIJudge(JudgeSettings("m-1", url, KEY))

    with pytest.raises(JudgeUnavailable, match="cannot be reached"):
        judge.answer(REQUEST)

    judge.close()


@pytest.mark.slow
def test_a_slow_server_is_unavailable_after_the_timeout() -> None:
    import threading

    release = threading.Event()

    def slow(body: dict[str, Any]) -> Answer:
        release.wait(10)
        return Answer("late")

    with judge_of(slow, timeout=timedelta(seconds=0.05)) as (judge, _):
        with pytest.raises(JudgeUnavailable, match=r"within 0\.05 s"):
            judge.answer(REQUEST)
        release.set()


# -- which judge -----------------------------------------------------------------------------------


def named(model_name: str = "m", **given: str) -> JudgeModel:
    return JudgeModel.model_validate({"modelName": model_name, **given})


@pytest.mark.parametrize(
    ("model", "environ"),
    [
        (None, {}),
        (JudgeModel(), {"EVALTAP_JUDGE_BASE_URL": "http://j"}),
        (JudgeModel(model_name="m"), {}),
        (named("$MODEL", baseURL="http://j"), {}),
        (named(baseURL="${URL}"), {"URL": ""}),
        (named(apiKey="$OWN_API_KEY"), {}),
    ],
)
def test_without_model_or_address_and_key_no_judge_is_configured(
    model: JudgeModel | None, environ: dict[str, str]
) -> None:
    with pytest.raises(JudgeNotConfigured, match="judge not configured"):
        judge_from(model, environ)


def test_the_environment_goes_before_the_metric() -> None:
    own = named("own", baseURL="http://own", apiKey="${OWN_API_KEY}")
    environ = {
        "OWN_API_KEY": "own-key",
        "EVALTAP_JUDGE_MODEL": "other",
        "EVALTAP_JUDGE_BASE_URL": "http://other",
        "EVALTAP_JUDGE_TIMEOUT": "2.5",
    }

    settings = judge_settings(own, environ)

    assert (settings.model, settings.base_url) == ("other", "http://other")
    assert settings.api_key == "own-key"
    assert settings.timeout == timedelta(seconds=2.5)


def test_a_key_alone_means_the_address_of_openai() -> None:
    assert judge_settings(named(apiKey="k"), {}).base_url == "https://api.openai.com/v1"


GEMINI = "generativelanguage.googleapis.com"


@pytest.mark.parametrize(
    ("environ", "announced"),
    [
        ({"EVALTAP_JUDGE_PROVIDER": "auto", "OPENAI_API_KEY": "o", "GOOGLE_API_KEY": "g"},
         f"asks gemini-2.5-flash at {GEMINI} (key: GOOGLE_API_KEY)"),
        ({"EVALTAP_JUDGE_PROVIDER": "auto", "ANTHROPIC_API_KEY": "a", "EVALTAP_JUDGE_MODEL": "claude-x"},
         "asks claude-x at api.anthropic.com (key: ANTHROPIC_API_KEY)"),
        ({"EVAL_JUDGE_PROVIDER": "OpenAI", "OPENAI_API_KEY": "o"},
         "asks gpt-4o-mini at api.openai.com (key: OPENAI_API_KEY)"),
        ({"EVAL_JUDGE_PROVIDER": "gemini", "EVAL_JUDGE_MODEL": "gemini-x", "GEMINI_API_KEY": "g"},
         f"asks gemini-x at {GEMINI} (key: GEMINI_API_KEY)"),
        ({"EVALTAP_JUDGE_PROVIDER": "openai", "EVAL_JUDGE_PROVIDER": "gemini", "OPENAI_API_KEY": "o"},
         "asks gpt-4o-mini at api.openai.com (key: OPENAI_API_KEY)"),
    ],
)  # fmt: skip
def test_the_environment_chooses_a_provider_and_its_key_goes_nowhere_else(
    environ: dict[str, str], announced: str
) -> None:
    assert judge_settings(None, environ).announcement == announced


@pytest.mark.parametrize(
    ("model", "provider", "found"),
    [
        (named("gpt-x"), "openai", "gpt-x"),
        (named("gpt-x"), "anthropic", "claude-haiku-4-5"),
        (named("claude-x", providerName="anthropic"), "anthropic", "claude-x"),
        (named("claude-x", providerName="anthropic"), "openai", "gpt-4o-mini"),
        (OtherJudge(model_name="gpt-x"), "anthropic", "gpt-x"),
        (OtherJudge(), "anthropic", "claude-haiku-4-5"),
    ],
)
def test_a_model_is_not_asked_of_another_provider(
    model: JudgeModel, provider: str, found: str
) -> None:
    keys = {"OPENAI_API_KEY": "o", "ANTHROPIC_API_KEY": "a"}

    assert judge_settings(model, {"EVALTAP_JUDGE_PROVIDER": provider, **keys}).model == found


def test_the_first_key_is_only_looked_for_when_asked_and_must_exist() -> None:
    with pytest.raises(JudgeNotConfigured, match="no model"):
        judge_settings(None, {"OPENAI_API_KEY": "o"})
    with pytest.raises(
        JudgeNotConfigured, match=r"no key is set \(GEMINI_API_KEY, GOOGLE_API_KEY, OPENAI"
    ):
        judge_settings(None, {"EVALTAP_JUDGE_PROVIDER": "auto"})


def test_a_misspelt_provider_gets_a_suggestion() -> None:
    with pytest.raises(JudgeNotConfigured, match=r"'antropic' has no .* did you mean 'anthropic'"):
        judge_settings(named(providerName="antropic", apiKey="k"), {})


def test_another_provider_needs_its_address() -> None:
    model = named(providerName="else", apiKey="k")

    with pytest.raises(JudgeNotConfigured, match="provider 'else'"):
        judge_settings(model, {})


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan", "inf"])
def test_a_timeout_that_makes_no_sense_is_a_configuration_error(text: str) -> None:
    environ = {"EVALTAP_JUDGE_TIMEOUT": text}

    with pytest.raises(ConfigurationError, match="EVALTAP_JUDGE_TIMEOUT"):
        judge_settings(named(baseURL="http://j"), environ)


def test_settings_do_not_show_the_key() -> None:
    settings = JudgeSettings("m", "http://j", KEY)

    assert KEY not in repr(settings)


def test_the_environment_judges_share_one_client_for_one_setting() -> None:
    environ = {"EVALTAP_JUDGE_BASE_URL": "http://127.0.0.1:9/v1"}
    judges = EnvironmentJudges(environ)

    one = judges(JudgeModel(model_name="m"))
    environ["EVALTAP_JUDGE_API_KEY"] = KEY

    assert judges(JudgeModel(model_name="m", num_samples=3)) is not one
    del environ["EVALTAP_JUDGE_API_KEY"]
    assert judges(JudgeModel(model_name="m")) is one
    judges.close()


# -- the twin in memory ----------------------------------------------------------------------------


def test_a_scripted_judge_answers_in_order_and_keeps_the_requests() -> None:
    judge = ScriptedJudge(["one", JudgeUnavailable("gone")])

    assert judge.answer(REQUEST).text == "one"
    with pytest.raises(JudgeUnavailable, match="gone"):
        judge.answer(REQUEST)
    with pytest.raises(JudgeError, match="script ended after 2 replies"):
        judge.answer(REQUEST)
    assert judge.requests == [REQUEST] * 3


def test_a_scripted_judge_may_be_a_function() -> None:
    judge = ScriptedJudge(lambda request: request.prompt.upper())

    assert judge.answer(REQUEST).text == "IS IT SO?"


def test_both_judges_keep_the_protocol() -> None:
    assert isinstance(ScriptedJudge([]), Judge)
    with judge_of(lambda body: Answer("yes")) as (judge, _):
        assert isinstance(judge, Judge)


def judged(own: dict[str, str], **environ: str) -> CaseScorer:
    """Return the scorer of one judged metric, whose judge may be named by the environment."""
    rubrics = [{"id": "1", "content": {"text": "polite"}}]
    criterion = {"llmJudge": {"rubrics": rubrics, "judgeModel": own}}
    metric = EvalMetric.model_validate(
        {"metricName": "llm_rubric_response", "threshold": 1, "criterion": criterion}
    )
    judges = EnvironmentJudges({"EVALTAP_JUDGE_API_KEY": "k", **environ})
    return CaseScorer([metric], services=Services(judge=judges))


def test_a_metric_judged_by_another_model_of_the_environment_is_another_version() -> None:
    def version(own: dict[str, str], **environ: str) -> str:
        (found,) = run_metrics(judged(own, **environ))
        return found.digest

    small, large = (
        version({}, EVALTAP_JUDGE_MODEL="small"),
        version({}, EVALTAP_JUDGE_MODEL="large"),
    )
    assert len({small, large, version({})}) == 3
    assert small == version({}, EVALTAP_JUDGE_MODEL="small", EVALTAP_JUDGE_TIMEOUT="9")
    own = {"modelName": "own"}
    assert version(own) == version(own, EVALTAP_JUDGE_MODEL="own")
    assert version(own) != version(own, EVALTAP_JUDGE_MODEL="large")


def test_without_a_judge_a_metric_is_its_last_version_in_the_store() -> None:
    scored = [run_metrics(judged({}, EVALTAP_JUDGE_MODEL=model))[0] for model in ("small", "large")]
    with Store(":memory:") as store:
        for one in (*scored, run_metrics(judged({}, EVALTAP_JUDGE_MODEL="medium"))[0]):
            start_run(store, "landed", "x", [one])
            if one in scored:  # nothing was scored under the last
                row = ("id", "run", "app", "set", "case", 1, "m", 1.0, "passed", 1.0, None, "e", "1",
                       one.digest, 1, store.now())  # fmt: skip
                store.append("scores", [row])

        (here,) = run_metrics(judged({}), store=store)
        (other,) = run_metrics(judged({"variant": "openai"}), store=store)

    assert here.digest == scored[-1].digest
    assert other.digest == run_metrics(judged({"variant": "openai"}))[0].digest
