"""OpenTelemetry span and log processors that feed a recorder.

Both do almost nothing on the agent's thread: they copy the fields of a span or log record into the
recorder's bounded queue. They never raise or block; the recorder's thread does the reading.
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

    `log` is the recorder's log, a path or URL. Pass `recorder` instead to share one with other
    sources; its owner then closes it. `limits` bounds what is held of open traces.
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
        """Record the start of a local root; called by the SDK on the thread that starts it."""
        try:
            # Inlined: most spans are children and need nothing.
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
        """Queue a finished span; called by the SDK on the thread that ended it."""
        try:
            self._recorder.submit(self._source, copy_fields(span))
        except Exception as error:
            self._recorder.report_fault("CaseSpanProcessor.on_end", error)

    def log_processor(self) -> "CaseLogProcessor":
        """Return a processor for the logger provider.

        Needed when message content is written to log records and not to spans.
        """
        return CaseLogProcessor(self._recorder, self._source)

    def shutdown(self) -> None:
        """Close the recorder if the processor owns it, otherwise write complete turns; never raises."""
        try:
            if self._owns_recorder:
                self._recorder.close()
            else:
                self.force_flush()
        except Exception as error:
            self._recorder.report_fault("CaseSpanProcessor.shutdown", error)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Write the traces whose roots have ended to the log; return True when done in time."""
        try:
            self._recorder.submit(self._source, FlushTraces())
            return bool(self._recorder.flush(timeout_millis / 1000))
        except Exception as error:
            self._recorder.report_fault("CaseSpanProcessor.force_flush", error)
            return False


class CaseLogProcessor:
    """Submit the log records of agent spans to the source of a `CaseSpanProcessor`.

    Created by `CaseSpanProcessor.log_processor`; implements the SDK's log processor by duck typing.
    """

    def __init__(self, recorder: Recording, source: TraceSource) -> None:
        self._recorder = recorder
        self._source = source

    def on_emit(self, log_record: object) -> None:
        """Queue a log record; called by the SDK on the thread that emits it."""
        try:
            self._recorder.submit(self._source, LogWritten(log_record))
        except Exception as error:
            self._recorder.report_fault("CaseLogProcessor.on_emit", error)

    def shutdown(self) -> None:
        """Do nothing: the span processor closes the recorder."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Return True: there is nothing to flush."""
        return True
