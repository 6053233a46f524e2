"""The evaluation server's routes: tRPC-Agent-Go's, and runs in the background, their events and their end.

POST {base}/runs with `Prefer: respond-async` answers 202 with the run's Location at once; without, it answers
when the run has ended.  A client that leaves before takes its run with it.
"""

import asyncio
import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Mount

from evaltap.evaluator.page.security.guard import TooLargeError
from evaltap.evaluator.scoring.contract.errors import UnknownEvaluatorError
from evaltap.evaluator.scoring.settings import check_code
from evaltap.experiments.server.entrance import Entrance, Guarded
from evaltap.experiments.server.routing import Handler, Names, Route, Routes, answer, off_loop
from evaltap.experiments.server.runs import BusyError, Evaluating, Run, Runs
from evaltap.experiments.stores.errors import ChangedError, ExistsError, NotFoundError
from evaltap.experiments.stores.eval_sets import EvalSetStoring
from evaltap.experiments.stores.metrics import MetricStoring
from evaltap.experiments.stores.results import ResultStoring
from evaltap.schemas.data import json_bytes
from evaltap.schemas.errors import ConfigurationError, EvaltapError, FormatError, InputError
from evaltap.schemas.files.canonical import loads
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.model import WireModel

BASE: Final = "/evaluation"
MOST_RUNS: Final = 1_000
"""How often one request may run each case."""
_LOG = logging.getLogger("evaltap.serve")
_Body = TypeVar("_Body", bound=WireModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """Where the routes are: blank parts are those of tRPC-Agent-Go, and slashes are put right."""

    base: str = BASE
    sets: str = "/sets"
    metrics: str = "/metrics"
    runs: str = "/runs"
    results: str = "/results"

    def of(self, name: str) -> str:
        """Return the path of `base`, `sets`, `metrics`, `runs` or `results`."""
        base = _path(self.base) or BASE
        return base if name == "base" else base + (_path(getattr(self, name)) or f"/{name}")


class RunRequest(WireModel):
    """The body of POST /runs."""

    set_id: str = ""
    num_runs: int | None = None


class MetricRequest(WireModel):
    """The body of POST and PUT /metrics."""

    set_id: str = ""
    metric: EvalMetric | None = None


class CaseRequest(WireModel):
    """The body of POST and PUT of a set's cases."""

    case: EvalCase | None = None


class RefusedError(Exception):
    """Ends a request with a status and what the client is told."""

    def __init__(self, status: int, told: str) -> None:
        self.status = status
        super().__init__(told)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStores:
    """The stores that a server offers; one that is None has no routes."""

    sets: EvalSetStoring | None = None
    metrics: MetricStoring | None = None
    results: ResultStoring | None = None


def create_app(
    evaluator: Evaluating,
    stores: ServerStores,
    entrance: Entrance,
    *,
    paths: Paths = Paths(),
    run_seconds: float | None = None,
    at_once: int = 2,
    allow_code: bool = False,
    more: Callable[["EvaluationApi"], list[Route]] = lambda _: [],
) -> Starlette:
    """Return the server of an evaluator.

    A run may take `run_seconds`, `at_once` run at a time, and metrics run code only if `allow_code` is set.
    `more` returns other routes.  `app.state.cancel()`, on the event loop, ends all runs.  Raises
    ConfigurationError for a blank app name.
    """
    if not evaluator.app_name.strip():
        raise ConfigurationError("the app name is blank; give one")
    api = EvaluationApi(evaluator, stores, paths, run_seconds, at_once, allow_code=allow_code)
    routes = Routes([*api.routes(), *more(api)])
    app = Starlette(routes=[Mount("/", app=Guarded(routes, entrance))])
    app.state.cancel = api.runs.cancel
    return app


class EvaluationApi:
    """Answers the requests of one server."""

    def __init__(
        self,
        evaluator: Evaluating,
        stores: ServerStores,
        paths: Paths,
        run_seconds: float | None,
        at_once: int,
        *,
        allow_code: bool,
    ) -> None:
        self.app_name = evaluator.app_name
        self.stores = stores
        self.runs = Runs(evaluator, at_once, self.check_code, run_seconds)
        self._paths = paths
        self._allow_code = allow_code

    def routes(self) -> list[Route]:
        """Return the routes of the stores that there are, and those of runs."""
        at = self._paths.of
        runs = f"{at('runs')}/{{run_id}}"
        found: dict[str, Mapping[str, Handler]] = {
            at("runs"): {"POST": self._create_run},
            runs: {"GET": self._run, "DELETE": self._cancel},
            f"{runs}/events": {"GET": self._events},
        }
        if self.stores.sets is not None:
            sets = _Sets(self, self.stores.sets)
            cases = f"{at('sets')}/{{set_id}}/cases"
            found[at("sets")] = {"GET": sets.list}
            found[f"{at('sets')}/{{set_id}}"] = {"GET": sets.get}
            found[cases] = {"POST": sets.add_case}
            found[f"{cases}/{{eval_id}}"] = {
                "GET": sets.get_case,
                "PUT": sets.put_case,
                "DELETE": sets.delete_case,
            }
        if self.stores.metrics is not None:
            metrics = _Metrics(self, self.stores.metrics)
            found[at("metrics")] = {"GET": metrics.list, "POST": metrics.add}
            found[f"{at('metrics')}/{{name}}"] = {
                "GET": metrics.get,
                "PUT": metrics.update,
                "DELETE": metrics.delete,
            }
        if self.stores.results is not None:
            results = _Results(self, self.stores.results)
            found[at("results")] = {"GET": results.list}
            found[f"{at('results')}/{{result_id}}"] = {"GET": results.get}
        return [
            Route(path, {method: responding(one) for method, one in methods.items()})
            for path, methods in found.items()
        ]

    def check_code(self, metrics: Sequence[EvalMetric]) -> None:
        """Raise InputError for metrics that run code, unless that is allowed."""
        check_code(metrics, "metrics", allowed=self._allow_code)

    def started(self, eval_set_id: str, **options: Any) -> Run:  # fields of Options
        """Start a run; raise RefusedError if there is no room."""
        try:
            return self.runs.start(eval_set_id, **options)
        except BusyError:
            raise RefusedError(503, "too many runs are waiting; try again later") from None

    async def until_ended(self, request: Request, run: Run) -> None:
        """Wait for a run; raise what made it fail, or RefusedError if it was cancelled.

        A client that leaves ends it.
        """
        leaving = asyncio.create_task(_left(request))
        leaving.add_done_callback(lambda task: None if task.cancelled() else run.cancel())
        try:
            await run.ended()
        finally:
            leaving.cancel()
            run.cancel()
        if run.error is not None:
            raise run.error
        if run.state == "canceled":
            raise RefusedError(408, "evaluation canceled")

    async def _create_run(self, request: Request, _: Names) -> Response:
        asked = await body_of(RunRequest, request)
        if not (set_id := asked.set_id.strip()):
            raise RefusedError(400, "setId must not be empty")
        if asked.num_runs is not None and asked.num_runs < 1:
            raise RefusedError(400, "numRuns must be greater than 0 when provided")
        if asked.num_runs is not None and asked.num_runs > MOST_RUNS:
            raise RefusedError(400, f"numRuns must be at most {MOST_RUNS:,}")
        options = {} if asked.num_runs is None else {"num_runs": asked.num_runs}
        run = self.started(set_id, **options)
        if _prefers_async(request):
            response = answer({"run": run.data()}, 202)
            response.headers["Location"] = f"{self._paths.of('runs')}/{quote(run.run_id)}"
            response.headers["Preference-Applied"] = "respond-async"
            return response
        await self.until_ended(request, run)
        assert run.result is not None
        return answer({"evaluationResult": await off_loop(run.result.data)}, 201)

    def _found(self, names: Names) -> Run:
        if (run := self.runs.get(names["run_id"])) is None:
            raise RefusedError(404, "not found")
        return run

    async def _run(self, _: Request, names: Names) -> Response:
        return answer({"run": await off_loop(self._found(names).data)})

    async def _cancel(self, _: Request, names: Names) -> Response:
        run = self._found(names)
        status = 200 if run.has_ended else 202
        run.cancel()
        return answer({"run": run.data()}, status)

    async def _events(self, request: Request, names: Names) -> Response:
        run = self._found(names)
        last = request.headers.get("last-event-id", "0")
        if not last.isdecimal():
            raise RefusedError(400, "Last-Event-ID must be the number of an event")
        return StreamingResponse(run.stream(int(last[:12])), media_type="text/event-stream")


class _Sets:
    """Routes of eval sets and their cases."""

    def __init__(self, api: EvaluationApi, store: EvalSetStoring) -> None:
        self._app, self._store = api.app_name, store

    async def list(self, _: Request, names: Names) -> Response:
        return answer({"sets": await off_loop(self._all)})

    def _all(self) -> Sequence[Any]:
        return [_data(self._store.get(self._app, one)) for one in self._store.list(self._app)]

    async def get(self, _: Request, names: Names) -> Response:
        set_id = present(names["set_id"])
        return answer({"set": _data(await off_loop(self._store.get, self._app, set_id))})

    async def add_case(self, request: Request, names: Names) -> Response:
        set_id, case = present(names["set_id"]), await self._case(request)
        await off_loop(self._store.add_case, self._app, set_id, case)
        added = await off_loop(self._store.get_case, self._app, set_id, case.eval_id)
        return self._with_tag(added, 201)

    async def get_case(self, _: Request, names: Names) -> Response:
        place = present(names["set_id"]), present(names["eval_id"])
        return self._with_tag(await off_loop(self._store.get_case, self._app, *place))

    async def put_case(self, request: Request, names: Names) -> Response:
        set_id, eval_id = present(names["set_id"]), present(names["eval_id"])
        case = await self._case(request, eval_id)
        before = await off_loop(self._store.get_case, self._app, set_id, eval_id)
        if case.creation_timestamp is None:  # an update stamps nothing: the case keeps its time
            case = case.model_copy(update={"creation_timestamp": before.creation_timestamp})
        wanted = request.headers.get("if-match", "*")
        if wanted not in ("*", _tag(before)):
            raise RefusedError(412, "the case has changed")
        update = partial(self._store.update_case, expected=None if wanted == "*" else before)
        await off_loop(update, self._app, set_id, case)
        return self._with_tag(case)

    @staticmethod
    def _with_tag(case: EvalCase, status: int = 200) -> Response:
        response = answer({"case": _data(case)}, status)
        response.headers["ETag"] = _tag(case)
        return response

    async def delete_case(self, _: Request, names: Names) -> Response:
        place = present(names["set_id"]), present(names["eval_id"])
        await off_loop(self._store.delete_case, self._app, *place)
        return Response(status_code=204)

    @staticmethod
    async def _case(request: Request, eval_id: str = "") -> EvalCase:
        if (case := (await body_of(CaseRequest, request, keeps_unknown=True)).case) is None:
            raise RefusedError(400, "case must not be null")
        if eval_id and case.eval_id not in ("", eval_id):
            raise RefusedError(400, "case.evalId must match the id in the path when provided")
        return case.model_copy(update={"eval_id": eval_id}) if eval_id else case


class _Metrics:
    """Routes of the metrics of a set."""

    def __init__(self, api: EvaluationApi, store: MetricStoring) -> None:
        self._api, self._app, self._store = api, api.app_name, store

    async def list(self, request: Request, names: Names) -> Response:
        return answer({"metrics": await off_loop(self._all, _set_id(request))})

    def _all(self, set_id: str) -> Sequence[Any]:
        names = self._store.list(self._app, set_id)
        return [_data(self._store.get(self._app, set_id, one)) for one in names]

    async def add(self, request: Request, names: Names) -> Response:
        set_id, metric = await self._asked(request)
        await off_loop(self._store.add, self._app, set_id, metric)
        return await self._answer(set_id, metric.metric_name, 201)

    async def get(self, request: Request, names: Names) -> Response:
        name = present(names["name"])
        return await self._answer(_set_id(request), name)

    async def update(self, request: Request, names: Names) -> Response:
        name = present(names["name"])
        set_id, metric = await self._asked(request, name)
        await off_loop(self._store.update, self._app, set_id, metric)
        return await self._answer(set_id, name)

    async def delete(self, request: Request, names: Names) -> Response:
        name = present(names["name"])
        await off_loop(self._store.delete, self._app, _set_id(request), name)
        return Response(status_code=204)

    async def _answer(self, set_id: str, name: str, status: int = 200) -> Response:
        found = await off_loop(self._store.get, self._app, set_id, name)
        return answer({"metric": _data(found)}, status)

    async def _asked(self, request: Request, name: str = "") -> tuple[str, EvalMetric]:
        asked = await body_of(MetricRequest, request)
        set_id, metric = asked.set_id.strip(), asked.metric
        given = metric.metric_name.strip() if metric else ""
        if name and given and given != name:
            raise RefusedError(400, "metric.metricName must match path metricName when provided")
        if not set_id:
            raise RefusedError(400, "setId must not be empty")
        if metric is None:
            raise RefusedError(400, "metric must not be nil")
        if not (given or name):
            raise RefusedError(400, "metric.metricName must not be empty")
        metric = metric.model_copy(update={"metric_name": given or name})
        self._api.check_code([metric])
        return set_id, metric


class _Results:
    """Routes of results."""

    def __init__(self, api: EvaluationApi, store: ResultStoring) -> None:
        self._app, self._store = api.app_name, store

    async def list(self, request: Request, names: Names) -> Response:
        wanted = request.query_params.get("setId", "").strip()
        return answer({"results": await off_loop(self._all, wanted)})

    def _all(self, wanted: str) -> Sequence[Any]:
        found = (self._store.get(self._app, one) for one in self._store.list(self._app))
        return [_data(one) for one in found if wanted in ("", one.eval_set_id)]

    async def get(self, _: Request, names: Names) -> Response:
        result_id = present(names["result_id"])
        return answer({"result": _data(await off_loop(self._store.get, self._app, result_id))})


def responding(handler: Handler) -> Handler:
    """Return a handler that answers exceptions, too."""
    return partial(_answered, handler)


async def _answered(handler: Handler, request: Request, names: Names) -> Response:
    """Return a handler's response, or what its exception means."""
    try:
        return await handler(request, names)
    except RefusedError as error:
        return answer({"error": str(error)}, error.status)
    except NotFoundError:
        return answer({"error": "not found"}, 404)
    except ExistsError:
        return answer({"error": "already exists"}, 409)
    except ChangedError:
        return answer({"error": "the case has changed"}, 412)
    except TimeoutError:
        return answer({"error": "evaluation timed out"}, 504)
    except TooLargeError:
        raise
    except FormatError as error:  # of a store: what it holds is broken
        why: Exception = error
    except (InputError, UnknownEvaluatorError) as error:
        return answer({"error": str(error)}, 400)
    except Exception as error:  # the client is not told more
        why = error
    known = isinstance(why, EvaltapError)
    _LOG.error(
        "%s %s failed: %s", request.method, request.url.path, why, exc_info=None if known else why
    )
    return answer({"error": "internal server error"}, 500)


async def body_of(model: type[_Body], request: Request, *, keeps_unknown: bool = False) -> _Body:
    """Read a request's JSON; raise RefusedError, also for unknown keys.

    Documents in it may have some with `keeps_unknown`: a case keeps them as it does in files.
    """
    try:
        data = loads(await request.body())
        found = parse(model, {} if data is None else data)
        refuse_unknown(found, deep=not keeps_unknown)
    except FormatError as error:
        raise RefusedError(400, f"invalid request body: {error}") from None
    return found


def refuse_unknown(model: BaseModel, place: str = "", *, deep: bool = True) -> None:
    """Raise FormatError for a key that is no field, at any depth if `deep`."""
    for name in model.model_extra or ():
        raise FormatError(f"unknown field {name!r}", place=place)
    if not deep:
        return
    for name, field in type(model).model_fields.items():
        where = f"{place}.{field.alias or name}".lstrip(".")
        value = getattr(model, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel):
                refuse_unknown(one, where)


async def _left(request: Request) -> None:
    """Return when the client has gone; to be called once the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def present(name: str) -> str:
    """Return an id in a path; a blank one is not found."""
    if not name.strip():
        raise RefusedError(404, "not found")
    return name.strip()


def _set_id(request: Request) -> str:
    if not (found := request.query_params.get("setId", "").strip()):
        raise RefusedError(400, "setId must not be empty")
    return found


def _prefers_async(request: Request) -> bool:
    asked = ",".join(request.headers.getlist("prefer"))
    return any(one.strip().lower() == "respond-async" for one in asked.split(","))


def _data(model: WireModel) -> Mapping[str, Any]:
    found: Mapping[str, Any] = model.model_dump(by_alias=True)
    return found


def _tag(case: EvalCase) -> str:
    """Return what names this content of a case."""
    return f'"{hashlib.sha256(json_bytes(_data(case))).hexdigest()[:32]}"'


def _path(text: str) -> str:
    trimmed = text.strip().strip("/")
    return f"/{trimmed}" if trimmed else ""
