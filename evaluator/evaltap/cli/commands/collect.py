"""`evaltap collect`: receive OTLP over HTTP and record the agent runs in it."""

import argparse
import signal
import socket
import sys
from dataclasses import dataclass
from typing import Any

from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """Where to listen, and the log to write."""

    log: str
    host: str
    port: int


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "example: evaltap collect --log agent.log.db\n\n"
        "Point an exporter at it: OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318 and\n"
        "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf. On SIGTERM it closes the runs that are open,\n"
        "writes them out and ends with exit code 0."
    )
    parser.add_argument("--log", required=True, metavar="LOG", help="the log to write")
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument("--port", type=int, default=4318, help="port to listen on (default: 4318)")
    parser.set_defaults(run=run, options=CollectOptions)


def run(options: CollectOptions) -> int:
    """Serve until SIGTERM or SIGINT; exit code 0 when everything is on the log."""
    import uvicorn

    from evaltap.recorder import Recorder
    from evaltap.recorder.sources.collector import application

    recorder = Recorder(options.log)
    server = uvicorn.Server(
        uvicorn.Config(
            application(recorder),
            host=options.host,
            port=options.port,
            log_level="warning",
            lifespan="off",
            access_log=False,
        )
    )
    _serve(server, options)
    complete = recorder.close(timeout_seconds=30)
    counters = recorder.counters()
    print(
        f"evaltap collect: {counters.recorded:,} turns recorded, {counters.delivered:,} on the log,"
        f" {sum(counters.dropped.values()):,} dropped",
        file=sys.stderr,
    )
    return 0 if complete else 3


def _serve(server: Any, options: CollectOptions) -> None:
    """Run the server; its own signal handling ends it after the requests that are under way."""
    with socket.socket(socket.AF_INET6 if ":" in options.host else socket.AF_INET) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((options.host, options.port))
            # From here on senders are not turned away, even while the server is still starting.
            listener.listen(128)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InputError(
                f"cannot listen on {options.host}:{options.port} ({reason}); choose another --port"
            ) from None
        port = listener.getsockname()[1]
        print(
            f"evaltap collect: http://{options.host}:{port}/v1/traces -> {options.log}",
            file=sys.stderr,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            # uvicorn ends in order on these and raises them once more; by then all is said.
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
