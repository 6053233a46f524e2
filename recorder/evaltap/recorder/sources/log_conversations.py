"""Turns of traces that are known only by their log records: the conversation in the messages of a model call.

CloudWatch keeps the messages of an agent in a log group of their own (AgentCore's `otel-rt-logs`), so an
export may lack the spans.  Of each trace, the model call with the longest conversation counts.  Neither times
of calls nor models are in the records.
"""

from collections.abc import Iterator, Sequence

from evaltap.recorder.conventions.langfuse import SESSION_ID
from evaltap.recorder.conventions.message_events import MessageEvents
from evaltap.recorder.conventions.messages import Message, since_user
from evaltap.recorder.sources.sessions.messages import Conversation, cases_of
from evaltap.recorder.sources.sessions.provider_messages import conversation_of
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.data import CaseData

_NAME = "otel-logs"


def cases_of_logs(
    trace_id: str, logs: Sequence[LogRecord], *, recorder_version: str | None = None
) -> Iterator[CaseData]:
    """Yield the turn in the log records of a trace without spans, if they contain a conversation."""
    by_span: dict[str, list[LogRecord]] = {}
    for log in logs:
        by_span.setdefault(log.span_id, []).append(log)
    calls = [_call(trace_id, span_id, found) for span_id, found in by_span.items()]
    asked = [one for one in calls if any(message.role == "user" for message in one[0])]
    if not asked:
        return
    given, answered = max(asked, key=lambda one: (len(one[0]) + len(one[1]), bool(one[1])))
    turn = [*since_user(given), *answered]
    system = [one for one in given if one.role == "system"]
    before = given[len(given) - len(since_user(given)) - 1]
    known = {call.call_id for one in turn for call in one.calls}
    others = [message for one in calls if one not in asked for message in one[0]]
    # Results of calls that no model asked for: the records of that model are missing.
    turn[:0] = [one for one in others if any(part.call_id not in known for part in one.answers)]
    stated = (log.attributes.get(name) for log in logs for name in SESSION_ID)
    session = next((one for one in stated if isinstance(one, str) and one), None)
    conversation = Conversation(
        framework=_NAME,
        session_id=session,
        messages=[*conversation_of([*system, before, *turn])],
    )
    began = min(log.time_ns for log in logs)
    for case in cases_of(conversation, name=trace_id, recorder_version=recorder_version):
        (one,) = case["actualConversation"]
        one["invocationId"] = trace_id
        if began:
            case["creationTimestamp"] = one["creationTimestamp"] = began / 1e9
        yield case


def _call(
    trace_id: str, span_id: str, logs: Sequence[LogRecord]
) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return what a model received and what it answered, according to the records of its span."""
    span = Span(trace_id, span_id, "", logs[0].time_ns, logs[0].time_ns)
    reading = MessageEvents().read(span, logs)
    return (reading.input or (), reading.output or ()) if reading is not None else ((), ())
