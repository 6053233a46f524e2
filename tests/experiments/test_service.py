"""The evaluation service beyond the rows: failures keep what was done, and everything is told first."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from evaltap.evaluator.scoring.contract.errors import UnknownEvaluatorError
from evaltap.experiments.service import (
    AgentCall,
    AgentEvaluator,
    Aggregated,
    CallbackCall,
    CallbackResult,
    Callbacks,
    InferenceRequest,
    LocalService,
    Options,
    RecordedAgent,
    ServiceError,
    UserSimulator,
    capture_turn,
    weighted_mean,
)
from evaltap.experiments.stores import NotFoundError, Stores, memory_stores
from evaltap.recorder.answering import TOOL_ANSWERS
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.formats.case import EvalCase, EvalSet, Invocation
from evaltap.schemas.formats.result import EvalCaseResult
from support.builders.cases import EXACT

TRAJECTORY = {
    "metricName": "tool_trajectory_avg_score",
    "threshold": 1,
    "criterion": {"toolTrajectory": {}},
}


def turn(said: str, answer: str = "", **more: Any) -> dict[str, Any]:
    made = {"invocationId": f"e-{said}", "userContent": {"role": "user", "content": said}, **more}
    return made | ({"finalResponse": {"role": "assistant", "content": answer}} if answer else {})


def case(name: str, *turns: dict[str, Any], **more: Any) -> dict[str, Any]:
    session = {"appName": "app", "userId": "u"}
    return {"evalId": name, "conversation": [*turns], "sessionInput": session} | more


def stored(*cases: dict[str, Any], metrics: Any = (EXACT,)) -> Stores:
    stores = memory_stores()
    stores.sets.create("app", "set")
    for one in cases:
        stores.sets.add_case("app", "set", one)
    for one in metrics:
        stores.metrics.add("app", "set", one)
    return stores


def echo(call: AgentCall) -> str:
    return call.text


async def echo_later(call: AgentCall) -> str:
    await asyncio.sleep(0)
    return call.text


def echo_events(call: AgentCall) -> Iterator[dict[str, Any]]:
    yield {"choices": [{"message": {"role": "assistant", "content": call.text}}], "done": True}


async def echo_stream(call: AgentCall) -> AsyncIterator[dict[str, Any]]:
    for event in echo_events(call):
        yield event


@pytest.mark.parametrize("agent", [echo, echo_later, echo_events, echo_stream])
def test_an_agent_may_be_sync_or_async_and_return_a_text_or_events(agent: Any) -> None:
    evaluator = AgentEvaluator("app", agent, stores=stored(case("c", turn("hi", "hi"))))

    found = evaluator.evaluate("set")

    assert found.overall_status == "passed"
    assert found.eval_cases[0].metric_results[0].score == 1


def test_evaluate_works_on_an_event_loop_only_when_awaited() -> None:
    evaluator = AgentEvaluator("app", echo, stores=stored(case("c", turn("hi", "hi"))))

    async def both() -> str:
        with pytest.raises(ConfigurationError, match="evaluate_async"):
            evaluator.evaluate("set")
        return (await evaluator.evaluate_async("set")).overall_status

    assert asyncio.run(both()) == "passed"


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"num_runs": 0}, ConfigurationError),
        ({"judge_samples": 0}, ConfigurationError),
        ({"parallel_evaluation": True, "parallelism": 0}, ConfigurationError),
        ({"stores": None}, ConfigurationError),
        ({"eval_case_ids": ["cc"]}, InputError),
    ],
)
def test_options_of_a_call_are_checked_before_the_agent_runs(
    options: dict[str, Any], error: type[Exception]
) -> None:
    asked: list[AgentCall] = []
    evaluator = AgentEvaluator("app", asked.append, stores=stored(case("c", turn("hi"))))

    with pytest.raises(error):
        evaluator.evaluate("set", **options)
    assert not asked


def test_an_unknown_metric_or_set_and_a_repeated_case_are_told_before_the_agent_runs() -> None:
    asked: list[AgentCall] = []
    stores = stored(case("c", turn("hi")), metrics=[{"metricName": "nobody"}])
    twice = [EvalCase(eval_id="c"), EvalCase(eval_id="c")]
    stores.sets.put("app", EvalSet(eval_set_id="twice", eval_cases=twice))

    with pytest.raises(UnknownEvaluatorError):
        AgentEvaluator("app", asked.append, stores=stores).evaluate("set")
    with pytest.raises(NotFoundError):
        AgentEvaluator("app", asked.append, stores=stores).evaluate("other")
    with pytest.raises(InputError, match="case 'c' occurs a second time"):
        AgentEvaluator("app", asked.append, stores=stores).evaluate("twice")
    assert not asked


def test_only_the_chosen_cases_run_and_all_of_them_without_metrics() -> None:
    stores = stored(case("a", turn("a", "a")), case("b", turn("b", "b")), metrics=())

    found = AgentEvaluator("app", echo, stores=stores).evaluate("set", eval_case_ids=["b"])

    assert [one.eval_id for one in found.eval_cases] == ["b"]
    assert found.overall_status == "not_evaluated"
    rows = found.eval_cases[0].eval_case_results[0].eval_metric_result_per_invocation
    assert rows[0].actual_invocation is not None


def test_a_failed_case_keeps_the_turns_that_ended_and_the_others_go_on() -> None:
    def agent(call: AgentCall) -> str:
        if call.text == "boom":
            raise ValueError("no")
        return call.text

    stores = stored(case("a", turn("hi", "hi"), turn("boom")), case("b", turn("b", "b")))
    found = AgentEvaluator("app", agent, stores=stores, run_details=True).evaluate("set")

    failed, passed = found.eval_cases
    assert (failed.overall_status, passed.overall_status) == ("failed", "passed")
    assert "ValueError: no" in failed.eval_case_results[0].error_message
    inference = failed.run_details[0].inference
    assert [one["userContent"]["content"] for one in inference["inferences"]] == ["hi"]


def test_a_callback_that_fails_at_a_set_saves_the_runs_before_it() -> None:
    seen: list[int] = []

    def second_time(call: CallbackCall) -> None:
        seen.append(1)
        if len(seen) == 2:
            raise ValueError("enough")

    callbacks = Callbacks()
    callbacks.add("stop", before_evaluate_set=second_time)
    stores = stored(case("c", turn("hi", "hi")))
    evaluator = AgentEvaluator("app", echo, stores=stores, callbacks=callbacks, num_runs=3)

    with pytest.raises(ServiceError, match=r"before_evaluate_set callback\[0\] \(stop\).*enough"):
        evaluator.evaluate("set")
    saved = stores.results.get("app", stores.results.list("app")[0])
    assert saved.summary is not None
    assert saved.summary.num_runs == 1


def test_callbacks_see_the_context_of_their_phase_and_replace_results() -> None:
    seen: list[tuple[str, Any]] = []

    def note(call: CallbackCall) -> None:
        seen.append((call.point, call.context))

    async def begin(call: CallbackCall) -> CallbackResult:
        return CallbackResult(context="phase")

    def replace_it(call: CallbackCall) -> CallbackResult:
        return CallbackResult(result=call.result.model_copy(update={"final_eval_status": "failed"}))

    callbacks = Callbacks()
    callbacks.add("begin", before_inference_set=begin)
    callbacks.add(
        "note",
        before_inference_case=note,
        after_inference_set=note,
        before_evaluate_set=note,
        after_evaluate_case=replace_it,
    )
    stores = stored(case("c", turn("hi", "hi")))
    found = AgentEvaluator("app", echo, stores=stores, callbacks=callbacks).evaluate("set")

    assert seen == [
        ("before_inference_case", "phase"),
        ("after_inference_set", "phase"),
        ("before_evaluate_set", None),
    ]
    assert found.overall_status == "failed"
    with pytest.raises(TypeError, match="no callback point 'before_all'"):
        callbacks.add("x", before_all=note)


def test_cases_run_at_once_and_keep_their_order() -> None:
    together = threading.Barrier(3, timeout=20)

    def agent(call: AgentCall) -> str:
        together.wait()
        return call.text

    cases = [case(name, turn(name, name)) for name in "cab"]
    evaluator = AgentEvaluator(
        "app", agent, stores=stored(*cases), parallel_inference=True, parallelism=3
    )

    found = evaluator.evaluate("set", parallel_evaluation=True)

    assert [one.eval_id for one in found.eval_cases] == ["c", "a", "b"]


def test_runs_happen_at_once_and_keep_their_order() -> None:
    together, sessions = threading.Barrier(2, timeout=20), iter(("first", "second"))
    later = threading.Event()

    def agent(call: AgentCall) -> str:
        together.wait()
        if call.session_id == "first":
            later.wait(20)
        return call.text

    stores = stored(case("c", turn("hi", "hi")))
    callbacks = Callbacks()
    callbacks.add("order", after_evaluate_set=lambda _: later.set())
    found = AgentEvaluator(
        "app",
        agent,
        stores=stores,
        num_runs=2,
        parallel_runs=True,
        run_details=True,
        callbacks=callbacks,
        session_id=lambda: next(sessions),
    )

    result = found.evaluate("set").eval_cases[0]

    assert [one.run_id for one in result.eval_case_results] == [1, 2]
    assert [one.run_id for one in result.run_details] == [1, 2], "the second ended first"


def test_declared_mocks_answer_the_tools_of_their_side_and_a_miss_fails_the_case() -> None:
    def agent(call: AgentCall) -> str:
        answers = TOOL_ANSWERS.get()
        assert answers is not None
        return str(answers.answer("weather", '{"city": "Oslo"}'))

    def mock(city: str, result: str) -> dict[str, Any]:
        return {"name": "weather", "arguments": {"expected": {"city": city}}, "result": result}

    mocks = {"actual": [mock("Oslo", "rain")], "expected": [mock("Oslo", "sun")]}
    missing = {"actual": [mock("Rome", "sun")]}
    stores = stored(
        case("differs", turn("w", toolMock=mocks), expectedRunnerEnabled=True),
        case("misses", turn("w", "rain", toolMock=missing)),
    )
    evaluator = AgentEvaluator("app", agent, stores=stores, expected_runner=agent)

    differs, misses = evaluator.evaluate("set").eval_cases

    row = differs.eval_case_results[0].eval_metric_result_per_invocation[0]
    assert row.actual_invocation is not None
    assert row.expected_invocation is not None
    assert row.actual_invocation.final_response is not None
    assert row.actual_invocation.final_response.content == "rain"
    assert row.expected_invocation.final_response is not None
    assert row.expected_invocation.final_response.content == "sun"
    assert "no mock has these arguments" in misses.eval_case_results[0].error_message


def test_a_model_stands_in_for_a_tool() -> None:
    asked: list[AgentCall] = []

    async def model(call: AgentCall) -> str:
        asked.append(call)
        return '{"degrees": 4}'

    def agent(call: AgentCall) -> str:
        answers = TOOL_ANSWERS.get()
        assert answers is not None
        result: Any = answers.answer("weather", {"city": "Oslo"})
        return str(result["degrees"])

    mocks = {"actual": [{"name": "weather", "llmGenerator": {"prompt": "Make up weather."}}]}
    stores = stored(case("c", turn("w", "4", toolMock=mocks)))
    found = AgentEvaluator("app", agent, stores=stores, tool_mock_runner=model).evaluate("set")

    assert found.overall_status == "passed"
    assert (asked[0].instruction, asked[0].text) == ("Make up weather.", '{"city": "Oslo"}')


def test_mocks_of_a_case_answer_in_its_turns_and_in_a_scenario() -> None:
    def agent(call: AgentCall) -> str:
        answers = TOOL_ANSWERS.get()
        assert answers is not None
        return str(answers.answer("weather", {}))

    mocks = {"actual": [{"name": "weather", "result": "sun"}]}
    own = {"actual": [{"name": "weather", "result": "rain"}]}
    plan = {"conversationPlan": "Ask.", "stopSignal": "#", "maxAllowedInvocations": 1}
    stores = stored(
        case("turns", turn("a", "rain", toolMock=own), turn("b", "sun"), toolMock=mocks),
        {"evalId": "plan", "conversationScenario": plan, "sessionInput": {}, "toolMock": mocks},
    )
    simulator = UserSimulator(lambda call: "weather?")

    found = AgentEvaluator("app", agent, stores=stores, simulator=simulator).evaluate("set")

    turns, plan_ = found.eval_cases
    assert turns.overall_status == "passed"
    row = plan_.eval_case_results[0].eval_metric_result_per_invocation[0]
    assert row.actual_invocation is not None
    assert row.actual_invocation.final_response is not None
    assert row.actual_invocation.final_response.content == "sun"


def test_a_runner_judges_in_place_of_the_judge_model() -> None:
    asked: list[AgentCall] = []

    def judge(call: AgentCall) -> str:
        asked.append(call)
        return "reasoning: fine\nis_the_agent_response_valid: valid"

    metric = {
        "metricName": "llm_final_response",
        "threshold": 1,
        "criterion": {"llmJudge": {"judgeModel": {"modelName": "other", "numSamples": 9}}},
    }
    stores = stored(case("c", turn("hi", "hi")), metrics=[metric])
    evaluator = AgentEvaluator("app", echo, stores=stores, judge_runner=judge, judge_samples=3)

    assert evaluator.evaluate("set").overall_status == "passed"
    assert len(asked) == 3
    assert len({one.session_id for one in asked}) == 3


def test_a_weighted_mean_of_full_scores_is_1() -> None:
    metrics = [EXACT | {"metricName": name, "evaluatorName": EXACT["metricName"]} for name in "abc"]
    stores = stored(case("c", turn("hi", "hi")), metrics=metrics)
    aggregator = weighted_mean(dict.fromkeys("abc", 0.1), 1.0)

    result = AgentEvaluator("app", echo, stores=stores, aggregator=aggregator).evaluate("set")

    assert result.overall_status == "passed"


def test_a_weight_that_is_none_is_refused() -> None:
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="the weight of m is"):
            weighted_mean({"m": weight}, 0.7)


def test_a_weighted_mean_that_equals_the_threshold_passes_a_case_with_a_failed_metric() -> None:
    stores = stored(case("c", turn("hi", "other")), metrics=(EXACT, TRAJECTORY))
    weights = {"final_response_avg_score": 0.1, "tool_trajectory_avg_score": 0.3}
    evaluator = AgentEvaluator("app", echo, stores=stores, aggregator=weighted_mean(weights, 0.75))

    result = evaluator.evaluate("set").eval_cases[0].eval_case_results[0]

    assert result.final_eval_status == "passed"
    assert result.score == 0.75


@pytest.mark.parametrize("answer", [(float("nan"), "passed"), (1.0, "fine")])
def test_an_aggregator_that_returns_nonsense_fails_its_case(answer: Any) -> None:
    def nonsense(given: Aggregated) -> tuple[float, str]:
        return answer  # type: ignore[no-any-return]  # what a user may return

    stores = stored(case("c", turn("hi", "hi")))
    found = AgentEvaluator("app", echo, stores=stores, aggregator=nonsense).evaluate("set")

    assert found.overall_status == "failed"
    assert "the aggregator returned" in found.eval_cases[0].eval_case_results[0].error_message


@pytest.mark.parametrize(
    ("replies", "limit", "ended_by"),
    [(["ok", "###"], 0, "stop_signal"), (["ok", "ok"], 2, "limit"), ([" "], 0, "simulator_error")],
)
def test_a_simulated_conversation_says_how_it_ended(
    replies: list[str], limit: int, ended_by: str
) -> None:
    said = iter(replies)
    scenario = {"conversationPlan": "Be kind.", "stopSignal": "###", "maxAllowedInvocations": limit}
    one = {"evalId": "c", "conversationScenario": scenario, "sessionInput": {}}
    simulator = UserSimulator(lambda call: next(said))
    options = Options(stores=stored(one), simulator=simulator)

    work = LocalService(echo).inference(InferenceRequest("app", "set"), options)

    assert asyncio.run(work)[0].ended_by == ended_by


def test_a_conversation_that_ends_at_once_evaluates_nothing() -> None:
    scenario = {"conversationPlan": "Leave.", "stopSignal": "###"}
    one = {"evalId": "c", "conversationScenario": scenario, "sessionInput": {}}
    stores = stored(one)
    evaluator = AgentEvaluator(
        "app", echo, stores=stores, simulator=UserSimulator(lambda call: "###")
    )

    found = evaluator.evaluate("set").eval_cases[0]

    assert found.overall_status == "not_evaluated"
    assert found.eval_case_results[0].overall_eval_metric_results[0].eval_status == "not_evaluated"
    assert not found.eval_case_results[0].error_message


def test_the_state_of_the_case_replaces_that_of_the_options_and_messages_follow_theirs() -> None:
    asked: list[AgentCall] = []
    system = {"role": "system", "content": "be brief"}
    stores = stored(
        case("a", turn("a"), contextMessages=[system]),
        case("b", turn("b"), sessionInput={"state": {"own": 1}}),
    )
    first = {"role": "system", "content": "be kind"}
    evaluator = AgentEvaluator(
        "app", asked.append, stores=stores, state={"given": 1}, context_messages=[first]
    )

    evaluator.evaluate("set")

    assert [one.state for one in asked] == [{"given": 1}, {"own": 1}]
    assert [[*one.context_messages] for one in asked] == [[first, system], [first]]


def test_the_result_is_written_as_the_peer_does() -> None:
    found = AgentEvaluator("app", echo, stores=stored(case("c", turn("hi", "hi")))).evaluate("set")

    data = found.data()

    assert list(data) == [
        "appName",
        "evalSetId",
        "overallStatus",
        "executionTime",
        "evalCases",
        "evalSetResult",
    ]
    assert isinstance(data["executionTime"], int)
    assert data["evalSetResult"]["summary"]["numRuns"] == 1


def test_parts_of_a_call_are_joined_and_its_whole_form_comes_once() -> None:
    def part(arguments: str, **more: Any) -> dict[str, Any]:
        call = {"id": "c", "function": {"name": "t", "arguments": arguments}}
        return {"choices": [{"delta": {"tool_calls": [call]}}], **more}

    user = {"role": "user", "content": "q"}
    parts = [part('{"a"', is_partial=True), part(":1}", is_partial=True)]

    joined = capture_turn(parts, user)
    whole = capture_turn([*parts, part('{"a":1}')], user)

    assert joined.turn["tools"] == [{"id": "c", "name": "t", "arguments": {"a": 1}}]
    assert whole.turn["tools"] == joined.turn["tools"]


def test_a_result_marked_as_done_is_no_final_response() -> None:
    call = {"id": "c", "function": {"name": "t"}}
    events: list[dict[str, Any]] = [
        {"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]},
        {"choices": [{"message": {"role": "tool", "tool_id": "c", "content": "1"}}], "done": True},
    ]

    found = capture_turn(events, {"role": "user", "content": "q"})

    assert found.turn["tools"][0]["result"] == 1
    assert "finalResponse" not in found.turn


def test_an_agent_of_evaltap_run_is_a_runner_and_its_tools_are_mocked() -> None:
    def weather(city: str) -> str:
        raise AssertionError("the tool must not run")

    def agent(messages: list[dict[str, Any]], turn: Any) -> str:
        found = turn.run_tool("weather", {"city": "Oslo"}, weather)
        return f"{len(messages)}: {found}"

    mocks = {"actual": [{"name": "weather", "result": "rain"}]}
    called = [{"name": "weather", "arguments": {"city": "Oslo"}, "result": "rain"}]
    first = turn("w", "1: rain", toolMock=mocks, tools=called)
    second = turn("again", "3: rain", toolMock=mocks, tools=called)
    stores = stored(case("c", first, second), metrics=(EXACT, TRAJECTORY))
    runner = RecordedAgent(agent)

    found = AgentEvaluator("app", runner, stores=stores).evaluate("set")

    runner.close()
    result = found.eval_cases[0].eval_case_results[0]
    assert result.final_eval_status == "passed", result
    assert [len(one.tools) for one in actual_turns(result)] == [1, 1]


def test_an_agent_that_takes_no_state_fails_a_case_with_one() -> None:
    runner = RecordedAgent(lambda messages: "x")
    stores = stored(case("c", turn("hi"), sessionInput={"state": {"a": 1}}))

    found = AgentEvaluator("app", runner, stores=stores).evaluate("set")

    runner.close()
    assert "takes no state" in found.eval_cases[0].eval_case_results[0].error_message


def actual_turns(result: EvalCaseResult) -> list[Invocation]:
    rows = result.eval_metric_result_per_invocation
    return [one.actual_invocation for one in rows if one.actual_invocation is not None]


def test_an_agent_that_hangs_fails_its_case() -> None:
    begun = threading.Event()

    def agent(call: AgentCall) -> str:
        begun.set()
        threading.Event().wait(60)
        return call.text

    stores = stored(case("c", turn("hi", "hi")))
    found = AgentEvaluator("app", agent, stores=stores, turn_seconds=0.05).evaluate("set")

    assert begun.is_set()
    assert "did not answer within 0.05 s" in found.eval_cases[0].eval_case_results[0].error_message


def test_a_simulated_user_may_be_any_agent_and_remembers_what_it_said() -> None:
    heard: list[list[str]] = []

    def user(messages: list[dict[str, str]]) -> str:
        heard.append([one["role"] for one in messages])
        return "DONE" if len(messages) > 3 else f"question {len(messages)}"

    plan = {"conversationPlan": "ask", "stopSignal": "DONE", "maxAllowedInvocations": 5}
    session = {"appName": "app", "userId": "u", "state": {"tier": "gold"}}
    one = case("c", conversationScenario=plan, sessionInput=session)
    stores = stored(one, metrics=())
    simulated = RecordedAgent(user)

    found = AgentEvaluator(
        "app", echo, stores=stores, simulator=UserSimulator(simulated), run_details=True
    ).evaluate("set")
    simulated.close()

    details = found.eval_cases[0].run_details[0].inference
    assert [one["userContent"]["content"] for one in details["inferences"]] == ["question 2"]
    assert details["endedBy"] == "stop_signal"
    assert heard == [["system", "user"], ["system", "user", "assistant", "user"]]


def test_a_result_is_saved_after_each_run_under_one_id() -> None:
    stores = stored(case("c", turn("a", "a")))
    seen: list[int] = []

    def look(call: CallbackCall) -> None:
        saved = stores.results.list("app")
        summaries = [stores.results.get("app", one).summary for one in saved]
        seen.append(sum(one.num_runs for one in summaries if one))
        assert call.request.run_id == len(seen)

    callbacks = Callbacks()
    callbacks.add("look", before_inference_set=look)

    AgentEvaluator("app", echo, stores=stores, callbacks=callbacks, num_runs=3).evaluate("set")

    assert seen == [0, 1, 2]
    assert len(stores.results.list("app")) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e400", "1e400"), ("NaN", "NaN"), ("{}{}", "{}{}"), ('["\\ud800"]', ["\ufffd"]), ("  ", {})],
)
def test_arguments_that_are_no_json_of_a_file_stay_texts(text: str, value: object) -> None:
    call = {"id": "c", "function": {"name": "t", "arguments": text}}
    events = [{"choices": [{"message": {"role": "assistant", "tool_calls": [call]}}]}]

    (tool,) = capture_turn(events, {"role": "user", "content": "q"}).turn["tools"]

    assert tool["arguments"] == value
