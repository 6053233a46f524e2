"""Chats, trajectories and samples of other tools as eval cases."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.cases.datasets.tables import read_rows
from evaltap.schemas import iter_cases
from evaltap.schemas.errors import FormatError, InputError
from support.builders.datasets import DATA, converted, rows, turns

ATIF: dict[str, Any] = {
    "schema_version": "ATIF-v1.4", "session_id": "fix-1", "agent": {"name": "coder"}, "steps": [
        {"step_id": 1, "source": "user", "message": "Fix it."},
        {"step_id": 2, "source": "agent", "message": "I look.", "tool_calls": [
            {"tool_call_id": "c", "function_name": "bash", "arguments": {"command": "ls"}}],
         "observation": {"results": [{"source_call_id": "c", "content": "a.py"}]}},
        {"step_id": 3, "source": "agent", "message": "Done."},
    ],
}  # fmt: skip
CALLED = {
    "id": "c",
    "type": "function",
    "function": {"name": "bash", "arguments": '{"command": "ls"}'},
}
SAID = [
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "I look.", "tool_calls": [CALLED]},
    {"role": "tool", "tool_call_id": "c", "content": "a.py"},
    {"role": "assistant", "content": "Done."},
]
MINI = [
    {"role": "user", "content": "Fix it."},
    {"role": "assistant", "content": "I look.\n```bash\nls\n```"},
    {"role": "user", "content": "a.py"},
    {"role": "assistant", "content": "Done."},
]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.json", ATIF),
        ("t.json", {"messages": SAID}),
        ("t.json", {"messages": SAID, "info": {"cost": 1}}),
        ("t.traj", {"trajectory": [], "history": SAID, "environment": "e"}),
        ("t.json", {"trajectory_format": "mini-swe-agent-1", "messages": MINI}),
    ],
    ids=["atif", "messages", "messages-with-more", "swe-agent", "mini-swe-agent"],
)
def test_a_trajectory_may_be_one_object_in_its_file(
    tmp_path: Path, name: str, content: dict[str, Any]
) -> None:
    (tmp_path / name).write_text(json.dumps(content))

    ((_, row),) = read_rows(tmp_path / name)

    (turn,) = turns(converted(row))
    assert turn["userContent"]["content"] == "Fix it."
    assert turn["finalResponse"]["content"] == "Done."
    (call,) = turn["tools"]
    assert (call["name"], call["arguments"], call["result"]) == ("bash", {"command": "ls"}, "a.py")


def test_a_list_of_messages_is_a_conversation() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "track", "arguments": '{"id": "A"}'}}]},
        {"role": "tool", "content": "Bern"},
        {"role": "assistant", "content": "Bern."},
        {"from": "human", "value": "When?"},
        {"from": "gpt", "value": "Monday."},
    ]  # fmt: skip
    case = converted({"messages": messages})

    one, two = turns(case)
    assert one["contextMessages"] == [{"role": "system", "content": "Be brief."}]
    assert one["finalResponse"]["content"] == "Bern."
    assert one["tools"] == [
        {"id": "c", "name": "track", "arguments": {"id": "A"}, "result": "Bern"}
    ]
    assert (two["userContent"]["content"], two["finalResponse"]["content"]) == ("When?", "Monday.")


def test_an_input_of_messages_ends_with_the_users() -> None:
    asked = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    case = converted({"input": asked, "ideal": "Bern"})

    assert turns(case, "conversation")[0]["userContent"]["content"] == "Where?"
    with pytest.raises(FormatError, match="the user's last"):
        converted({"input": asked[:1]})


# -- Inspect ---------------------------------------------------------------------------------------


def test_samples_of_inspect_are_cases_and_epochs_their_repeats(tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"

    assert main(["convert", str(DATA / "inspect.json"), "--out", str(out)]) == 0

    cases = {(case["evalId"], case["source"]["run"]): case for case in iter_cases(out)}
    assert {run for name, run in cases if name == "found"} == {"epoch-1", "epoch-2"}
    (found,) = turns(cases["found", "epoch-1"])
    (tool,) = found["tools"]
    assert (tool["name"], tool["arguments"]) == ("get_order", {"order_id": "A-7"})
    assert tool["result"] == '{"status": "shipped"}'
    assert found["finalResponse"]["content"] == "It was shipped."
    assert found["telemetry"]["models"] == ["mockllm/model"]
    (lost,) = turns(cases["lost", "epoch-1"])
    assert lost["tools"][0]["error"] == {"type": "unknown", "message": "no such order"}
    (expected,) = turns(cases["lost", "epoch-1"], "conversation")
    assert expected["references"][0]["finalResponse"]["content"] == "cannot find"


def test_samples_of_inspect_that_failed_or_were_cut_off_have_no_answer(tmp_path: Path) -> None:
    out = tmp_path / "c.jsonl"
    main(["convert", str(DATA / "inspect.json"), "--out", str(out)])
    ended = {case["evalId"]: turns(case)[-1] for case in iter_cases(out)}

    error = {"message": "RuntimeError('overloaded')"}
    assert (ended["crash"]["telemetry"]["status"], ended["crash"]["telemetry"]["error"]) == (
        "error", error)  # fmt: skip
    assert ended["limit"]["telemetry"]["status"] == "incomplete"
    assert ended["limit"]["telemetry"]["error"]["message"].startswith("Message limit reached")
    assert not {"finalResponse"} & (ended["limit"].keys() | ended["crash"].keys())


def test_a_sample_of_inspect_may_use_several_models_and_be_broken() -> None:
    sample = {
        "id": 1, "epoch": 1, "input": "Hi", "output": {}, "target": "",
        "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}],
        "model_usage": {
            "a": {"input_tokens": 3, "input_tokens_cache_read": 4, "output_tokens": 1},
            "b": {"input_tokens": 5, "output_tokens": None},
            "c": None,
        },
    }  # fmt: skip

    (turn,) = turns(converted(sample))

    assert turn["telemetry"]["usage"] == [
        {"model": "a", "inputTokens": 7, "outputTokens": 1},
        {"model": "b", "inputTokens": 5, "outputTokens": 0},
    ]
    assert turn["telemetry"]["inputTokens"] == 12
    for broken in (
        3,
        None,
        [3],
        [{"role": "user", "content": "Hi"}, {"role": "assistant", "tool_calls": [3]}],
    ):
        with pytest.raises(FormatError, match=r"messages|a message|tool calls"):
            converted({**sample, "messages": broken})


def compacted(**more: Any) -> dict[str, Any]:
    """Return a sample of Inspect whose messages no longer hold the call that its events show."""
    return {
        "id": 1, "epoch": 1, "input": "Order two lamps", "output": {}, "model": "m",
        "messages": [
            {"role": "user", "content": "Order two lamps"},
            {"role": "assistant", "content": "Ordered."},
        ],
        "events": [
            {
                "event": "tool", "id": "k1", "function": "order",
                "arguments": {"n": 2, "why": ["attachment://a"]}, "result": "attachment://b",
            },
            {"event": "compaction"},
        ],
        "attachments": {"a": "a long text"},
        **more,
    }  # fmt: skip


def test_calls_that_inspect_compacted_away_are_read_from_its_events() -> None:
    (turn,) = turns(converted(compacted()))

    assert [(one["name"], one["arguments"], one["result"]) for one in turn["tools"]] == [
        ("order", {"n": 2, "why": ["a long text"]}, "attachment://b")  # b is not in the log
    ]
    assert turn["finalResponse"]["content"] == "Ordered."


def test_a_sample_of_inspect_without_a_message_of_the_user_has_its_input() -> None:
    messages = [{"role": "assistant", "content": "Ordered."}]

    (turn,) = turns(converted(compacted(messages=messages, events=None)))

    assert turn["userContent"]["content"] == "Order two lamps"


def test_the_copied_steps_of_a_trajectory_are_history() -> None:
    call = {"tool_call_id": "c", "function_name": "bash"}
    first, second = ({**call, "arguments": {"cmd": cmd}} for cmd in ("make", "make -B"))
    steps = [
        {"source": "user", "message": "Make it pass."},
        {
            "source": "agent",
            "message": "I run it.",
            "tool_calls": [first],
            "is_copied_context": True,
        },
        {"source": "agent", "message": "Again.", "tool_calls": [second]},
        {"source": "agent", "message": "It passes."},
    ]

    (turn,) = turns(converted({"schema_version": "ATIF-v1.6", "session_id": "s", "steps": steps}))

    assert [one["arguments"] for one in turn["tools"]] == [{"cmd": "make -B"}]
    assert [one["content"] for one in turn["contextMessages"]] == ["I run it."]
    assert turn["finalResponse"]["content"] == "It passes."


def test_messages_in_bedrocks_form_have_calls_and_results() -> None:
    asked = [
        {"toolUse": {"toolUseId": str(n), "name": "weather", "input": {"n": n}}} for n in (1, 2)
    ]
    results = [
        {
            "toolResult": {
                "toolUseId": "1",
                "status": "success",
                "content": [{"json": {"celsius": 4}}],
            }
        },
        {"toolResult": {"toolUseId": "2", "status": "error", "content": [{"text": "no station"}]}},
    ]
    messages = [
        {"role": "user", "content": [{"text": "Oslo and Rome?"}]},
        {"role": "assistant", "content": asked},
        {"role": "user", "content": results},
        {"role": "assistant", "content": [{"text": "Oslo 4 C; Rome unknown."}]},
    ]

    (turn,) = turns(converted({"messages": messages}))

    first, second = turn["tools"]
    assert (first["name"], first["arguments"]) == ("weather", {"n": 1})
    assert first["result"] in ('{"celsius":4}', {"celsius": 4})
    assert second["error"] == {"message": "no station"}
    assert turn["finalResponse"]["content"] == "Oslo 4 C; Rome unknown."
    assert "capture" not in turn


def test_a_file_may_be_one_list_of_chat_messages(tmp_path: Path) -> None:
    messages = [{"role": "user", "content": "Paid?"}, {"role": "assistant", "content": "Yes."}]
    (tmp_path / "c.json").write_text(json.dumps(messages))

    (row,) = rows(tmp_path / "c.json")

    (turn,) = turns(converted(row))
    assert turn["finalResponse"]["content"] == "Yes."


def test_a_binary_log_of_inspect_is_refused_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "x.eval").write_bytes(b"PK")

    with pytest.raises(InputError, match="inspect log convert --to json"):
        list(read_rows(tmp_path / "x.eval"))


# -- DeepEval --------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_goldens_of_deepeval_are_the_same_cases_in_each_form(form: str) -> None:
    run, still_to_run = map(converted, rows(DATA / f"goldens.{form}"))

    assert turns(run)[0]["tools"] == [
        {"name": "track", "arguments": {"id": "A-100"}, "result": {"city": "Bern"}}
    ]
    assert turns(run, "conversation")[0]["tools"] == [
        {"name": "track", "arguments": {"id": "A-100"}}
    ]
    assert turns(run)[0]["finalResponse"]["content"] == "In Bern; on Monday."
    state = run["sessionInput"]["state"]
    assert state["retrieval_context"] == ["A-100: Bern"]
    assert "".join(state["context"]).startswith("Orders ship from Bern.")
    assert "actualConversation" not in still_to_run
    assert turns(still_to_run, "conversation")[0]["finalResponse"]["content"] == "Something"


def test_results_in_chat_messages_find_their_calls_and_failures_are_marked() -> None:
    def called(call_id: str, name: str) -> dict[str, Any]:
        return {"id": call_id, "function": {"name": name, "arguments": "{}"}}

    messages = [
        {"role": "user", "content": "Cancel it."},
        {"role": "assistant", "content": "One moment.",
         "tool_calls": [called("a", "find"), called("b", "cancel")]},
        {"role": "tool", "tool_call_id": "b", "name": "cancel", "content": "Error: not allowed"},
        {"role": "tool", "tool_call_id": "a", "name": "find", "content": '{"id": 7}'},
        {"role": "assistant", "content": "I may not."},
        {"role": "user", "content": "A human, please."},
        {"role": "assistant", "content": "I hand over.", "tool_calls": [called("c", "hand_over")]},
    ]  # fmt: skip
    one, two = turns(converted({"messages": messages}))

    assert [(tool["id"], tool["result"]) for tool in one["tools"]] == [
        ("a", '{"id": 7}'), ("b", "Error: not allowed")]  # fmt: skip
    assert [tool.get("error") for tool in one["tools"]] == [None, {"message": "Error: not allowed"}]
    assert [message["content"] for message in one["intermediateResponses"]] == ["One moment."]
    assert one["finalResponse"]["content"] == "I may not."
    assert two["finalResponse"]["content"] == "I hand over."
    assert "result" not in two["tools"][0]


def test_what_is_expected_of_a_dialogue_is_kept() -> None:
    said = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Bern."}]
    case = converted({"messages": said, "answer": "Basel"})

    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Basel"
    case = converted({"messages": said * 2, "answer": "Basel"})
    assert case["conversation"] == []
    assert case["sessionInput"]["state"] == {"answer": "Basel"}


def test_messages_that_nobody_answered_are_a_case_to_run() -> None:
    case = converted({"messages": [{"role": "user", "content": "Where?"}], "ideal": "Bern"})

    assert "actualConversation" not in case
    (turn,) = case["conversation"]
    assert (turn["userContent"]["content"], turn["finalResponse"]["content"]) == ("Where?", "Bern")


def test_a_dialogue_that_ends_before_the_answer_lacks_it() -> None:
    said = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": "Bern."},
        {"role": "developer", "content": "Be kind."},
        {"role": "user", "content": "Sure?"},
    ]

    _, last = turns(converted({"messages": said}))

    assert last["capture"] == {"finalResponse": "missing"}
    assert last["contextMessages"] == [{"role": "system", "content": "Be kind."}]


def test_images_in_chat_messages_are_marked_as_left_out() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    said = [
        {"role": "user", "content": [{"type": "text", "text": "Whose?"}, picture]},
        {"role": "assistant", "content": [{"type": "text", "text": "Mine."}]},
    ]

    (turn,) = turns(converted({"messages": said}))

    assert turn["userContent"]["content"] == "Whose?"
    assert turn["capture"] == {"userContent.contentParts": "truncated"}


def test_messages_of_anthropic_are_read() -> None:
    def result(call_id: str, text: str, **more: Any) -> dict[str, Any]:
        content = [{"type": "text", "text": text}]
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}

    calls = [
        {"type": "tool_use", "id": name, "name": name, "input": {"id": 7}}
        for name in ("find", "buy")
    ]
    said = [
        {"role": "user", "content": "Buy it."},
        {"role": "assistant", "content": [{"type": "text", "text": "One moment."}, *calls]},
        {"role": "user", "content": [result("find", "found"), result("buy", "sold out", is_error=True)]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is sold out."}]},
    ]  # fmt: skip

    (turn,) = turns(converted({"messages": said}))

    find, buy = turn["tools"]
    assert find == {"id": "find", "name": "find", "arguments": {"id": 7}, "result": "found"}
    assert buy["error"] == {"message": "sold out"}
    assert turn["finalResponse"]["content"] == "It is sold out."


def test_function_calls_of_old_chat_messages_are_read() -> None:
    said = [
        {"role": "user", "content": "Where?"},
        {"role": "assistant", "content": None,
         "function_call": {"name": "track", "arguments": '{"id": 7}'}},
        {"role": "function", "name": "track", "content": "Bern"},
        {"role": "assistant", "content": "Bern."},
    ]  # fmt: skip

    (turn,) = turns(converted({"messages": said}))

    assert turn["tools"] == [{"name": "track", "arguments": {"id": 7}, "result": "Bern"}]
    assert "capture" not in turn


def test_messages_of_other_forms_are_refused() -> None:
    for message in (
        {"role": "user", "parts": [{"type": "riddle"}]},
        {"role": "user"},
        {"type": "item_reference", "id": "i"},
        {"role": "ipython", "content": "1"},
    ):
        with pytest.raises(FormatError, match="message"):
            converted({"messages": [{"role": "user", "content": "Hi"}, message]})


def test_a_result_without_its_call_is_marked() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "tool", "tool_call_id": "x", "content": "1"},
        {"role": "assistant", "content": "Hello."},
    ]

    assert turns(converted({"messages": messages}))[0]["capture"]["tools"] == "ambiguous"


def test_trials_of_a_task_are_its_repeats(tmp_path: Path) -> None:
    rows = [
        {"task": task, "n": n, "question": "Hi", "output": "Ho"} for n in (0, 1) for task in "ab"
    ]
    (tmp_path / "t.json").write_text(json.dumps(rows))
    out = tmp_path / "c.jsonl"

    main(
        [
            "convert",
            str(tmp_path / "t.json"),
            "--out",
            str(out),
            "--map",
            "id=task",
            "--map",
            "run=n",
        ]
    )

    found = [(case["evalId"], case["source"]["run"]) for case in iter_cases(out)]
    assert found == [("a", "0"), ("b", "0"), ("a", "1"), ("b", "1")]


def test_a_field_may_be_mapped_to_a_path_into_a_column() -> None:
    row = {"q": "Hi", "info": {"task": {"answer": "Hello."}, "n": 1}}
    case = converted(row, input="q", expected="info.task.answer")

    assert turns(case, "conversation")[0]["finalResponse"]["content"] == "Hello."
    assert case["sessionInput"]["state"]["info"]["n"] == 1


def test_a_column_that_no_row_has_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = tmp_path / "t.jsonl", tmp_path / "x.evalset.json"
    data.write_text('{"question": "Hi", "answer": "Hello."}\n')

    for field in ("output", "input"):
        code = main(["convert", str(data), "--out", str(out), "--map", f"{field}=anwser"])

        assert code == 2
        error = capsys.readouterr().err
        assert (
            f"--map {field}=anwser: no row has a value there; found the columns question" in error
        )
        assert "did you mean 'answer'?" in error
    assert not out.exists()


@pytest.mark.parametrize("form", ["json", "jsonl", "csv"])
def test_conversations_of_deepeval_have_a_turn_for_each_message_of_the_user(form: str) -> None:
    (row,) = rows(DATA / f"conversations.{form}")
    case = converted(row)

    assert [turn["finalResponse"]["content"] for turn in turns(case)] == ["In Bern.", "Monday."]
    assert turns(case)[0]["tools"] == [{"name": "track", "arguments": {"id": "A-100"}}]
    assert case["sessionInput"]["state"]["scenario"] == "A customer asks twice"


@pytest.mark.parametrize("no_turns", [None, []])
def test_a_golden_of_deepeval_without_turns_is_a_case_for_a_simulated_user(no_turns: Any) -> None:
    case = converted(
        {
            "scenario": "A parcel is late.",
            "turns": no_turns,
            "expected_outcome": "It is sent again.",
            "user_description": "Ada, in a hurry",
            "name": None,
        }
    )

    scenario = case["conversationScenario"]
    assert scenario["conversationPlan"].splitlines() == [
        "A parcel is late.",
        "You are this user: Ada, in a hurry",
        "You are done once: It is sent again.",
    ]
    assert scenario["stopSignal"]
    assert "conversation" not in case
    assert case["sessionInput"]["state"]["expected_outcome"] == "It is sent again."


CALL, RESULT = (
    {"type": f"tool-{kind}", "toolCallId": "c", "toolName": "look"} for kind in ("call", "result")
)


@pytest.mark.parametrize(
    ("output", "result", "failed"),
    [
        ({"output": {"type": "json", "value": {"t": 18}}}, '{"t":18}', False),
        ({"output": {"type": "text", "value": "18"}}, "18", False),
        ({"output": {"type": "error-json", "value": {"t": None}}}, '{"t":null}', True),
        ({"result": {"t": 18}}, '{"t":18}', False),
        ({"result": "no", "isError": True}, "no", True),
    ],
)
def test_calls_and_results_of_the_ai_sdk(output: dict[str, Any], result: str, failed: bool) -> None:
    messages = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": [CALL | {"input": {"a": 1}}]},
        {"role": "tool", "content": [RESULT | output]},
        {"role": "assistant", "content": [{"type": "text", "text": "So."}]},
    ]

    (turn,) = turns(converted({"messages": messages}))

    (tool,) = turn["tools"]
    assert (tool["name"], tool["arguments"], tool["result"]) == ("look", {"a": 1}, result)
    assert ("error" in tool) is failed
    assert turn["finalResponse"]["content"] == "So."


def test_a_tool_that_the_provider_ran_is_between_the_texts_of_one_message() -> None:
    found = [{"type": "web_search_result", "url": "x"}]
    blocks = [
        {"type": "text", "text": "Let me search."},
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": found},
        {"type": "text", "text": "So."},
    ]
    messages = [{"role": "user", "content": "Why?"}, {"role": "assistant", "content": blocks}]

    (turn,) = turns(converted({"messages": messages}))

    assert [(one["name"], json.loads(one["result"])) for one in turn["tools"]] == [
        ("web_search", found)
    ]
    assert turn["intermediateResponses"][0]["content"] == "Let me search."
    assert (turn["finalResponse"]["content"], "capture" in turn) == ("So.", False)


@pytest.mark.parametrize(
    ("step", "tools"),
    [
        ({"observation": {"results": ["a.py"]}}, [("bash", "a.py")]),
        ({"tool_calls": ["ls"]}, [("ls", "a.py")]),
        ({"observation": {"results": "a.py"}}, [("bash", "a.py")]),
    ],
)
def test_an_atif_step_may_have_texts_for_objects(
    tmp_path: Path, step: dict[str, Any], tools: list[tuple[str, str]]
) -> None:
    first, second, last = ATIF["steps"]
    (tmp_path / "t.json").write_text(json.dumps({**ATIF, "steps": [first, second | step, last]}))

    ((_, row),) = read_rows(tmp_path / "t.json")
    (turn,) = turns(converted(dict(row)))

    assert [(one["name"], one["result"]) for one in turn["tools"]] == tools


def test_an_atif_call_that_is_none_is_refused(tmp_path: Path) -> None:
    first, second, last = ATIF["steps"]
    wrong = {**ATIF, "steps": [first, second | {"tool_calls": [1]}, last]}
    (tmp_path / "t.json").write_text(json.dumps(wrong))

    ((_, row),) = read_rows(tmp_path / "t.json")
    with pytest.raises(FormatError, match="tool calls with a `name`"):
        converted(dict(row))


def test_arguments_that_are_an_empty_text_are_none() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": ""}}
    messages = [
        {"role": "user", "content": "When?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]

    (turn,) = turns(converted({"messages": messages}))

    assert turn["tools"] == [{"name": "now", "id": "c", "arguments": {}}]
