"""`evaltap mocks`: offer recorded tools to agents in any language."""

import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from evaltap.cli.messages import say
from evaltap.cli.mocking import choice_of, lines_of_mocks
from evaltap.cli.options.run import MocksOptions
from evaltap.experiments.mocks.catalogue import catalogue, contradictions
from evaltap.experiments.mocks.drift import totals
from evaltap.experiments.mocks.invent import inventor
from evaltap.experiments.mocks.mcp import message_of, reply_to
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import arguments_of
from evaltap.experiments.mocks.served import MockServer, Tools
from evaltap.experiments.mocks.tape import Tape
from evaltap.experiments.plan import CaseSet, read_set
from evaltap.experiments.pseudonyms import Inventions
from evaltap.recorder.answering import ToolMiss
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_option
from evaltap.schemas.text import counted

Reply = Callable[[bytes], dict[str, Any] | None]  # Any: JSON
_ADDRESSES: Final = ("http://", "https://")


def run(options: MocksOptions) -> int:
    """Offer the tools until the input ends, or until Ctrl-C; return the exit code."""
    if options.set.startswith(_ADDRESSES):
        if not options.mcp:
            raise InputError(f"{options.set}: is served already; with --mcp, it is offered as MCP")
        _speak(lambda line: _forwarded(options.set, line))
        return 0
    cases = read_set(Path(options.set), options.case)
    choice = choice_of(options.tools)
    if wrong := choice.wrong_names(cases.cases):
        raise InputError("; ".join(wrong))
    tape = _tape(options, cases, choice.policy(cases.cases) or MockPolicy())
    tools = tape.tools
    tape.begin()
    _tell_contradictions(cases)
    with _misses(options.misses) as written:

        def answer(name: str, arguments: Any) -> Any:
            try:
                return tape.answer(name, arguments)
            except ToolMiss as miss:
                asked = arguments_of(arguments)
                written({"tool": name, "arguments": asked, "why": str(miss)})
                raise

        if options.mcp:
            _speak(lambda line: reply_to(message_of(line), tools, answer))
        else:
            _serve(options.port, tools, answer)
    with suppress(ToolMiss):  # was told when it happened
        tape.end()
    for line in lines_of_mocks(totals([tape.data()]), cases, served=True):
        say("mocks", line)
    return 1 if tape.missed else 0


def _tape(options: MocksOptions, cases: CaseSet, policy: MockPolicy) -> Tape:
    """Return what answers; raise InputError if there is nothing to offer."""
    inventions = Inventions()
    # As if all turns of all cases were one turn: who asks does not say which.
    turns = (turn for case in cases.cases for turn in case.recording)
    recording = (tuple(inventions.filled_call(call) for turn in turns for call in turn),)
    mocks = tuple(mock for case in cases.cases for mock in case.declared)
    tools = _schemas(options.schemas) if options.schemas else catalogue([recording], mocks)
    if not tools:
        raise InputError(
            f"{options.set}: no case has recorded tool calls or mocks; nothing to offer"
        )
    tape = Tape(
        recording,
        policy,
        every_turn=mocks,
        invent=inventor(recording, policy, mocks),
        tools=tools,
        redacted=inventions.restore,
    )
    tape.can_run = False
    return tape


def _tell_contradictions(cases: CaseSet) -> None:
    found = contradictions((one.eval_id, one.recording, one.declared) for one in cases.cases)
    for name, told in found.items():
        say(
            "mocks",
            f"{name} has other results for equal arguments in the cases {' and '.join(told)}, and a call does"
            " not say which case it is of: they are given in the set's order; choose one with --case",
        )


def _schemas(path: Path) -> list[dict[str, Any]]:
    found = read_option(path, "--tools")
    tools = found.get("tools") if isinstance(found, dict) else found
    if not isinstance(tools, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in tools
    ):
        raise InputError(f"--tools {path}: expected a list of tools, each with a name")
    return [{"inputSchema": {"type": "object"}, **one} for one in tools]


def _speak(reply: Reply) -> None:
    """Answer the JSON-RPC messages on standard input, a line each, until it ends."""
    for line in sys.stdin.buffer:
        if line.strip() and (said := reply(line)) is not None:
            print(json.dumps(said), flush=True)


def _forwarded(url: str, line: bytes) -> dict[str, Any] | None:
    """Return what the server of the running case replies."""
    body = b"null" if message_of(line) is None else line
    request = urllib.request.Request(
        f"{url.rstrip('/')}/mcp", body, {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            request, timeout=600
        ) as response:
            text = response.read()
    except (OSError, urllib.error.URLError) as error:
        raise InputError(f"{url}: cannot be reached: {error}") from error
    found: dict[str, Any] | None = json.loads(text) if text else None
    return found


def _serve(port: int, tools: Tools, answer: Callable[[str, Any], Any]) -> None:
    """Serve HTTP until Ctrl-C or SIGTERM."""
    try:
        server = MockServer(port=port)
    except OSError as error:
        raise InputError(f"--port {port}: {error.strerror}") from error
    ended = threading.Event()
    for one in (signal.SIGINT, signal.SIGTERM):
        signal.signal(one, lambda *_: ended.set())
    with server.offering(tools, answer, "mocks") as url:
        print(f"evaltap mocks: {counted(len(tools), 'tool')} at {url} (MCP: {url}/mcp)", flush=True)
        ended.wait()
    server.close()


@contextmanager
def _misses(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    if path is None:
        yield lambda miss: say("mocks", miss["why"])
        return
    try:
        file = path.open("w", encoding="utf-8")
    except OSError as error:
        raise InputError(f"--misses {path}: {error.strerror}") from error
    with file:
        yield lambda miss: print(json.dumps(miss, ensure_ascii=False), file=file, flush=True)
