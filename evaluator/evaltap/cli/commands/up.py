"""`evaltap up`: run receiver, consumer and page in one process, for use on your own machine."""

import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from evaltap.cli.commands import consume
from evaltap.cli.declared import options_of
from evaltap.cli.options.score import ConsumeOptions
from evaltap.cli.options.start import UpOptions
from evaltap.cli.receiving import Receiver
from evaltap.cli.signals import stopped_by_signals
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.location import parse_log_location

LAST_SECONDS: Final = 20.0
"""Time limit for landing and scoring the last records at the end; the rest stays on the log."""


def run(options: UpOptions) -> int:
    """Receive, consume and serve the page until a signal stops the command."""
    if not isinstance(parse_log_location(options.log), Path):
        raise InputError(
            f"--log {options.log}: expected a file; for topics, use `evaltap collect` and `evaltap consume"
            " --ui`"
        )
    consuming = _consuming(options)
    consume.check_files(consuming)  # before anything is received or printed
    early = threading.Event()
    with (
        stopped_by_signals("up", early.set),
        closing(Receiver("up", options.log, options.port)) as receiver,
    ):
        lines = _exports(receiver.port)
        _print_settings(lines, options)
        ending = _InOrder(receiver, early)
        code = consume.run(consuming, ending, lines)
        ending.over()
        return code if receiver.close() else 3


def _consuming(options: UpOptions) -> ConsumeOptions:
    """Return the equivalent options of `consume`."""
    return options_of(
        ConsumeOptions,
        {
            "command": "up",
            "log": options.log,
            "db": options.db,
            "ui": options.ui,
            "metrics": options.metrics,
            "monitor": options.monitor,
            "opens": options.open,
            "references": options.expected.references,
            "join": options.expected.join,
            "sets": options.shown.sets,
            "trace_url": options.shown.trace_url,
        },
    )


def _exports(port: int) -> Sequence[str]:
    """Return the shell lines for an agent that is instrumented with OpenTelemetry."""
    return (
        f"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{port}",
        "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        "export OTEL_SEMCONV_STABILITY_OPT_IN=gen_ai_latest_experimental",
        "export OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=SPAN_ONLY",
    )


def _print_settings(lines: Sequence[str], options: UpOptions) -> None:
    print("evaltap up: for an agent instrumented with OpenTelemetry, set in its shell:", flush=True)
    for line in lines:
        print(f"  {line}", flush=True)
    print(
        f"evaltap up: for any other agent, use evaltap.recorder.Recorder({options.log!r})",
        flush=True,
    )
    if options.metrics is None:
        print(
            "evaltap up: no --metrics given, so turns land without verdicts (`evaltap init` writes a"
            " metrics file)"
        )


class _InOrder(consume.Ending):
    """Stops the receiver first; then the consumer lands the rest of the log, for LAST_SECONDS at most."""

    def __init__(self, receiver: Receiver, early: threading.Event) -> None:
        self._receiver = receiver
        self._early = early
        self._limit: threading.Timer | None = None

    def begin(self, consumer: Consumer) -> None:
        """Stop immediately if a signal arrived earlier."""
        if self._early.is_set():
            self.end(consumer)

    def end(self, consumer: Consumer) -> None:
        """Stop both from another thread, because signal handlers must not wait."""

        def end() -> None:
            self._receiver.close()
            consumer.finish()

        threading.Thread(target=end, name="evaltap-ending").start()
        self._limit = threading.Timer(LAST_SECONDS, consumer.stop)
        self._limit.daemon = True
        self._limit.start()

    def over(self) -> None:
        """Cancel the time limit once both have stopped."""
        if self._limit is not None:
            self._limit.cancel()
            self._limit.join()
