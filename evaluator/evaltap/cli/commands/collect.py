"""`evaltap collect`: receive OTLP over HTTP and record the agent runs in it."""

import argparse
import ipaddress
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaltap.cli.listening import listening, tls_context
from evaltap.cli.receiving import close_recorder, receiver_server
from evaltap.cli.settings import of_settings
from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class CollectOptions:
    """The address to listen on, and the log to write."""

    log: str
    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    insecure: bool

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "example: evaltap collect --log agent.log.db\n\n"
        "To send spans to it, set these in the agent's environment:\n"
        "  OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318\n"
        "  OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf\n\n"
        "On SIGTERM, collect ends open runs and writes them to the log.\n\n"
        "Other machines can connect only with a token and TLS, or with --insecure."
        " EVALTAP_COLLECT_TOKEN sets the token. Senders present it with:\n"
        "  OTEL_EXPORTER_OTLP_HEADERS='Authorization=Bearer%20TOKEN'\n\n"
        "exit code: 0 stopped by a signal, 2 bad input, 3 some turns did not reach the log"
    )
    of_settings(
        parser.add_argument("--log", required=True, metavar="LOG", help="the log to write to"),
        "EVALTAP_LOG",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        help="address to listen on (default: 127.0.0.1, this machine only)",
    )
    parser.add_argument("--port", type=int, default=4318, help="port to listen on (default: 4318)")
    parser.add_argument(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="serve HTTPS with this certificate chain (PEM)",
    )
    parser.add_argument(
        "--tls-key", type=Path, metavar="FILE", help="the certificate's private key (PEM)"
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="let other machines send without a token or TLS; only on a trusted network, or behind a proxy"
        " that requires both",
    )
    parser.set_defaults(run=run, options=CollectOptions)


def run(options: CollectOptions) -> int:
    """Serve until SIGTERM or SIGINT; exit code 0 when everything is on the log."""
    from evaltap.recorder import Recorder
    from evaltap.recorder.config import check_variables
    from evaltap.recorder.sources.collector import TOKEN_VARIABLE, CollectorAccess

    check_variables(os.environ)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    _check(options, token)
    tls = tls_context(options.tls_cert, options.tls_key)
    recorder = Recorder(options.log)
    server = receiver_server(recorder, CollectorAccess(token, local=options.local), tls)
    _serve(server, options)
    return 0 if close_recorder("collect", recorder) else 3


def _check(options: CollectOptions, token: str) -> None:
    """Raise InputError for options that would let strangers connect."""
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InputError("--tls-cert and --tls-key: one is missing; give both")
    if options.local or options.insecure:
        return
    missing = [] if token else ["a token in EVALTAP_COLLECT_TOKEN"]
    missing += [] if options.tls_cert else ["TLS (--tls-cert, --tls-key)"]
    if missing:
        raise InputError(
            f"--host {options.host}: any machine could send, or read what is sent; add"
            f" {' and '.join(missing)}, or --insecure on a network that you trust"
        )


def _serve(server: Any, options: CollectOptions) -> None:
    """Run the server; its own signal handling stops it after the active requests."""
    with listening(options.host, options.port) as listener:
        port = listener.getsockname()[1]
        scheme = "https" if options.tls_cert else "http"
        print(
            f"evaltap collect: {scheme}://{options.host}:{port}/v1/traces -> {options.log}",
            file=sys.stderr,
        )
        for number in (signal.SIGTERM, signal.SIGINT):
            # uvicorn shuts down on these signals, then raises them again; that must have no effect.
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
