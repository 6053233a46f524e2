"""Agents outside the process: commands over standard input and output, and HTTP endpoints."""

import asyncio
import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaltap.experiments.agents.base import Agent, Unit
from evaltap.experiments.agents.endpoint import KEY_VARIABLE, pause_after
from evaltap.experiments.agents.loading import load_agent
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings
from evaltap.recorder import MemorySink, Recorder
from evaltap.schemas.errors import InputError
from support.servers import quiet_http
from support.servers.agent_endpoint import JSON, serving
from support.servers.quiet_http import Handler

CALL = {"name": "get_order", "arguments": {"id": "A"}, "result": {"status": "shipped"}}
USAGE = {"model": "m-1", "input_tokens": 7, "output_tokens": 3, "cost_usd": 0.5}


def unit_of(*turns: str, eval_id: str = "c-1", **more: Any) -> Unit:
    return Unit("golden", eval_id, trial=1, attempt=1, run="x1.1", turns=turns, **more)


def run(
    make: Callable[[Recorder], Agent], *units: Unit, turn_seconds: float = 20.0
) -> tuple[list[UnitEnd], list[dict[str, Any]]]:
    """Run units concurrently; return how they ended and the recorded turns, by time."""
    sink = MemorySink()
    recorder = Recorder(sink=sink)

    async def all_of_them() -> list[UnitEnd]:
        worker = Worker(make(recorder), recorder, WorkerSettings(turn_seconds=turn_seconds))
        return [*await asyncio.gather(*(worker.run(unit) for unit in units))]

    ends = asyncio.run(all_of_them())
    recorder.close()
    assert not recorder.counters().faults
    cases = sorted(sink.cases, key=lambda case: float(case["creationTimestamp"]))
    return ends, [case["actualConversation"][0] for case in cases]


@pytest.fixture
def command(tmp_path: Path) -> Callable[[str], Callable[[Recorder], Agent]]:
    """Return a maker of agents that are Python programs."""

    def of(program: str) -> Callable[[Recorder], Agent]:
        path = tmp_path / "agent.py"
        path.write_text(f"import json, os, sys, time\n{program}")
        words = shlex.join([sys.executable, str(path)])
        return lambda recorder: load_agent(f"command:{words}", recorder)

    return of


ECHO = """
for line in sys.stdin:
    asked = json.loads(line)
    print(f"asked by {asked['session_id']}", file=sys.stderr)
    said = "/".join(one["content"] for one in asked["messages"])
    print(json.dumps({"answer": said + str(asked.get("state", "")), **MORE}), flush=True)
"""


def test_a_command_answers_turn_by_turn_and_reports_its_tools_and_usage(
    command: Callable[[str], Callable[[Recorder], Agent]],
) -> None:
    failed = {"name": "pay", "arguments": {}, "error": "no money"}
    program = ECHO.replace("MORE", repr({"tools": [CALL, failed], "usage": USAGE}))
    context = ({"role": "system", "content": "Be brief."},)

    ends, (first, second) = run(
        command(program), unit_of("Hi", "Go on", context=context, state={"n": 1})
    )

    assert [(end.state, end.reason) for end in ends] == [("ended", "")]
    assert first["finalResponse"]["content"] == "Be brief./Hi{'n': 1}"
    assert second["finalResponse"]["content"].startswith("Be brief./Hi/Be brief./Hi{'n': 1}/Go on")
    assert [(one["name"], one.get("result"), one.get("error")) for one in first["tools"]] == [
        ("get_order", {"status": "shipped"}, None),
        ("pay", None, {"message": "no money"}),
    ]
    assert first["tools"][0]["arguments"] == {"id": "A"}
    telemetry = first["telemetry"]
    assert (telemetry["models"], telemetry["inputTokens"], telemetry["costUsd"]) == (
        ["m-1"], 7, 0.5,
    )  # fmt: skip


WRONG = {
    "print('Hello!')": "the command printed 'Hello!'; expected an answer as one line of JSON",
    "print('[1]')": "the agent's reply is '[1]'; expected a JSON object",
    "print('{}')": "the agent's reply '{}' has no answer; expected a text",
    """print('{"answer": 7}')""": "has no answer; expected a text",
    """print('{"answr": "x"}')""": "the agent's reply has 'answr'; did you mean 'answer'?",
    """print('{"answer": "x", "tools": {}}')""": "has tools '{}'; expected a list of calls",
    """print('{"answer": "x", "tools": [{"arguments": {}}]}')""": "has no name",
    """print('{"answer": "x", "usage": {"input_tokens": "7"}}')""": "has input_tokens '7'",
    """print('{"answer": "x", "usage": {"cost_usd": -1}}')""": "has cost_usd '-1'; expected an amount",
    """print('{"answer": "x", "usage": {"cost_usd": NaN}}')""": "has cost_usd 'nan'",
    """os.write(1, b'{"answer": "x"}\\n{"answer": "y"}\\n')""": "the command answered twice, the second",
    "sys.exit('no key')": "the command exited with code 1 without an answer; it printed last: no key",
    "os.kill(os.getpid(), 9)": "the command was killed by signal 9 without an answer",
    "os.close(1); time.sleep(60)": "the command closed its output without an answer",
    "print('x' * 17_000_000)": "the command printed a line of more than 16777216 bytes",
    "time.sleep(60)": "the agent did not answer within 3 s",
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_what_a_command_does_wrong_is_one_crash_with_its_reason_and_the_others_go_on(
    wrong: str, command: Callable[[str], Callable[[Recorder], Agent]]
) -> None:
    program = f"""
asked = json.loads(sys.stdin.readline())
if asked["messages"][-1]["content"] == "Hi":
    {wrong}
    sys.stdout.flush()
    sys.stdin.readline()
print(json.dumps({{"answer": "fine"}}), flush=True)
"""
    ends, turns = run(
        command(program),
        unit_of("Hi", "Never said"),
        unit_of("Hello", eval_id="c-2"),
        turn_seconds=3.0,
    )

    assert [(end.state, end.turns) for end in ends] == [("crashed", 1), ("ended", 1)]
    assert WRONG[wrong] in ends[0].reason
    status = {one["userContent"]["content"]: one["telemetry"]["status"] for one in turns}
    assert status == {"Hi": "error", "Hello": "ok"}


def test_an_answer_that_nobody_asked_for_is_found_later(
    command: Callable[[str], Callable[[Recorder], Agent]],
) -> None:
    program = """
sys.stdin.readline()
print('{"answer": "one"}', flush=True)
time.sleep(0.3)
print('{"answer": "two"}', flush=True)
"""
    (end,), _ = run(command(program), unit_of("Hi"))

    assert end.reason.startswith("the command answered twice")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("command:", "names no command, e.g. command:node agent.js"),
        ("command:no-such-program x", "there is no program 'no-such-program'"),
        ("command:'x", "No closing quotation"),
        ("openai:gpt", "expected openai:MODEL@http://host/v1"),
        ("openai:gpt@host", "expected openai:MODEL@http://host/v1"),
    ],
)
def test_an_address_that_is_none_is_refused(text: str, says: str) -> None:
    with pytest.raises(InputError, match=says.replace("(", r"\(")):
        load_agent(text, Recorder(sink=MemorySink()))


EVENTS = "text/event-stream"


def test_an_openai_compatible_endpoint_is_asked_with_all_messages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "k-1")
    monkeypatch.setenv("OPENAI_API_KEY", "another")
    asked: list[tuple[Any, str]] = []
    statuses = iter([429, 200, 200])

    def answer(body: dict[str, Any], headers: Any) -> tuple[int, str, str]:
        asked.append((body, headers["Authorization"]))
        message = {"role": "assistant", "content": f"answer {len(body['messages'])}"}
        usage = {"prompt_tokens": 7, "completion_tokens": 3}
        reply = {"model": "m-1-2026", "choices": [{"message": message}], "usage": usage}
        return next(statuses), JSON, json.dumps(reply)

    with serving(answer) as url:
        ends, (_, second) = run(
            lambda recorder: load_agent(f"openai:m-1@{url}/v1", recorder), unit_of("Hi", "Go on")
        )

    assert [end.reason for end in ends] == [""]
    body, key = asked[-1]
    assert (len(asked), key, body["path"], body["model"]) == (
        3, "Bearer k-1", "/v1/chat/completions", "m-1",
    )  # fmt: skip
    assert [one["content"] for one in body["messages"]] == ["Hi", "answer 1", "Go on"]
    assert second["finalResponse"]["content"] == "answer 3"
    assert second["telemetry"]["models"] == ["m-1-2026"]
    assert second["telemetry"]["inputTokens"] == 7


@pytest.mark.parametrize(
    ("status", "kind", "reply", "says"),
    [
        (500, JSON, "no\nmodel", "/v1/chat/completions answered with status 500: 'no model'"),
        (302, JSON, "", "answered with status 302"),
        (200, JSON, "<html>", "the endpoint answered '<html>'; expected JSON"),
        (200, JSON, '{"choices": []}', "has no text in choices[0].message"),
        (200, JSON, "[]", "has no text in choices[0].message"),
        (200, JSON, '{"choices": [{"message": {"content": null}}]}', "has no text in"),
    ],
)
def test_what_an_endpoint_answers_wrong_is_a_crash_with_its_reason(
    status: int, kind: str, reply: str, says: str
) -> None:
    with serving(lambda *_: (status, kind, reply)) as url:
        (end,), (turn,) = run(
            lambda recorder: load_agent(f"openai:m@{url}/v1", recorder), unit_of("Hi", "Never")
        )

    assert (end.state, end.turns) == ("crashed", 1)
    assert says in end.reason
    assert turn["telemetry"]["status"] == "error"


def test_an_endpoint_that_is_not_there_is_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    (end,), _ = run(lambda recorder: load_agent("http://127.0.0.1:9/", recorder), unit_of("Hi"))

    assert end.reason == "http://127.0.0.1:9/ cannot be reached: [Errno 111] Connection refused"


@pytest.mark.parametrize(
    ("template", "result", "kind", "reply", "sent", "answer"),
    [
        (None, "", JSON, '{"answer": "Hello."}', {
            "messages": [{"role": "user", "content": "Hi"}], "session_id": "x1.1/c-1"}, "Hello."),
        ({"q": "{{message}}!", "to": ["{{session_id}}"], "n": 1}, "$.output[0].text", JSON,
         '{"output": [{"text": "Hello."}]}', {"q": "Hi!", "to": ["x1.1/c-1"], "n": 1}, "Hello."),
        ({"input": "User: {{messages}}"}, "$", JSON, '"Hello."',
         {"input": 'User: [{"role": "user", "content": "Hi"}]'}, "Hello."),
        ({"q": "{{message}}"}, "", "text/plain", "Hello.", {"q": "Hi"}, "Hello."),
        ({"q": "{{message}}"}, "", EVENTS, 'data: {"answer": "H"}\n\ndata: {"answer": "Hello."}\n\n',
         {"q": "Hi"}, "Hello."),
        ({"q": "{{message}}"}, "$.choices[0].delta.content", EVENTS,
         'event: x\r\ndata: {"choices": [{"delta": {"content": "Hel"}}]}\r\n\r\n'
         'data: {"choices": [{"delta": {"content": "lo."}}]}\r\n\r\n'
         'data: {"choices": []}\r\n\r\ndata: [DONE]\r\n\r\n', {"q": "Hi"}, "Hello."),
        ({"q": "{{message}}"}, "", EVENTS, ": wait\n\ndata: Hel\n\ndata: Hello.\ndata: Bye.\n\n",
         {"q": "Hi"}, "Hello.\nBye."),
        ({"q": "{{message}}"}, "", "text/plain", "42", {"q": "Hi"}, "42"),
    ],
)  # fmt: skip
def test_any_endpoint_is_asked_by_a_template_and_read_by_a_path(
    template: Any, result: str, kind: str, reply: str, sent: Any, answer: str
) -> None:
    bodies: list[dict[str, Any]] = []

    def serve(body: dict[str, Any], _: Any) -> tuple[int, str, str]:
        bodies.append(body)
        return 200, kind, reply

    with serving(serve) as url:
        (end,), (turn,) = run(
            lambda recorder: load_agent(f"{url}/ask", recorder, request=template, result=result),
            unit_of("Hi"),
        )

    assert end.reason == ""
    assert bodies == [{"path": "/ask", **sent}]
    assert turn["finalResponse"]["content"] == answer


@pytest.mark.parametrize(
    ("kind", "reply", "promised", "answer"),
    [
        ("text/plain; charset=iso-8859-1", "Größe".encode("latin-1"), 0, "Größe"),
        ("text/plain; charset=klingon", "Größe".encode(), 0, "Größe"),
        (JSON, b'\xef\xbb\xbf{"answer": "Yes"}', 0, "Yes"),
        ("text/plain", b"Yes", 9, "broke off its answer after 3 bytes"),
        (EVENTS, b"data: Yes\n\n", 99, "broke off its answer after 11 bytes"),
    ],
)
def test_a_reply_is_read_whole_and_in_its_charset(
    kind: str, reply: bytes, promised: int, answer: str
) -> None:
    class Endpoint(Handler):
        def do_POST(self) -> None:
            self.body()
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(promised or len(reply)))
            self.end_headers()
            self.wfile.write(reply)

    with quiet_http.serving(Endpoint) as url:
        (end,), (turn,) = run(lambda recorder: load_agent(url, recorder), unit_of("Hi"))

    assert end.state == ("crashed" if promised else "ended")
    assert answer in (end.reason if promised else turn["finalResponse"]["content"])


def test_a_pause_that_is_no_number_is_that_of_the_try() -> None:
    assert [pause_after(one, 1) for one in ("nan", "soon", None)] == [2.0] * 3
    assert [pause_after(one, 1) for one in ("7", "-1", "inf")] == [7.0, 0.1, 60.0]


def test_an_endpoint_may_report_its_tools() -> None:
    reply = json.dumps({"answer": "Shipped.", "tools": [CALL]})

    with serving(lambda *_: (200, JSON, reply)) as url:
        _, (turn,) = run(lambda recorder: load_agent(url, recorder), unit_of("Hi"))

    assert turn["tools"][0]["result"] == {"status": "shipped"}


@pytest.mark.parametrize(
    ("kind", "reply", "result", "says"),
    [
        (JSON, '{"output": 7}', "$.output", "$.output is no text in the endpoint's reply"),
        (JSON, "{}", "$.a[0].b", "$.a[0].b is no text"),
        (JSON, "Hello", "", "the endpoint answered 'Hello'; expected JSON"),
        (JSON, '{"text": "x"}', "", "the agent's reply has 'text'"),
        (EVENTS, ": nothing\n\n", "", "the endpoint sent no event with data"),
    ],
)
def test_an_endpoints_reply_without_an_answer_is_a_crash(
    kind: str, reply: str, result: str, says: str
) -> None:
    with serving(lambda *_: (200, kind, reply)) as url:
        (end,), _ = run(lambda recorder: load_agent(url, recorder, result=result), unit_of("Hi"))

    assert says in end.reason


@pytest.mark.parametrize(
    ("text", "given", "says"),
    [
        ("http://x", {"request": {"q": "{{mesage}}"}}, "no placeholder 'mesage'; known: message,"),
        ("http://x", {"request": {"q": "Hi"}}, "has neither {{message}} nor {{messages}}"),
        ("http://x", {"result": "output.text"}, "expected a path such as $.output.text"),
        ("command:true", {"result": "$.x"}, "are for an http:// address"),
    ],
)
def test_a_template_or_path_that_is_none_is_refused(
    text: str, given: dict[str, Any], says: str
) -> None:
    with pytest.raises(InputError) as refused:
        load_agent(text, Recorder(sink=MemorySink()), **given)

    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("text", "given", "can"),
    [
        ("command:true", {}, {"state", "context", "tools"}),
        ("openai:m@http://x/v1", {}, {"context"}),
        ("http://x", {}, {"context", "tools"}),
        ("http://x", {"request": ["{{message}}"], "result": "$.a"}, set()),
    ],
)
def test_each_kind_says_what_it_can_carry(text: str, given: dict[str, Any], can: set[str]) -> None:
    abilities = load_agent(text, Recorder(sink=MemorySink()), **given).abilities

    assert {one for one in ("state", "context", "tools", "mocks") if getattr(abilities, one)} == can
