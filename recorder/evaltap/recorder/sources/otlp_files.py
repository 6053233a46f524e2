"""Turns telemetry files into finished turns, and turns into one eval set.

The spans of one trace may be far apart and in several files, and a root is written after its children. So the
files are searched for the last document of each trace first, and a trace is read there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from evaltap.recorder.assembly.case import case_of, installed_version
from evaltap.recorder.assembly.contexts import ContextMemory
from evaltap.recorder.assembly.continuations import Continuations, revisions_before
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.conventions.langfuse import SESSION_ID
from evaltap.recorder.conventions.message_events import MessageEvents
from evaltap.recorder.conventions.messages import last_user_text, since_user
from evaltap.recorder.observation import RunEvent, without_reasoning
from evaltap.recorder.sources.sessions.messages import Conversation, cases_of, word
from evaltap.recorder.sources.sessions.provider_messages import conversation_of
from evaltap.recorder.telemetry.langfuse_export import joined
from evaltap.recorder.telemetry.otlp_json import (
    decode_request,
    hexadecimal,
    opened,
    read_documents,
    read_otlp_file,
)
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.buffer import GatheredTrace
from evaltap.recorder.traces.client_calls import ClientCalls
from evaltap.recorder.traces.reader import observe_trace
from evaltap.schemas.chat.messages import Message
from evaltap.schemas.data import CaseData, JsonObject


@dataclass(slots=True)
class ReadingReport:
    """What was read from files, and the outcome."""

    files: int = 0
    spans: int = 0
    log_records: int = 0
    traces: int = 0
    traces_without_runs: int = 0
    """Traces without any agent run."""
    turns: int = 0
    turns_with_reasoning: int = 0
    """Turns whose reasoning was dropped because `capture_reasoning` is off."""
    skipped: list[str] = field(default_factory=list)
    """What was skipped where, and why: a truncated last line, a span without a trace."""


def read_cases(
    paths: Iterable[str | Path], *, report: ReadingReport | None = None
) -> Iterator[CaseData]:
    """Yield one case for each turn in OTLP files of traces and logs, in order of start.

    All input is read before the first case is returned. Files may be given in any order and may share
    traces. `report` is filled in as a side effect. Raises InputError for a file that cannot be opened,
    FormatError for one that is not OTLP.
    """
    counts = report if report is not None else ReadingReport()
    traces = _traces_of(list(paths), counts)
    yield from _in_order(_cases(traces, counts))


def stream_cases(paths: Iterable[str | Path], report: ReadingReport) -> Iterator[CaseData]:
    """Yield one case for each run as soon as the last document of its trace was read.

    A run that continues one that has paused is a revision of its turn.
    Otherwise as `read_cases`, which also tells what raises. Only open traces are held in memory; those
    of files that must be read whole are all open until the end (see `last_documents`).
    """
    contexts = ContextMemory()
    traces = _traces_of(list(paths), report)
    for case in _cases(traces, report):
        yield contexts.trimmed(case)
        contexts.note(case)


def cases_of_items(items: Iterable[Span | LogRecord], report: ReadingReport) -> Iterator[CaseData]:
    """Yield one case for each run in spans and log records, in order of start."""
    opened = _OpenTraces(report)
    for item in items:
        opened.add(item)
    yield from _in_order(_cases(opened.rest(), report))


def _cases(traces: Iterable[GatheredTrace], report: ReadingReport) -> Iterator[CaseData]:
    reasoning = RecorderConfig().capture_reasoning
    continuations = Continuations()
    revisions: dict[str, int] = {}
    """The last one of each turn that may get more."""
    for trace in traces:
        if not trace.spans:
            for case in cases_of_logs(trace.trace_id, trace.logs):
                report.turns += 1
                yield case
            continue
        spans = joined(trace.spans)
        runs = observe_trace(spans, trace.logs)
        report.traces_without_runs += not runs
        for run in runs:
            events: Sequence[RunEvent] = (
                run if reasoning else [without_reasoning(event) for event in run]
            )
            report.turns_with_reasoning += events != run
            turn_id, events = continuations.joined(run[0].run_id, events, revisions)
            before = revisions.get(turn_id)
            report.turns += before is None
            revision = (revisions_before(events) if before is None else before) + 1
            if continuations.holds(turn_id):
                revisions[turn_id] = revision
            case = case_of(events, revision=revision, recorder_version=installed_version())
            if not any(span.end_ns > span.start_ns for span in spans):
                case["actualConversation"][0]["telemetry"].pop("latencyMs", None)
            yield case


def _traces_of(paths: list[str | Path], report: ReadingReport) -> Iterator[GatheredTrace]:
    """Yield the traces of files, each when nothing else of it comes."""
    opened = _OpenTraces(report)
    ends = last_documents(paths)
    numbers = count(1)
    for path in paths:
        report.files += 1
        if ends is None:
            for item in read_otlp_file(path, report.skipped):
                opened.add(item)
            continue
        for place, document in read_documents(path, report.skipped):
            for item in decode_request(
                document, path=str(path), place=place, skipped=report.skipped
            ):
                opened.add(item)
            yield from opened.finished(ends.pop(next(numbers), ()))
    yield from opened.rest()


def _in_order(cases: Iterable[CaseData]) -> Iterator[CaseData]:
    """Yield the latest revisions in order of start, without context messages that a session already has."""
    latest: list[CaseData] = []
    places: dict[tuple[str, str], int] = {}
    for case in cases:
        turn = str(case["evalId"]), str(case["actualConversation"][0].get("invocationId"))
        if _revision(case) > 1 and turn in places:
            latest[places[turn]] = case
        else:
            places[turn] = len(latest)
            latest.append(case)
    found = sorted(latest, key=_start)
    contexts = ContextMemory(len(found) or 1)
    for case in found:
        yield contexts.trimmed(case)
        contexts.note(case)


class _OpenTraces:
    """The spans and log records of the traces that have not ended."""

    def __init__(self, report: ReadingReport) -> None:
        self._report = report
        self._traces: dict[str, GatheredTrace] = {}

    def add(self, item: Span | LogRecord) -> None:
        """Add an item to its trace; a log record outside any is only counted."""
        trace = self._traces.get(item.trace_id)
        if trace is None:
            trace = GatheredTrace(item.trace_id, root_ended=True)
            if item.trace_id:
                self._traces[item.trace_id] = trace
        if isinstance(item, Span):
            self._report.spans += 1
            self._report.traces += not trace.spans
            trace.spans.append(item)
        else:
            self._report.log_records += 1
            trace.logs.append(item)

    def finished(self, ids: Iterable[str]) -> list[GatheredTrace]:
        """Return the traces with these ids, of which nothing else comes, in order of start."""
        found = [self._traces.pop(trace_id) for trace_id in ids if trace_id in self._traces]
        return sorted(found, key=_began)

    def rest(self) -> list[GatheredTrace]:
        """Return what is left at the end; model calls that a run repeats are in the run's trace."""
        traces = [trace for trace in self._traces.values() if trace.spans]
        logs_alone = [trace for trace in self._traces.values() if not trace.spans]
        calls = ClientCalls(max_held=len(traces))
        for trace in traces:
            for span in trace.spans:
                calls.note(span)
        found = [*calls.merge(traces, unread=lambda _: None), *calls.release()]
        return [*sorted(found, key=_began), *logs_alone]


def _began(trace: GatheredTrace) -> int:
    times = [span.start_ns for span in trace.spans] or [log.time_ns for log in trace.logs]
    return min(times)


def eval_set_of(cases: Iterable[CaseData], eval_set_id: str) -> JsonObject:
    """Merge turns into one eval set: one case per session, its turns in order of time.

    A later revision of a turn replaces an earlier one. A session id of several applications or versions is
    a case of each, named after what differs.
    """
    sessions: dict[tuple[str, str, str], list[CaseData]] = {}
    for case in cases:
        sessions.setdefault(session_key(case), []).append(case)
    alike: dict[str, list[tuple[str, str, str]]] = {}
    for key in sessions:
        alike.setdefault(key[0], []).append(key)
    merged = [
        {**_session_of(turns), "evalId": _name_of(key, alike[key[0]])}
        for key, turns in sessions.items()
    ]
    eval_set: JsonObject = {"evalSetId": eval_set_id, "name": eval_set_id, "evalCases": merged}
    times = [case["creationTimestamp"] for case in merged if "creationTimestamp" in case]
    if times:
        eval_set["creationTimestamp"] = min(times)
    return eval_set


def session_key(case: CaseData) -> tuple[str, str, str]:
    """Return the session of a turn: its id, application and version."""
    session, source = case.get("sessionInput") or {}, case.get("source") or {}
    return str(case["evalId"]), session.get("appName") or "", source.get("version") or ""


def _name_of(key: tuple[str, str, str], alike: Sequence[tuple[str, str, str]]) -> str:
    """Return the id of a session, with the application or version if others of the id differ in it."""
    parts = [part for at, part in enumerate(key) if at and len({other[at] for other in alike}) > 1]
    return "@".join([key[0], *parts]) if any(parts) else key[0]


def _session_of(cases: Sequence[CaseData]) -> CaseData:
    latest: dict[str, CaseData] = {}
    for case in cases:
        turn_id = str(case["actualConversation"][0].get("invocationId"))
        known = latest.get(turn_id)
        if known is None or _revision(case) >= _revision(known):
            latest[turn_id] = case
    ordered = sorted(latest.values(), key=_start)
    session = dict(ordered[0])
    session["actualConversation"] = [
        turn for case in ordered for turn in case["actualConversation"]
    ]
    session["sessionInput"] = {
        key: value
        for case in reversed(ordered)
        for key, value in case.get("sessionInput", {}).items()
    }
    return session


def _start(case: CaseData) -> float:
    return float(case.get("creationTimestamp") or 0.0)


def _revision(case: CaseData) -> int:
    return int(case.get("source", {}).get("revision", 1))


_NAME = "otel-logs"


def cases_of_logs(trace_id: str, logs: Sequence[LogRecord]) -> Iterator[CaseData]:
    """Yield the turn in the log records of a trace without spans, if they contain a conversation.

    CloudWatch keeps the messages of an agent in a log group of their own (AgentCore's `otel-rt-logs`), so an
    export may lack the spans.  The model call with the longest conversation counts.  Neither times of calls
    nor models are in the records.
    """
    by_span: dict[str, list[LogRecord]] = {}
    for log in sorted(logs, key=lambda log: log.time_ns):
        by_span.setdefault(log.span_id, []).append(log)
    calls = [_call(trace_id, span_id, found) for span_id, found in by_span.items()]
    if not (asked := [given for given, _ in calls if last_user_text(given) is not None]):
        return
    given = max(asked, key=len)
    done = since_user(given)
    system = [one for one in given if one.role == "system"]
    stated = (word(log.attributes.get(name)) for log in logs for name in SESSION_ID)
    session = next(filter(None, stated), None)
    turn = [given[len(given) - len(done) - 1], *_results(calls, given), *done, *_said(calls, given)]
    conversation = Conversation(
        framework=_NAME, session_id=session, messages=[*conversation_of([*system, *turn])]
    )
    began = min(log.time_ns for log in logs)
    for case in cases_of(conversation, name=trace_id):
        (one,) = case["actualConversation"]
        one["invocationId"] = trace_id
        if began:
            case["creationTimestamp"] = one["creationTimestamp"] = began / 1e9
        yield case


_Messages = Sequence[Message]


def _call(trace_id: str, span_id: str, logs: Sequence[LogRecord]) -> tuple[_Messages, _Messages]:
    """Return what a model received and what it answered, according to the records of its span."""
    span = Span(trace_id, span_id, "", logs[0].time_ns, logs[0].time_ns)
    if (reading := MessageEvents().read(span, logs)) is None:
        return (), ()
    return reading.input or (), since_user(reading.output or ())


def _said(calls: Sequence[tuple[_Messages, _Messages]], given: _Messages) -> list[Message]:
    """Return what models answered to these messages, in order, and the results of tools between.

    LangChain's models receive the results, but their records do not have them.  What a step above a model
    call repeats is left out.
    """
    found: list[Message] = []
    known: set[tuple[str, str | None]] = set()
    for message in (
        message
        for received, answered in calls
        for message in answered
        if received == given or message.answers
    ):
        ids = {("call", call.call_id) for call in message.calls}
        ids |= {("answer", answer.call_id) for answer in message.answers}
        if not ids or ids - known:
            found.append(message)
        known |= {one for one in ids if one[1] is not None}
    return [
        one
        for number, one in enumerate(found, start=1)
        if one.calls or one.answers or all(one.text != later.text for later in found[number:])
    ]


def _results(calls: Sequence[tuple[_Messages, _Messages]], given: _Messages) -> Iterator[Message]:
    """Yield results of calls that no model asked for: they mark that its records are missing."""
    known = {call.call_id for both in calls for one in (*both[0], *both[1]) for call in one.calls}
    for received, _ in calls:
        if received != given:
            yield from (
                one for one in received if any(part.call_id not in known for part in one.answers)
            )


_DETACHED = b"openinference.instrumentation.langchain"
"""The scope of runs whose model calls may be in traces of their own; see `traces.client_calls`."""
_DETACHED_SCOPE = re.compile(rb'"name"\s*:\s*"' + re.escape(_DETACHED) + rb'"')
_SPANS = b'"spans"'
"""Once for each scope."""
_TRACE_ID = re.compile(rb'"trace_?[iI]d"\s*:\s*"([^"]*)"')
_REQUEST = re.compile(rb'\s*\{\s*"resource_?[A-Za-z]{4,7}"')


def last_documents(paths: Iterable[str | Path]) -> dict[int, list[str]] | None:
    """Return the ids of the traces that end with a document, by its number, without decoding documents.

    The documents of all files are numbered from 1, as `read_documents` yields them. A document that only
    links to a trace may count. None if the ids alone do not tell what belongs together, or a file cannot be
    read twice: then a reader must read everything first. Raises InputError and FormatError as
    `read_documents`.
    """
    last: dict[str, int] = {}
    written: dict[bytes, int] = {}
    numbers = count(1)
    is_detached = has_others = False
    for path in paths:
        if not Path(path).is_file():
            return None
        with opened(path) as file:
            if file.peek(1)[:1] == b"\0":
                # Protobuf needs a library of its own, which only readers of such files should load.
                from evaltap.recorder.telemetry.otlp_protobuf import messages_of, trace_ids

                for content in messages_of(file):
                    if _DETACHED in content:
                        return None
                    last.update(dict.fromkeys(trace_ids(content), next(numbers)))
                continue
            for line in file:
                if not line.strip():
                    continue
                if _REQUEST.match(line) is None:
                    return None
                written.update(dict.fromkeys(_TRACE_ID.findall(line), next(numbers)))
                detached = len(_DETACHED_SCOPE.findall(line)) if _DETACHED in line else 0
                is_detached = is_detached or detached > 0
                has_others = has_others or line.count(_SPANS) > detached
    if is_detached and has_others:
        return None
    for one, number in written.items():
        trace_id = hexadecimal(one.decode("ascii", "replace"), 32) or ""
        last[trace_id] = max(number, last.get(trace_id, 0))
    return _by_number(last)


def _by_number(last: Mapping[str, int]) -> dict[int, list[str]]:
    ends: dict[int, list[str]] = {}
    for trace_id, number in last.items():
        ends.setdefault(number, []).append(trace_id)
    return ends
