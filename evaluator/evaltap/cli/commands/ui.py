"""`evaltap ui`: look at a DuckDB file in the browser."""

import argparse
import getpass
import json
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.listening import listening
from evaltap.cli.options.common import add_database, open_store
from evaltap.cli.options.page import PORT, add_sets, redact
from evaltap.cli.options.scoring import add_given_references, read_references
from evaltap.cli.signals import stopped_by_signals
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.page.security.access import Access, Person
    from evaltap.evaluator.page.security.site import Site

ROLES = ("viewer", "reviewer", "admin")


@dataclass(frozen=True, slots=True)
class UiOptions:
    """Which file to show, where, and whom to let in."""

    db: Path
    host: str
    port: int
    allow_host: tuple[str, ...]
    insecure_http: bool
    references: Path | None
    join: str
    tls_cert: Path | None
    tls_key: Path | None
    link: bool
    invite: str | None
    name: str
    sets: tuple[Path, ...]
    open: bool
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap ui cases.duckdb                            # prints a link and opens it\n"
        "  evaltap ui cases.duckdb --no-open --port 8080\n"
        "  evaltap ui cases.duckdb --link                     # a new link for the page that runs\n"
        "  evaltap ui cases.duckdb --invite reviewer --name ann\n"
        "  evaltap ui cases.duckdb --host 0.0.0.0 --allow-host evals.example.com \\\n"
        "      --tls-cert cert.pem --tls-key key.pem\n\n"
        "Only this machine can reach the page unless --host says otherwise. A link logs in once, within\n"
        "ten minutes (an invitation within three days); its code is in the fragment, so no server logs it.\n"
        "X.duckdb.page.json says where the page runs: --link and --invite give links for that address.\n"
        "Roles: viewer reads, reviewer also reviews and exports, admin also invites. Who is logged in is\n"
        "kept in the user's state folder, never in the DuckDB file. In containers EVALTAP_UI_TOKEN_FILE\n"
        "names a file with a code of 32 characters or more that logs in as often as needed.\n"
        "Until it ends, commands that read the file ask this process for it, and those that write to it\n"
        "(score, consume) cannot; evaltap consume --ui shows a file while it is written.\n"
        "exit code: 0 ended by a signal; 2 bad input"
    )
    add_database(parser)
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    add("--port", type=int, default=PORT, help=f"port to listen on (default: {PORT})")
    add(
        "--allow-host", action="append", default=[], metavar="NAME",
        help="a name that people may use for the page, besides the address",
    )  # fmt: skip
    add("--tls-cert", type=Path, metavar="FILE", help="serve https: certificates, PEM")
    add("--tls-key", type=Path, metavar="FILE", help="... and their private key, PEM")
    add(
        "--insecure-http", action="store_true",
        help="let other machines in without TLS: on a network where you trust everybody",
    )  # fmt: skip
    add_given_references(parser)
    add("--link", action="store_true", help="print a new link for the page that runs, and end")
    add("--invite", choices=ROLES, help="print a link for a colleague with this role, and end")
    add("--name", default="", help="the colleague's name, or your own in reviews")
    add_sets(parser)
    add("--no-open", dest="open", action="store_false", help="print the link without opening it")
    add("--json", action="store_true", help="print the link as JSON")
    parser.set_defaults(run=run, options=UiOptions)


def run(options: UiOptions) -> int:
    """Serve the page until a signal ends it, or print a link."""
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
            raise InputError("--invite: whom? add --name NAME")
        person = Person(options.name, options.invite)
        _print(options, _running(options, access), access.invite(person, INVITATION_SECONDS))
        return 0
    me = Person(options.name or getpass.getuser(), "admin")
    if options.link:
        _print(options, _running(options, access), access.invite(me))
        return 0
    return _serve(options, access, me)


def _serve(options: UiOptions, access: "Access", me: "Person") -> int:
    from evaltap.evaluator.page.app import create_app
    from evaltap.evaluator.page.running import announced
    from evaltap.evaluator.page.serving import PageServer
    from evaltap.evaluator.remote.server import served
    from evaltap.evaluator.store.readers import Readers
    from evaltap.evaluator.summaries.summaries import MOST_CAUGHT_UP, Summaries

    references = read_references(options.references, options.join)
    listener = listening(options.host, options.port)
    site = replace(_site(options, access), port=listener.getsockname()[1])
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
        )
        tls = {}
        if options.tls_cert is not None:
            tls = {"ssl_certfile": str(options.tls_cert), "ssl_keyfile": str(options.tls_key)}
        server = PageServer(app, listener, **tls)
        with announced(options.db, site), served(store), stopped_by_signals("ui", server.stop):
            _print(options, site.address, access.invite(me))
            server.run()
    return 0


def _check(options: UiOptions) -> None:
    """Raise InputError for what would let strangers in."""
    from evaltap.evaluator.page.security.site import is_loopback

    if not options.db.exists():
        raise InputError(
            f"{options.db}: no such file; `evaltap consume` and `evaltap score --db` make one"
        )
    if (options.tls_cert is None) != (options.tls_key is None):
        raise InputError("--tls-cert and --tls-key go together; give both")
    if is_loopback(options.host) or options.insecure_http or options.tls_cert:
        return
    raise InputError(
        f"--host {options.host}: other machines could read what is sent; add --tls-cert and --tls-key, or"
        " --insecure-http on a network that you trust"
    )


def _site(options: UiOptions, access: "Access") -> "Site":
    from evaltap.evaluator.page.security.site import Site, is_loopback

    scheme = "https" if options.tls_cert else "http"
    name = access.own_name() if is_loopback(options.host) and scheme == "http" else ""
    names = frozenset(one.lower() for one in options.allow_host)
    return Site(options.host, options.port, name, names, scheme)


def _running(options: UiOptions, access: "Access") -> str:
    """Return the address of the page that runs; the one that the options would give where none does."""
    from evaltap.evaluator.page.running import running_address

    if address := running_address(options.db):
        return address
    print(
        f"evaltap ui: no page of {options.db} runs; the link works once one does at this address",
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
            "evaltap ui: --insecure-http: whoever is on this network can read what the page sends",
            file=sys.stderr,
        )
    if options.open and not (options.link or options.invite) and _has_screen():
        import webbrowser

        webbrowser.open(link)


def _has_screen() -> bool:
    return sys.platform != "linux" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )
