"""Google ADK eval sets: files written by evaltap are read by ADK's own models, and back without loss."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic.alias_generators import to_camel

from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import adk
from evaltap.schemas.files.documents import read_eval_set, read_result
from evaltap.schemas.formats.case import EvalSet, SessionInput
from support.builders.cases import make_case, make_tool, make_turn

ADK_SET: dict[str, Any] = {
    "eval_set_id": "s",
    "name": "S",
    "eval_cases": [
        {
            "eval_id": "c",
            "conversation": [
                {
                    "invocation_id": "i-1",
                    "user_content": {"parts": [{"text": "Where is A-100?"}], "role": "user"},
                    "final_response": {
                        "parts": [{"text": "On its "}, {"text": "way."}],
                        "role": "model",
                    },
                    "intermediate_data": {
                        "tool_uses": [
                            {"id": "1", "name": "get_order", "args": {"order_id": "A-100"}},
                            {"name": "ping", "args": {}},
                        ],
                        "tool_responses": [
                            {"name": "ping", "response": {"result": "pong"}},
                            {"id": "1", "name": "get_order", "response": {"status": "shipped"}},
                        ],
                        "intermediate_responses": [["helper", [{"text": "Looking."}]]],
                    },
                    "creation_timestamp": 12.5,
                }
            ],
            "session_input": {"app_name": "app", "user_id": "u", "state": {"k": 1}},
            "final_session_state": {"done": True},
        }
    ],
    "creation_timestamp": 1.5,
}


def test_an_adk_set_becomes_expected_turns() -> None:
    (case,) = adk.from_adk(ADK_SET).eval_cases

    turn = case.conversation[0]
    assert turn is not None
    assert turn.user_content is not None
    assert turn.final_response is not None
    assert (turn.user_content.content, turn.final_response.content) == (
        "Where is A-100?",
        "On its way.",
    )
    assert [(tool.name, tool.arguments, tool.result) for tool in turn.tools if tool] == [
        ("get_order", {"order_id": "A-100"}, {"status": "shipped"}),
        ("ping", {}, {"result": "pong"}),
    ]
    assert [message.content for message in turn.intermediate_responses] == ["Looking."]
    assert case.session_input is not None
    assert case.session_input.state == {"k": 1}


def test_what_has_no_counterpart_survives_the_way_there_and_back() -> None:
    back = adk.to_adk(adk.from_adk(ADK_SET))

    assert back["eval_cases"][0]["final_session_state"] == {"done": True}
    assert adk.from_adk(back) == adk.from_adk(ADK_SET)


def test_camel_case_keys_and_event_lists_are_read() -> None:
    events = [
        {
            "author": "a",
            "content": {"parts": [{"functionCall": {"id": "1", "name": "t", "args": {}}}]},
        },
        {
            "author": "a",
            "content": {
                "parts": [{"functionResponse": {"id": "1", "name": "t", "response": {"x": 1}}}]
            },
        },
        {"author": "a", "content": {"parts": [{"text": "thinking aloud"}]}},
    ]
    turn = {
        "invocationId": "i",
        "userContent": {"parts": [{"text": "q"}]},
        "intermediateData": {"invocationEvents": events},
    }

    (case,) = adk.from_adk(
        {"eval_set_id": "s", "eval_cases": [{"evalId": "c", "conversation": [turn]}]}
    ).eval_cases

    read = case.conversation[0]
    assert read is not None
    assert [(tool.id, tool.result) for tool in read.tools if tool] == [("1", {"x": 1})]
    assert read.intermediate_responses[0].content == "thinking aloud"


def test_the_last_response_to_a_call_is_its_result() -> None:
    """A tool that waits for a confirmation first answers that it does, and later with its result."""
    call = {"function_call": {"id": "c1", "name": "pay", "args": {}}}
    told = [
        {"function_response": {"id": "c1", "name": "pay", "response": {"status": status}}}
        for status in ("waiting", "paid")
    ]
    events = [{"author": "a", "content": {"parts": [part]}} for part in (call, *told)]
    turn = {
        "user_content": {"parts": [{"text": "Pay"}]},
        "intermediate_data": {"invocation_events": events},
    }
    given = {
        "eval_set_id": "s",
        "eval_cases": [{"eval_id": "c", "conversation": [turn]}],
    }

    (case,) = adk.from_adk(given).eval_cases

    read = case.conversation[0]
    assert read is not None
    assert [tool.result for tool in read.tools if tool] == [{"status": "paid"}]


def test_thoughts_of_a_model_are_no_answer() -> None:
    thought, said = {"text": "They ask for 7.", "thought": True}, {"text": "42"}
    turn = {
        "user_content": {"parts": [{"text": "6 x 7?"}]},
        "final_response": {"parts": [thought, said]},
        "intermediate_data": {"invocation_events": [{"content": {"parts": [thought]}}]},
    }
    given = {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation": [turn]}]}

    (case,) = adk.from_adk(given).eval_cases

    read = case.conversation[0]
    assert read is not None
    assert read.final_response is not None
    assert (read.final_response.content, read.intermediate_responses) == ("42", [])
    (back,) = adk.to_adk(adk.from_adk(given))["eval_cases"][0]["conversation"]
    assert back["final_response"]["parts"] == [thought, said]


def test_a_set_in_the_camel_case_of_adk_is_the_same_set(tmp_path: Path) -> None:
    eval_set_module = pytest.importorskip("google.adk.evaluation.eval_set")
    theirs = eval_set_module.EvalSet.model_validate(ADK_SET)
    snake, camel = tmp_path / "snake.json", tmp_path / "camel.json"
    snake.write_text(theirs.model_dump_json(exclude_none=True))
    camel.write_text(theirs.model_dump_json(exclude_none=True, by_alias=True))

    (case,), (same,) = read_eval_set(camel).eval_cases, read_eval_set(snake).eval_cases

    assert case.conversation[0] is not None
    assert [tool.name for tool in case.conversation[0].tools if tool] == ["get_order", "ping"]
    assert (case.conversation, case.session_input) == (same.conversation, same.session_input)


def test_adk_itself_reads_what_we_write() -> None:
    eval_set_module = pytest.importorskip("google.adk.evaluation.eval_set")
    turn = make_turn(tools=[make_tool(result="shipped"), make_tool(error={"message": "down"})])
    ours = EvalSet.model_validate(
        {"evalSetId": "s", "evalCases": [make_case(turns=[turn], creationTimestamp=3)]}
    )

    theirs = eval_set_module.EvalSet.model_validate(adk.to_adk(ours))

    invocation = theirs.eval_cases[0].conversation[0]
    assert invocation.user_content.parts[0].text == "Where is order A-100?"
    assert invocation.intermediate_data.tool_uses[0].args == {"order_id": "A-100"}
    assert [r.response for r in invocation.intermediate_data.tool_responses] == [
        {"result": "shipped"},
        {"error": "down"},
    ]
    assert (
        adk.from_adk(theirs.model_dump(mode="json", exclude_none=True)).eval_cases[0].eval_id
        == "s-1"
    )


def test_the_expected_state_after_the_last_turn_is_the_final_session_state() -> None:
    turns = [make_turn(), make_turn("2", state={"rolls": [3]})]
    case = {"evalId": "c", "conversation": turns}

    written = adk.to_adk(EvalSet.model_validate({"evalSetId": "s", "evalCases": [case]}))

    assert written["eval_cases"][0]["final_session_state"] == {"rolls": [3]}
    (back,) = adk.from_adk(written).eval_cases
    assert [turn.state for turn in back.conversation if turn] == [{}, {"rolls": [3]}]


def test_a_plan_for_a_simulated_user_is_written_as_adk_has_it() -> None:
    plan = {"startingPrompt": "Hi", "conversationPlan": "Ask for a refund."}
    case = {"evalId": "c", "conversationScenario": plan}

    written = adk.to_adk(EvalSet.model_validate({"evalSetId": "s", "evalCases": [case]}))

    (found,) = written["eval_cases"]
    assert "conversation" not in found
    assert found["conversation_scenario"] == {
        "starting_prompt": "Hi",
        "conversation_plan": "Ask for a refund.",
    }


def test_a_plan_for_a_simulated_user_is_read_with_the_ends_of_adks_conversations() -> None:
    plan = {"starting_prompt": "Hi", "conversation_plan": "Ask.", "user_persona": {"id": "NOVICE"}}
    given = {"eval_set_id": "s", "eval_cases": [{"eval_id": "c", "conversation_scenario": plan}]}

    read = adk.from_adk(given)

    scenario = read.eval_cases[0].conversation_scenario
    assert scenario is not None
    assert (scenario.starting_prompt, scenario.conversation_plan) == ("Hi", "Ask.")
    assert (scenario.stop_signal, scenario.max_allowed_invocations) == ("</finished>", 20)
    assert adk.to_adk(read)["eval_cases"][0]["conversation_scenario"] == plan


def test_a_wrong_place_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"eval_set_id": "s", "eval_cases": [{"eval_id": 3}]}))

    with pytest.raises(FormatError, match="expected a string"):
        read_eval_set(path)


@pytest.mark.parametrize(
    ("part", "wrong"),
    [
        ("user_content", {"parts": 3}),
        ("intermediate_data", {"tool_uses": [3]}),
        ("intermediate_data", {"intermediate_responses": [["helper"]]}),
        ("intermediate_data", {"invocation_events": [{"content": []}, "x"]}),
    ],
)
def test_a_part_of_another_type_is_named_by_its_turn(
    tmp_path: Path, part: str, wrong: object
) -> None:
    path = tmp_path / "s.evalset.json"
    (case,) = ADK_SET["eval_cases"]
    turn = {**case["conversation"][0], part: wrong}
    path.write_text(json.dumps({**ADK_SET, "eval_cases": [{**case, "conversation": [turn]}]}))

    with pytest.raises(FormatError, match="a turn of Google ADK") as error:
        read_eval_set(path)

    assert error.value.place == "eval_cases[0].conversation[0]"


def in_camel_case(value: Any) -> Any:
    if isinstance(value, dict):
        return {to_camel(key): in_camel_case(one) for key, one in value.items()}
    return [*map(in_camel_case, value)] if isinstance(value, list) else value


@pytest.mark.parametrize("spell", [lambda data: data, in_camel_case], ids=["snake", "camel"])
def test_recorded_turns_and_context_are_read_from_the_form_of_trpc_agent_python(
    spell: Callable[[Any], Any],
) -> None:
    """Its trace mode needs no session, and its messages are lists of parts."""

    def turn(said: str, city: str) -> dict[str, Any]:
        return {
            "user_content": {"role": "user", "parts": [{"text": "Weather?"}]},
            "final_response": {"role": "model", "parts": [{"text": said}]},
            "intermediate_data": {"tool_uses": [{"name": "look", "args": {"city": city}}]},
        }

    case = {
        "eval_id": "c",
        "eval_mode": "trace",
        "context_messages": [{"role": "model", "parts": [{"text": "Hi"}]}],
        "conversation": [turn("Fine.", "Rom")],
        "actual_conversation": [turn("Rain.", "Bonn")],
    }
    given = spell({"eval_set_id": "s", "eval_cases": [case]})

    assert adk.is_adk_eval_set(given)
    (read,) = adk.from_adk(given).eval_cases

    assert (read.eval_mode, read.session_input) == ("trace", SessionInput())
    for turns, said, city in (
        (read.conversation, "Fine.", "Rom"), (read.actual_conversation, "Rain.", "Bonn"),
    ):  # fmt: skip
        (one,) = turns
        assert one is not None
        assert one.final_response is not None
        assert one.final_response.content == said
        assert [tool.arguments for tool in one.tools if tool] == [{"city": city}]
    assert [(one.role, one.content) for one in read.context_messages if one] == [
        ("assistant", "Hi")
    ]


def test_results_of_adk_have_their_runs_statuses_and_turns(tmp_path: Path) -> None:
    pytest.importorskip("google.adk.evaluation.eval_result")
    from google.adk.evaluation.eval_case import Invocation
    from google.adk.evaluation.eval_metrics import EvalMetricResult, EvalMetricResultPerInvocation
    from google.adk.evaluation.eval_result import EvalCaseResult
    from google.adk.evaluation.evaluator import EvalStatus
    from google.adk.evaluation.local_eval_set_results_manager import LocalEvalSetResultsManager

    turn = Invocation.model_validate(ADK_SET["eval_cases"][0]["conversation"][0])

    def result(status: EvalStatus, score: float | None) -> EvalCaseResult:
        metric = EvalMetricResult(metric_name="m", threshold=0.5, score=score, eval_status=status)
        pair = EvalMetricResultPerInvocation(actual_invocation=turn, eval_metric_results=[metric])
        return EvalCaseResult(
            eval_id="c",
            final_eval_status=status,
            overall_eval_metric_results=[metric],
            eval_metric_result_per_invocation=[pair],
            session_id="s-1",
        )

    runs = [
        result(EvalStatus.PASSED, 1.0),
        result(EvalStatus.FAILED, 0.0),
        result(EvalStatus.NOT_EVALUATED, None),
    ]
    LocalEvalSetResultsManager(str(tmp_path)).save_eval_set_result("app", "set", runs)
    (path,) = tmp_path.rglob("*.evalset_result.json")

    read = read_result(path)

    assert read.eval_set_id == "set"
    assert [
        (one.eval_id, one.run_id, one.overall_eval_metric_results[0].eval_status)
        for one in read.eval_case_results
    ] == [("c", 1, "passed"), ("c", 2, "failed"), ("c", 3, "not_evaluated")]
    actual = read.eval_case_results[0].eval_metric_result_per_invocation[0].actual_invocation
    assert actual is not None
    assert [tool.name for tool in actual.tools if tool] == ["get_order", "ping"]
