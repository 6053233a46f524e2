"""A proxy that logs people in: its headers are only trusted from its address and with its secret."""

import http.client
import logging
import shutil
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.security.proxy import Proxy, proxy_of
from evaltap.schemas.errors import InputError
from support.builders.program import Program
from support.servers.page_server import SAME, Served, served
from support.worlds.page_store import support_store

SECRET = "s" * 40
ANN = {"X-Forwarded-Email": "ann@example.com", "X-Evaltap-Proxy-Secret": SECRET}


def made(folder: Path, *networks: str) -> Proxy:
    """Return the proxy of some networks."""
    file = folder / "secret"
    file.write_text(SECRET)
    return proxy_of(networks, "X-Forwarded-Email", file)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support_store(tmp_path_factory.mktemp("proxied"), count=2)


@pytest.fixture
def own(store: Path, tmp_path: Path) -> Path:
    """A copy of the store for a page of its own."""
    path = tmp_path / "own.duckdb"
    shutil.copy(store, path)
    return path


@pytest.fixture(scope="module")
def page(store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A page behind a proxy of this machine; Ann reviews."""
    folder = tmp_path_factory.mktemp("served")
    path = folder / "served.duckdb"
    shutil.copy(store, path)
    with served(path, folder, proxy=made(folder, "127.0.0.0/8")) as found:
        found.access.enrol(Person("ann@example.com", "reviewer"))
        yield found


@pytest.mark.slow
def test_whom_the_proxy_names_is_logged_in_with_the_role_of_the_list(page: Served) -> None:
    answer = page.ask("/cases", role=None, headers=ANN)

    assert answer.status == 200
    assert "ann@example.com" in answer.text
    assert page.ask("/review", role=None, headers=ANN).status == 200
    assert page.ask("/settings", role=None, headers=ANN).status == 403


@pytest.mark.parametrize("name", ["eve@example.com", "ANN@example.com", "ann@example.com,eve"])
@pytest.mark.parametrize("path", ["/", "/cases?format=json", "/ticks", "/login", "/healthz"])
def test_whom_nobody_listed_gets_nothing(page: Served, name: str, path: str) -> None:
    answer = page.ask(path, role=None, headers={**ANN, "X-Forwarded-Email": name})

    assert answer.status == 403
    assert b"case" not in answer.body.lower()


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Forwarded-Email": "ann@example.com"},
        {**ANN, "X-Evaltap-Proxy-Secret": "s" * 39 + "t"},
        {**ANN, "X-Evaltap-Proxy-Secret": ""},
    ],
)
def test_without_the_secret_the_header_is_ignored(page: Served, headers: dict[str, str]) -> None:
    answer = page.ask("/cases", role=None, headers=headers)

    assert (answer.status, answer.headers["Location"]) == (303, "/login?next=%2Fcases")


def test_another_address_is_ignored_whatever_it_says_of_its_way_and_the_log_tells(
    own: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with served(own, tmp_path, proxy=made(tmp_path, "10.0.0.7/32")) as page:
        page.access.enrol(Person("ann@example.com", "admin"))
        told = {**ANN, "X-Forwarded-For": "10.0.0.7", "X-Real-Ip": "10.0.0.7"}
        with caplog.at_level(logging.WARNING, "evaltap.page"):
            answer = page.ask("/cases", role=None, headers=told)

    assert answer.status == 303
    assert "ignored the user named in a request from 127.0.0.1" in caplog.text
    assert "ann@" not in caplog.text


def test_host_and_scheme_are_the_proxys_only_then(own: Path, tmp_path: Path) -> None:
    outside = {"X-Forwarded-Host": "evals.example.com:8443", "X-Forwarded-Proto": "https"}
    origin = {"Origin": "https://evals.example.com:8443"}
    proxy = made(tmp_path, "127.0.0.1/32")
    with served(own, tmp_path, proxy=proxy, names=("evals.example.com",)) as page:
        page.access.enrol(Person("ann@example.com", "reviewer"))

        def ask(headers: dict[str, str]) -> int:
            return page.ask("/review/next", "POST", role=None, headers=headers).status

        assert ask({**ANN, **outside, **origin}) == 303
        assert ask({**ANN, **origin}) == 403  # the page's own name is another origin
        assert ask({**ANN, **outside, "Origin": "http://evals.example.com:8443"}) == 403
        assert ask({**ANN, **outside, "X-Forwarded-Host": "evil.example", **SAME}) == 421
        assert ask({**outside, **origin}) == 403  # without the secret nothing of it counts


def test_a_person_taken_off_the_list_is_out(page: Served) -> None:
    page.access.enrol(Person("bob", "viewer"))
    named = {**ANN, "X-Forwarded-Email": "bob"}
    assert page.ask("/cases", role=None, headers=named).status == 200

    answer = page.ask("/settings/remove", "POST", headers=SAME, form={"name": "bob"})

    assert answer.status == 303
    assert page.ask("/cases", role=None, headers=named).status == 403
    assert "bob" in page.ask("/changes").text


@pytest.mark.parametrize(
    ("networks", "secret", "says"),
    [
        (["10.0.0.0/99"], SECRET, "expected the proxy's address or network"),
        (["10.0.0.0/8"], "short", "expected 32 or more printable ASCII characters, found 5"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, networks: list[str], secret: str, says: str
) -> None:
    file = tmp_path / "secret"
    file.write_text(secret)

    with pytest.raises(InputError, match=says):
        proxy_of(networks, "X-Forwarded-Email", file)


@pytest.mark.slow
def test_a_page_on_a_unix_socket_is_this_users_and_a_proxy_of_it_is_known(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    place, secret = tmp_path / "page.sock", tmp_path / "secret"
    secret.write_text(SECRET)
    invited = Program(["ui", str(own), "--invite", "viewer", "--name", "ann@example.com"], tmp_path)
    assert invited.wait() == 0
    options = ["--socket", str(place), "--behind-proxy", "unix", "--proxy-secret-file", str(secret)]
    page = Program(["ui", str(own), *options], tmp_path)
    page.wait_for(lambda: "login#" in page.output)

    mode = stat.S_IMODE(place.stat().st_mode)
    answers = [_over(place, headers) for headers in (ANN, {})]

    assert page.stop() == 0
    assert "http://localhost:4710/login#" in page.output
    assert mode == 0o600
    assert answers == [200, 303]
    assert not place.exists()


def _over(place: Path, headers: dict[str, str]) -> int:
    connection = http.client.HTTPConnection("localhost", 4710)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(place))
    connection.request("GET", "/cases", headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status
