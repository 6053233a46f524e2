"""`evaltap ui`: explore a DuckDB file in the browser."""

import argparse
import getpass
import json
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from evaltap.cli.listening import listening, listening_at, tls_context
from evaltap.cli.options.common import add_database, open_store
from evaltap.cli.options.page import (
    PORT,
    add_shown,
    open_in_browser,
    read_trace_url,
    redact,
)
from evaltap.cli.options.scoring import add_other_references, read_references
from evaltap.cli.signals import stopped_by_signals
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.missing import no_such_file

if TYPE_CHECKING:
    import socket

    from evaltap.evaluator.page.security.access import Access, Person
    from evaltap.evaluator.page.security.proxy import Proxy
    from evaltap.evaluator.page.security.site import Site

ROLES = ("viewer", "reviewer", "admin")


@dataclass(frozen=True, slots=True)
class UiOptions:
    """The file to show, the address, and who has access."""

    db: Path
    host: str
    port: int
    allow_host: tuple[str, ...]
    insecure_http: bool
    socket: Path | None
    behind_proxy: tuple[str, ...]
    user_header: str
    proxy_secret_file: Path | None
    mask_content: str | None
    references: Path | None
    join: str
    tls_cert: Path | None
    tls_key: Path | None
    link: bool
    invite: str | None
    name: str
    sets: tuple[Path, ...]
    trace_url: str | None
    open: bool
    json: bool


_EPILOG: Final = (
    "examples:\n"
    "  evaltap ui cases.duckdb                        # prints a link and opens it\n"
    "  evaltap ui cases.duckdb --no-open --port 8080\n"
    "  evaltap ui cases.duckdb --link                 # a new link to a running page\n"
    "  evaltap ui cases.duckdb --invite reviewer --name ann\n"
    "  evaltap ui cases.duckdb --host 0.0.0.0 --allow-host evals.example.com \\\n"
    "      --tls-cert cert.pem --tls-key key.pem\n\n"
    "Access:\n"
    "  Only this machine can reach the page, unless --host is given.\n"
    "  A link logs in once, within ten minutes (an invitation: within three days). Its code is"
    " in the fragment, so no server logs it.\n"
    "  X.duckdb.page.json records where the page runs; --link and --invite make links to that"
    " address.\n"
    "  Roles: viewer reads, reviewer also reviews and exports, admin also invites.\n"
    "  Logins are kept in the user's state folder, never in the DuckDB file.\n\n"
    "Behind a proxy:\n"
    "  The proxy names the user in --user-header. evaltap trusts the header only from"
    " --behind-proxy and with the secret.\n"
    "  Only people on the list get in; add them with --invite or in the page's settings.\n\n"
    "Containers:\n"
    "  EVALTAP_UI_TOKEN_FILE names a file with a code of 32 or more characters, which can log in"
    " any number of times.\n\n"
    "While the page runs, commands that only read the file read it through this process;"
    " commands that write to it (score, consume) cannot run. To watch a file while it is"
    " written, use `evaltap consume --ui`.\n\n"
    "exit code: 0 ended by a signal, 2 bad input"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _EPILOG
    add_database(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=PORT, help=f"port to listen on (default: {PORT})")
    add(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a host name under which the page may be opened, besides its address",
    )  # fmt: skip
    add(
        "--tls-cert",
        type=Path,
        metavar="FILE",
        help="serve HTTPS with this certificate chain (PEM)",
    )
    add("--tls-key", type=Path, metavar="FILE", help="the certificate's private key (PEM)")
    add(
        "--insecure-http", action="store_true",
        help="let other machines connect without TLS; only on a trusted network",
    )  # fmt: skip
    add(
        "--socket", type=Path, metavar="FILE",
        help="listen on this Unix socket instead of a port, for a proxy or `ssh -L PORT:FILE`",
    )  # fmt: skip
    add_proxy(parser)
    add(
        "--mask-content", choices=("viewer",),
        help="hide questions, answers, arguments and reasons from viewers",
    )  # fmt: skip
    add_other_references(parser)
    add("--link", action="store_true", help="print a new link to the running page, and exit")
    add(
        "--invite",
        choices=ROLES,
        help="print an invitation link for a colleague with this role, and exit",
    )
    add("--name", default="", help="the colleague's name, or your own in reviews")
    add_shown(parser)
    add("--no-open", dest="open", action="store_false", help="print the link without opening it")
    add("--json", action="store_true", help="print the link as JSON")
    parser.set_defaults(run=run, options=UiOptions)


def add_proxy(parser: argparse.ArgumentParser) -> None:
    """Add the options of a proxy that logs people in."""
    add = parser.add_argument
    add(
        "--behind-proxy", action="append", default=[], metavar="CIDR",
        help="trust a proxy at this address or network to name the user; `unix` for --socket; may be"
        " repeated",
    )  # fmt: skip
    add(
        "--user-header", default="X-Forwarded-Email", metavar="NAME",
        help="the header in which the proxy names the user (default: X-Forwarded-Email)",
    )  # fmt: skip
    add(
        "--proxy-secret-file", type=Path, metavar="FILE",
        help="a file with the secret that the proxy sends as X-Evaltap-Proxy-Secret, 32 characters or more",
    )  # fmt: skip


def run(options: UiOptions) -> int:
    """Serve the page until a signal stops it, or print a link."""
    from evaltap.evaluator.page.security.access import (
        INVITATION_SECONDS,
        Access,
        Person,
        state_folder,
    )

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


def _serve(options: UiOptions, access: "Access", me: "Person") -> int:
    from evaltap.evaluator.analysis.summaries.summaries import MOST_CAUGHT_UP, Summaries
    from evaltap.evaluator.page.app import create_app
    from evaltap.evaluator.page.serving import MOST_CONNECTIONS, PageServer, announced
    from evaltap.evaluator.store.readers import Readers
    from evaltap.evaluator.store.remote.server import served
    from evaltap.recorder.sources.connections import connection_settings

    references = read_references(options.references, options.join)
    trace_url = read_trace_url(options.trace_url)
    tls = tls_context(options.tls_cert, options.tls_key)
    proxy = _proxy(options, access)
    listener = _listener(options)
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
            sets=options.sets,
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
    from evaltap.evaluator.page.security.proxy import SECRET_HEADER
    from evaltap.evaluator.page.security.site import is_loopback

    if not options.db.exists():
        raise InputError(
            no_such_file(options.db, "create one with `evaltap consume` or `evaltap score --db`")
        )
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InputError("--tls-cert and --tls-key: one is missing; give both")
    if options.behind_proxy and options.proxy_secret_file is None:
        raise InputError(
            "--behind-proxy: any program at that address could claim to be any user; add"
            f" --proxy-secret-file with the secret that the proxy sends as {SECRET_HEADER}"
        )
    if options.proxy_secret_file is not None and not options.behind_proxy:
        raise InputError("--proxy-secret-file: no proxy address given; add --behind-proxy CIDR")
    safe = options.insecure_http or options.tls_cert or options.behind_proxy or options.socket
    if is_loopback(options.host) or safe:
        return
    raise InputError(
        f"--host {options.host}: other machines could read what is sent; add --tls-cert and --tls-key,"
        " --behind-proxy with the address of one that has them, or --insecure-http on a network that you"
        " trust"
    )


def _proxy(options: UiOptions, access: "Access") -> "Proxy | None":
    from evaltap.evaluator.page.security.proxy import proxy_of

    if options.proxy_secret_file is None:
        return None
    proxy = proxy_of(options.behind_proxy, options.user_header, options.proxy_secret_file)
    if not access.people():
        print(
            "evaltap ui: the list of people is empty, so nobody can log in; add people under the name that"
            f" the proxy sends in {options.user_header}: `evaltap ui X.duckdb --invite ROLE --name NAME`",
            file=sys.stderr,
        )
    return proxy


def _listener(options: UiOptions) -> "socket.socket":
    if options.socket is not None:
        return listening_at(options.socket)
    return listening(options.host, options.port)


def _site(options: UiOptions, access: "Access") -> "Site":
    from evaltap.evaluator.page.security.site import Site, is_loopback

    scheme = "https" if options.tls_cert else "http"
    if options.socket is not None:  # browsers reach a forwarded port under this name
        names = frozenset(one.lower() for one in options.allow_host)
        return Site("localhost", options.port, "", names, scheme)
    name = access.own_name() if is_loopback(options.host) and scheme == "http" else ""
    names = frozenset(one.lower() for one in options.allow_host)
    return Site(options.host, options.port, name, names, scheme)


def _running(options: UiOptions, access: "Access") -> str:
    """Return the address of the running page; if none is running, the one that the options give."""
    from evaltap.evaluator.page.serving import running_address

    if address := running_address(options.db):
        return address
    print(
        f"evaltap ui: no page is running for {options.db}; the link works once a page runs at this address",
        file=sys.stderr,
    )
    return _site(options, access).address


def _print(options: UiOptions, address: str, code: str) -> None:
    from evaltap.evaluator.page.security.site import is_loopback

    link = f"{address}/login#{code}"
    if options.json:
        print(json.dumps({"link": link}), flush=True)
        return
    print(f"evaltap ui: {link}", flush=True)
    if options.insecure_http and not is_loopback(options.host):
        print(
            "evaltap ui: --insecure-http: anyone on this network can read what the page sends",
            file=sys.stderr,
        )
    if options.open and not (options.link or options.invite):
        open_in_browser(link)
