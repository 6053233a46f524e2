"""The application: a table of routes with their required roles, and the handlers."""

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl, quote

import anyio.to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
)
from starlette.routing import Route

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.changes import Change, CursorWriter
from evaltap.evaluator.page.masking import Marks, masked
from evaltap.evaluator.page.rendering import THEMES, Frame, as_json, assets, product_version, render
from evaltap.evaluator.page.request import (
    LATE_SECONDS,
    NO_SOURCE,
    Download,
    PageAnswer,
    PageRequest,
    SharedAnswers,
    Source,
    forbidden,
    local_path,
    now_utc,
    problem,
    problem_of,
)
from evaltap.evaluator.page.routes import ACTIONS, NAVIGATION, PAGES, ActionRoute, PageRoute
from evaltap.evaluator.page.security.access import Access, Person, Session
from evaltap.evaluator.page.security.guard import Guard
from evaltap.evaluator.page.security.login import (
    Attempts,
    session_of,
    to_login,
    with_cookie,
    without_cookie,
)
from evaltap.evaluator.page.security.proxy import Proxy, ProxyGate
from evaltap.evaluator.page.security.site import Site
from evaltap.evaluator.page.serving import Live, Ticker
from evaltap.evaluator.page.statements import RecordedReader, Statement
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.store.readers import Readers
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import EvaltapError

_LOG = logging.getLogger("evaltap.page")
_YEAR: Final = 365 * 24 * 3600
MOST_FIELDS: Final = 200


def create_app(
    readers: Readers,
    *,
    store_path: Path,
    access: Access,
    site: Site,
    live: Live | None = None,
    references: References | None = None,
    sets: tuple[Path, ...] = (),
    redact: Callable[[CaseData], CaseData] = lambda case: case,
    source: Source = NO_SOURCE,
    proxy: Proxy | None = None,
    masks: bool = False,
    trace_url: TraceUrl | None = None,
) -> Starlette:
    """Return the application for one store; `live` reports new turns while they are landed.

    `references` are expected turns that were given for scoring and did not land.  Traffic is compared with
    `sets`, and curated cases are redacted by `redact`.  `source` describes what lands, `proxy` may log people
    in, `masks` hides contents from viewers, and `trace_url` is the address of turns' traces.
    """
    nobody = Person("", "viewer")
    about = PageRequest(
        {},
        nobody,
        store_path,
        live is not None,
        source,
        references,
        sets=sets,
        redact=redact,
        access=access,
        address=site.address,
        masks=masks,
        trace_url=trace_url,
    )
    page = _Application(readers, about, access, site, live)
    routes = [
        Route("/static/{name}", page.static),
        Route("/healthz", page.health),
        Route("/login", page.login, methods=["GET", "POST"]),
        Route("/logout", page.logout, methods=["POST"]),
        Route("/ticks", page.ticks),
        Route("/theme", page.theme, methods=["POST"]),
        *(Route(one.path, partial(page.show, one)) for one in PAGES),
        *(Route(one.path, partial(page.act, one), methods=["POST"]) for one in ACTIONS),
    ]
    gate = ProxyGate(proxy, access.person) if proxy else None
    app = Starlette(
        routes=routes,
        middleware=[Middleware(Guard, site=site, gate=gate)],
        exception_handlers={404: page.missing},
    )
    app.state.ends = lambda: False  # the server replaces this when it stops
    return app


Read: TypeAlias = tuple[PageAnswer, tuple[Statement, ...]]
"""The content of a page, and the statements that read it."""


class _Application:
    def __init__(
        self, readers: Readers, about: PageRequest, access: Access, site: Site, live: Live | None
    ) -> None:
        self._about = about
        self._readers = readers
        self._access = access
        self._site = site
        self._ticker = Ticker(live) if live else None
        self._attempts = Attempts()
        self._marks = Marks()
        self._shared = SharedAnswers[Read](late_seconds=LATE_SECONDS)

    async def show(self, route: PageRoute, request: Request) -> Response:
        """Return a page, a part of it, or its data."""
        started = time.perf_counter()
        if (session := session_of(request, self._access, self._site)) is None:
            return to_login(request)
        page_request = self._page_request(session, dict(request.query_params))
        if not session.person.may(route.role):
            return self._html(request, forbidden(session.person, route.role), page_request, started)
        shown, statements = await anyio.to_thread.run_sync(self._read, route, page_request)
        if page_request.masked:
            shown = masked(shown)
        if page_request["format"] == "json":
            store = str(page_request.store_path)
            data = {"evaltap": product_version(), "store": store, "data": shown.data}
            return Response(as_json(data), shown.status, media_type="application/json")
        return self._html(request, shown, page_request, started, statements)

    def _read(self, route: PageRoute, page_request: PageRequest) -> Read:
        if not route.shared:
            return self._read_uncached(route, page_request)
        key = (route.path, *sorted(page_request.parameters.items()))
        found = self._shared.get(
            key,
            partial(self._read_uncached, route, page_request),
            is_good=lambda read: read[0].status == 200,
        )
        if self._marks.is_due(page_request.person):  # the shared answer was read for another person
            with suppress(EvaltapError), self._readers.reading(seconds=route.seconds) as reader:
                self._marks.refresh(reader, page_request.person)
        return found

    def _read_uncached(self, route: PageRoute, page_request: PageRequest) -> Read:
        recorded: RecordedReader | None = None
        try:
            with self._readers.reading(seconds=route.seconds) as reader:
                self._marks.refresh(reader, page_request.person)
                recorded = RecordedReader(reader)
                return route.view(recorded, page_request), tuple(recorded.statements)
        except EvaltapError as error:
            shown = problem_of(error, route.path, page_request)
            return shown, tuple(recorded.statements if recorded else ())

    async def act(self, route: ActionRoute, request: Request) -> Response:
        """Write what a form requests, and redirect."""
        started = time.perf_counter()
        if (session := session_of(request, self._access, self._site)) is None:
            return to_login(request)
        page_request = self._page_request(session, await _form(request))
        if not session.person.may(route.role):
            return self._html(request, forbidden(session.person, route.role), page_request, started)
        try:
            found = await anyio.to_thread.run_sync(self._write, route, page_request)
        except EvaltapError as error:
            return self._html(request, problem_of(error), page_request, started)
        if isinstance(found, Download):
            named = f"attachment; filename*=UTF-8''{quote(found.name, safe='')}"
            headers = {"Content-Disposition": named}
            return Response(found.content, headers=headers, media_type=found.media_type)
        if isinstance(found, PageAnswer):
            return self._html(request, found, page_request, started)
        return RedirectResponse(found, 303)

    def _write(self, route: ActionRoute, page_request: PageRequest) -> str | PageAnswer | Download:
        with self._readers.writing(seconds=route.seconds) as cursor:
            writer = CursorWriter(page_request.store_path, cursor)
            found = route.act(writer, page_request)
            self._marks.refresh(writer, page_request.person, force=True)
            return found

    def _page_request(self, session: Session, parameters: Mapping[str, str]) -> PageRequest:
        return replace(
            self._about,
            parameters=parameters,
            person=session.person,
            now=now_utc(),
            session_id=session.session_id,
        )

    def _html(
        self,
        request: Request,
        shown: PageAnswer,
        page_request: PageRequest | None,
        started: float,
        statements: tuple[Statement, ...] = (),
    ) -> Response:
        query = f"?{request.url.query}" if request.url.query else ""
        frame = Frame(
            request.state.nonce,
            _known_theme(request.cookies.get("evaltap-theme", "")),
            request.url.path + query,
            (time.perf_counter() - started) * 1e3,
            statements,
            NAVIGATION,
            self._marks.of(page_request.person) if page_request else {},
        )
        headers = {"Retry-After": "2"} if shown.status == 503 else None
        return HTMLResponse(render(shown, page_request, frame), shown.status, headers)

    async def login(self, request: Request) -> Response:
        """Show the login form, or redeem a code and open a session."""
        if request.method != "POST":
            return self._login_form(request, local_path(request.query_params.get("next", "/")))
        form = await _form(request)
        onward = local_path(form.get("next", "/"))
        client = request.client.host if request.client else ""
        # A right code is never refused: a stranger's wrong ones must not keep its owner out, and there are
        # too many codes to guess.
        if (person := self._access.redeem(form.get("code", ""))) is not None:
            if (before := session_of(request, self._access, self._site)) is not None:
                self._access.end(before.session_id)
            response = RedirectResponse(onward, 303)
            with_cookie(response, request, self._site, self._access.log_in(person))
            await anyio.to_thread.run_sync(self._note_login, person, client)
            return response
        if not self._attempts.allow(client):
            wrong = "Too many wrong codes; wait a minute and try again."
            return self._login_form(request, onward, wrong, 429)
        wrong = (
            "This code is wrong, already used or expired. Get a new link with `evaltap ui --link`."
        )
        return self._login_form(request, onward, wrong, 403)

    def _login_form(
        self, request: Request, onward: str, wrong: str = "", status: int = 200
    ) -> Response:
        shown = PageAnswer("login.html.j2", "Log in", {"next": onward, "wrong": wrong}, status)
        return self._html(request, shown, None, time.perf_counter())

    def _note_login(self, person: Person, client: str) -> None:
        try:
            with self._readers.writing() as cursor:
                writer = CursorWriter(self._about.store_path, cursor)
                changes.write(writer, person, [Change("log_in", detail={"address": client})])
        except EvaltapError as error:  # a busy file must not prevent logins
            _LOG.warning("could not record a login among the changes: %s", error)

    async def logout(self, request: Request) -> Response:
        if (session := session_of(request, self._access, self._site)) is not None:
            self._access.end(session.session_id)
        response = RedirectResponse("/login", 303)
        without_cookie(response, self._site)
        return response

    async def theme(self, request: Request) -> Response:
        """Store the reader's choice of light or dark."""
        form = await _form(request)
        response = RedirectResponse(local_path(form.get("next", "/")), 303)
        chosen = _known_theme(form.get("theme", ""))
        response.set_cookie("evaltap-theme", chosen, max_age=_YEAR, samesite="lax", httponly=True)
        return response

    async def static(self, request: Request) -> Response:
        """Return a static file, whose name contains a hash of its content."""
        if (file := assets().get(f"/static/{request.path_params['name']}")) is None:
            return PlainTextResponse("no such file", 404)
        return FileResponse(file, headers={"Cache-Control": f"public, max-age={_YEAR}, immutable"})

    async def ticks(self, request: Request) -> Response:
        """Notify a browser of changes for as long as it listens."""
        if session_of(request, self._access, self._site) is None:
            return to_login(request)
        if self._ticker is None:
            return PlainTextResponse(
                "no live updates: nothing lands in this file while the page runs", 404
            )
        return self._ticker.answer(request)

    async def health(self, request: Request) -> Response:
        """Report that the page responds."""
        return PlainTextResponse("ok")

    async def missing(self, request: Request, error: Exception) -> Response:
        """Respond to an unknown address."""
        session = session_of(request, self._access, self._site)
        if session is None and request.method != "GET":
            return PlainTextResponse("not found", 404)
        if session is None:
            return to_login(request)
        shown = problem(404, "There is no page at this address.")
        return self._html(request, shown, self._page_request(session, {}), time.perf_counter())


def _known_theme(chosen: str) -> str:
    return chosen if chosen in THEMES else "system"


async def _form(request: Request) -> Mapping[str, Any]:
    body = (await request.body()).decode("utf-8", "replace")
    try:
        return dict(parse_qsl(body, keep_blank_values=True, max_num_fields=MOST_FIELDS))
    except ValueError:
        raise HTTPException(400, f"a form with more than {MOST_FIELDS} fields") from None
