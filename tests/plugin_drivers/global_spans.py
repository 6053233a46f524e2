"""Forward the telemetry of the process's global providers to the current test.

For frameworks that only use global providers; OpenTelemetry lets a process set its own once.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from opentelemetry import trace
from opentelemetry._logs import get_logger_provider, set_logger_provider
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from support.builders.witness import Witness


class Switch(SpanProcessor):
    """Passes spans and log records on to the processors of the test at hand."""

    spans = SpanProcessor()
    logs: Any = None
    """A log processor by its shape, as the switch itself is one."""

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Pass it on."""
        self.spans.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        """Pass it on."""
        self.spans.on_end(span)

    def on_emit(self, log_record: Any) -> None:
        """Pass it on."""
        if self.logs is not None:
            self.logs.on_emit(log_record)


@cache
def the_switch() -> Switch:
    """Return the switch of this process, installed at the first call."""
    switch = Switch()
    tracers, loggers = trace.get_tracer_provider(), get_logger_provider()
    if not isinstance(tracers, TracerProvider):
        tracers = TracerProvider()
        trace.set_tracer_provider(tracers)
    if not isinstance(loggers, LoggerProvider):
        loggers = LoggerProvider()
        set_logger_provider(loggers)
    tracers.add_span_processor(switch)
    loggers.add_log_record_processor(switch)  # type: ignore[arg-type]  # by its shape
    return switch


@contextmanager
def global_spans_to(witness: Witness) -> Iterator[None]:
    """Send the process's spans and log records to a witness."""
    switch = the_switch()
    switch.spans, switch.logs = witness.processor, witness.processor.log_processor()
    yield
    switch.spans, switch.logs = SpanProcessor(), None
