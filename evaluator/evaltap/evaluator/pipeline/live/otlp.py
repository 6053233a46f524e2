"""Send scores and metrics to an OpenTelemetry endpoint over OTLP/HTTP."""

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from evaltap.evaluator.ingest.topics.clients import TopicsUnavailableError
from evaltap.evaluator.pipeline.live.exposition import Family
from evaltap.evaluator.pipeline.live.otlp_encoding import encoding_of
from evaltap.evaluator.pipeline.live.outbox import Item
from evaltap.evaluator.scoring.judges.http import (
    BrokenResponseError,
    HttpClient,
    NoAnswerInTimeError,
    NotSentError,
    ResponseTooLargeError,
)
from evaltap.evaluator.store.database import Store, sql
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.formats.model import Json

SCOPE: Final = "evaltap.evaluator"
EVENT: Final = "gen_ai.evaluation.result"
SECONDS: Final = 5.0
LONGEST_PAUSE: Final = 60.0
METRICS_SECONDS: Final = 60.0
_HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"
_LABELS: Final = {"passed": "pass", "failed": "fail", "crashed": "fail"}
_INFO, _WARN = 9, 13
_HEX: Final = re.compile("[0-9a-fA-F]+")


class EndpointUnavailableError(TopicsUnavailableError):
    """Raised when the endpoint does not accept a request."""


class OtlpWriter:
    """Posts log records and metrics to an endpoint, with exponential pauses while it is unavailable.

    Headers come from OTEL_EXPORTER_OTLP_HEADERS, the encoding from OTEL_EXPORTER_OTLP_PROTOCOL.  Raises
    InputError for an invalid endpoint or protocol.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        environ: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(endpoint)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username is not None
        ):
            raise InputError(
                f"--scores-otlp: expected http(s)://host:4318, with secrets in {_HEADERS}"
            )
        self._base = (
            f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1/logs')}"
        )
        encoding = encoding_of(environ)
        self._encode = encoding.encode
        self._headers = {"Content-Type": encoding.content_type, **_headers(environ)}
        self._clients = {path: self._client(path) for path in ("/v1/logs", "/v1/metrics")}
        self._clock = clock
        self._not_before = 0.0
        self._pause = 1.0
        self._problem = ""

    def _client(self, path: str) -> HttpClient:
        try:
            return HttpClient(self._base, path, self._headers)
        except ConfigurationError:
            raise InputError(
                f"--scores-otlp: the endpoint or {_HEADERS} is invalid; check both"
            ) from None

    def write_or_cut(self, topic: str, records: Sequence[Json]) -> list[int]:
        """Post log records; return an empty list, as none is rejected for good.

        Raises EndpointUnavailableError.
        """
        if records:
            self._post("/v1/logs", {"resourceLogs": [_scoped("scopeLogs", "logRecords", records)]})
        return []

    def write_metrics(self, families: Iterable[Family]) -> None:
        """Post the current metrics.  Raises EndpointUnavailableError."""
        metrics = [found for family in families if (found := _metric(family)) is not None]
        self._post(
            "/v1/metrics", {"resourceMetrics": [_scoped("scopeMetrics", "metrics", metrics)]}
        )

    def close(self) -> None:
        """Close the connections."""
        for client in self._clients.values():
            client.close()

    def _post(self, path: str, body: Json) -> None:
        if self._clock() < self._not_before:
            raise EndpointUnavailableError(f"the OTLP endpoint {self._problem}")
        problem = self._problem = self._answer(path, self._encode(path, body))
        if problem:
            self._not_before = self._clock() + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
            raise EndpointUnavailableError(f"the OTLP endpoint {problem}")
        self._pause = 1.0

    def _answer(self, path: str, body: bytes) -> str:
        """Post a request; return why it failed, or an empty string."""
        try:
            status = self._clients[path].post(body, SECONDS).status
        except NoAnswerInTimeError:
            return f"did not answer {path} within {SECONDS:g} s"
        except (NotSentError, BrokenResponseError, ResponseTooLargeError) as error:
            return f"cannot be reached ({error})"
        return "" if 200 <= status < 300 else f"answered {path} with {status}"


Redact = Callable[[str], str]


def otlp_scores(
    store: Store, at: datetime, key: str, limit: int, *, explained: Redact | None = None
) -> list[Item]:
    """Return the next turn scores of live runs as log records, one per row.

    With `explained`, a function that redacts text, they include the metrics' reasons.
    """
    found = store.records(sql(__name__, "otlp_scores"), {"at": at, "key": key, "limit": limit})
    return [Item(row["scored_at"], row["score_id"], _record(row, explained)) for row in found]


def _record(row: Mapping[str, Any], explained: Redact | None) -> Json:
    """Return a score as a log record in the context of the span that it is about."""
    reason = row["reason"] if explained is not None else None
    failed = row["status"] == "error"
    attributes = {
        "gen_ai.evaluation.name": row["metric_name"],
        "gen_ai.evaluation.score.value": None if failed else row["score"],
        "gen_ai.evaluation.score.label": None
        if failed
        else _LABELS.get(row["status"], row["status"]),
        "gen_ai.evaluation.explanation": explained(reason) if explained and reason else None,
        "error.type": "evaluator_error" if failed else None,
        "gen_ai.conversation.id": row["eval_id"],
        "evaltap.evaluator.id": row["evaluator_name"],
        "evaltap.evaluator.version": row["evaluator_version"],
        "evaltap.metric.digest": row["metric_digest"],
        "evaltap.threshold": row["threshold"],
        "evaltap.run.id": row["run_id"],
        "evaltap.turn.revision": row["turn_revision"],
        "evaltap.score.id": row["score_id"],
        "evaltap.inclusion_probability": row["probability"],
    }
    moment = str(_nanoseconds(row["scored_at"]))
    record = {
        "timeUnixNano": moment,
        "observedTimeUnixNano": moment,
        "severityNumber": _WARN if failed else _INFO,
        "severityText": "WARN" if failed else "INFO",
        "eventName": EVENT,
        "attributes": _attributes(attributes),
    }
    if _is_id(row["trace_id"], 32):
        record["traceId"] = row["trace_id"]
        if _is_id(row["span_id"], 16):
            record |= {"spanId": row["span_id"], "flags": 1}
    return record


def _is_id(value: str | None, length: int) -> bool:
    """Tell whether a recorded id is one of OpenTelemetry's; other ids join no span."""
    return value is not None and len(value) == length and _HEX.fullmatch(value) is not None


def _metric(family: Family) -> Json | None:
    """Return a family as OTLP, its name with dots; histograms stay with Prometheus."""
    if family.kind == "histogram" or not family.samples:
        return None
    now = str(time.time_ns())
    points = [
        {"asDouble": figure, "timeUnixNano": now,
         "attributes": _attributes({k: v for k, v in zip(family.labels, values, strict=True) if v})}
        for values, figure in family.samples.items()
    ]  # fmt: skip
    found: dict[str, Json] = {
        "name": "evaltap." + family.name.removeprefix("evaltap_").removesuffix("_total"),
        "description": family.help,
    }
    if family.kind == "counter":
        # 2: cumulative.
        return found | {
            "sum": {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": points}
        }
    return found | {"gauge": {"dataPoints": points}}


def _scoped(holder: str, name: str, items: Sequence[Json]) -> Json:
    release = version("evaltap")
    resource = _attributes({"service.name": "evaltap", "service.version": release})
    scope = {"name": SCOPE, "version": release}
    return {"resource": {"attributes": resource}, holder: [{"scope": scope, name: [*items]}]}


def _attributes(values: Mapping[str, Any]) -> list[Json]:
    return [
        {"key": name, "value": _value(value)} for name, value in values.items() if value is not None
    ]


def _value(value: str | float | int) -> Json:
    if isinstance(value, str):
        return {"stringValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}


def _nanoseconds(moment: datetime) -> int:
    whole = moment.replace(tzinfo=UTC, microsecond=0)
    return int(whole.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000


def _headers(environ: Mapping[str, str]) -> Mapping[str, str]:
    pairs = [pair.partition("=") for pair in environ.get(_HEADERS, "").split(",") if pair.strip()]
    return {unquote(name).strip(): unquote(value).strip() for name, _, value in pairs}
