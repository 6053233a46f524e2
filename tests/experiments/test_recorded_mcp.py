"""Recorded tools that are offered over the Model Context Protocol."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support.builders.commands import Evaltap
from support.worlds.recorded_shop import call, recorded, write_shop


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path) -> Evaltap:
    write_shop(tmp_path)
    return evaltap


MAIN = "import sys; from evaltap.cli.main import main; sys.exit(main())"


def speak(
    *messages: dict[str, Any] | str, more: tuple[str, ...] = ()
) -> tuple[int, list[Any], str]:
    """Send messages or lines to `evaltap mocks --mcp`; return its exit code, its replies, what it says."""
    lines = "".join(
        one + "\n" if isinstance(one, str) else f"{json.dumps({'jsonrpc': '2.0', **one})}\n"
        for one in messages
    )
    done = subprocess.run(
        [sys.executable, "-c", MAIN, "mocks", "shop.evalset.json", "--mcp", *more],
        input=lines, capture_output=True, text=True, errors="surrogateescape", timeout=60, check=False,
        env=os.environ,
    )  # fmt: skip
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("evaltap")
def test_mocks_speaks_mcp_over_standard_input_and_output() -> None:
    wanted = {"name": "refund", "arguments": {"id": "A-2"}}

    code, replies, said = speak(
        {"id": 1, "method": "initialize", "params": {"protocolVersion": "2025-03-26"}},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/list"},
        {"id": 3, "method": "tools/call", "params": wanted},
        {"id": 4, "method": "tools/call", "params": {**wanted, "arguments": {"id": "no"}}},
        {"id": 5, "method": "sampling/ask"},
        more=("--misses", "misses.jsonl"),
    )

    assert code == 1, said
    begun, tools, timed_out, missed, unknown = replies
    assert begun["result"]["protocolVersion"] == "2025-03-26"
    assert [one["name"] for one in tools["result"]["tools"]] == ["get_order", "refund"]
    assert tools["result"]["tools"][1]["inputSchema"]["required"] == ["id"]
    assert timed_out["result"] == {
        "content": [{"type": "text", "text": "no answer"}],
        "isError": True,
    }
    assert missed["error"]["code"] == -32001
    assert unknown["error"]["code"] == -32601
    assert json.loads(Path("misses.jsonl").read_text())["arguments"] == {"id": "no"}


@pytest.mark.slow
@pytest.mark.usefixtures("evaltap")
def test_mocks_says_where_cases_recorded_other_results_for_equal_arguments() -> None:
    asked = {"id": 1}
    cases = [
        recorded(name, ("hi", [call("get", asked, result), call("add", asked, 3)], "3"))
        for name, result in (("a", "one"), ("b", "two"))
    ]
    Path("shop.evalset.json").write_text(json.dumps({"evalSetId": "shop", "evalCases": cases}))

    (_, _, both), (_, _, one) = speak(), speak(more=("--case", "a"))

    assert "get has other results for equal arguments in the cases a and b" in both
    assert "add has" not in both
    assert "other results" not in one


@pytest.mark.slow
@pytest.mark.usefixtures("evaltap")
def test_mocks_answers_as_the_set_declares_before_it_answers_from_the_recording() -> None:
    case = recorded("a", ("hi", [call("get", {"id": 1}, "recorded"), call("add", {}, 3)], "3"))
    case["conversation"] = [
        {
            "userContent": {"role": "user", "content": "hi"},
            "toolMock": {"actual": [{"name": "get", "result": "declared"}]},
        }
    ]
    case["toolMock"] = {"actual": [{"name": "find", "result": "of every turn"}]}
    Path("shop.evalset.json").write_text(json.dumps({"evalSetId": "shop", "evalCases": [case]}))
    asked = [
        {"id": n, "method": "tools/call", "params": {"name": name, "arguments": arguments}}
        for n, (name, arguments) in enumerate((("get", {"id": 1}), ("find", {"q": 1}), ("add", {})))
    ]

    code, (tools, *found), said = speak({"id": 9, "method": "tools/list"}, *asked)

    assert [one["name"] for one in tools["result"]["tools"]] == ["get", "add", "find"]
    texts = [one["result"]["content"][0]["text"] for one in found]
    assert texts == ["declared", "of every turn", "3"]
    assert (code, "Traceback" in said) == (0, False)


def test_mocks_refuses_what_is_said_of_no_recorded_tool(evaltap: Evaltap) -> None:
    code, _, said = evaltap(
        "mocks", "shop.evalset.json", "--mcp", "--ignore-argument", "get_ordr.mail"
    )

    assert code == 2
    assert "the recording has no tool 'get_ordr'; did you mean 'get_order'?" in said


@pytest.mark.slow
@pytest.mark.usefixtures("evaltap")
def test_mocks_replies_to_odd_messages_and_goes_on() -> None:
    odd = {"name": "find", "arguments": {"q": "\ud800"}}
    lines = ["[" * 100_000 + "]" * 100_000, "\udcff", '{"jsonrpc": "2.0", "id": 1, "x": NaN}']

    code, replies, said = speak(
        *lines,
        {"id": 2, "method": "tools/call", "params": {}},
        {"id": 3, "method": "tools/call", "params": odd},
        {"id": [], "method": "ping"},
        {"id": 5, "method": "ping"},
        more=("--misses", "misses.jsonl"),
    )

    assert [one.get("error", {}).get("code") for one in replies] == [
        -32600, -32600, -32600, -32602, -32001, -32600, None,
    ]  # fmt: skip
    assert json.loads(Path("misses.jsonl").read_text(encoding="utf-8"))["tool"] == "find"
    assert (code, "Traceback" in said) == (1, False)


def test_mcp_results_keep_their_form() -> None:
    from evaltap.experiments.mocks.mcp import content_of

    blocks = [{"type": "text", "text": "3"}]
    assert content_of(blocks) == {"content": blocks}
    assert content_of({"content": blocks, "isError": False})["isError"] is False
    assert content_of("3") == {"content": blocks}
    assert content_of(3) == {"content": blocks}
    assert content_of({"a": 1})["structuredContent"] == {"a": 1}
    assert content_of(None) == {"content": [{"type": "text", "text": "null"}]}
    picture = {"type": "image", "data": "UE5H", "mimeType": "image/png"}
    assert content_of([*blocks, picture]) == {"content": [*blocks, picture]}
    of_langchain = [{"type": "image", "base64": "UE5H"}]
    assert content_of(of_langchain)["content"][0]["text"] == json.dumps(of_langchain)


@pytest.mark.parametrize(
    ("told", "content"),
    [
        (None, [{"type": "text", "text": "E"}]),
        ("sold out", [{"type": "text", "text": "sold out"}]),
        (
            {"content": [{"type": "text", "text": "sold out"}], "isError": True},
            [{"type": "text", "text": "sold out"}],
        ),
    ],
)
def test_a_failed_call_tells_what_the_model_was_told(told: Any, content: Any) -> None:
    from evaltap.experiments.mocks.mcp import reply_to
    from evaltap.recorder.answering import RecordedError

    def fail(name: str, arguments: Any) -> Any:
        failure = RecordedError("E")
        failure.result = told
        raise failure

    asked = {"id": 1, "method": "tools/call", "params": {"name": "sell"}}

    reply = reply_to(asked, [], fail)

    assert reply is not None
    assert reply["result"] == {"content": content, "isError": True}


def test_the_official_client_calls_recorded_tools_over_http(tmp_path: Path) -> None:
    mcp = pytest.importorskip("mcp")
    import asyncio

    from mcp.client.streamable_http import streamable_http_client

    from evaltap.experiments.mocks.catalogue import catalogue
    from evaltap.experiments.mocks.policy import MockPolicy
    from evaltap.experiments.mocks.recorded import recording_of
    from evaltap.experiments.mocks.served import MockServer
    from evaltap.experiments.mocks.tape import Tape

    recording = recording_of(
        recorded("a", ("hi", [call("add", {"a": 1, "b": 2}, {"sum": 3})], "3"))
    )
    tape = Tape(recording, MockPolicy())
    tape.begin()
    server = MockServer()

    async def ask(url: str) -> tuple[list[str], Any]:
        async with (
            streamable_http_client(f"{url}/mcp") as streams,
            mcp.ClientSession(streams[0], streams[1]) as session,
        ):
            await session.initialize()
            tools = await session.list_tools()
            found = await session.call_tool("add", {"a": 1, "b": 2})
            return [one.name for one in tools.tools], found

    with server.offering(catalogue([recording]), tape.answer) as url:
        names, found = asyncio.run(ask(url))
    server.close()

    assert names == ["add"]
    assert json.loads(found.content[0].text) == {"sum": 3}
