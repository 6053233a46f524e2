"""Claude Code's transcripts: one JSON Lines file per session, read into eval cases, one per turn.

Source: the files below `~/.claude/projects` as written by Claude Code 2.x, and their reader in
claude-agent-sdk. A line holds one content block of a message; `message.id` groups them. A
sub-agent's lines are marked `isSidechain` and are in the same file, or in
`SESSION/subagents/agent-*.jsonl` next to `SESSION.jsonl`, with the same session id.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from evaltap.recorder.assembly.case import case_of, installed_version
from evaltap.recorder.observation import (
    Failure,
    ModelCalled,
    Origin,
    Responded,
    RunEnded,
    RunEvent,
    RunStarted,
    RunStatus,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.sources.claude_prompts import (
    INTERRUPTED,
    Prompt,
    blocks_of,
    picked_up,
    prompts_of,
    rewound_prompts,
)
from evaltap.recorder.tokens import added_by_block
from evaltap.schemas.chat.evidence import decode
from evaltap.schemas.chat.media import media_in
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.refused import refuse_device, regular_files

AGENT = "claude-code"
SUB_AGENT = "Task"
ORIGIN = Origin(framework="claude-code", convention="claude-code-transcript")
_NAMES = {"Skill": "skill_run", "Agent": SUB_AGENT, "Task": SUB_AGENT}
_TYPES = (
    "assistant",
    "file-history-snapshot",
    "progress",
    "queue-operation",
    "summary",
    "system",
    "user",
)
"""Line types unique to transcripts; other JSON Lines have a `type`, too."""
_TEXTS = ("agentId", "logicalParentUuid", "parentUuid", "sessionId", "timestamp", "type", "uuid")
_REQUIRED = {"text": ("text",), "tool_use": ("id", "name"), "server_tool_use": ("id", "name")}
"""The texts that a content block must have, by its type."""
REWOUND = "rewound"
"""Tag of a turn that the user undid by rewinding: later turns do not contain it."""
_SYNTHETIC = "<synthetic>"
_DATA_CHARACTERS = 1 << 20
"""Longer texts are not parsed: hooks run on the agent's thread."""


def normal_name(name: str) -> str:
    """Return a tool's name as eval sets spell it.

    Calls of skills become `skill_run`, sub-agents `Task` in every version; names of MCP tools
    (`mcp__server__tool`) and all others stay.
    """
    return _NAMES.get(name, name)


@dataclass(slots=True)
class TranscriptReport:
    """What the files contained."""

    files: int = 0
    lines: int = 0
    sessions: int = 0
    turns: int = 0
    lines_skipped: int = 0
    """Lines that are not a JSON object, or not as Claude Code writes it: a file being written ends in one."""


def read_transcripts(
    paths: Iterable[str | Path], *, report: TranscriptReport | None = None
) -> Iterator[JsonObject]:
    """Yield an eval case for each turn in the transcripts, session by session in order of time.

    A path may be a folder; all transcripts in it are read. The files of a session's sub-agents are
    found next to it. A line copied by a resumed session counts once. Raises InputError for a file
    that cannot be read or is not a transcript.
    """
    report = report if report is not None else TranscriptReport()
    sessions, parents = _sessions(paths, report)
    report.sessions = len(sessions)
    for session_id, every in sessions.items():
        lines = _without_snapshots(every)
        side = [line for line in lines if line.get("isSidechain")]
        prompts = prompts_of([line for line in lines if not line.get("isSidechain")])
        works = _works(side, prompts)
        rewound = rewound_prompts(prompts, parents)
        for prompt in prompts:
            report.turns += 1
            events = _observe(session_id, prompt, works)
            case = case_of(events, recorder_version=installed_version())
            if prompt.line.get("uuid") in rewound:
                case["source"]["tags"] = [REWOUND]
            yield case


def _sessions(
    paths: Iterable[str | Path], report: TranscriptReport
) -> tuple[Mapping[str, list[JsonObject]], Mapping[str, object]]:
    """Return the lines by session, and what each line follows, by id."""
    sessions: dict[str, list[JsonObject]] = {}
    parents: dict[str, object] = {}
    for path in _files(paths):
        for line in _lines(path, report):
            key = line.get("uuid")
            if key in parents:
                continue
            if isinstance(key, str):
                parents[key] = line.get("parentUuid") or line.get("logicalParentUuid")
            if line.get("type") in ("user", "assistant") or picked_up(line):
                sessions.setdefault(str(line.get("sessionId") or path.stem), []).append(line)
    return sessions, parents


def _without_snapshots(lines: Sequence[JsonObject]) -> list[JsonObject]:
    """Leave out lines that a later one of the same message repeats, as written while it streamed.

    A sub-agent's lines count the tokens so far, so all lines of a message get the usage of the last.
    """
    kept: list[JsonObject] = []
    latest: dict[str, JsonObject] = {}
    for line in reversed(lines):
        message = line.get("message") if line.get("type") == "assistant" else None
        key = message.get("id") if isinstance(message, Mapping) else None
        if key is not None:
            after = latest.get(key)
            latest[key] = line
            if after is not None and after["message"].get("usage") is not None:
                line["message"]["usage"] = after["message"]["usage"]
            if after is not None and _begins(blocks_of(line), blocks_of(after)):
                latest[key] = after
                continue
        kept.append(line)
    return kept[::-1]


def _begins(one: Sequence[JsonObject], other: Sequence[JsonObject]) -> bool:
    """Return whether the blocks of a message are the beginning of others; the last text may go on."""
    if not one or len(one) > len(other):
        return False
    *first, last = one
    after = other[len(one) - 1]
    goes_on = last.get("type") == after.get("type") == "text" and after["text"].startswith(
        last["text"]
    )
    return list(other[: len(first)]) == first and (last == after or goes_on)


def _files(paths: Iterable[str | Path]) -> list[Path]:
    """Return the files to read, each once, those of sub-agents last: they may repeat the session."""
    found: dict[Path, None] = {}
    for path in map(Path, paths):
        inside = regular_files(path, "*.jsonl") if path.is_dir() else [path]
        if not inside:
            raise InputError(f"{path} contains no transcripts; expected files named *.jsonl")
        for file in inside:
            found[file] = None
            for side in sorted(file.with_suffix("").glob("subagents/**/agent-*.jsonl")):
                found[side] = None
    return sorted(found, key=lambda file: "subagents" in file.parts)


def _lines(path: Path, report: TranscriptReport) -> Iterator[JsonObject]:
    report.files += 1
    found = 0
    try:
        refuse_device(path)
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            for text in file:
                if not text.strip():
                    continue
                report.lines += 1
                try:
                    line = json.loads(text)
                except (ValueError, RecursionError):
                    line = None
                if not isinstance(line, dict) or not _is_well_formed(line):
                    report.lines_skipped += 1
                    continue
                found += line.get("type") in _TYPES
                yield line
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    if not found:
        raise InputError(
            f"{path} is not a transcript; expected JSON Lines with 'type' and 'message', as Claude Code"
            " writes them below ~/.claude/projects"
        )


def _is_well_formed(line: JsonObject) -> bool:
    """Return whether the fields that are read have the types that Claude Code writes."""
    if not all(isinstance(line.get(name), str | None) for name in _TEXTS):
        return False
    if line.get("type") not in ("user", "assistant"):
        return True
    message = line.get("message")
    return (
        isinstance(message, dict)
        and isinstance(message.get("id"), str | None)
        and isinstance(message.get("model"), str | None)
        and all(map(_is_block, blocks_of(line)))
    )


def _is_block(block: JsonObject) -> bool:
    kind = block.get("type")
    if not isinstance(kind, str):
        return kind is None
    return all(isinstance(block.get(name), str) for name in _REQUIRED.get(kind, ()))


def _works(side: Sequence[JsonObject], prompts: Sequence[Prompt]) -> dict[str, list[JsonObject]]:
    """Return the lines of each sub-agent, by the id of the call it worked for.

    The call's result names the agent; otherwise the agent's first prompt identifies the call, if
    only one call has it.
    """
    named: dict[str, str] = {}
    by_prompt: dict[str, list[str]] = {}
    for line in (*side, *(line for prompt in prompts for line in prompt.lines)):
        for block in blocks_of(line):
            outcome = line.get("toolUseResult")
            if block.get("type") == "tool_result" and isinstance(outcome, Mapping):
                named[str(outcome.get("agentId"))] = str(block.get("tool_use_id"))
            elif block.get("type") == "tool_use" and normal_name(block["name"]) == SUB_AGENT:
                given = block.get("input")
                text = given.get("prompt") if isinstance(given, Mapping) else None
                by_prompt.setdefault(str(text), []).append(str(block["id"]))
    works: dict[str, list[JsonObject]] = {}
    for agent, lines in _agents(side).items():
        same = by_prompt.get("".join(str(b.get("text", "")) for b in blocks_of(lines[0])), [])
        call = named.get(agent) or (same[0] if len(set(same)) == 1 else None)
        if call is not None:
            works.setdefault(call, []).extend(lines)
    return works


def _agents(side: Sequence[JsonObject]) -> Mapping[str, list[JsonObject]]:
    """Return the lines by sub-agent: those of a name, or of the same first line."""
    agents: dict[str, list[JsonObject]] = {}
    roots: dict[object, str] = {}
    for line in side:
        root = line.get("agentId") or roots.get(line.get("parentUuid")) or str(line.get("uuid"))
        roots[line.get("uuid")] = root
        agents.setdefault(root, []).append(line)
    return agents


def _observe(
    session_id: str, prompt: Prompt, works: Mapping[str, list[JsonObject]]
) -> Iterator[RunEvent]:
    """Yield the events of one turn."""
    run_id, line = str(prompt.line.get("uuid") or f"{session_id}-{id(prompt)}"), prompt.line
    begun = _time(line) or next((t for t in map(_time, prompt.lines) if t), 0)
    start = RunStarted(
        run_id, begun, session_id=session_id, agent_name=AGENT, origin=ORIGIN, invocation_id=run_id
    )
    yield start
    media = (media_in(block) for block in blocks_of(prompt.line))
    parts = tuple(part for part in media if part is not None)
    yield UserMessage(run_id, begun, "\n\n".join(prompt.texts), parts=parts)
    turn = _Turn(run_id, begun, works)
    for line in prompt.lines:
        yield from turn.read(line)
    yield from turn.ended()


class _Turn:
    """What the lines of a turn have told so far."""

    def __init__(self, run_id: str, begun: int, works: Mapping[str, list[JsonObject]]) -> None:
        self._run_id, self._now, self._works = run_id, begun, works
        self._messages: dict[str, int] = {}
        self._last_words: tuple[int, str] | None = None
        self._pending: set[str] = set()
        self._failure: Failure | None = None
        self._interrupted = self._unread = False

    def read(self, line: JsonObject) -> Iterator[RunEvent]:
        """Yield the events of a line, except of words that may turn out to be the answer."""
        self._now = max(self._now + 1, _time(line))
        if line["type"] == "user":
            self._interrupted |= any(map(_is_interrupt, blocks_of(line)))
            for returned in _returns(self._run_id, self._now, line):
                self._pending.discard(returned.call_id)
                self._unread = True
                yield returned
        else:
            self._unread, self._failure = False, None
            yield from self._said(line, blocks_of(line))

    def _said(self, line: JsonObject, blocks: list[JsonObject]) -> Iterator[RunEvent]:
        words = "".join(block["text"] for block in blocks if block.get("type") == "text")
        if line.get("isApiErrorMessage"):
            kind = line.get("error")
            self._failure = Failure(kind if isinstance(kind, str) else "api_error", words)
        elif line["message"].get("model") == _SYNTHETIC:
            return
        else:
            yield from _model(self._run_id, self._now, line, self._messages)
        calls = _calls(blocks)
        if self._last_words is not None and (words or calls):
            now, text = self._last_words
            yield ModelCalled(self._run_id, now, text=text, agent_name=AGENT)
            self._last_words = None
        if words and self._failure is None:
            self._last_words = (self._now, words)
        for call in calls:
            self._pending.add(str(call["id"]))
            given = self._works, self._messages
            yield from _called(self._run_id, self._now, call, AGENT, None, *given)

    def ended(self) -> Iterator[RunEvent]:
        """Yield the answer, or that it is missing, and the end."""
        status: RunStatus = "ok"
        if self._failure is not None:
            status = "error"
        elif self._interrupted or self._pending or self._unread:
            status = "incomplete"
        if self._last_words is not None:
            yield Responded(self._run_id, self._last_words[0] + 1, self._last_words[1])
        elif status == "ok":
            yield Responded(self._run_id, self._now, None, {"finalResponse": "missing"})
        yield RunEnded(self._run_id, self._now + 1, status, self._failure)


def _called(
    run_id: str,
    now: int,
    call: JsonObject,
    agent: str,
    parent: str | None,
    works: Mapping[str, list[JsonObject]],
    messages: dict[str, int],
) -> Iterator[RunEvent]:
    """Yield the events of a call, and of the sub-agent working for it, but of no message again."""
    call_id, given = str(call["id"]), call.get("input")
    yield ToolCalled(
        run_id,
        now,
        call_id,
        normal_name(str(call["name"])),
        given,
        agent_name=agent,
        parent_call_id=parent,
        capture={} if given is not None else {"arguments": "missing"},
    )
    kind = _words(given.get("subagent_type")) if isinstance(given, Mapping) else None
    for line in works.get(call_id, ()) if parent != call_id else ():
        now = max(now + 1, _time(line))
        if line["type"] == "user":
            yield from _returns(run_id, now, line)
            continue
        yield from _model(run_id, now, line, messages, kind or SUB_AGENT)
        for inner in _calls(blocks_of(line)):
            yield from _called(run_id, now, inner, kind or SUB_AGENT, call_id, works, messages)


def _model(
    run_id: str, now: int, line: JsonObject, messages: dict[str, int], agent: str = AGENT
) -> Iterator[ModelCalled]:
    """Yield a model call, or what a further line of its message adds."""
    message = line["message"]
    if (used := added_by_block(message.get("usage"), message.get("id"), messages)) is None:
        return
    yield ModelCalled(
        run_id,
        now,
        model=message.get("model"),
        tokens=used,
        agent_name=agent,
    )


def _returns(run_id: str, now: int, line: JsonObject) -> Iterator[ToolReturned]:
    for block in blocks_of(line):
        if block.get("type") != "tool_result":
            continue
        content = block.get("content")
        texts = _texts(content)
        content = result_of(content)
        failure = None
        if block.get("is_error"):
            failure = Failure(message="\n".join(texts) or _words(content))
        missing = {"result": "missing"} if content is None and failure is None else {}
        call_id = str(block.get("tool_use_id"))
        yield ToolReturned(run_id, now, call_id, content, failure, capture=missing)


def _words(content: object) -> str | None:
    return content if isinstance(content, str) else None


def result_of(content: object) -> object:
    """Return what a tool returned: text blocks as one text, which is JSON from many MCP servers."""
    texts = _texts(content)
    if not isinstance(content, list) or len(texts) < len(content):
        return content
    text = "\n".join(texts)
    is_data = text.lstrip()[:1] in ("{", "[") and len(text) <= _DATA_CHARACTERS
    return decode(text).value if is_data else text


def _texts(content: object) -> list[str]:
    return [
        part["text"]
        for part in (content if isinstance(content, list) else ())
        if isinstance(part, Mapping) and isinstance(part.get("text"), str)
    ]


def _calls(blocks: Iterable[JsonObject]) -> list[JsonObject]:
    return [block for block in blocks if block.get("type") in ("tool_use", "server_tool_use")]


def _is_interrupt(block: JsonObject) -> bool:
    return str(block.get("text", "")).startswith(INTERRUPTED)


def _time(line: JsonObject) -> int:
    """Return the time of a line in nanoseconds, 0 when it has none."""
    try:
        moment = datetime.fromisoformat(str(line.get("timestamp")))
        return int(moment.timestamp() * 1e6) * 1000
    except (ValueError, OverflowError):  # a time of year 1 may have no timestamp
        return 0
