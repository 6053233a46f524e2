"""`evaltap ui`: explore a DuckDB file in the browser."""

import getpass
import json
from dataclasses import replace

from evaltap.cli.listening import listening, listening_at, tls_context
from evaltap.cli.messages import say
from evaltap.cli.options.inspect import UiOptions
from evaltap.cli.page import open_in_browser, print_link, redact, warn_without_tls
from evaltap.cli.scoring import read_references
from evaltap.cli.signals import stopped_by_signals
from evaltap.evaluator.analysis.summaries.summaries import MOST_CAUGHT_UP, Summaries
from evaltap.evaluator.page.app import create_app
from evaltap.evaluator.page.security.access import INVITATION_SECONDS, Access, Person, state_folder
from evaltap.evaluator.page.security.proxy import SECRET_HEADER, Proxy, proxy_of
from evaltap.evaluator.page.security.site import Site, is_loopback
from evaltap.evaluator.page.serving import MOST_CONNECTIONS, PageServer, announced, running_address
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.store.database import open_store
from evaltap.evaluator.store.opening import is_read_only
from evaltap.evaluator.store.readers import Readers
from evaltap.evaluator.store.remote.server import served
from evaltap.recorder.sources.connections import connection_settings
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.refused import no_such_file


def run(options: UiOptions) -> int:
    """Serve the page until a signal stops it, or print a link."""
    _check(options)
    access = Access(state_folder(options.db))
    if options.invite:
        if not options.name:
            raise InputError("--invite: no name given; add --name NAME")
        person = Person(options.name, options.invite)
        access.enrol(person)
        _print(options, _running(options, access), access.invite(person, INVITATION_SECONDS))
        return 0
    me = Person(options.name or getpass.getuser(), "admin")
    if options.link:
        _print(options, _running(options, access), access.invite(me))
        return 0
    return _serve(options, access, me)


def _serve(options: UiOptions, access: Access, me: Person) -> int:
    references = read_references(options.expected)
    shown = options.shown
    trace_url = TraceUrl(shown.trace_url) if shown.trace_url else None
    tls = tls_context(options.tls)
    proxy = _proxy(options, access)
    listener = (
        listening_at(options.socket) if options.socket else listening(options.host, options.port)
    )
    site = _site(options, access)
    if options.socket is None:
        site = replace(site, port=listener.getsockname()[1])
    with open_store(options.db, create=False) as store:
        summaries = Summaries(store)
        while summaries.refresh(most_cases=MOST_CAUGHT_UP, most_seconds=60).behind:
            pass
        app = create_app(
            Readers(store),
            store_path=options.db,
            access=access,
            site=site,
            references=references,
            sets=shown.sets,
            redact=redact,
            proxy=proxy,
            masks=options.mask_content is not None,
            trace_url=trace_url,
        )
        server = PageServer(app, listener, **connection_settings(MOST_CONNECTIONS, tls))
        with announced(options.db, site), served(store), stopped_by_signals("ui", server.stop):
            _print(options, site.address, access.invite(me))
            server.run()
    if options.socket is not None:
        options.socket.unlink(missing_ok=True)
    return 0


def _check(options: UiOptions) -> None:
    """Raise InputError for options that would let strangers in."""
    if not options.db.exists():
        raise InputError(
            no_such_file(options.db, "create one with `evaltap consume` or `evaltap score --db`")
        )
    if is_read_only(options.db):
        raise InputError(
            f"{options.db}: is read-only, and the page keeps reviews and counts in it; show a copy that can"
            " be written, or read it as it is: `evaltap report X.duckdb --out report.html`, `evaltap cases`"
        )
    if options.behind_proxy and options.proxy_secret_file is None:
        raise InputError(
            "--behind-proxy: any program at that address could claim to be any user; add"
            f" --proxy-secret-file with the secret that the proxy sends as {SECRET_HEADER}"
        )
    if options.proxy_secret_file is not None and not options.behind_proxy:
        raise InputError("--proxy-secret-file: no proxy address given; add --behind-proxy CIDR")
    safe = options.insecure_http or options.tls.tls_cert or options.behind_proxy or options.socket
    if is_loopback(options.host) or safe:
        return
    raise InputError(
        f"--host {options.host}: other machines could read what is sent; add --tls-cert and --tls-key,"
        " --behind-proxy with the address of one that has them, or --insecure-http on a network that you"
        " trust"
    )


def _proxy(options: UiOptions, access: Access) -> Proxy | None:
    if options.proxy_secret_file is None:
        return None
    proxy = proxy_of(options.behind_proxy, options.user_header, options.proxy_secret_file)
    if not access.people():
        say(
            "ui",
            "the list of people is empty, so nobody can log in; add people under the name that"
            f" the proxy sends in {options.user_header}: `evaltap ui X.duckdb --invite ROLE --name NAME`",
        )
    return proxy


def _site(options: UiOptions, access: Access) -> Site:
    scheme = "https" if options.tls.tls_cert else "http"
    names = frozenset(one.lower() for one in options.allow_host)
    if options.socket is not None:  # browsers reach a forwarded port under this name
        return Site("localhost", options.port, "", names, scheme)
    name = access.own_name() if is_loopback(options.host) and scheme == "http" else ""
    return Site(options.host, options.port, name, names, scheme)


def _running(options: UiOptions, access: Access) -> str:
    """Return the address of the running page; if none is running, the one that the options give."""
    if address := running_address(options.db):
        return address
    say(
        "ui",
        f"no page is running for {options.db}; the link works once a page runs at this address",
    )
    return _site(options, access).address


def _print(options: UiOptions, address: str, code: str) -> None:
    link = f"{address}/login#{code}"
    if options.json:
        print(json.dumps({"link": link}), flush=True)
        return
    print_link("ui", address, options.host, code)
    if options.insecure_http and not is_loopback(options.host):
        warn_without_tls("ui")
    if options.open and not (options.link or options.invite):
        open_in_browser(link)
