"""What `evaltap try` reads from sessions of agents: who spoke, what failed, what is missing."""

import asyncio
import json
from pathlib import Path

import pytest
from pydantic import BaseModel

from evaltap.cli.recognising import recognise
from support.builders.tried import Line, at, outline, read, turns

DATA = Path(__file__).parents[1] / "data" / "try"


# -- Codex -----------------------------------------------------------------------------------------


def item(kind: str, **payload: object) -> Line:
    return {"timestamp": at(1), "type": "response_item", "payload": {"type": kind, **payload}}


def event(kind: str, **payload: object) -> Line:
    return {"timestamp": at(2), "type": "event_msg", "payload": {"type": kind, **payload}}


def codex(role: str, text: str) -> Line:
    part = "input_text" if role == "user" else "output_text"
    return item("message", role=role, content=[{"type": part, "text": text}])


META: Line = {"timestamp": at(0), "type": "session_meta", "payload": {"id": "s1"}}
ASKED, DONE = codex("user", "Why?"), codex("assistant", "So.")
SHELL = item("function_call", name="shell", arguments="{}", call_id="c")
RESULT = item("function_call_output", call_id="c", output="text")
IDE = "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\nWhy?\n"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([META, codex("user", IDE), DONE], ("Why?", [], "So.", "ok")),
        ([META, event("user_message", message=IDE), DONE], ("Why?", [], "So.", "ok")),
        (
            [META, codex("user", "<turn_aborted>\nx\n</turn_aborted>"), ASKED, DONE],
            ("Why?", [], "So.", "ok"),
        ),
        (
            [META, ASKED, SHELL, event("turn_aborted", reason="interrupted")],
            ("Why?", [("shell", False)], None, "incomplete"),
        ),
        (
            [META, ASKED, SHELL, event("exec_command_end", call_id="c", exit_code=2), RESULT, DONE],
            ("Why?", [("shell", True)], "So.", "ok"),
        ),
        (
            [
                *(META, ASKED, SHELL),
                event("mcp_tool_call_end", call_id="c", result={"Err": "no server"}),
                *(RESULT, DONE),
            ],
            ("Why?", [("shell", True)], "So.", "ok"),
        ),
        (
            [META, ASKED, item("web_search_call", id="w", action={"query": "x"}), DONE],
            ("Why?", [("web_search", False)], "So.", "ok"),
        ),
        ([META, SHELL, RESULT, DONE], (None, [("shell", False)], "So.", "ok")),
        (
            [
                {"id": "s1", "timestamp": at(0), "instructions": None},
                *(line["payload"] for line in (ASKED, SHELL)),
                {"record_type": "state"},
                *(line["payload"] for line in (RESULT, DONE)),
            ],
            ("Why?", [("shell", False)], "So.", "ok"),
        ),
    ],
    ids=[
        *("context of the editor", "in an event", "written for the user", "stopped by the user"),
        *("exit code of an event", "failure at an MCP server", "web search", "no question"),
        "rollout of 2025",
    ],
)
def test_a_rollout_of_codex(
    lines: list[Line], expected: tuple[object, ...], tmp_path: Path
) -> None:
    found = read(tmp_path, lines)

    assert [outline(turn) for turn in turns(found)] == [expected]
    assert (found.cases[0]["evalId"], found.files[0].format) == ("s1", "Codex session")


def test_a_rollout_that_continues_a_session_is_a_session_of_its_own(tmp_path: Path) -> None:
    before = {**META, "payload": {"id": "s0"}}

    (case,) = read(tmp_path, [META, before, ASKED, DONE]).cases

    assert case["evalId"] == "s1"


def test_how_long_a_command_of_codex_ran_is_in_the_event_of_its_end(tmp_path: Path) -> None:
    ended = event("exec_command_end", call_id="c", duration={"secs": 1, "nanos": 500_000_000})

    (turn,) = turns(read(tmp_path, [META, ASKED, SHELL, ended, RESULT, DONE]))

    assert turn["tools"][0]["durationMs"] == 1500


# -- other sessions --------------------------------------------------------------------------------


def copilot(kind: str, **data: object) -> Line:
    return {"type": kind, "data": data, "id": "e", "timestamp": at(1), "parentId": None}


def gemini(kind: str, content: object, **more: object) -> Line:
    return {"id": str(id(content)), "timestamp": at(1), "type": kind, "content": content, **more}


def shell_result(output: str) -> Line:
    response = {"functionResponse": {"id": "c", "response": {"output": output}}}
    call = {"id": "c", "name": "run_shell_command", "args": {}, "status": "success"}
    return gemini("gemini", "", toolCalls=[{**call, "result": [response]}])


def gemini_session(*messages: Line, **more: object) -> Line:
    return {"sessionId": "s1", "projectHash": "h", "messages": [*messages], **more}


def openhands(source: str, **event: object) -> Line:
    return {"id": 1, "timestamp": at(1), "source": source, **event}


USER = copilot("user.message", content="Why?")
SAYS = copilot("assistant.message", content="So.", toolRequests=[])
RUNS = openhands("agent", action="run", args={"command": "x", "thought": ""})
RAN = openhands(
    "agent", observation="run", cause=1, content="", extras={"metadata": {"exit_code": -1}}
)
OPEN_QUESTION = openhands("user", action="message", args={"content": "Why?"})
FINISH = openhands("agent", action="finish", args={"final_thought": "So."})


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            [USER, copilot("user.message", content="skill text", source="skill-pdf"), SAYS],
            ("Why?", [], "So.", "ok"),
        ),
        (
            [USER, {**copilot("assistant.message", content="mine"), "agentId": "a"}, SAYS],
            ("Why?", [], "So.", "ok"),
        ),
        ([USER, copilot("abort", reason="user_initiated")], ("Why?", [], None, "incomplete")),
        ([copilot("session.start", sessionId="s1"), SAYS], (None, [], "So.", "ok")),
        (
            gemini_session(
                gemini("user", "Why?\n--- a.py ---", displayContent="Why?"), gemini("gemini", "So.")
            ),
            ("Why?", [], "So.", "ok"),
        ),
        (
            gemini_session(
                gemini("user", "Why?"), shell_result("x\nExit Code: 1"), gemini("gemini", "So.")
            ),
            ("Why?", [("run_shell_command", True)], "So.", "ok"),
        ),
        (
            gemini_session(gemini("user", "Why?"), gemini("info", "Request cancelled.")),
            ("Why?", [], None, "incomplete"),
        ),
        (
            gemini_session(
                gemini("user", "<session_context>\nfiles"),
                gemini("user", "Why?"),
                gemini("gemini", "So."),
                gemini("user", "/quit"),
            ),
            ("Why?", [], "So.", "ok"),
        ),
        (
            {
                "history": [
                    {"role": "user", "parts": [{"text": "<session_context>\nfiles"}]},
                    {"role": "model", "parts": [{"text": "Thanks for the context!"}]},
                    {"role": "user", "parts": [{"text": "Why?"}]},
                    {"role": "model", "parts": [{"text": "So."}]},
                ]
            },
            ("Why?", [], "So.", "ok"),
        ),
        (
            [
                {"role": "user", "message": {"content": [{"type": "text", "text": "Why?"}]}},
                {
                    "role": "assistant",
                    "message": {"content": [{"type": "tool_use", "name": "look", "input": {}}]},
                },
                {
                    "role": "user",
                    "message": {"content": [{"type": "tool_result", "tool_use_id": "c"}]},
                },
                {"role": "assistant", "message": {"content": [{"type": "text", "text": "So."}]}},
            ],
            ("Why?", [("look", False)], "So.", "ok"),
        ),
        (
            {"type": "result", "subtype": "success", "num_turns": 1, "result": "So."},
            (None, [], "So.", "ok"),
        ),
        ({"events": [OPEN_QUESTION, RUNS, RAN, FINISH]}, ("Why?", [("run", False)], "So.", "ok")),
        (
            [{"instance_id": "i", "history": [OPEN_QUESTION, RUNS], "error": "RuntimeError: max"}],
            ("Why?", [("run", False)], None, "error"),
        ),
        (
            {
                "events": [
                    OPEN_QUESTION,
                    openhands(
                        "environment",
                        observation="agent_state_changed",
                        extras={"agent_state": "error", "reason": "no key"},
                    ),
                ]
            },
            ("Why?", [], None, "error"),
        ),
        (
            {
                "loglines": [
                    {"type": "user", "message": {"role": "user", "content": "Why?"}},
                    {"type": "assistant", "message": {"role": "assistant", "content": "So."}},
                ]
            },
            ("Why?", [], "So.", "ok"),
        ),
    ],
    ids=[
        *("Copilot: skill", "Copilot: sub-agent", "Copilot: stopped", "Copilot: no question"),
        *("Gemini: shown", "Gemini: exit code", "Gemini: stopped", "Gemini: commands"),
        *("Gemini: checkpoint", "Cursor", "Claude: end"),
        *("OpenHands: still running", "OpenHands: benchmark", "OpenHands: state", "Claude: web"),
    ],
)
def test_who_spoke_and_what_failed(
    document: object, expected: tuple[object, ...], tmp_path: Path
) -> None:
    assert [outline(turn) for turn in turns(read(tmp_path, document))] == [expected]


@pytest.mark.parametrize(
    "document",
    [
        gemini_session(gemini("user", "Why?"), gemini("gemini", "So."), kind="subagent"),
        [{**META, "payload": {"id": "s", "source": {"subagent": "review"}}}, ASKED, DONE],
        [
            {
                **{"type": "user", "sessionId": "s", "uuid": "u", "isSidechain": True},
                "message": {"role": "user", "content": "Why?"},
            }
        ],
    ],
    ids=["Gemini", "Codex", "Claude Code"],
)
def test_a_file_of_a_sub_agent_has_no_turns(document: object, tmp_path: Path) -> None:
    (file,) = read(tmp_path, document).files

    assert "but without any turn" in str(file.skipped)


def test_events_of_openhands_in_files_of_their_own_are_a_conversation(tmp_path: Path) -> None:
    folder = tmp_path / "c1" / "events"
    folder.mkdir(parents=True)
    document = json.loads((DATA / "openhands-sdk.json").read_text())
    for number, one in enumerate(document["items"]):
        (folder / f"event-{number:05}-x.json").write_text(json.dumps(one))

    found = recognise(sorted(folder.iterdir(), reverse=True))

    (case,) = found.cases
    assert (case["evalId"], len(case["actualConversation"][0]["tools"])) == ("c1", 2)
    assert {(file.format, file.skipped) for file in found.files} == {("OpenHands events", None)}

    (file,) = recognise([folder / "event-00000-x.json"]).files
    assert "but without any turn" in str(file.skipped)


def test_what_openhands_used_is_counted_once(tmp_path: Path) -> None:
    (turn,) = turns(recognise([DATA / "openhands-benchmark.jsonl"]))

    telemetry = turn["telemetry"]
    assert (telemetry["models"], telemetry["inputTokens"], telemetry["outputTokens"]) == (
        ["claude-sonnet-4"],
        200,
        20,
    )
    assert telemetry["costUsd"] == pytest.approx(0.02)


def test_a_stream_of_claude_code_has_the_use_of_the_run(tmp_path: Path) -> None:
    (turn,) = turns(recognise([DATA / "claude-stream.jsonl"]))

    telemetry = turn["telemetry"]
    assert (telemetry["inputTokens"], telemetry["costUsd"]) == (120, 0.01)


@pytest.mark.parametrize(
    ("told", "costs"),
    [([9, 15], [0.01, 0.02]), ([], [0.01, 0.02]), ([9, 6], [0.01, 0.03])],
    ids=["one process", "an older one", "two processes"],
)
def test_a_result_of_claude_code_has_the_cost_of_its_process_so_far(
    told: list[int], costs: list[float], tmp_path: Path
) -> None:
    first, *lines = map(json.loads, (DATA / "claude-stream.jsonl").read_text().splitlines())
    again = [line | {"total_cost_usd": 0.03, "usage": {"output_tokens": 6}}
             if line["type"] == "result" else line for line in lines]  # fmt: skip
    ends = [next(line for line in part if line["type"] == "result") for part in (lines, again)]
    for end, written in zip(ends, told, strict=False):
        end["modelUsage"] = {"claude-sonnet-4-5": {"outputTokens": written}}
    path = tmp_path / "two.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in (first, *lines, first, *again)))

    found = [turn["telemetry"]["costUsd"] for turn in turns(recognise([path]))]

    assert found == pytest.approx(costs)


def n8n(kind: str, start: int, item: Line, **more: object) -> list[Line]:
    source = [] if kind == "main" else [{"previousNode": "Agent"}]
    run = {"startTime": 1772359200000 + start, "executionTime": 5, "source": source}
    return [{**run, "data": {kind: [[{"json": item}]]}, **more}]


@pytest.mark.parametrize(
    ("trigger", "answer", "said"),
    [
        ({"body": {"message": "Why?"}, "headers": {}}, {"response": {"text": "So."}}, "So."),
        ({"message": {"text": "Why?", "chat": {}}}, {"output": {"paid": True}}, '{"paid": true}'),
    ],
    ids=["webhook, chain", "Telegram, output parser"],
)
def test_questions_answers_and_models_of_n8n(
    trigger: Line, answer: Line, said: str, tmp_path: Path
) -> None:
    info = {"generationInfo": {"model_name": "gpt-5-mini"}}
    asked = {"ai_tool": [[{"json": {"query": {"id": 12}}}]]}
    runs = {
        "Trigger": n8n("main", 0, trigger),
        "Model": n8n("ai_languageModel", 1, {"response": {"generations": [[info]]}}),
        "look": n8n("ai_tool", 2, {"response": "x"}, inputOverride=asked),
        "Agent": n8n("main", 1, answer, executionTime=20),
    }

    (turn,) = turns(read(tmp_path, {"id": "7", "data": {"resultData": {"runData": runs}}}))

    assert outline(turn) == ("Why?", [("look", False)], said, "ok")
    assert turn["tools"][0]["arguments"] == {"id": 12}
    assert turn["telemetry"]["models"] == ["gpt-5-mini"]


# -- Pydantic AI -----------------------------------------------------------------------------------


def history(answer: Line, **more: object) -> list[Line]:
    """The messages of a run with a call of `look`."""
    call = {"part_kind": "tool-call", "tool_name": "look", "args": "{}", "tool_call_id": "c"}
    asked = {"part_kind": "user-prompt", "content": ["Why?", {"kind": "image-url", "url": "x"}]}
    said = {"part_kind": "text", "content": "So."}
    returned = {"tool_name": "look", "tool_call_id": "c", **answer}
    return [
        {"kind": "request", "parts": [asked], **more},
        {"kind": "response", "parts": [call], "usage": {"request_tokens": 3}},
        {"kind": "request", "parts": [returned]},
        {"kind": "response", "parts": [said], "usage": {"request_tokens": 4}},
    ]


@pytest.mark.parametrize(
    ("answer", "failed"),
    [
        ({"part_kind": "tool-return", "content": {"t": 18}}, False),
        ({"part_kind": "tool-return", "content": "no", "outcome": "retried"}, True),
        ({"part_kind": "retry-prompt", "content": [{"type": "missing", "loc": ["id"]}]}, True),
    ],
    ids=["answered", "refused, version 2", "refused, version 1"],
)
def test_a_history_of_pydantic_ai(answer: Line, failed: bool, tmp_path: Path) -> None:
    found = read(tmp_path, history(answer))

    (turn,) = turns(found)
    assert outline(turn) == ("Why?", [("look", failed)], "So.", "ok")
    assert turn["telemetry"]["inputTokens"] == 7
    assert found.files[0].format == "Pydantic AI history"


def test_a_history_that_pydantic_ai_writes_is_read_with_its_output(tmp_path: Path) -> None:
    pydantic_ai = pytest.importorskip("pydantic_ai")
    test_model = pytest.importorskip("pydantic_ai.models.test")
    model = test_model.TestModel(custom_output_args={"celsius": 18})
    agent = pydantic_ai.Agent(model, output_type=Weather, instructions="Be brief.")
    agent.tool_plain(weather)
    first = asyncio.run(agent.run("Is it warm?"))
    second = asyncio.run(agent.run("And now?", message_history=first.all_messages()))
    path = tmp_path / "history.json"
    path.write_bytes(second.all_messages_json())

    found = recognise([path])

    assert [outline(turn) for turn in turns(found)] == [
        ("Is it warm?", [("weather", False)], '{"celsius": 18}', "ok"),
        ("And now?", [], '{"celsius": 18}', "ok"),
    ]
    (tool,) = turns(found)[0]["tools"]
    assert (tool["arguments"], tool["result"]) == ({"city": "a"}, {"celsius": 18})


class Weather(BaseModel):
    """What the agent answers with."""

    celsius: int


def weather(city: str) -> dict[str, int]:
    """Return a city's temperature."""
    return {"celsius": 18}


def test_a_test_run_of_deepeval_is_turns(tmp_path: Path) -> None:
    """As `.latest_run_full.json` holds it, or wrapped, as `.latest_test_run.json` does."""
    calls = [{"name": "look", "inputParameters": {"id": 1}, "output": "there"}]
    run = {
        "testPassed": 1,
        "testCases": [{"name": "t-0", "input": "Why?", "actualOutput": "So.", "toolsCalled": calls}],
        "conversationalTestCases": [
            {"name": "t-1", "turns": [
                {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"},
            ]},
        ],
    }  # fmt: skip

    for document in (run, {"testRunData": run}):
        found = read(tmp_path, document)

        assert [case["evalId"] for case in found.cases] == ["t-0", "t-1"]
        assert [outline(turn)[:3] for turn in turns(found)] == [
            ("Why?", [("look", False)], "So."), ("Hi", [], "Hello"),
        ]  # fmt: skip
        assert (found.files[0].format, found.files[0].contents) == ("DeepEval test run", "2 cases")
