"""Serve the real web page, and request it as a browser would."""

import http.client
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlencode

from evaltap.cli.listening import listening
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.page.app import create_app
from evaltap.evaluator.page.security.access import Access, Person
from evaltap.evaluator.page.security.proxy import Proxy
from evaltap.evaluator.page.security.site import Site
from evaltap.evaluator.page.serving import Live, PageServer
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers

SAME = {"Sec-Fetch-Site": "same-origin"}


@dataclass
class Answer:
    """A response, read whole."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()


@dataclass
class Served:
    """A page that is served, and the people of it."""

    site: Site
    access: Access
    cookies: dict[str, str] = field(default_factory=dict)

    def ask(
        self,
        path: str,
        method: str = "GET",
        *,
        role: str | None = "admin",
        headers: Mapping[str, str] | None = None,
        form: Mapping[str, str] | None = None,
        host: str | None = None,
    ) -> Answer:
        """Send one request; logged in as `role`, or not at all."""
        connection = http.client.HTTPConnection("127.0.0.1", self.site.port, timeout=30)
        sent = {"Host": host if host is not None else f"127.0.0.1:{self.site.port}"}
        if role is not None:
            sent["Cookie"] = self.cookie(role)
        body = None
        if form is not None:
            body = urlencode(form).encode()
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            connection.putrequest(method, path, skip_host=True)
            for name, value in {**sent, **(headers or {})}.items():
                connection.putheader(name, value)
            connection.putheader("Content-Length", str(len(body or b"")))
            connection.endheaders(body)
            found = connection.getresponse()
            return Answer(found.status, found.headers, found.read())
        finally:
            connection.close()

    def cookie(self, role: str) -> str:
        """Return the cookie of somebody who is logged in with a role."""
        if role not in self.cookies:
            self.cookies[role] = self.access.log_in(Person(f"a {role}", role))
        return f"__Host-evaltap-{self.site.port}={self.cookies[role]}"

    def link(self, role: str = "admin") -> str:
        """Return a link that logs in once."""
        return f"{self.site.address}/login#{self.access.invite(Person('ann', role))}"


@contextmanager
def served(
    path: Path,
    folder: Path,
    *,
    live: Live | None = None,
    sets: tuple[Path, ...] = (),
    names: Sequence[str] = (),
    proxy: Proxy | None = None,
    masks: bool = False,
) -> Iterator[Served]:
    """Serve the page of a DuckDB file."""
    listener = listening("127.0.0.1", 0)
    site = Site("127.0.0.1", listener.getsockname()[1], names=frozenset(names))
    access = Access(folder / "state")
    with Store(path) as store:
        Summaries(store).refresh()
        app = create_app(
            Readers(store), store_path=path, access=access, site=site, live=live, sets=sets, proxy=proxy,
            masks=masks,
        )  # fmt: skip
        server = PageServer(app, listener)
        server.start()
        try:
            yield Served(site, access)
        finally:
            server.stop()


def nonce_of(answer: Answer) -> str:
    """Return the nonce of a response's policy."""
    found = re.search(r"'nonce-([^']+)'", answer.headers["Content-Security-Policy"])
    assert found is not None
    return found[1]
