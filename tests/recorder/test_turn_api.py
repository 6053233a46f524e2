"""The plain API: the agent's values are recorded unchanged, and errors remain the agent's."""

import asyncio
import threading
from typing import Any

import pytest

from evaltap.recorder import MemorySink, Recorder, Turn


def recorded(recorder: Recorder, sink: MemorySink) -> list[dict[str, Any]]:
    assert recorder.close()
    return [case["actualConversation"][0] for case in sink.cases]


@pytest.fixture
def recorder(sink: MemorySink) -> Recorder:
    return Recorder(sink=sink)


def test_a_whole_turn_is_recorded_in_the_order_of_its_calls(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(
        session_id="s", user="hi", user_id="u", app_name="a", agent="root", state={"k": 1}
    ) as turn:
        turn.model("m-1", text="let me see", input_tokens=10, output_tokens=3, cost_usd=0.5)
        first = turn.tool("search", {"q": "x"}, id="c-1", agent="helper")
        second = turn.tool("add", {"a": 1}, id="c-2", parent=first)
        second.returned(2)
        first.failed(TimeoutError("too slow"))
        turn.tool("note", {"t": "n"}, result="ok", duration_ms=1.5)
        turn.model("m-2", input_tokens=5, cost_usd=0.25)
        turn.respond("first try")
        turn.respond("done")

    (data,) = recorded(recorder, sink)
    tools = data["tools"]
    assert [tool["name"] for tool in tools] == ["search", "add", "note"]
    assert [tool.get("id") for tool in tools] == ["c-1", "c-2", None]
    assert tools[0]["error"] == {"type": "TimeoutError", "message": "too slow"}
    assert tools[0]["durationMs"] >= tools[1]["durationMs"] > 0
    assert (tools[1]["result"], tools[1]["parentId"], tools[0]["agent"]) == (2, "c-1", "helper")
    assert tools[2]["durationMs"] == 1.5
    assert data["finalResponse"]["content"] == "done"
    assert data["intermediateResponses"] == [{"role": "assistant", "content": "let me see"}]
    telemetry = data["telemetry"]
    assert (telemetry["models"], telemetry["inputTokens"], telemetry["costUsd"]) == (
        ["m-1", "m-2"], 15, 0.75,
    )  # fmt: skip
    assert "capture" not in data
    assert sink.cases[0]["sessionInput"] == {"appName": "a", "userId": "u", "state": {"k": 1}}


class Refused(Exception):
    """An error of the agent."""


def test_an_error_is_recorded_and_reaches_the_caller_unchanged(
    recorder: Recorder, sink: MemorySink
) -> None:
    error = Refused("no")

    with pytest.raises(Refused) as caught, recorder.turn(session_id="s", user="hi"):
        raise error

    (data,) = recorded(recorder, sink)
    assert caught.value is error
    assert data["telemetry"]["status"] == "error"
    assert data["telemetry"]["error"] == {"type": f"{__name__}.Refused", "message": "no"}
    assert "finalResponse" not in data


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_an_interruption_makes_the_turn_incomplete(
    recorder: Recorder, sink: MemorySink, interruption: type[BaseException]
) -> None:
    with pytest.raises(interruption), recorder.turn(session_id="s", user="hi"):
        raise interruption

    (data,) = recorded(recorder, sink)
    assert data["telemetry"]["status"] == "incomplete"


def test_what_was_not_said_is_marked_as_missing(recorder: Recorder, sink: MemorySink) -> None:
    with recorder.turn() as turn:
        turn.tool("t")

    (data,) = recorded(recorder, sink)
    assert data["capture"] == {
        "sessionId": "synthesized", "userContent": "missing", "finalResponse": "missing",
    }  # fmt: skip
    assert data["tools"][0]["capture"] == {"arguments": "missing", "result": "missing"}


@pytest.mark.parametrize("empty", [{}, [], "", 0, False])
def test_what_is_empty_was_seen_all_the_same(
    recorder: Recorder, sink: MemorySink, empty: Any
) -> None:
    with recorder.turn(session_id="s", user="") as turn:
        turn.tool("t", empty, result=empty)
        turn.respond("")

    (data,) = recorded(recorder, sink)
    (tool,) = data["tools"]
    assert (tool["arguments"], tool["result"]) == (empty, empty)
    assert data["userContent"]["content"] == data["finalResponse"]["content"] == ""
    assert "capture" not in data
    assert "capture" not in tool


def test_a_tool_that_returns_nothing_did_return(recorder: Recorder, sink: MemorySink) -> None:
    with recorder.turn(session_id="s", user="u") as turn:
        turn.tool("t", {}, result=None)

    (data,) = recorded(recorder, sink)
    assert "capture" not in data["tools"][0]


def test_content_is_copied_when_it_is_seen(recorder: Recorder, sink: MemorySink) -> None:
    arguments = {"items": ["a"]}
    with recorder.turn(session_id="s", user="u") as turn:
        call = turn.tool("t", arguments)
        arguments["items"].append("later")
        call.returned(arguments)
        arguments.clear()

    (data,) = recorded(recorder, sink)
    assert data["tools"][0]["arguments"] == {"items": ["a"]}
    assert data["tools"][0]["result"] == {"items": ["a", "later"]}


def test_a_call_may_be_named_by_its_id(recorder: Recorder, sink: MemorySink) -> None:
    with recorder.turn(session_id="s", user="u") as turn:
        turn.tool("t", {}, id="call-9")
        turn.tool_result("call-9", {"ok": True}, duration_ms=3)

    (data,) = recorded(recorder, sink)
    assert (data["tools"][0]["result"], data["tools"][0]["durationMs"]) == ({"ok": True}, 3)


def test_nested_turns_are_turns_of_their_own(recorder: Recorder, sink: MemorySink) -> None:
    with recorder.turn(session_id="outer", user="o") as outer:
        with recorder.turn(session_id="inner", user="i") as inner:
            inner.tool("t", {"n": 2}, result=1)
            inner.respond("inner answer")
        outer.tool("t", {"n": 1}, result=1)
        outer.respond("outer answer")
    recorder.close()

    said = {
        case["evalId"]: (
            case["actualConversation"][0]["finalResponse"]["content"],
            case["actualConversation"][0]["tools"][0]["arguments"]["n"],
        )
        for case in sink.cases
    }
    assert said == {"inner": ("inner answer", 2), "outer": ("outer answer", 1)}


def test_threads_and_tasks_do_not_mix_their_turns(recorder: Recorder, sink: MemorySink) -> None:
    async def converse(name: str) -> None:
        async with recorder.turn(session_id=name, user=name) as turn:
            for step in range(3):
                call = turn.tool("t", {"of": name}, id=f"{name}-{step}")
                await asyncio.sleep(0)
                call.returned(name)
            turn.respond(name)

    async def many(prefix: str) -> None:
        await asyncio.gather(*(converse(f"{prefix}-{n}") for n in range(10)))

    threads = [threading.Thread(target=lambda p=p: asyncio.run(many(p))) for p in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()

    assert len(sink.cases) == 40
    for case in sink.cases:
        (turn,) = case["actualConversation"]
        assert [tool["id"] for tool in turn["tools"]] == [f"{case['evalId']}-{n}" for n in range(3)]
        assert {tool["result"] for tool in turn["tools"]} == {case["evalId"]}


def test_run_tool_calls_the_function_and_records_call_result_and_time(
    recorder: Recorder, sink: MemorySink
) -> None:
    def add(a: int, b: int) -> int:
        return a + b

    async def slow_add(a: int, b: int) -> int:
        return a + b

    async def agent(turn: Turn) -> int:
        total: int = turn.run_tool("add", {"a": 1, "b": 2}, add)
        total += await turn.run_tool("slow", {"a": 3, "b": 4}, slow_add)
        return total

    with recorder.turn(session_id="s", user="?") as turn:
        assert asyncio.run(agent(turn)) == 10

    (data,) = recorded(recorder, sink)
    assert [(one["name"], one["arguments"], one["result"]) for one in data["tools"]] == [
        ("add", {"a": 1, "b": 2}, 3),
        ("slow", {"a": 3, "b": 4}, 7),
    ]
    assert all(one["durationMs"] > 0 for one in data["tools"])


def test_an_error_of_a_run_tool_is_recorded_and_reaches_the_agent(
    recorder: Recorder, sink: MemorySink
) -> None:
    def fails() -> None:
        raise LookupError("no such order")

    with recorder.turn(session_id="s", user="?") as turn, pytest.raises(LookupError):
        turn.run_tool("get_order", {}, fails)

    (data,) = recorded(recorder, sink)
    assert data["tools"][0]["error"] == {"type": "LookupError", "message": "no such order"}
    assert data["telemetry"]["status"] == "ok"


def test_labels_give_runs_the_ids_of_their_case_whatever_the_session(sink: MemorySink) -> None:
    recorder = Recorder(sink=sink, run="nightly", version="1.4")

    def turn() -> None:
        with recorder.turn(session_id="framework-7", user="?"):
            pass

    def labelled(trial: int) -> None:
        with recorder.run_labels(
            run=f"x.{trial}", trial=trial, attempt=1, eval_set_id="math", eval_id="add"
        ):
            turn()

    threads = [threading.Thread(target=labelled, args=[trial]) for trial in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    turn()
    assert recorder.close()

    by_trial = {case["source"].get("trial"): case for case in sink.cases}
    assert {trial: case["source"]["run"] for trial, case in by_trial.items()} == {
        1: "x.1", 2: "x.2", None: "nightly",
    }  # fmt: skip
    assert (by_trial[1]["evalSetId"], by_trial[1]["evalId"]) == ("math", "add")
    assert by_trial[1]["source"]["attempt"] == 1
    assert by_trial[None]["evalId"] == "framework-7"
    assert "evalSetId" not in by_trial[None]


@pytest.mark.parametrize(("label", "recorded"), [(None, "theirs"), ("shop", "shop"), ("", None)])
def test_a_label_of_the_application_takes_the_place_of_the_frameworks(
    sink: MemorySink, label: str | None, recorded: str | None
) -> None:
    recorder = Recorder(sink=sink)

    with recorder.run_labels(app_name=label), recorder.turn(app_name="theirs", user="?"):
        pass

    assert recorder.close()
    assert sink.cases[0]["sessionInput"].get("appName") == recorded


@pytest.mark.parametrize("settings", [{"sample_rate": 0.0}, {
    "sample_rules": '[{"name": "slow", "slowerThanMs": 60000, "keep": 0.5}]', "sample_rate": 0.0,
}])  # fmt: skip
def test_no_sampling_drops_the_turn_of_a_trial(sink: MemorySink, settings: dict[str, Any]) -> None:
    recorder = Recorder(sink=sink, **settings)
    for trial in (1, None):
        with (
            recorder.run_labels(trial=trial, eval_id="a"),
            recorder.turn(session_id="s", user="?"),
        ):
            pass
    assert recorder.close()

    assert [case["source"].get("trial") for case in sink.cases] == [1]
    assert "inclusionProbability" not in sink.cases[0]["source"]


def test_a_call_with_the_id_of_one_that_has_returned_is_another_call(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(session_id="s", user="hi") as turn:
        for order in ("A", "B"):
            turn.tool("get_order", {"order_id": order}, id="call_0")
            turn.tool_result("call_0", f"order {order}")
        turn.tool("pack", {}, parent="call_0", result="done")

    (data,) = recorded(recorder, sink)
    first, second, packed = data["tools"]
    assert (first["arguments"], first["result"]) == ({"order_id": "A"}, "order A")
    assert (second["arguments"], second["result"]) == ({"order_id": "B"}, "order B")
    assert first["id"] != second["id"] == packed["parentId"]


def test_an_open_call_that_is_recorded_again_is_one_call(
    recorder: Recorder, sink: MemorySink
) -> None:
    with recorder.turn(session_id="s", user="hi") as turn:
        turn.tool("get_order", {"order_id": "A"}, id="c-1")
        turn.tool("get_order", {"order_id": "A"}, id="c-1", result="order A")

    (data,) = recorded(recorder, sink)
    assert [(one["id"], one["result"]) for one in data["tools"]] == [("c-1", "order A")]
