"""Turns of traces that are known only by their log records: the conversation in the messages of a model call.

CloudWatch keeps the messages of an agent in a log group of their own (AgentCore's `otel-rt-logs`), so an
export may lack the spans.  Of each trace, the model call with the longest conversation counts.  Neither times
of calls nor models are in the records.
"""

from collections.abc import Iterator, Sequence

from evaltap.recorder.conventions.langfuse import SESSION_ID
from evaltap.recorder.conventions.message_events import MessageEvents
from evaltap.recorder.conventions.messages import last_user_text, since_user
from evaltap.recorder.sources.sessions.messages import Conversation, cases_of, word
from evaltap.recorder.sources.sessions.provider_messages import conversation_of
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.messages import Message
from evaltap.schemas.data import CaseData

_NAME = "otel-logs"


def cases_of_logs(
    trace_id: str, logs: Sequence[LogRecord], *, recorder_version: str | None = None
) -> Iterator[CaseData]:
    """Yield the turn in the log records of a trace without spans, if they contain a conversation."""
    by_span: dict[str, list[LogRecord]] = {}
    for log in sorted(logs, key=lambda log: log.time_ns):
        by_span.setdefault(log.span_id, []).append(log)
    calls = [_call(trace_id, span_id, found) for span_id, found in by_span.items()]
    asked = [given for given, _ in calls if last_user_text(given) is not None]
    if not asked:
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
    for case in cases_of(conversation, name=trace_id, recorder_version=recorder_version):
        (one,) = case["actualConversation"]
        one["invocationId"] = trace_id
        if began:
            case["creationTimestamp"] = one["creationTimestamp"] = began / 1e9
        yield case


_Messages = Sequence[Message]


def _call(trace_id: str, span_id: str, logs: Sequence[LogRecord]) -> tuple[_Messages, _Messages]:
    """Return what a model received and what it answered, according to the records of its span."""
    span = Span(trace_id, span_id, "", logs[0].time_ns, logs[0].time_ns)
    reading = MessageEvents().read(span, logs)
    if reading is None:
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
