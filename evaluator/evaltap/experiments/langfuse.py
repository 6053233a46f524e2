"""A remote experiment of Langfuse: run an agent on one of its datasets; write traces, run and scores back.

Langfuse's page sends `{projectId, datasetId, datasetName, payload}`; a server passes that to
`remote_experiment` and returns what it returns.
"""

import base64
import http.client
import json
import math
import os
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final, TypeAlias

from evaltap.evaluator.cases.datasets.columns import parse_columns
from evaltap.evaluator.cases.datasets.rows import row_case
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.judges.retry_after import retry_after
from evaltap.evaluator.store.database import Store
from evaltap.experiments.agents.endpoint import OPENER
from evaltap.experiments.api import evaluate
from evaltap.experiments.outcome import CaseOutcome
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import ConfigurationError, EvaltapError, InputError
from evaltap.schemas.files.canonical import dumps
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted

__all__ = ["Langfuse", "LangfuseError", "item_case", "remote_experiment"]

Item: TypeAlias = Mapping[str, Any]  # a dataset item, as JSON
_PAGE: Final = 50
_SECONDS: Final = 30.0
_LONGEST_WAIT: Final = 300.0
_WAITS: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0)
"""Seconds between tries, where Langfuse does not say how long."""
_PAYLOAD: Final = ("runName", "runDescription", "userId", "traceTags")


class LangfuseError(EvaltapError):
    """Langfuse could not be reached, or refused a request; a server answers with 502."""

    exit_code = 3


@dataclass(frozen=True, slots=True)
class Langfuse:
    """Where Langfuse is, and the keys of a project."""

    url: str
    public_key: str
    secret_key: str = field(repr=False)
    environment: str = "development"
    """Of the traces that are written."""

    @classmethod
    def from_environ(cls, environ: Mapping[str, str] = os.environ) -> "Langfuse":
        """Read LANGFUSE_BASE_URL (or LANGFUSE_HOST), LANGFUSE_PUBLIC_KEY and LANGFUSE_SECRET_KEY.

        Raises ConfigurationError if one is missing.
        """
        url = environ.get("LANGFUSE_BASE_URL") or environ.get("LANGFUSE_HOST") or ""
        public, secret = environ.get("LANGFUSE_PUBLIC_KEY"), environ.get("LANGFUSE_SECRET_KEY")
        if not (url and public and secret):
            raise ConfigurationError(
                "Langfuse is not configured; set LANGFUSE_BASE_URL, LANGFUSE_PUBLIC_KEY and"
                " LANGFUSE_SECRET_KEY"
            )
        environment = environ.get("LANGFUSE_TRACING_ENVIRONMENT") or "development"
        return cls(url, public, secret, environment)

    def items(self, dataset: str) -> Iterator[Item]:
        """Yield the active items of a dataset; raises LangfuseError."""
        page = pages = 1
        while page <= pages:
            query = urllib.parse.urlencode({"datasetName": dataset, "page": page, "limit": _PAGE})
            found = self.call("GET", f"dataset-items?{query}")
            yield from (one for one in found["data"] if one.get("status") != "ARCHIVED")
            page, pages = page + 1, int((found.get("meta") or {}).get("totalPages") or 1)

    def call(self, method: str, path: str, body: Any = None) -> Any:  # JSON
        """Call the public API, again if it is called too often; raises LangfuseError."""
        keys = base64.b64encode(f"{self.public_key}:{self.secret_key}".encode()).decode()
        request = urllib.request.Request(
            f"{self.url.rstrip('/')}/api/public/{path}",
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Basic {keys}", "Content-Type": "application/json"},
            method=method,
        )
        what = f"Langfuse: {method} {path.partition('?')[0]}"
        try:
            with _opened(request) as response:
                found = json.loads(response.read())
        except urllib.error.HTTPError as error:
            text = error.read(500).decode(errors="replace")
            raise LangfuseError(f"{what}: status {error.code}: {text}") from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise LangfuseError(f"{what}: {error or type(error).__name__}") from error
        if isinstance(found, dict) and found.get("errors"):
            raise LangfuseError(f"{what}: {json.dumps(found['errors'])[:500]}")
        return found


def _opened(request: urllib.request.Request) -> Any:  # a response, as urllib's
    """Send a request; while Langfuse limits their rate, wait as long as it asks, for five minutes in all."""
    until = time.monotonic() + _LONGEST_WAIT
    for wait in _WAITS:
        try:
            return OPENER.open(request, timeout=_SECONDS)
        except urllib.error.HTTPError as error:
            asked = retry_after({name.lower(): text for name, text in error.headers.items()})
            seconds = wait if asked is None else asked.total_seconds()
            if error.code != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() + seconds > until:
                raise
            error.close()
        time.sleep(seconds)
    return OPENER.open(request, timeout=_SECONDS)


def item_case(item: Item) -> CaseData:
    """Return the case of a dataset item: the text or the chat messages of `input`, and `expectedOutput`.

    Raises FormatError for an item of another form; then give a function of your own.
    """
    row = {key: item.get(key) for key in ("id", "datasetName", "input", "expectedOutput")}
    place = f"item {item.get('id')}"
    case = row_case(row, parse_columns([]), number=1, app_name="", path="Langfuse", place=place)
    return case | {"evalId": str(item.get("id")), "sessionInput": {}}


def remote_experiment(
    request: Mapping[str, Any],
    *,
    agent: object,
    metrics: str | Path | Sequence[EvalMetric | Mapping[str, Any]],
    langfuse: Langfuse | None = None,
    case_of: Callable[[Item], CaseData] = item_case,
    concurrency: int = 8,
    services: Services | None = None,
) -> dict[str, Any]:
    """Run an agent on the dataset that a request names, and write traces, a dataset run and scores.

    `payload` of the request is the name of the run, or an object with `runName`, `runDescription`, `userId`
    and `traceTags`.  Each item has a trace; each of its metrics a score with the reason; the run has
    `pass_rate` and the mean of each metric.  Returns what was written, as JSON data.  Raises InputError for a
    wrong request or a dataset without items, and LangfuseError.
    """
    langfuse = langfuse or Langfuse.from_environ()
    dataset, payload = _read(request)
    items = {str(one.get("id")): one for one in langfuse.items(dataset)}
    if not items:
        raise InputError(f"the dataset {dataset!r} has no active items")
    cases = [case_of(one) for one in items.values()]
    made = [
        _Made(item, str(case["evalId"]), uuid.uuid4().hex)
        for item, case in zip(items.values(), cases, strict=True)
    ]
    outcomes = _evaluated(dataset, cases, agent, metrics, concurrency, services, made)
    run = _Run(langfuse, dataset, payload)
    for one in made:
        run.write(one, outcomes[one.eval_id])
    means = _means(made)
    if counted_runs := [one for one in outcomes.values() if one.runs]:
        passed = sum(one.passed == one.runs for one in counted_runs)
        why = f"{passed} of {counted(len(counted_runs), 'case')} passed"
        means = {"pass_rate": (passed / len(counted_runs), why), **means}
    for name, (value, why) in means.items():
        run.score({"datasetRunId": run.run_id}, name, value, why)
    return {
        "projectId": request.get("projectId"),
        "datasetId": request.get("datasetId"),
        "datasetName": dataset,
        "runName": run.name,
        "datasetRunId": run.run_id,
        "processedCases": len(made),
        "traceCount": len(made),
        "scoreCount": run.scores,
        "aggregateScores": {name: value for name, (value, _) in means.items()},
        "aggregateReasons": {name: why for name, (_, why) in means.items()},
        "cases": [one.data(outcomes[one.eval_id]) for one in made],
    }


def _read(request: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of the dataset and the payload; raise InputError for a request that is none."""
    dataset, payload = request.get("datasetName"), request.get("payload")
    if not isinstance(dataset, str) or not dataset.strip():
        raise InputError("the request has no datasetName")
    if isinstance(payload, str) and payload.strip().startswith("{"):
        with suppress(ValueError):
            payload = json.loads(payload)
    elif isinstance(payload, str):
        payload = {"runName": payload.strip()}
    payload = {} if payload is None else payload
    if not isinstance(payload, dict) or set(payload) - {*_PAYLOAD}:
        raise InputError(
            f"payload: expected the name of the run, or an object of {', '.join(_PAYLOAD)}"
        )
    return dataset, payload


@dataclass(slots=True)
class _Made:
    """What the agent made of an item."""

    item: Item
    eval_id: str
    trace_id: str
    output: str | None = None
    scores: dict[str, tuple[float, str]] = field(default_factory=dict)
    """By metric: score and reason."""

    def data(self, outcome: CaseOutcome) -> dict[str, Any]:
        passed = bool(outcome.runs) and outcome.passed == outcome.runs
        return {
            "caseId": self.eval_id,
            "traceId": self.trace_id,
            "status": _status(outcome, passed=passed),
            "scores": {name: value for name, (value, _) in self.scores.items()},
            **({"errorMessage": "; ".join(outcome.reasons)} if outcome.reasons else {}),
        }


def _status(outcome: CaseOutcome, *, passed: bool) -> str:
    if not outcome.runs:
        return "invalid" if outcome.invalid else "not_evaluated"
    return "passed" if passed else "failed"


def _evaluated(
    dataset: str,
    cases: Sequence[CaseData],
    agent: object,
    metrics: Any,  # as of `evaluate`
    concurrency: int,
    services: Services | None,
    made: Sequence[_Made],
) -> dict[str, CaseOutcome]:
    """Run the agent and fill in what it made; return the outcomes by eval id."""
    by_id = {one.eval_id: one for one in made}
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        path, db = Path(folder) / "dataset.evalset.json", Path(folder) / "runs.duckdb"
        path.write_bytes(dumps({"evalSetId": dataset, "evalCases": [*cases]}))
        found = evaluate(
            path, metrics, agent=agent, db=db, concurrency=concurrency, services=services
        )
        with Store(db) as store:
            for eval_id, text in store.rows(_ANSWERS):
                by_id[eval_id].output = text
            for eval_id, metric, score, reason in store.rows(_SCORES):
                by_id[eval_id].scores[metric] = score, reason or ""
    for case in found.outcome.cases:
        if case.crashed and not by_id[case.eval_id].scores:  # before anything was recorded
            why = "; ".join(case.reasons)
            by_id[case.eval_id].scores = {one.metric: (0.0, why) for one in found.outcome.metrics}
    return {one.eval_id: one for one in found.outcome.cases}


@dataclass(slots=True)
class _Run:
    """Writes one run of a dataset."""

    langfuse: Langfuse
    dataset: str
    payload: Mapping[str, Any]
    run_id: str = ""
    scores: int = 0
    name: str = ""

    def __post_init__(self) -> None:
        self.name = str(self.payload.get("runName") or "") or (
            f"{self.dataset} {datetime.now(UTC).isoformat(timespec='seconds')}"
        )

    def write(self, made: _Made, outcome: CaseOutcome) -> None:
        """Write trace, run item and scores of an item."""
        now = datetime.now(UTC).isoformat()
        trace = {
            "id": made.trace_id,
            "timestamp": now,
            "name": self.dataset,
            "input": made.item.get("input"),
            "output": made.output,
            "userId": self.payload.get("userId"),
            "tags": self.payload.get("traceTags") or [],
            "environment": self.langfuse.environment,
            "metadata": {"evalId": made.eval_id, "reasons": list(outcome.reasons)},
        }
        event = {"id": uuid.uuid4().hex, "type": "trace-create", "timestamp": now, "body": trace}
        self.langfuse.call("POST", "ingestion", {"batch": [event]})
        found = self.langfuse.call(
            "POST",
            "dataset-run-items",
            {
                "runName": self.name,
                "runDescription": self.payload.get("runDescription"),
                "datasetItemId": str(made.item.get("id")),
                "traceId": made.trace_id,
            },
        )
        self.run_id = str(found.get("datasetRunId") or self.run_id)
        for metric, (value, reason) in made.scores.items():
            self.score({"traceId": made.trace_id}, metric, value, reason)

    def score(self, of: Mapping[str, str], name: str, value: float, why: str) -> None:
        """Write a score of a trace or of the run."""
        body = {**of, "name": name, "value": value, "comment": why, "dataType": "NUMERIC"}
        self.langfuse.call("POST", "scores", body | {"environment": self.langfuse.environment})
        self.scores += 1


def _means(made: Sequence[_Made]) -> dict[str, tuple[float, str]]:
    """Return the mean of each metric over the items that have a score, and how many those are."""
    by_metric: dict[str, list[float]] = {}
    for one in made:
        for metric, (value, _) in one.scores.items():
            by_metric.setdefault(metric, []).append(value)
    return {
        f"{metric}_mean": (
            math.fsum(values) / len(values),
            f"over {len(values)} of {counted(len(made), 'case')}",
        )
        for metric, values in by_metric.items()
    }


_ANSWERS: Final = """
SELECT eval_id, arg_max(coalesce(final_text, error_message), landed_seq) FROM latest_turns GROUP BY ALL
"""
_SCORES: Final = """
SELECT eval_id, metric_name, score, reason FROM latest_scores WHERE score IS NOT NULL ORDER BY ALL
"""
