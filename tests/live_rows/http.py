"""`http`: requests to the evaluation server."""

import asyncio
import json
from datetime import timedelta
from typing import Any

import pytest
from starlette.testclient import TestClient

from evaltap.evaluator.page.security.site import Site
from evaltap.experiments.server.app import Paths, ServerStores, create_app
from evaltap.experiments.server.entrance import Entrance
from evaltap.experiments.service import EvaluationResult, Options
from evaltap.experiments.stores import NotFoundError, memory_stores
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalSet
from evaltap.schemas.formats.result import EvalSetResult, EvalSetResultSummary
from live_rows.comparing import Row, same

PATHS = {
    "basePath": "base",
    "metricsPath": "metrics",
    "resultsPath": "results",
    "runsPath": "runs",
    "setsPath": "sets",
}


class Evaluator:
    """Behaves as a row says, and remembers what it was asked last."""

    def __init__(self, app_name: str, behaviour: str) -> None:
        self.app_name, self.options = app_name, Options()
        self.saw: dict[str, Any] | None = None
        self._behaviour = behaviour

    async def evaluate_async(self, eval_set_id: str, **options: Any) -> EvaluationResult:
        self.saw = {
            "setId": eval_set_id,
            "options": len(options.keys() - {"callbacks", "check_metrics", "on_turn"}),
        }
        if self._behaviour == "not_found":
            raise NotFoundError("no such set")
        if self._behaviour == "boom":
            raise RuntimeError("boom")
        if self._behaviour == "slow":
            await asyncio.sleep(0.5)
        found = EvalSetResult(
            eval_set_result_id="r-new",
            eval_set_id=eval_set_id,
            summary=EvalSetResultSummary(overall_status="passed", num_runs=1),
        )
        taken = timedelta(seconds=2)
        return EvaluationResult(self.app_name, eval_set_id, "passed", taken, (), found)


def check(row: Row) -> None:
    given, wanted = row["input"], row["want"]
    options = given.get("options") or {}
    evaluator = Evaluator(options.get("appName", "app"), given.get("evaluator") or "")
    paths = Paths(**{ours: options[name] for name, ours in PATHS.items() if name in options})
    if wanted.get("configure_error"):
        with pytest.raises(ConfigurationError):
            _app(given, evaluator, paths)
        return
    for name, path in (wanted.get("paths") or {}).items():
        key = name.lower().removesuffix("path")
        assert paths.of(key) == path, name
    # As the peer is: open to the scripts of every page, which ours is only when asked for.
    with TestClient(_app(given, evaluator, paths), "http://127.0.0.1:8080") as client:
        for request, response in zip(
            given.get("requests") or (), wanted.get("responses") or (), strict=True
        ):
            _check_response(client, request, response)
    if wanted.get("evaluatorSaw"):
        same(evaluator.saw, wanted["evaluatorSaw"])


def _app(given: Row, evaluator: Evaluator, paths: Paths) -> Any:
    held = memory_stores()
    for eval_set in given.get("sets") or ():
        held.sets.put("app", parse(EvalSet, eval_set))
    for set_id, metrics in (given.get("metrics") or {}).items():
        for metric in metrics:
            held.metrics.add("app", set_id, metric)
    for result in given.get("results") or ():
        held.results.save("app", parse(EvalSetResult, result))
    missing = [str(one).lower() for one in given.get("without") or ()]
    milliseconds = (given.get("options") or {}).get("timeoutMs")
    return create_app(
        evaluator,
        ServerStores(
            sets=None
            if any("result" not in one and "set" in one for one in missing)
            else held.sets,
            metrics=None if any("metric" in one for one in missing) else held.metrics,
            results=None if any("result" in one for one in missing) else held.results,
        ),
        Entrance(Site("127.0.0.1", 8080), origins=("*",)),
        paths=paths,
        run_seconds=milliseconds / 1000 if milliseconds else None,
    )


def _check_response(client: TestClient, request: list[Any], wanted: Row) -> None:
    method, path, *body = request
    sent = None
    if body:
        sent = body[0] if isinstance(body[0], str) else json.dumps(body[0])
    found = client.request(method, path, follow_redirects=False, content=sent)
    assert found.status_code == wanted["status"], (request, found.text)
    for name, value in wanted.items():
        if name not in ("status", "body"):
            assert found.headers.get(name) == value, (request, name)
    text = wanted.get("body")
    if isinstance(text, dict) and str(text.get("error", "")).endswith("…"):
        assert found.json()["error"].startswith(text["error"].rstrip("…")), found.text
    elif text is not None:
        same(found.json(), text)
