"""A span processor and a log processor of OpenTelemetry that feed a recorder.

Both do next to nothing on the agent's thread: they copy the fields of a span or a log record into the
recorder's bounded queue.  They never raise and never block; the reading happens in the
recorder's thread.
"""

from typing import TYPE_CHECKING, Any, Final

from opentelemetry.sdk.trace import SpanProcessor

from evaltap.recorder.protocols import Recording
from evaltap.recorder.telemetry.sdk import copy_fields
from evaltap.recorder.traces.buffer import TraceLimits
from evaltap.recorder.traces.source import FlushTraces, LogWritten, TraceSource

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import ReadableSpan, Span

_IS_REMOTE: Final = 2
"""Index of `is_remote` in a SpanContext, which is a tuple."""


class CaseSpanProcessor(SpanProcessor):
    """Record the agent runs among all spans of a tracer provider.

    `log` is where turns go: a path or URL as the recorder takes it.  Pass `recorder` instead to share
    one with other sources; then its owner closes it.  `limits` bounds what is held of open traces.
    """

    def __init__(
        self,
        log: str | None = None,
        *,
        recorder: Recording | None = None,
        limits: TraceLimits | None = None,
    ) -> None:
        self._owns_recorder = recorder is None
        if recorder is None:
            from evaltap.recorder.recorder import Recorder

            recorder = Recorder(log)
        self._recorder = recorder
        self._source = TraceSource(limits)
        recorder.register(self._source)

    def on_start(self, span: "Span", parent_context: "Context | None" = None) -> None:
        """Note the beginning of a local root; called by the SDK on the thread that starts it."""
        try:
            # Without a call: most spans are children, and there is nothing to do for them.
            try:
                parent: Any = span._parent
            except AttributeError:
                parent = span.parent
            if parent is None or parent[_IS_REMOTE]:
                self._recorder.submit(self._source, copy_fields(span))
        except Exception as error:
            # Here and below: the SDK does not protect the agent from its processors.
            self._recorder.report_fault("CaseSpanProcessor.on_start", error)

    def on_end(self, span: "ReadableSpan") -> None:
        """Hand a finished span over; called by the SDK on the thread that ended it."""
        try:
            self._recorder.submit(self._source, copy_fields(span))
        except Exception as error:
            self._recorder.report_fault("CaseSpanProcessor.on_end", error)

    def log_processor(self) -> "CaseLogProcessor":
        """Return a processor for the logger provider.

        Needed where the content of messages is written to log records and not to spans.
        """
        return CaseLogProcessor(self._recorder, self._source)

    def shutdown(self) -> None:
        """Close the recorder if it is ours, else write out what is complete; never raises."""
        try:
            if self._owns_recorder:
                self._recorder.close()
            else:
                self.force_flush()
        except Exception as error:
            self._recorder.report_fault("CaseSpanProcessor.shutdown", error)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Put the traces whose roots have ended on the log; True when that was done in time."""
        try:
            self._recorder.submit(self._source, FlushTraces())
            return bool(self._recorder.flush(timeout_millis / 1000))
        except Exception as error:
            self._recorder.report_fault("CaseSpanProcessor.force_flush", error)
            return False


class CaseLogProcessor:
    """Hand the log records of agent spans to the source of a `CaseSpanProcessor`.

    Made by `CaseSpanProcessor.log_processor`; a log record processor by its shape.
    """

    def __init__(self, recorder: Recording, source: TraceSource) -> None:
        self._recorder = recorder
        self._source = source

    def on_emit(self, log_record: object) -> None:
        """Hand a log record over; called by the SDK on the thread that writes it."""
        try:
            self._recorder.submit(self._source, LogWritten(log_record))
        except Exception as error:
            self._recorder.report_fault("CaseLogProcessor.on_emit", error)

    def shutdown(self) -> None:
        """Do nothing: the span processor closes the recorder."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Have nothing of its own to flush."""
        return True
