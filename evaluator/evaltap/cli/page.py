"""`--ui`: serve the web page of a store while it is being written."""

import getpass
import os
import socket
import sys
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from evaltap.cli.listening import listening
from evaltap.cli.messages import say
from evaltap.cli.options.shared import ADDRESS
from evaltap.cli.redaction import case_redactor
from evaltap.cli.values import host_and_port
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.page.app import create_app
from evaltap.evaluator.page.request import Source
from evaltap.evaluator.page.security.access import Access, Person, state_folder
from evaltap.evaluator.page.security.site import LOCAL_NAMES, Site, by_number, is_loopback
from evaltap.evaluator.page.serving import MOST_CONNECTIONS, PageServer, announced
from evaltap.evaluator.pipeline.live.consumer import ConsumerTask
from evaltap.evaluator.pipeline.live.summary_keeper import SummaryKeeper, Ticks
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from evaltap.recorder.sources.connections import connection_settings
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError


class LivePage:
    """The page of a store that is being written; it keeps its address while the consumer restarts."""

    def __init__(self, command: str, *, opens: bool = False, insecure_http: bool = False) -> None:
        self._command = command
        self._insecure_http = insecure_http
        self._opens = opens
        self._listener: socket.socket | None = None
        self._log = ""
        self._record_with: tuple[str, ...] = ()

    def reads(self, log: str, record_with: Sequence[str] = ()) -> None:
        """Set the log that lands here, and the lines of code that make an agent write to it."""
        self._log = log
        self._record_with = tuple(record_with) or (
            "from evaltap.recorder import Recorder",
            f"with Recorder({log!r}).turn(session_id='s-1', user='Where is A-100?') as turn:",
            "    turn.respond('It has shipped.')",
        )

    @contextmanager
    def serving(
        self,
        at: str | None,
        store: Store,
        references: References | None = None,
        sets: tuple[Path, ...] = (),
        trace_url: TraceUrl | None = None,
    ) -> Iterator[list[ConsumerTask]]:
        """Serve the page in the block; yield the tasks that the consumer must run for it.

        The first time, print a link that logs in once. At the end, active requests are answered, then the
        summaries are brought up to date.
        """
        if at is None:
            yield []
            return
        first = self._listener is None
        listener = self._listener = self._listener or listening(*self._address(at))
        access = Access(state_folder(store.path))
        host, _ = self._address(at)
        site = Site(host, listener.getsockname()[1], access.own_name(), LOCAL_NAMES)
        ticks = Ticks()
        app = create_app(
            Readers(store),
            store_path=store.path,
            access=access,
            site=site,
            live=ticks,
            references=references,
            sets=sets,
            redact=redact,
            trace_url=trace_url,
            source=Source(self._log, self._record_with),
        )
        server = PageServer(app, listener.dup(), **connection_settings(MOST_CONNECTIONS))
        keeper = SummaryKeeper(store, ticks, progress=self._report_step)
        keeper.begin()  # without summaries the pages of a large store would take too long
        server.start()
        try:
            if first and not site.local:
                warn_without_tls(self._command)
            if first:
                code = access.invite(Person(getpass.getuser(), "admin"))
                print_link(self._command, site.address, host, code)
                if self._opens:
                    open_in_browser(f"{site.address}/login#{code}")
            with announced(store.path, site):
                yield [keeper]
        finally:
            server.stop()
        keeper.close()

    def _address(self, text: str) -> tuple[str, int]:
        found = host_and_port(text)
        if found is None or not (self._insecure_http or is_loopback(found[0])):
            raise InputError(
                f"--ui {text}: expected an address of this machine, e.g. {ADDRESS}; for other machines,"
                " use `evaltap ui --host`, a proxy on this machine, or on a network that you trust"
                " `evaltap consume --insecure-http`"
            )
        return found

    def _report_step(self, step: str) -> None:
        if sys.stderr.isatty():
            say(self._command, f"summaries: {step}")

    def close(self) -> None:
        """Release the address."""
        if self._listener is not None:
            self._listener.close()


def print_link(command: str, address: str, host: str, code: str) -> None:
    """Print the link that logs in, and one for systems that do not resolve the page's name."""
    print(f"evaltap {command}: {address}/login#{code}", flush=True)
    if plain := by_number(address, host):
        shown = f"{plain}/login#{code}"
        print(f"evaltap {command}: if the browser does not find it: {shown}", flush=True)


def warn_without_tls(command: str) -> None:
    """Say that others can read what a page sends."""
    say(command, "--insecure-http: anyone on this network can read what the page sends")


def open_in_browser(link: str) -> None:
    """Open a link in the browser if there is a screen."""
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    if sys.platform != "linux" or any(os.environ.get(name) for name in screens):
        webbrowser.open(link)


def redact(case: CaseData) -> CaseData:
    """Redact a case that the page exports."""
    return _redactor()(case)


_redactor = cache(case_redactor)
