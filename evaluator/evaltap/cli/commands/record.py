"""`evaltap record`: write eval cases from telemetry, transcripts or files to a file or a log."""

import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import chain
from pathlib import Path

import orjson

from evaltap.cli.interpreter import collecting_rarely
from evaltap.cli.messages import print_outcome, say
from evaltap.cli.options.record import ClaudeCodeOptions, OtlpOptions, ReplayedOptions
from evaltap.cli.progress import progress
from evaltap.cli.redaction import case_redactor
from evaltap.cli.settings import refuse_strange_brokers
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.sources.claude_code import TranscriptReport, read_transcripts
from evaltap.recorder.sources.otlp_files import (
    ReadingReport,
    eval_set_of,
    read_cases,
    session_key,
    stream_cases,
)
from evaltap.recorder.sources.replay import Replay
from evaltap.schemas.data import CaseData, json_bytes
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.content import check_set_name, eval_set_name
from evaltap.schemas.text import counted


def run(options: OtlpOptions | ReplayedOptions | ClaudeCodeOptions) -> int:
    """Record from a source; return the exit code."""
    refuse_strange_brokers(options.log or "")
    with collecting_rarely():
        if isinstance(options, OtlpOptions):
            return record_otlp(options)
        if isinstance(options, ReplayedOptions):
            return record_cases(options)
        return record_claude_code(options)


def record_otlp(options: OtlpOptions) -> int:
    """Record the runs of OTLP files; raise EvaltapError for unusable input."""
    if not (options.out or options.log or options.explain):
        raise InputError(
            "nothing to write to; give --out FILE or --log LOG, or --explain to only list the turns"
        )
    if options.out:
        check_set_name(Path(options.out))
    report = ReadingReport()
    # An eval set is written as a whole, in order of time; a log as the files are read.
    read = read_cases if options.out else stream_cases
    cases = read(options.files, report=report)
    sessions: set[tuple[str, str, str]] = set()
    refused: Mapping[Path, int] = {}
    try:
        if (first := next(cases, None)) is None:
            raise InputError(
                f"found {counted(report.spans, 'span')} in {counted(report.traces, 'trace')}, but no agent"
                " runs; expected spans of an instrumented agent (docs/how-to/record-opentelemetry.md"
                " lists the supported conventions)"
            )
        turns = _noted(chain((first,), cases), sessions, explained=options.explain)
        if options.out:
            _write(options.out, list(turns), redaction=not options.no_redaction)
        elif options.log:
            refused = _append(options.log, turns, redaction=not options.no_redaction)
        else:
            deque(turns, maxlen=0)
    finally:
        for reason in report.skipped:
            say("record", f"skipped {reason}")
    if options.explain and report.turns_with_reasoning:
        print(
            f"the reasoning of {counted(report.turns_with_reasoning, 'turn')} was left out; set"
            " EVALTAP_CAPTURE_REASONING=1 to record it",
            file=sys.stderr,
        )
    _summarise(report, len(sessions), options, refused)
    return _report_refused(refused)


def _noted(
    cases: Iterable[CaseData], sessions: set[tuple[str, str, str]], *, explained: bool
) -> Iterator[CaseData]:
    """Yield the cases, and note their sessions; explain each if wanted."""
    for case in cases:
        sessions.add(session_key(case))
        if explained:
            print(_explain(case), file=sys.stderr)
        yield case


def _summarise(
    report: ReadingReport, sessions: int, options: OtlpOptions, refused: Mapping[Path, int]
) -> None:
    target = options.out or options.log or "nowhere"
    if options.json:
        fields = {name: getattr(report, name) for name in type(report).__slots__}
        found = {**fields, "sessions": sessions, "target": target, "refused": sum(refused.values())}
        print(orjson.dumps(found).decode())
        return
    unused = (
        f", {report.traces_without_runs} without agent runs" if report.traces_without_runs else ""
    )
    print(
        f"{counted(report.turns, 'turn')} in {counted(sessions, 'session')}"
        f" from {counted(report.spans, 'span')} and {counted(report.log_records, 'log record')}"
        f" ({counted(report.traces, 'trace')}{unused}) -> {target}",
        file=sys.stderr,
    )


def _write(out: str, cases: Sequence[CaseData], *, redaction: bool) -> None:
    """Write the cases to an eval set, redacted as on a log; report how many were changed."""
    from evaltap.schemas.files.documents import write_eval_set  # pydantic, which no log needs

    if redaction and RecorderConfig().redaction:
        redact = case_redactor()
        redacted = [redact(case) for case in cases]
        changed = sum(one != other for one, other in zip(cases, redacted, strict=True))
        cases = redacted
        if changed:
            told = f"redacted {counted(changed, 'case')} (--no-redaction keeps texts as they are)"
            say("record", told)
    write_eval_set(Path(out), eval_set_of(cases, eval_set_name(Path(out))))


def _append(log: str, cases: Iterable[CaseData], *, redaction: bool) -> Mapping[Path, int]:
    """Append the turns to a log; return the number of turns that its broker refused, by file."""
    with Replay(log, redaction=redaction) as replay:
        replay.add(cases)
    return replay.counts.refused


def _report_refused(refused: Mapping[Path, int]) -> int:
    """Report the turns that the broker refused, and their files; return the exit code."""
    for path, number in refused.items():
        say(
            "record",
            f"the broker refused {counted(number, 'turn')} as too large or invalid and"
            f" evaltap set them aside; land them with evaltap consume --log {path}",
        )
    return 3 if refused else 0


def record_claude_code(options: ClaudeCodeOptions) -> int:
    """Record the turns of transcripts; raise EvaltapError for files that are not transcripts."""
    if options.out:
        check_set_name(Path(options.out))
    report = TranscriptReport()
    cases = list(read_transcripts(options.files, report=report))
    if options.out:
        _write(options.out, cases, redaction=not options.no_redaction)
    refused: Mapping[Path, int] = {}
    if options.log:
        refused = _append(options.log, cases, redaction=not options.no_redaction)
    target = options.out or options.log
    fields = {name: getattr(report, name) for name in type(report).__slots__}
    data = {**fields, "target": target, "refused": sum(refused.values())}
    text = (
        f"{counted(report.turns, 'turn')} in {counted(report.sessions, 'session')} from"
        f" {report.lines:,} lines of {counted(report.files, 'file')} ({report.lines_skipped:,} unreadable)"
    )
    print_outcome(data, f"{text} -> {target}", as_json=options.json)
    return _report_refused(refused)


def record_cases(options: ReplayedOptions) -> int:
    """Replay eval cases to a log; raise EvaltapError for a case without recorded turns."""
    from evaltap.schemas.files.documents import iter_cases  # see _write

    with (
        progress("cases") as show,
        Replay(options.log, redaction=not options.no_redaction) as replay,
    ):
        seen: dict[tuple[object, ...], bytes] = {}
        for path in options.files:
            for found in iter_cases(path):
                case = {"evalSetId": eval_set_name(path), **found}
                _refuse_other_turns(case, path, seen)
                replay.add([case])
                show(replay.counts.cases)
    counts = replay.counts
    data = {
        "cases": counts.cases,
        "turns": counts.turns,
        "refused": sum(counts.refused.values()),
        "log": options.log,
    }
    text = f"{counted(counts.turns, 'turn')} of {counted(counts.cases, 'case')} -> {options.log}"
    print_outcome(data, text, as_json=options.json)
    return _report_refused(counts.refused)


def _refuse_other_turns(case: CaseData, path: Path, seen: dict[tuple[object, ...], bytes]) -> None:
    """Raise InputError for a turn with the ids of an earlier one and other content, which would not land."""
    source, session = case.get("source") or {}, case.get("sessionInput") or {}
    key = (
        case["evalSetId"],
        case["evalId"],
        session.get("appName"),
        source.get("version"),
        source.get("run"),
    )
    turns = case.get("actualConversation") or case.get("conversation") or ()
    for number, turn in enumerate(turns, start=1):
        name = (turn or {}).get("invocationId") or number
        content = sha256(json_bytes(turn)).digest()[:8]
        if seen.setdefault((*key, name), content) != content:
            raise InputError(
                f"{path}: case {case['evalId']!r} occurs a second time, with other content in turn {name};"
                " give each repeat its own `source.run`, or each case its own evalId"
            )


def _explain(case: CaseData) -> str:
    """Return a line about a turn: its content, and the fields that were not fully captured."""
    turn = case["actualConversation"][0]
    flaws = [f"{key} {why}" for key, why in turn.get("capture", {}).items()]
    flaws += _left_out(turn)
    for tool in turn.get("tools", ()):
        flaws += [f"{tool['name']}.{key} {why}" for key, why in tool.get("capture", {}).items()]
    status = turn.get("telemetry", {}).get("status", "incomplete")
    convention = case.get("source", {}).get("convention", "unknown convention")
    tools = counted(len(turn.get("tools", ())), "tool call")
    return (
        f"{case['evalId']} {turn['invocationId']}: {status}, {tools},"
        f" read as {convention}; {', '.join(flaws) or 'everything captured'}"
    )


def _left_out(turn: CaseData) -> Iterator[str]:
    """Yield the message parts whose bytes were not recorded, only their digest or size."""
    messages = {name: [turn[name]] for name in ("userContent", "finalResponse") if turn.get(name)}
    messages["intermediateResponses"] = turn.get("intermediateResponses", [])
    for name, listed in messages.items():
        for part in (part for message in listed for part in message.get("content_parts", ())):
            held = (part.get(part["type"]) or {}) | (part.get("file") or {})
            if not (held.get("url") or held.get("file_id")):
                size = part.get("size_bytes")
                known = "" if size is None else f" of {counted(size, 'byte')}"
                yield f"{name}: {part.get('mime_type') or part['type']}{known} left out"
