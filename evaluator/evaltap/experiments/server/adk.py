"""Google ADK's eval routes, as its web tab calls them: `/dev/apps/{app}/eval-sets` and their older names.

Bodies are those of ADK's models, in camelCase; errors are `{"detail": text}`.  Sessions are in ADK's own
server, so none can be added from here.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

from pydantic.alias_generators import to_camel
from starlette.requests import Request
from starlette.responses import Response

from evaltap.experiments.server.app import EvaluationApi, RefusedError, present
from evaltap.experiments.server.routing import Handler, Names, Route, answer, off_loop
from evaltap.experiments.service.evaluator import EvaluationResult
from evaltap.experiments.stores.documents import Stores, memory_stores
from evaltap.experiments.stores.errors import NotFoundError
from evaltap.experiments.stores.metrics import MetricStoring
from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.errors import EvaltapError, FormatError, InputError
from evaltap.schemas.files.adk import from_adk, to_adk
from evaltap.schemas.files.adk_older import METRICS, metrics_of_config
from evaltap.schemas.files.canonical import loads
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.formats.case import EvalCase, EvalSet, Invocation
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.model import WireModel
from evaltap.schemas.formats.result import EvalCaseResult, EvalMetricResult, EvalSetResult

_LOG = logging.getLogger("evaltap.serve")
_STATUSES: Final = {"passed": 1, "failed": 2}
_NOT_EVALUATED: Final = 3
_FREE: Final = {"args", "response", "state", "finalSessionState"}
"""Objects whose keys are the user's."""
_DESCRIPTIONS: Final = {
    "tool_trajectory_avg_score": "Compares the tool calls with the expected ones.",
    "response_match_score": "Compares the words of the answer with the expected one (ROUGE-1).",
    "final_response_match_v2": "A judge compares the answer with the expected one.",
    "rubric_based_final_response_quality_v1": "A judge checks the answer against rubrics.",
    "hallucinations_v1": "A judge looks for claims that nothing supports.",
}


def adk_routes(api: EvaluationApi, stores: Stores) -> list[Route]:
    """Return the routes, below `/dev/apps/{app}` and, as older releases have it, `/apps/{app}`."""
    calls = _Calls(api, stores)
    table: dict[str, dict[str, Callable[[Request, Names], Awaitable[Response]]]] = {
        "eval-sets": {"GET": calls.list_sets, "POST": calls.create_set},
        "eval-sets/{set_id}": {"DELETE": calls.delete_set},
        "eval-sets/{set_id}/run": {"POST": calls.run},
        "eval-sets/{set_id}/add-session": {"POST": calls.add_session},
        "eval-sets/{set_id}/eval-cases": {"GET": calls.list_cases},
        "eval-sets/{set_id}/eval-cases/{eval_id}": {
            "GET": calls.get_case,
            "PUT": calls.put_case,
            "DELETE": calls.delete_case,
        },
        "eval-results": {"GET": calls.list_results},
        "eval-results/{result_id}": {"GET": calls.get_result},
        "metrics-info": {"GET": calls.metrics_info},
        "eval_sets": {"GET": partial(calls.list_sets, bare=True)},
        "eval_sets/{set_id}": {"POST": calls.create_named_set},
        "eval_sets/{set_id}/add_session": {"POST": calls.add_session},
        "eval_sets/{set_id}/run_eval": {"POST": partial(calls.run, bare=True)},
        "eval_sets/{set_id}/evals": {"GET": calls.list_cases},
        "eval_sets/{set_id}/evals/{eval_id}": {
            "GET": calls.get_case,
            "PUT": calls.put_case,
            "DELETE": calls.delete_case,
        },
        "eval_results": {"GET": partial(calls.list_results, bare=True)},
        "eval_results/{result_id}": {"GET": calls.get_result},
    }
    return [
        Route(f"{base}/{{app}}/{path}", {k: calls.told(v) for k, v in methods.items()})
        for base in ("/dev/apps", "/apps")
        for path, methods in table.items()
    ]


class _Calls:
    def __init__(self, api: EvaluationApi, stores: Stores) -> None:
        self._api, self._app, self._stores = api, api.app_name, stores

    def told(self, handler: Callable[[Request, Names], Awaitable[Response]]) -> Handler:
        """Return a handler that answers errors as ADK's server does."""

        async def answered(request: Request, names: Names) -> Response:
            try:
                if names["app"] != self._app:
                    raise RefusedError(
                        404, f"no app {names['app']!r}; this server has {self._app!r}"
                    )
                return await handler(request, names)
            except RefusedError as error:
                return answer({"detail": str(error)}, error.status)
            except NotFoundError as error:
                return answer({"detail": str(error)}, 404)
            except TimeoutError:
                return answer({"detail": "evaluation timed out"}, 504)
            except FormatError as error:
                return answer({"detail": str(error)}, 500 if error.path else 400)
            except InputError as error:
                return answer({"detail": str(error)}, 400)
            except EvaltapError as error:
                _LOG.error("%s %s failed: %s", request.method, request.url.path, error)
                return answer({"detail": "internal server error"}, 500)

        return answered

    async def list_sets(self, _: Request, names: Names, *, bare: bool = False) -> Response:
        found = await off_loop(self._stores.sets.list, self._app)
        return answer(found if bare else {"evalSetIds": found})

    async def create_set(self, request: Request, names: Names) -> Response:
        body = await _object(request)
        given = body.get("eval_set") or body.get("evalSet")
        if not isinstance(given, dict):
            raise RefusedError(400, "eval_set is missing")
        set_id = given.get("eval_set_id") or given.get("evalSetId")
        if not isinstance(set_id, str):
            raise RefusedError(400, "eval_set.eval_set_id is missing")
        return answer(_set(await off_loop(self._stores.sets.create, self._app, set_id.strip())))

    async def create_named_set(self, _: Request, names: Names) -> Response:
        await off_loop(self._stores.sets.create, self._app, present(names["set_id"]))
        return answer(None)

    async def delete_set(self, _: Request, names: Names) -> Response:
        await off_loop(self._stores.sets.delete, self._app, present(names["set_id"]))
        return answer(None)

    async def list_cases(self, _: Request, names: Names) -> Response:
        found = await self._eval_set(names)
        return answer(sorted(one.eval_id for one in found.eval_cases))

    async def get_case(self, _: Request, names: Names) -> Response:
        place = present(names["set_id"]), present(names["eval_id"])
        return answer(_case(await off_loop(self._stores.sets.get_case, self._app, *place)))

    async def put_case(self, request: Request, names: Names) -> Response:
        set_id, eval_id = present(names["set_id"]), present(names["eval_id"])
        body = await _object(request)
        given = body.get("evalId") or body.get("eval_id") or eval_id
        if given != eval_id:
            raise RefusedError(400, "the eval id of the case is not the one in the path")
        body = {key: one for key, one in body.items() if key != "eval_id"} | {"evalId": eval_id}
        stored = await off_loop(self._stores.sets.get_case, self._app, set_id, eval_id)
        update = partial(self._stores.sets.update_case, expected=stored)
        await off_loop(update, self._app, set_id, _edited(stored, _read(body)))
        return answer(None)

    async def delete_case(self, _: Request, names: Names) -> Response:
        place = present(names["set_id"]), present(names["eval_id"])
        await off_loop(self._stores.sets.delete_case, self._app, *place)
        return answer(None)

    async def add_session(self, _: Request, names: Names) -> Response:
        raise RefusedError(
            501, "the sessions are in ADK's server; add a recorded one with `evaltap curate`"
        )

    async def run(self, request: Request, names: Names, *, bare: bool = False) -> Response:
        body = await _object(request)
        eval_set = await self._eval_set(names)
        metrics = _metrics(body.get("eval_metrics", body.get("evalMetrics")) or [])
        wanted = body.get("eval_case_ids") or body.get("evalCaseIds") or body.get("eval_ids") or []
        if not isinstance(wanted, list):
            raise RefusedError(400, "eval_case_ids: expected a list")
        stores = self._stores._replace(metrics=_held(metrics, self._app, eval_set.eval_set_id))
        run = self._api.started(
            eval_set.eval_set_id, stores=stores, eval_case_ids=[str(one) for one in wanted]
        )
        await self._api.until_ended(request, run)
        assert run.result is not None
        found = _run_results(run.result)
        return answer(found if bare else {"runEvalResults": found})

    async def _eval_set(self, names: Names) -> EvalSet:
        return await off_loop(self._stores.sets.get, self._app, present(names["set_id"]))

    async def list_results(self, _: Request, names: Names, *, bare: bool = False) -> Response:
        found = await off_loop(self._stores.results.list, self._app)
        return answer(found if bare else {"evalResultIds": found})

    async def get_result(self, _: Request, names: Names) -> Response:
        found = await off_loop(self._stores.results.get, self._app, present(names["result_id"]))
        return answer(_result(found))

    async def metrics_info(self, _: Request, names: Names) -> Response:
        interval = {"minValue": 0.0, "openAtMin": False, "maxValue": 1.0, "openAtMax": False}
        return answer(
            {
                "metricsInfo": [
                    {
                        "metricName": name,
                        "description": _DESCRIPTIONS[name],
                        "metricValueInfo": {"interval": interval},
                        "requiresThreshold": True,
                    }
                    for name in METRICS
                ]
            }
        )


async def _object(request: Request) -> JsonObject:
    try:
        found = loads(await request.body())
    except FormatError as error:
        raise RefusedError(400, str(error)) from None
    if not isinstance(found, dict):
        raise RefusedError(400, "expected a JSON object")
    return found


def _metrics(given: Any) -> list[EvalMetric]:  # JSON
    """Return ADK's metrics as those of a metrics file; raise FormatError."""
    criteria: JsonObject = {}
    for one in given if isinstance(given, list) else [given]:
        if not isinstance(one, dict):
            raise FormatError("expected an object", place="eval_metrics")
        name = one.get("metricName", one.get("metric_name"))
        threshold = {} if one.get("threshold") is None else {"threshold": one["threshold"]}
        criterion = one.get("criterion") or {}
        if not isinstance(criterion, dict):
            raise FormatError("expected an object", place="eval_metrics.criterion")
        if str(name) in criteria:
            raise FormatError(f"{name} occurs a second time; keep one", place="eval_metrics")
        criteria[str(name)] = {**criterion, **threshold}
    return metrics_of(metrics_of_config({"criteria": criteria}))


def _held(metrics: Sequence[EvalMetric], app: str, set_id: str) -> MetricStoring:
    store = memory_stores().metrics
    for metric in metrics:
        store.add(app, set_id, metric)
    return store


def _set(eval_set: EvalSet) -> JsonObject:
    found = to_adk(eval_set)
    return {**found, "eval_cases": [_camel(one) for one in found["eval_cases"]]}


def _case(case: EvalCase) -> Any:  # JSON
    return _camel(to_adk(EvalSet(eval_cases=[case]))["eval_cases"][0])


def _read(case: JsonObject) -> EvalCase:
    return from_adk({"eval_set_id": "-", "eval_cases": [case]}).eval_cases[0]


def _edited(stored: EvalCase, sent: EvalCase) -> EvalCase:
    """Return a stored case with what was edited; what ADK's form does not carry stays as it is."""
    shown = _read(_case(stored))
    changed = _changes(sent, shown)
    if "conversation" in changed and len(stored.conversation) == len(shown.conversation):
        both = zip(stored.conversation, shown.conversation, strict=True)
        known = {_name(place, now): (was, now) for place, (was, now) in enumerate(both)}
        changed["conversation"] = [
            was.model_copy(update=_changes(one, now)) if one and was and now else one
            for place, one in enumerate(sent.conversation)
            for was, now in [known.get(_name(place, one), (None, None))]
        ]
    if stored.conversation_scenario and (now := changed.get("conversation_scenario")):
        was = shown.conversation_scenario or stored.conversation_scenario
        changed["conversation_scenario"] = stored.conversation_scenario.model_copy(
            update=_changes(now, was)
        )
    return stored.model_copy(update=changed)


def _changes(sent: WireModel, shown: WireModel) -> dict[str, Any]:  # of any field
    return {name: one for name, one in sent if one != getattr(shown, name, None)}


def _name(place: int, turn: Invocation | None) -> str:
    """Return what tells a turn from the others of its case."""
    return (turn and turn.invocation_id) or str(place)


def _camel(value: Any) -> Any:  # JSON
    """Return JSON with the keys of ADK's API; those of the user stay."""
    if isinstance(value, list):
        return [_camel(one) for one in value]
    if not isinstance(value, Mapping):
        return value
    named = {to_camel(key) if "_" in key else key: one for key, one in value.items()}
    return {key: one if key in _FREE else _camel(one) for key, one in named.items()}


def _run_results(result: EvaluationResult) -> list[JsonObject]:
    return [
        {**_case_result(run), "evalSetFile": result.eval_set_id}
        for case in result.eval_cases
        for run in case.eval_case_results
    ]


def _result(result: EvalSetResult) -> JsonObject:
    return {
        "evalSetResultId": result.eval_set_result_id,
        "evalSetResultName": result.eval_set_result_name,
        "evalSetId": result.eval_set_id,
        "evalCaseResults": [_case_result(one) for one in result.eval_case_results],
        "creationTimestamp": result.creation_timestamp or 0.0,
    }


def _case_result(found: EvalCaseResult) -> JsonObject:
    turns = [
        {
            "actualInvocation": _turn(one.actual_invocation),
            **(
                {"expectedInvocation": _turn(one.expected_invocation)}
                if one.expected_invocation
                else {}
            ),
            "evalMetricResults": [_metric_result(row) for row in one.eval_metric_results],
        }
        for one in found.eval_metric_result_per_invocation
    ]
    return {
        "evalSetId": found.eval_set_id,
        "evalId": found.eval_id,
        "finalEvalStatus": _status(found.final_eval_status),
        "overallEvalMetricResults": [
            _metric_result(one) for one in found.overall_eval_metric_results
        ],
        "evalMetricResultPerInvocation": turns,
        "sessionId": found.session_id,
        "userId": found.user_id,
    }


def _metric_result(row: EvalMetricResult) -> JsonObject:
    rubrics = [
        {"rubricId": one.id, "rationale": one.reason, "score": one.score}
        for one in (row.details.rubric_scores if row.details else ())
    ]
    return {
        "metricName": row.metric_name,
        "threshold": row.threshold,
        **({} if _status(row.eval_status) == _NOT_EVALUATED else {"score": row.score or 0.0}),
        "evalStatus": _status(row.eval_status),
        "details": {"rubricScores": rubrics} if rubrics else {},
    }


def _status(name: str) -> int:
    return _STATUSES.get(name, _NOT_EVALUATED)


def _turn(turn: Invocation | None) -> Any:  # JSON
    one = Invocation(user_content=None) if turn is None else turn
    case = to_adk(EvalSet(eval_cases=[EvalCase(eval_id="-", conversation=[one])]))["eval_cases"][0]
    turns: list[CaseData] = case["conversation"]
    return _camel(turns[0])
