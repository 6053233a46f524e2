"""`evaltap collect`: receive OTLP over HTTP and record the agent runs in it."""

import os
import signal
from pathlib import Path
from typing import Any

from evaltap.cli.interpreter import collecting_rarely
from evaltap.cli.listening import listening, tls_context
from evaltap.cli.messages import say
from evaltap.cli.options.record import CollectOptions
from evaltap.cli.receiving import close_recorder, receiver_server
from evaltap.cli.settings import refuse_strange_brokers
from evaltap.evaluator.page.security.site import is_loopback
from evaltap.recorder import Recorder
from evaltap.recorder.config import check_variables
from evaltap.recorder.sources.collector import TOKEN_VARIABLE, CollectorAccess
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import is_damage, open_log, quarantine
from evaltap.schemas.log.location import parse_log_location


def run(options: CollectOptions) -> int:
    """Serve until SIGTERM or SIGINT; exit code 0 when everything is on the log."""
    check_variables(os.environ)
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    _check(options, token)
    tls = tls_context(options.tls)
    refuse_strange_brokers(options.log)
    _check_log(options.log)
    recorder = Recorder(options.log)
    server = receiver_server(recorder, CollectorAccess(token, local=is_loopback(options.host)), tls)
    with collecting_rarely():
        _serve(server, options)
    return 0 if close_recorder("collect", recorder) else 3


def _check(options: CollectOptions, token: str) -> None:
    """Raise InputError for options that would let strangers connect."""
    if is_loopback(options.host) or options.insecure:
        return
    missing = [] if token else ["a token in EVALTAP_COLLECT_TOKEN"]
    missing += [] if options.tls.tls_cert else ["TLS (--tls-cert, --tls-key)"]
    if missing:
        raise InputError(
            f"--host {options.host}: any machine could send, or read what is sent; add"
            f" {' and '.join(missing)}, or --insecure on a network that you trust"
        )


def _check_log(log: str) -> None:
    """Raise InputError for a log that cannot be written: senders would be told that it holds their turns."""
    if isinstance(path := parse_log_location(log), Path):
        try:
            open_log(path, mode="append").close()
        except InputError as error:
            if not is_damage(error.__cause__) or quarantine(path) is None:
                raise


def _serve(server: Any, options: CollectOptions) -> None:
    """Run the server; its own signal handling stops it after the active requests."""
    with listening(options.host, options.port) as listener:
        port = listener.getsockname()[1]
        scheme = "https" if options.tls.tls_cert else "http"
        say("collect", f"{scheme}://{options.host}:{port}/v1/traces -> {options.log}")
        for number in (signal.SIGTERM, signal.SIGINT):
            # uvicorn shuts down on these signals, then raises them again; that must have no effect.
            signal.signal(number, lambda *_: None)
        server.run(sockets=[listener])
