"""`evaltap up`: run receiver, consumer and page in one process, for use on your own machine."""

import argparse
import threading
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaltap.cli.commands import consume
from evaltap.cli.options.page import ADDRESS, add_shown
from evaltap.cli.options.scoring import add_references
from evaltap.cli.parsing import CommandParser, options_of
from evaltap.cli.settings import STORE, STORE_FILE, of_settings
from evaltap.cli.signals import stopped_by_signals
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.location import parse_log_location

if TYPE_CHECKING:
    from evaltap.cli.receiving import Receiver
    from evaltap.evaluator.pipeline.live.consumer import Consumer

LAST_SECONDS: Final = 20.0
"""Time limit for landing and scoring the last records at the end; the rest stays on the log."""


@dataclass(frozen=True, slots=True)
class UpOptions:
    """The log, the store, the metrics, and the addresses of receiver and page."""

    log: str
    db: Path
    metrics: Path | None
    references: Path | None
    join: str
    port: int
    ui: str
    sets: tuple[Path, ...]
    trace_url: str | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap up                                   # agent.log.db, cases.duckdb\n"
        "  evaltap up --metrics metrics.json --port 4319\n"
        "  evaltap up --metrics metrics.json --references golden.evalset.json\n\n"
        "Prints a link to the page, and the settings that make an agent send its spans here. Only"
        " this machine can connect; for other machines and more options, run the parts separately:"
        " `collect`, `consume` and `ui`.\n\n"
        "On SIGTERM, up stops receiving, lands and scores the rest, then stops the page. Turns that"
        " could not land in time stay on the log.\n\n"
        "exit code: 0 stopped by a signal, 2 bad input, 3 some turns did not reach the log"
    )
    add = parser.add_argument
    log = add(
        "--log",
        default="agent.log.db",
        metavar="LOG",
        help="the log between receiver and consumer (default: agent.log.db)",
    )
    of_settings(log, "EVALTAP_LOG")
    store = add(
        "--db", type=Path, default=Path(STORE_FILE), metavar="X.duckdb",
        help=f"the DuckDB file for cases and scores (default: {STORE_FILE})",
    )  # fmt: skip
    of_settings(store, STORE)
    metrics = add(
        "--metrics", type=Path, metavar="FILE", help="score with these metrics (default: only land)"
    )
    of_settings(metrics, "EVALTAP_METRICS")
    add_references(parser)
    add(
        "--port",
        type=int,
        default=4318,
        help="the port that receives OTLP over HTTP (default: 4318)",
    )
    add(
        "--ui", default=ADDRESS, metavar="HOST:PORT",
        help=f"the page's address on this machine (default: {ADDRESS})",
    )  # fmt: skip
    add_shown(parser)
    parser.set_defaults(run=run, options=UpOptions)


def run(options: UpOptions) -> int:
    """Receive, consume and serve the page until a signal stops the command."""
    from evaltap.cli.receiving import Receiver

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


def _consuming(options: UpOptions) -> consume.ConsumeOptions:
    """Return the equivalent options of `consume`."""
    arguments = ["--log", options.log, "--db", str(options.db), "--ui", options.ui]
    if options.metrics is not None:
        arguments += ["--metrics", str(options.metrics)]
    if options.references is not None:
        arguments += ["--references", str(options.references), "--join", options.join]
    for path in options.sets:
        arguments += ["--set", str(path)]
    if options.trace_url is not None:
        arguments += ["--trace-url", options.trace_url]
    parser = CommandParser(prog="evaltap up")
    consume.configure(parser)
    namespace = parser.parse_args(arguments)
    namespace.command = "up"
    return options_of(consume.ConsumeOptions, namespace)


def _exports(port: int) -> Sequence[str]:
    """Return the shell lines for an agent that is instrumented with OpenTelemetry."""
    return (
        f"export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{port}",
        "export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf",
        "export OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true",
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

    def __init__(self, receiver: "Receiver", early: threading.Event) -> None:
        self._receiver = receiver
        self._early = early
        self._limit: threading.Timer | None = None

    def begin(self, consumer: "Consumer") -> None:
        """Stop immediately if a signal arrived earlier."""
        if self._early.is_set():
            self.end(consumer)

    def end(self, consumer: "Consumer") -> None:
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
