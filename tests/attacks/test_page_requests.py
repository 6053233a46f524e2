"""Requests to the page that are too large, too deep or too many, and connections that say nothing."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.page.security.access import Access, Person
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import BusyError
from evaltap.evaluator.store.remote import server as remote
from evaltap.evaluator.store.remote.client import RemoteReader
from evaltap.evaluator.store.remote.messages import socket_path
from evaltap.schemas.errors import InputError
from support.servers.page_server import Served, served


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("page")
    with Store(folder / "x.duckdb"):
        pass
    with served(folder / "x.duckdb", folder) as page:
        yield page


@pytest.mark.slow
def test_a_filter_of_thousands_of_terms_is_no_fault_of_the_page(page: Served) -> None:
    with pytest.raises(InputError, match="more than 200 terms"):
        parse_filter("not " * 2_500)
    answer = page.ask(f"/cases?q={quote('not ' * 2_500)}")

    assert answer.status in (200, 504)  # 504: not read within the time of a search


def test_a_form_of_many_fields_is_no_fault_of_the_page(page: Served) -> None:
    answer = page.ask("/theme", "POST", form={f"f{number}": "x" for number in range(300)},
                      headers={"Origin": page.site.address})  # fmt: skip

    assert answer.status == 400
    assert "more than 200 fields" in answer.text


@pytest.mark.parametrize("size", [17_000, 50_000])
def test_headers_are_bounded_also_when_they_come_at_once(page: Served, size: int) -> None:
    answer = page.ask(
        "/theme", "POST", form={}, headers={"X": "x" * size, "Origin": page.site.address}
    )

    assert answer.status in (400, 431)


def test_wrong_codes_do_not_keep_the_owner_out(page: Served) -> None:
    headers = {"Origin": page.site.address}
    wrong = [
        page.ask("/login", "POST", role=None, form={"code": "x"}, headers=headers).status
        for _ in range(8)
    ]
    code = page.access.invite(Person("ann", "admin"))
    right = page.ask("/login", "POST", role=None, form={"code": code}, headers=headers).status

    assert (wrong, right) == ([403] * 5 + [429] * 3, 303)


def test_a_session_that_was_ended_does_not_come_back(tmp_path: Path) -> None:
    now = [1_000_000.0]
    access = Access(tmp_path, now=lambda: now[0])
    back = 0
    for _ in range(100):
        secret = access.log_in(Person("ann", "admin"))
        session = access.session(secret)
        assert session is not None
        now[0] += 120  # each use is noted

        user = threading.Thread(target=lambda one=secret: [access.session(one) for _ in range(20)])
        user.start()
        access.end(session.session_id)
        user.join()
        back += access.session(secret) is not None

    assert back == 0


def test_connections_that_say_nothing_lose_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "GREETING_SECONDS", 0.5)
    path = tmp_path / "x.duckdb"
    with Store(path) as store, remote.served(store):
        silent = []
        for _ in range(remote.MOST_READERS):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(str(socket_path(path)))
            silent.append(connection)
        reader, until = None, time.monotonic() + 20
        while reader is None and time.monotonic() < until:
            with suppress(BusyError):
                reader = RemoteReader.of(path)
            time.sleep(0.1)
        assert reader is not None
        with closing(reader):
            assert reader.rows("SELECT 1") == [(1,)]
        for connection in silent:
            connection.close()
