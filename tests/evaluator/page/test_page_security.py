"""Access to the page and browser permissions: real requests to the served page."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaltap.evaluator.page.request import local_path
from evaltap.evaluator.page.routes import PAGES
from evaltap.evaluator.page.security.access import (
    IDLE_SECONDS,
    ROLES,
    SESSION_SECONDS,
    Access,
    Person,
)
from evaltap.evaluator.page.security.login import Attempts
from evaltap.evaluator.page.security.site import Site, split_host
from support.servers.page_server import SAME, Served, nonce_of, served
from support.worlds.page_store import support_store


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The page of a small store."""
    folder = tmp_path_factory.mktemp("page")
    with served(support_store(folder, count=3), folder) as found:
        yield found


HOSTS = [
    ("127.0.0.1", True), ("127.0.0.1:{port}", True), ("LOCALHOST:{port}", True), ("localhost.", True),
    ("[::1]:{port}", True), ("127.0.0.1:1", False), ("evil.example", False), ("evil.example:{port}", False),
    ("127.0.0.1.evil.example", False), ("", False), ("localhost:x", False), ("[::1", False),
]  # fmt: skip


@pytest.mark.parametrize(("host", "served_to"), HOSTS)
@pytest.mark.parametrize("path", ["/healthz", "/cases", "/login", "/static/x"])
def test_only_known_hosts_are_served(page: Served, host: str, served_to: bool, path: str) -> None:
    answer = page.ask(path, host=host.format(port=page.site.port))

    assert (answer.status != 421) == served_to
    if not served_to:
        assert b"shop" not in answer.body


CHANGES = [
    ({"Sec-Fetch-Site": "same-origin"}, True),
    ({"Sec-Fetch-Site": "same-site"}, False),
    ({"Sec-Fetch-Site": "cross-site"}, False),
    ({"Sec-Fetch-Site": "none"}, False),
    ({"Sec-Fetch-Site": "cross-site", "Origin": "{own}"}, False),
    ({"Origin": "{own}"}, True),
    ({"Origin": "http://127.0.0.1:1"}, False),
    ({"Origin": "http://evil.example"}, False),
    ({"Origin": "null"}, False),
    ({}, False),
]


@pytest.mark.parametrize(("headers", "allowed"), CHANGES)
def test_only_this_page_may_change_something(
    page: Served, headers: dict[str, str], allowed: bool
) -> None:
    own = f"http://127.0.0.1:{page.site.port}"
    sent = {name: value.format(own=own) for name, value in headers.items()}

    answer = page.ask("/theme", "POST", headers=sent, form={"theme": "dark"})

    assert answer.status == (303 if allowed else 403)
    assert ("evaltap-theme=dark" in (answer.headers["Set-Cookie"] or "")) == allowed


def test_other_pages_cannot_read_by_script(page: Served) -> None:
    foreign = {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}
    assert page.ask("/cases?format=json", headers=foreign).status == 403
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert page.ask("/cases", headers=followed).status == 200


@pytest.mark.parametrize(
    "path", ["/", "/cases", "/case", "/healthz", "/login", "/nowhere", "/static/x"]
)
@pytest.mark.parametrize("role", ["admin", None])
def test_every_response_carries_the_policy(page: Served, path: str, role: str | None) -> None:
    answer = page.ask(path, role=role)

    policy = answer.headers["Content-Security-Policy"]
    for part in (
        "default-src 'none'", "script-src 'nonce-", "frame-ancestors 'none'", "base-uri 'none'",
        "require-trusted-types-for 'script'", "form-action 'self'",
    ):  # fmt: skip
        assert part in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Access-Control-Allow-Origin"] is None


def test_a_nonce_is_used_once(page: Served) -> None:
    first, second = page.ask("/cases"), page.ask("/cases")
    assert nonce_of(first) != nonce_of(second)
    assert f'nonce="{nonce_of(first)}"' in first.text
    assert " style=" not in first.text
    assert " onclick=" not in first.text


@pytest.mark.parametrize("route", PAGES, ids=lambda route: route.path)
@pytest.mark.parametrize("role", [None, *ROLES])
def test_roles_by_route(page: Served, route: object, role: str | None) -> None:
    from evaltap.evaluator.page.routes import PageRoute

    assert isinstance(route, PageRoute)
    answer = page.ask(route.path, role=role)
    if role is None:
        assert answer.status == 303
        assert answer.headers["Location"].startswith("/login")
        assert page.ask(f"{route.path}?format=json", role=None).status == 401
    elif ROLES.index(role) < ROLES.index(route.role):
        assert answer.status == 403
    else:
        assert answer.status in (200, 400, 404)


def log_in(page: Served, code: str, **more: str) -> tuple[int, str, str]:
    answer = page.ask("/login", "POST", role=None, headers=SAME, form={"code": code, **more})
    return answer.status, answer.headers["Set-Cookie"] or "", answer.headers["Location"] or ""


def test_a_code_logs_in_once(page: Served) -> None:
    code = page.access.invite(Person("ann", "reviewer"))

    status, cookie, location = log_in(page, code, next="/cases?q=x")

    assert (status, location) == (303, "/cases?q=x")
    assert cookie.startswith(f"__Host-evaltap-{page.site.port}=")
    for part in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert part in cookie
    secret = cookie.partition(";")[0]
    assert page.ask("/cases", role=None, headers={"Cookie": secret}).status == 200
    assert log_in(page, code)[0] == 403

    out = page.ask("/logout", "POST", role=None, headers={**SAME, "Cookie": secret})
    assert out.status == 303
    assert page.ask("/cases", role=None, headers={"Cookie": secret}).status == 303


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "http://evil.example", "/\\evil.example", "javascript:alert(1)", "\\\\evil", "",
     "/a\nSet-Cookie: x=y", "evil"],
)  # fmt: skip
def test_the_login_leads_nowhere_else(target: str) -> None:
    assert local_path(target) == "/"


def test_attempts_are_limited() -> None:
    now = [0.0]
    attempts = Attempts(lambda: now[0])
    assert [attempts.allow("a") for _ in range(6)] == [True] * 5 + [False]
    assert attempts.allow("b")
    for number in range(24):
        attempts.allow(f"c{number}")
    assert not attempts.allow("d")
    now[0] = 61
    assert attempts.allow("a")


def test_secrets_are_not_on_disk_and_files_are_private(tmp_path: Path) -> None:
    access = Access(tmp_path / "state")
    code = access.invite(Person("ann", "viewer"))
    secret = access.log_in(Person("ann", "viewer"))

    for file in (tmp_path / "state").rglob("*"):
        mode = stat.S_IMODE(file.stat().st_mode)
        assert mode == (0o700 if file.is_dir() else 0o600)
        if file.is_file():
            assert code not in file.read_text()
            assert secret not in file.read_text()
            assert secret not in file.name


def test_codes_and_sessions_end(tmp_path: Path) -> None:
    now = [1_000.0]
    access = Access(tmp_path / "state", now=lambda: now[0])
    late = access.invite(Person("ann", "viewer"), 60)
    secret = access.log_in(Person("ann", "viewer"))
    now[0] += 61
    assert access.redeem(late) is None
    now[0] += IDLE_SECONDS - 100
    assert access.session(secret) is not None  # used: it goes on from here
    now[0] += IDLE_SECONDS - 100
    assert access.session(secret) is not None
    now[0] += IDLE_SECONDS + 1
    assert access.session(secret) is None
    busy = access.log_in(Person("ann", "viewer"))
    started = now[0]
    while now[0] < started + SESSION_SECONDS:
        assert access.session(busy) is not None
        now[0] += IDLE_SECONDS / 2
    now[0] += 1
    assert access.session(busy) is None


@pytest.mark.parametrize("secret", ["", "x", "../sessions/x", "\ud800", "a" * 10_000])
def test_wrong_secrets_open_nothing(tmp_path: Path, secret: str) -> None:
    access = Access(tmp_path / "state")
    access.log_in(Person("ann", "viewer"))
    assert access.session(secret) is None
    assert access.redeem(secret) is None


def test_a_token_file_logs_in_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Access(tmp_path / "state")
    file = tmp_path / "token"
    monkeypatch.setenv("EVALTAP_UI_TOKEN_FILE", str(file))
    assert access.redeem("t" * 40) is None
    file.write_text("short\n")
    assert access.redeem("short") is None
    file.write_text("t" * 40 + "\n")
    assert access.redeem("t" * 40) == Person("token", "admin")
    assert access.redeem("t" * 40) is not None
    assert access.redeem("u" * 40) is None


@pytest.mark.parametrize("role", [None, *ROLES])
def test_only_an_admin_invites_and_ends_sessions(page: Served, role: str | None) -> None:
    wanted = {None: 303, "viewer": 403, "reviewer": 403, "admin": 200}[role]
    assert page.ask("/settings", role=role).status == wanted
    form = {"name": "bob", "role": "viewer"}
    answer = page.ask("/settings/invite", "POST", role=role, headers=SAME, form=form)
    assert answer.status == wanted
    assert ("/login#" in answer.text) == (role == "admin")


def test_an_invitation_logs_in_and_its_session_can_be_ended(page: Served) -> None:
    form = {"name": "bob", "role": "viewer"}
    shown = page.ask("/settings/invite", "POST", headers=SAME, form=form).text
    code = shown.partition("/login#")[2].partition("<")[0]
    _, cookie, _ = log_in(page, code)
    bobs = {"Cookie": cookie.partition(";")[0]}
    assert page.ask("/cases", role=None, headers=bobs).status == 200
    (session,) = [one for one in page.access.sessions() if one.person.name == "bob"]
    page.ask("/settings/end", "POST", headers=SAME, form={"session": session.session_id})
    assert page.ask("/cases", role=None, headers=bobs).status == 303
    assert page.ask("/cases").status == 200
    wrong = page.ask("/settings/invite", "POST", headers=SAME, form={"name": "bob", "role": "god"})
    assert wrong.status == 400


def test_bodies_have_a_limit(page: Served) -> None:
    answer = page.ask("/login", "POST", role=None, headers=SAME, form={"code": "x" * 1_100_000})
    assert answer.status == 413


@pytest.mark.parametrize(
    "path",
    ["/static/../app.py", "/static/%2e%2e/app.py", "/static/style.css", "/static/%2Fetc%2Fpasswd",
     "/..%2f..%2fetc/passwd", "/static/style.000000000000.css"],
)  # fmt: skip
def test_no_other_file_is_served(page: Served, path: str) -> None:
    answer = page.ask(path)
    assert answer.status == 404
    assert b"import " not in answer.body


def test_data_of_a_page_is_its_json(page: Served) -> None:
    answer = page.ask("/cases?format=json")
    assert answer.headers["Content-Type"] == "application/json"
    data = json.loads(answer.body)["data"]
    assert data["matched"] == 4
    assert data["rows"][0]["case"]["eval_id"] == "s-too-generous"


def test_names_are_split_as_browsers_write_them() -> None:
    assert split_host("Example.COM.:80") == ("example.com", 80)
    assert split_host("[::1]") == ("::1", None)
    assert split_host("a:b") == (None, None)
    assert split_host(f"a:{'1' * 5000}") == (None, None)
    remote = Site("0.0.0.0", 80, names=frozenset({"evals.example.com"}))
    assert remote.serves("evals.example.com")
    assert not remote.serves("localhost")
