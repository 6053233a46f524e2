"""`--ui`: the page of a store while it is written."""

import argparse
import getpass
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from evaltap.cli.listening import host_and_port, listening
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.live.consumer import Duty
    from evaltap.evaluator.store.database import Store

PORT: Final = 4710
ADDRESS: Final = f"127.0.0.1:{PORT}"


def add_page(parser: argparse.ArgumentParser) -> None:
    """Add `--ui`."""
    parser.add_argument(
        "--ui",
        nargs="?",
        const=ADDRESS,
        metavar="HOST:PORT",
        help=f"show what lands in the browser meanwhile, for this machine only (default: {ADDRESS})",
    )


@contextmanager
def page(command: str, at: str | None, store: "Store") -> "Iterator[list[Duty]]":
    """Serve the page in the block; yield the duties that the consumer has for it.

    Prints a link that logs in once.  At the end requests under way are answered, then the summaries are
    brought up to date.
    """
    if at is None:
        yield []
        return
    from evaltap.evaluator.live.summary_keeper import SummaryKeeper, Ticks
    from evaltap.evaluator.page.app import create_app
    from evaltap.evaluator.page.running import announced
    from evaltap.evaluator.page.security.access import Access, Person, state_folder
    from evaltap.evaluator.page.security.site import Site
    from evaltap.evaluator.page.serving import PageServer
    from evaltap.evaluator.store.readers import Readers

    host, port = _address(at)
    listener = listening(host, port)
    access = Access(state_folder(store.path))
    site = Site(host, listener.getsockname()[1], access.own_name())
    ticks = Ticks()
    app = create_app(Readers(store), store_path=store.path, access=access, site=site, live=ticks)
    server = PageServer(app, listener)
    keeper = SummaryKeeper(store, ticks, progress=lambda step: _tell(command, f"summaries: {step}"))
    server.start()
    try:
        code = access.invite(Person(getpass.getuser(), "admin"))
        print(f"evaltap {command}: {site.address}/login#{code}", flush=True)
        with announced(store.path, site):
            yield [keeper]
    finally:
        server.stop()
    keeper.close()


def _tell(command: str, what: str) -> None:
    if sys.stderr.isatty():
        print(f"evaltap {command}: {what}", file=sys.stderr)


def _address(text: str) -> tuple[str, int]:
    from evaltap.evaluator.page.security.site import is_loopback

    found = host_and_port(text)
    if found is None or not is_loopback(found[0]):
        raise InputError(
            f"--ui {text}: expected an address of this machine, as {ADDRESS}; others see the page through"
            " `evaltap ui --host`, or a proxy on this machine"
        )
    return found
