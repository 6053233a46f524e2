"""Recording without code changes: exporters that OpenTelemetry finds by name.

    OTEL_TRACES_EXPORTER=evaltap OTEL_LOGS_EXPORTER=evaltap EVALTAP_LOG=agent.log.db \\
        opentelemetry-instrument python app.py

Both feed one recorder, so that log records join their spans. OpenTelemetry puts a batch processor
in front of an exporter, which delays spans by some seconds and drops them when its queue is full:
if you can change the code, prefer `CaseSpanProcessor`.
"""

import atexit
from collections.abc import Sequence
from functools import cache

from opentelemetry import _logs, trace
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from evaltap.recorder.recorder import Recorder
from evaltap.recorder.traces.source import LogWritten, TraceSource


class CaseSpanExporter(SpanExporter):
    """Record the agent runs among all exported spans; EVALTAP_LOG names the log."""

    def __init__(self) -> None:
        self._recorder, self._source = _shared()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Submit a batch; the recorder counts what does not fit."""
        for span in spans:
            self._recorder.submit(self._source, span)
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """Write everything that is complete."""
        self._recorder.flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Process everything submitted; return True when done in time."""
        return self._recorder.flush(timeout_millis / 1000)


class CaseLogExporter(LogRecordExporter):
    """Record message content that instrumentation writes to log records."""

    def __init__(self) -> None:
        self._recorder, self._source = _shared()

    def export(self, batch: Sequence[object]) -> LogRecordExportResult:
        """Submit a batch; the recorder counts what does not fit."""
        for data in batch:
            self._recorder.submit(self._source, LogWritten(data))
        return LogRecordExportResult.SUCCESS

    def shutdown(self) -> None:
        """Write everything that is complete."""
        self._recorder.flush()

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Process everything submitted; return True when done in time."""
        return self._recorder.flush(timeout_millis / 1000)


@cache
def _shared() -> tuple[Recorder, TraceSource]:
    """Return the process-wide recorder; OpenTelemetry itself creates the exporters, one by one."""
    recorder, source = Recorder(), TraceSource()
    recorder.register(source)
    # Registered later, so it runs before the recorder closes; the providers' own shutdown would
    # flush their batch processors too late.
    atexit.register(_flush_providers)
    return recorder, source


def _flush_providers() -> None:
    for provider in (trace.get_tracer_provider(), _logs.get_logger_provider()):
        if (flush := getattr(provider, "force_flush", None)) is not None:
            flush()
