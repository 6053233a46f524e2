"""Turns telemetry files into finished turns, and turns into one eval set.

All input is read before the first turn is returned, since the spans of one trace may be spread over
several files, and a root is written after its children.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evaltap.recorder.assembly.case import case_of
from evaltap.recorder.assembly.contexts import ContextMemory
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.snapshot import without_reasoning
from evaltap.recorder.sources.log_conversations import cases_of_logs
from evaltap.recorder.telemetry.langfuse_export import joined
from evaltap.recorder.telemetry.otlp_json import read_otlp_file
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.buffer import GatheredTrace
from evaltap.recorder.traces.client_calls import ClientCalls
from evaltap.recorder.traces.reader import observe_trace
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
    paths: Iterable[str | Path],
    *,
    recorder_version: str | None = None,
    report: ReadingReport | None = None,
) -> Iterator[CaseData]:
    """Yield one case for each run in OTLP/JSON files of traces and logs, in order of start.

    Files may be given in any order and may share traces. `report` is filled in as a side effect.
    Raises InputError for a file that cannot be opened, FormatError for one that is not OTLP/JSON.
    """
    counts = report if report is not None else ReadingReport()

    def items() -> Iterator[Span | LogRecord]:
        for path in paths:
            counts.files += 1
            yield from read_otlp_file(path, counts.skipped)

    yield from cases_of_items(items(), recorder_version=recorder_version, report=counts)


def cases_of_items(
    items: Iterable[Span | LogRecord], *, recorder_version: str | None, report: ReadingReport
) -> Iterator[CaseData]:
    """Yield one case for each run in spans and log records, in order of start."""
    spans: dict[str, list[Span]] = {}
    logs: dict[str, list[LogRecord]] = {}
    for item in items:
        if isinstance(item, Span):
            report.spans += 1
            spans.setdefault(item.trace_id, []).append(item)
        else:
            report.log_records += 1
            logs.setdefault(item.trace_id, []).append(item)
    report.traces = len(spans)
    reasoning = RecorderConfig().capture_reasoning
    found: list[CaseData] = []
    for trace in _without_repeated_calls(spans, logs):
        runs = observe_trace(trace.spans, trace.logs)
        report.traces_without_runs += not runs
        for run in runs:
            events = run if reasoning else [without_reasoning(event) for event in run]
            report.turns_with_reasoning += events != run
            case = case_of(events, recorder_version=recorder_version)
            if not any(span.end_ns > span.start_ns for span in trace.spans):
                case["actualConversation"][0]["telemetry"].pop("latencyMs", None)
            found.append(case)
    for trace_id, records in logs.items():
        if trace_id not in spans:
            found += cases_of_logs(trace_id, records, recorder_version=recorder_version)
    report.turns = len(found)
    contexts = ContextMemory(len(found) or 1)
    for case in sorted(found, key=_start):
        yield contexts.trimmed(case)
        contexts.note(case)


def _without_repeated_calls(
    spans: Mapping[str, list[Span]], logs: Mapping[str, list[LogRecord]]
) -> list[GatheredTrace]:
    calls = ClientCalls(max_held=len(spans))
    for items in spans.values():
        for span in items:
            calls.note(span)
    traces = [
        GatheredTrace(trace_id, joined(items), logs.get(trace_id, []), root_ended=True)
        for trace_id, items in spans.items()
    ]
    return [*calls.merge(traces, unread=lambda _: None), *calls.release()]


def eval_set_of(cases: Iterable[CaseData], eval_set_id: str) -> JsonObject:
    """Merge turns into one eval set: one case per session, its turns in order of time.

    A later revision of a turn replaces an earlier one.
    """
    sessions: dict[str, list[CaseData]] = {}
    for case in cases:
        sessions.setdefault(str(case["evalId"]), []).append(case)
    merged = [_session_of(turns) for turns in sessions.values()]
    eval_set: JsonObject = {"evalSetId": eval_set_id, "name": eval_set_id, "evalCases": merged}
    times = [case["creationTimestamp"] for case in merged if "creationTimestamp" in case]
    if times:
        eval_set["creationTimestamp"] = min(times)
    return eval_set


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
