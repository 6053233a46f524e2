"""Rows with objects for texts, as MLflow, LangSmith, Langfuse, agentevals and ragas have them."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator import CaseScorer
from evaltap.evaluator.cases.datasets.cases import dataset_cases
from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.schemas import EvalMetric
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import warn_once
from support.builders.datasets import converted, turns

PARTS = [{"role": "assistant", "content": [{"type": "text", "text": "here"}]}]
MESSAGES = [{"role": "user", "content": "Where?"}]


@pytest.mark.parametrize(
    ("row", "columns", "answer"),
    [
        (
            {"datasetName": "d", "input": {"messages": MESSAGES}, "expectedOutput": "here"},
            {},
            "here",
        ),
        (
            {"datasetName": "d", "input": {"messages": MESSAGES}, "expectedOutput": {"is": "here"}},
            {"expected": "expectedOutput.is"},
            "here",
        ),
        (
            {"datasetName": "d", "input": {"q": "Where?"}, "expectedOutput": {"is": "here"}},
            {"input": "input.q", "expected": "expectedOutput.is"},
            "here",
        ),
        ({"inputs": {"messages": MESSAGES}, "outputs": {"is": "here"}}, {}, "here"),
        (
            {"inputs": {"messages": MESSAGES}, "outputs": {"is": "here", "why": "so"}},
            {"expected": "outputs.is"},
            "here",
        ),
        ({"inputs": {"messages": MESSAGES}, "outputs": None}, {}, None),
        ({"inputs": {"messages": MESSAGES}, "outputs": {"messages": PARTS}}, {}, "here"),
    ],
)
def test_what_langfuse_and_langsmith_expect_in_other_shapes_is_kept(
    tmp_path: Path, row: dict[str, Any], columns: dict[str, str], answer: str | None
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row]))

    (case,) = dataset_cases([path], Columns(columns))

    (turn,) = case["conversation"]
    assert turn["userContent"]["content"] == "Where?"
    assert (turn.get("finalResponse") or {}).get("content") == answer


@pytest.mark.parametrize(
    "row",
    [
        {"inputs": {"messages": MESSAGES, "tier": 1}, "outputs": {"messages": PARTS, "score": 2}},
        {"datasetName": "d", "input": {"messages": MESSAGES, "tier": 1},
         "expectedOutput": {"content": "here", "score": 2}},
    ],
)  # fmt: skip
def test_what_stands_beside_the_messages_is_in_the_state(
    tmp_path: Path, row: dict[str, Any]
) -> None:
    path = tmp_path / "rows.json"
    path.write_text(json.dumps([row | {"metadata": {"area": "maps"}}]))

    (case,) = dataset_cases([path], Columns())

    assert case["sessionInput"]["state"] == {
        "inputs": {"tier": 1}, "outputs": {"score": 2}, "metadata": {"area": "maps"}
    }  # fmt: skip


PAY = {"id": "c", "function": {"name": "pay", "arguments": '{"n": 5}'}}
PAID = {"role": "assistant", "content": "Paid"}
CALLED = [{"role": "assistant", "content": "", "tool_calls": [PAY]},
          {"role": "tool", "tool_call_id": "c", "content": "ok"}, PAID]  # fmt: skip
EARLIER = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
RAGAS: list[dict[str, Any]] = [{"type": "human", "content": "Where?"},
         {"type": "ai", "content": "", "tool_calls": [{"name": "pay", "args": {"n": 5}}]},
         {"type": "tool", "content": "ok"}, {"type": "ai", "content": "Paid"}]  # fmt: skip
ITEMS = [{"type": "function_call", "call_id": "c", "name": "pay", "arguments": '{"n": 5}'},
         {"type": "function_call_output", "call_id": "c", "output": "ok"},
         {"type": "message", "role": "assistant",
          "content": [{"type": "output_text", "text": "Paid"}]}]  # fmt: skip
WANTED = {
    "expected_response": "Paid",
    "expected_tool_calls": [{"name": "pay", "arguments": {"n": 5}}],
}


@pytest.mark.parametrize(
    "row",
    [
        {"inputs": {"question": "Where?"}, "outputs": {"choices": [{"message": CALLED[0]}]}},
        {"inputs": {"messages": MESSAGES}, "outputs": {"messages": CALLED}},
        {"inputs": {"messages": EARLIER + MESSAGES}, "outputs": EARLIER + MESSAGES + CALLED},
        {"inputs": {"input": MESSAGES}, "outputs": {"output": ITEMS}},
        {"outputs": MESSAGES + CALLED, "reference_outputs": MESSAGES + CALLED},
        {"inputs": {"question": "Where?"}, "outputs": CALLED, "reference_outputs": CALLED},
        {"inputs": "Where?", "outputs": CALLED, "reference_outputs": CALLED},
        {"inputs": EARLIER + MESSAGES, "outputs": CALLED, "reference_outputs": CALLED},
        {"inputs": "Where?", "outputs": CALLED, "expectations": WANTED},
        {"user_input": RAGAS, "reference": "Paid", "reference_tool_calls": RAGAS[1]["tool_calls"]},
    ],
)
def test_calls_in_rows_of_mlflow_agentevals_and_ragas_are_compared(row: dict[str, Any]) -> None:
    case = converted(row if len(row) > 2 or "inputs" not in row else row | {"expectations": WANTED})
    exact = EvalMetric.model_validate({"metricName": "trajectory_exact", "threshold": 1})

    (outcome,) = CaseScorer([exact]).score(case).metrics

    (turn,), (wanted,) = turns(case), turns(case, "conversation")
    assert turn["userContent"]["content"] == wanted["userContent"]["content"] == "Where?"
    assert (wanted["finalResponse"]["content"], outcome.score) == ("Paid", 1)
    assert case["sessionInput"]["state"] == {}


@pytest.mark.parametrize(
    ("row", "said", "wanted", "state"),
    [
        (
            {"inputs": {"question": "Where?", "lang": "en"}, "outputs": {"response": "here"},
             "expectations": {"expected_response": "there", "expected_facts": ["a"]}, "tags": {"t": "1"}},
            "here", "there",
            {"inputs": {"lang": "en"}, "expectations": {"expected_facts": ["a"]}, "tags": {"t": "1"}},
        ),
        ({"inputs": {"question": "Where?"}, "outputs": "here", "expectations": None}, "here", None, {}),
        (
            {"inputs": {"q": "Where?"}, "outputs": {"answer": "there", "why": "so"}},
            None, "there", {"outputs": {"why": "so"}},
        ),
        (
            {"inputs": {"q": "Where?"}, "outputs": {"a": "here"}, "reference_outputs": {"a": "there"}},
            "here", "there", {},
        ),
        (
            {"datasetName": "d", "input": {"query": "Where?", "top": 3}, "expectedOutput": {"x": "there"}},
            None, "there", {"inputs": {"top": 3}},
        ),
        ({"input": "Where?", "expected": {"answer": "there"}, "tags": ["a"]}, None, "there", {"tags": ["a"]}),
        ({"inputs": "Where?", "expected_output": "there"}, None, "there", {}),
        ({"inputs": "Where?", "outputs": "here", "reference_outputs": "there"}, "here", "there", {}),
        (
            {"inputs": {"q": "Where?"}, "outputs": {"output": {"type": "ai", "content": "there"}}},
            None, "there", {},
        ),
    ],
)  # fmt: skip
def test_texts_in_objects_are_read_if_it_is_clear_which_they_are(
    row: dict[str, Any], said: str | None, wanted: str | None, state: dict[str, Any]
) -> None:
    case = converted(row)

    answers = [
        [turn["finalResponse"]["content"] for turn in turns(case, key)]
        for key in ("actualConversation", "conversation")
    ]
    assert answers == [[said] if said else [], [wanted] if wanted else []]
    assert case["sessionInput"]["state"] == state


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"inputs": {"q": "x", "n": "y"}}, "inputs: found an object; expected a text; choose one of q, n"),
        ({"inputs": {"prompt": "x", "question": "y"}}, "such as --map input=inputs.prompt"),
        ({"input": "x", "expectedOutput": {"a": "y", "b": "z"}}, "--map expected=expectedOutput.a"),
        (
            {"inputs": {"question": "x"}, "outputs": {"a": "y", "b": "z"}, "expectations": {}},
            "--map output=outputs.a",
        ),
        ({"inputs": {"question": "x"}, "outputs": "y"}, "--map output=outputs or --map expected=outputs"),
        (
            {"outputs": MESSAGES + CALLED, "reference_outputs": (MESSAGES + CALLED) * 2},
            "reference_outputs: found 2 turns; expected 1",
        ),
    ],
)  # fmt: skip
def test_objects_that_may_mean_several_things_are_refused(row: dict[str, Any], told: str) -> None:
    with pytest.raises(FormatError) as caught:
        converted(row)

    assert told in str(caught.value)


def test_a_column_that_is_mapped_into_is_not_read_otherwise(
    caplog: pytest.LogCaptureFixture,
) -> None:
    row = {
        "inputs": {"question": "x", "other": "Where?"},
        "outputs": {"answer": "y", "alt": "there"},
    }
    case = converted(row, input="inputs.other", expected="outputs.alt")

    (turn,) = turns(case, "conversation")
    assert (turn["userContent"]["content"], turn["finalResponse"]["content"]) == ("Where?", "there")
    assert "expected" not in case["sessionInput"]["state"]
    assert not caplog.messages


def test_what_of_an_example_is_not_known_to_be_expected_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    warn_once.cache_clear()  # other tests have rows of the same name
    for outputs in (
        {"label": True, "weight": 1},
        {"path": ["a", "b"]},
        {"output": [{"type": "a"}]},
    ):
        case = converted({"inputs": {"question": "x"}, "outputs": outputs})
        assert case["sessionInput"]["state"] == {"outputs": outputs}
    converted({"messages": (MESSAGES + CALLED) * 2, "reference": "there"})

    one, *_, two = caplog.messages
    assert "outputs (label, weight): kept in the state" in one
    assert "kept in the state: what is expected of a dialogue with several turns" in two


def test_a_file_of_pydantic_evals_has_cases(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "capitals.json"
    case = {"name": "fr", "inputs": "Where?", "expected_output": "Paris", "evaluators": ["Equals"]}
    path.write_text(json.dumps({"name": "c", "cases": [case], "evaluators": ["IsInstance"]}))

    (found,) = dataset_cases([path], Columns())

    assert (found["evalId"], found["sessionInput"]["state"]) == ("fr", {"evaluators": ["Equals"]})
    assert "left out evaluators of all cases" in caplog.text


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (["a", "b"], '["a","b"]'),
        ({"x": 1}, '{"x":1}'),
        ({"answer": "a", "sure": True}, '{"answer":"a","sure":true}'),
        (True, "true"),
        (4, "4"),
        ("a", "a"),
    ],
)
def test_what_pydantic_evals_expects_is_one_value(tmp_path: Path, wanted: Any, text: str) -> None:
    path = tmp_path / "c.json"
    case = {"name": "a", "inputs": "Which?", "expected_output": wanted}
    path.write_text(json.dumps({"name": "c", "cases": [case], "evaluators": []}))

    (found,) = dataset_cases([path], Columns())

    (expected,) = turns(found, "conversation")
    assert expected["finalResponse"]["content"] == text
    assert "references" not in expected


def test_a_test_run_of_deepeval_has_recorded_cases_with_the_calls_of_each_turn(
    tmp_path: Path,
) -> None:
    """As `evaluate` of DeepEval 4.3 writes it to DEEPEVAL_RESULTS_FOLDER."""
    called = {"name": "look", "type": "FUNCTION", "output": "x", "inputParameters": {"a": 1}}
    single = {
        "name": "first",
        "input": "Hi",
        "actualOutput": "Hello",
        "expectedOutput": "Hello!",
        "toolsCalled": [called],
        "expectedTools": [{"name": "look", "type": "FUNCTION"}],
        "success": True,
        "metricsData": [{"name": "Ok", "threshold": 0.5, "success": True, "score": 1.0}],
    }
    said = [
        {"role": "user", "content": "Hi", "order": 0},
        {"role": "assistant", "content": "Hello", "order": 1, "toolsCalled": [called]},
    ]
    run = {
        "testCases": [single],
        "conversationalTestCases": [{"name": "talk", "turns": said, "expectedOutcome": "e"}],
        "metricsScores": [],
        "testPassed": 1,
        "testFailed": 1,
        "official": False,
    }
    path = tmp_path / ".latest_test_run.json"
    path.write_text(json.dumps(run))

    first, talk = dataset_cases([path], Columns())

    tool = {"name": "look", "arguments": {"a": 1}, "result": "x"}
    for case, name in ((first, "first"), (talk, "talk")):
        (turn,) = case["actualConversation"]
        assert (case["evalId"], case["evalMode"], turn["tools"]) == (name, "trace", [tool])
        assert turn["finalResponse"]["content"] == "Hello"
    assert first["conversation"][0]["finalResponse"]["content"] == "Hello!"
    assert first["sessionInput"]["state"]["metricsData"] == single["metricsData"]


def test_results_of_promptfoo_are_recorded_cases_and_an_error_is_a_crash(tmp_path: Path) -> None:
    """As `promptfoo eval -o results.json` of promptfoo 0.115 writes them."""
    chat = json.dumps([{"role": "system", "content": "Be kind"}, {"role": "user", "content": "Hi"}])

    def result(number: int, raw: str, **more: Any) -> dict[str, Any]:
        return {
            "prompt": {"raw": raw, "label": "{{q}}"},
            "promptIdx": 0,
            "provider": {"id": "mine:agent", "label": ""},
            "success": not number,
            "testIdx": number,
            "vars": {"q": "Hi"},
            "latencyMs": 17,
            **more,
        }

    answered = result(
        0,
        chat,
        failureReason=0,
        cost=0.002,
        response={"output": {"answer": "Hello"}, "tokenUsage": {"prompt": 20, "completion": 10}},
        testCase={"description": "first", "assert": [{"type": "equals", "value": "Hello"}]},
    )
    broken = result(1, "Say: [Hi]", failureReason=2, error="no quota", testCase={"assert": []})
    path = tmp_path / "results.json"
    path.write_text(
        json.dumps({"evalId": "e", "results": {"version": 3, "results": [answered, broken]}})
    )

    first, crashed = dataset_cases([path], Columns())

    (turn,) = first["actualConversation"]
    assert first["evalId"] == "first"
    assert turn["userContent"]["content"] == "Hi"
    assert [one["content"] for one in turn["contextMessages"]] == ["Be kind"]
    assert turn["finalResponse"]["content"] == '{"answer":"Hello"}'
    assert turn["capture"] == {"tools": "missing"}
    assert turn["telemetry"] == {
        "status": "ok", "latencyMs": 17, "costUsd": 0.002, "inputTokens": 20, "outputTokens": 10,
    }  # fmt: skip
    assert first["conversation"][0]["finalResponse"]["content"] == "Hello"
    (turn,) = crashed["actualConversation"]
    assert crashed["evalId"] == "test-1"
    assert turn["telemetry"]["status"] == "error"
    assert turn["telemetry"]["error"] == {"message": "no quota"}
    assert "finalResponse" not in turn


def test_a_result_of_promptfoo_has_the_id_of_its_prompt_and_provider(tmp_path: Path) -> None:
    """Results stand in the file in the order in which they were ready."""
    result = {
        "prompt": {"raw": "Hi"},
        "success": True,
        "testIdx": 0,
        "vars": {},
        "failureReason": 0,
        "testCase": {"description": "greets"},
    }
    pairs = [
        {**result, "promptIdx": n, "provider": {"id": name}, "response": {"output": name}}
        for n, name in enumerate(("a", "b", "c"))
    ]
    path = tmp_path / "results.json"
    found = []
    for results in (pairs, pairs[::-1]):
        path.write_text(json.dumps({"evalId": "e", "results": {"results": results}}))
        cases = dataset_cases([path], Columns())
        found.append(
            {
                case["evalId"]: case["actualConversation"][0]["finalResponse"]["content"]
                for case in cases
            }
        )

    assert found == [{"greets": "a", "greets@2": "b", "greets@3": "c"}] * 2


def test_repeats_of_a_test_of_promptfoo_are_repeats_of_a_case(tmp_path: Path) -> None:
    """With `--repeat 2`, promptfoo numbers the results of two tests from 0 to 3."""
    results = [
        {
            "prompt": {"raw": said},
            "promptIdx": 0,
            "provider": {"id": "a"},
            "success": True,
            "testIdx": number,
            "vars": {"q": said, "sessionId": f"session-{number}"},
            "failureReason": 0,
            "testCase": {"vars": {"q": said}, "assert": []},
            "response": {"output": "Hello"},
        }
        for number, said in ((3, "Bye"), (1, "Hi"), (0, "Hi"), (2, "Bye"))
    ]
    path, lines = tmp_path / "results.json", tmp_path / "results.jsonl"
    path.write_text(json.dumps({"evalId": "e", "results": {"results": results}}))
    lines.write_text("\n".join(map(json.dumps, results)))

    for file in (path, lines):
        cases = dataset_cases([file], Columns())
        assert [(case["evalId"], case["source"]["run"]) for case in cases] == [
            ("test-2", "repeat-2"), ("test-0", "repeat-2"), ("test-0", "repeat-1"), ("test-2", "repeat-1"),
        ]  # fmt: skip


def test_a_result_of_an_exported_test_expects_what_the_case_did(tmp_path: Path) -> None:
    metadata = {"evaltap": {"evalSetId": "golden", "evalId": "c"}}
    result = {
        "prompt": {"raw": "Hi"},
        "promptIdx": 0,
        "provider": {"id": "a"},
        "success": True,
        "testIdx": 0,
        "vars": {"expected_output": "Hello", "expected_tools": '[{"name":"f"}]'},
        "failureReason": 0,
        "testCase": {"description": "c", "metadata": metadata},
        "response": {"output": "Bye"},
    }
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"evalId": "e", "results": {"results": [result]}}))

    (case,) = dataset_cases([path], Columns())

    (wanted,) = case["conversation"]
    assert wanted["finalResponse"]["content"] == "Hello"
    assert [tool["name"] for tool in wanted["tools"]] == ["f"]
    assert case["actualConversation"][0]["finalResponse"]["content"] == "Bye"
