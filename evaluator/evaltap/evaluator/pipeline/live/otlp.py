"""Send scores and metrics to an OpenTelemetry endpoint, with the exporters of OpenTelemetry.

These exporters have no queue: each sends one batch and says whether it was accepted.  What was not stays in
the store, from which the outbox sends it again.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from typing import Any, Final
from urllib.parse import urlsplit

from google.protobuf.message import DecodeError
from opentelemetry._logs import LogRecord, SeverityNumber
from opentelemetry.context import Context
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk._logs.export import LogRecordExporter, LogRecordExportResult
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Metric,
    MetricExporter,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags, set_span_in_context

from evaltap.evaluator.ingest.topics.errors import TopicsUnavailableError
from evaltap.evaluator.pipeline.live.exposition import Family
from evaltap.evaluator.pipeline.live.outbox import Item
from evaltap.evaluator.store.database import Store, sql
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted, did_you_mean_one_of

log = logging.getLogger(__name__)

SCOPE: Final = "evaltap.evaluator"
EVENT: Final = "gen_ai.evaluation.result"
LONGEST_PAUSE: Final = 60.0
PROTOCOL: Final = "OTEL_EXPORTER_OTLP_PROTOCOL"
_PROTOCOLS: Final = ("http/protobuf", "grpc")
_LABELS: Final = {"passed": "pass", "failed": "fail", "crashed": "fail"}
_HEX: Final = re.compile("[0-9a-fA-F]+")
_EXPORTERS: Final = "opentelemetry.exporter.otlp.proto"


class EndpointUnavailableError(TopicsUnavailableError):
    """Raised when the endpoint does not accept a request."""


class OtlpWriter:
    """Sends log records and metrics to an endpoint, with growing pauses while it is unavailable.

    Protocol, headers, certificates, compression and time-out come from the variables OTEL_EXPORTER_OTLP_....
    Raises InputError for an invalid endpoint or setting.
    """

    def __init__(self, endpoint: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        parts = urlsplit(endpoint)
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or parts.username is not None
        ):
            raise InputError(
                "--scores-otlp: expected http(s)://host:4318, with secrets in OTEL_EXPORTER_OTLP_HEADERS"
            )
        self._problem = _Problem()
        protocol = os.environ.get(PROTOCOL, "").strip()
        self._logs, self._metrics = _exporters(endpoint, protocol, self._problem)
        self._problem.listen()  # not before: they warn of variables that make no sense
        self._clock = clock
        self._not_before = 0.0
        self._pause = 1.0

    def write_or_cut(self, topic: str, records: Sequence[ReadableLogRecord]) -> list[int]:
        """Send log records; return an empty list, as none is rejected for good.

        Raises EndpointUnavailableError.
        """
        if records:
            self._send(lambda: self._logs.export(records) is LogRecordExportResult.SUCCESS)
        return []

    def write_metrics(self, families: Iterable[Family], began_ns: int) -> None:
        """Send the current metrics, with counters that began at `began_ns`.

        Raises EndpointUnavailableError.
        """
        metrics = [found for family in families if (found := _metric(family, began_ns)) is not None]
        data = MetricsData(
            [ResourceMetrics(_resource(), [ScopeMetrics(_scope(), metrics, "")], "")]
        )
        self._send(lambda: self._metrics.export(data) is MetricExportResult.SUCCESS)

    def close(self) -> None:
        self._logs.shutdown()  # type: ignore[no-untyped-call]
        self._metrics.shutdown()
        self._problem.close()

    def _send(self, accepts: Callable[[], bool]) -> None:
        if self._clock() >= self._not_before:
            if accepts():
                self._pause = 1.0
                return
            self._not_before = self._clock() + self._pause
            self._pause = min(LONGEST_PAUSE, 2 * self._pause)
        raise EndpointUnavailableError(f"the OTLP endpoint accepts nothing: {self._problem.text}")


class _Problem(logging.Handler):
    """Why the last batch was rejected: the exporters only return that it was, and log some of the reasons."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.text = "no reason given"
        self._loggers = [logging.getLogger(f"{_EXPORTERS}.{kind}") for kind in ("grpc", "http")]

    def listen(self) -> None:
        """Take what the exporters log."""
        for logger in self._loggers:
            logger.addHandler(self)
            logger.propagate = False

    def emit(self, record: logging.LogRecord) -> None:
        """Take the reason from what the gRPC exporters log; that of HTTP comes from the session."""
        if "grpc" in record.name:
            self.text = record.getMessage()

    def close(self) -> None:
        """Let the exporters log again."""
        for logger in self._loggers:
            logger.removeHandler(self)
            logger.propagate = True
        super().close()


def _exporters(
    endpoint: str, protocol: str, problem: _Problem
) -> tuple[LogRecordExporter, MetricExporter]:
    """Return the exporters of log records and of metrics for a protocol, by default http/protobuf."""
    if protocol not in ("", *_PROTOCOLS):
        hint = did_you_mean_one_of(protocol, _PROTOCOLS)
        raise InputError(
            f"{PROTOCOL}: evaltap sends scores in protobuf, found {protocol!r}; {hint}"
        )
    try:
        return _over_grpc(endpoint) if protocol == "grpc" else _over_http(endpoint, problem)
    except (ValueError, OSError) as error:
        raise InputError(
            f"--scores-otlp: the endpoint or a variable OTEL_EXPORTER_OTLP_... is invalid ({error});"
            " check both"
        ) from None


def _over_grpc(endpoint: str) -> tuple[LogRecordExporter, MetricExporter]:
    from opentelemetry.exporter.otlp.proto.grpc import _log_exporter, metric_exporter

    return _log_exporter.OTLPLogExporter(endpoint), metric_exporter.OTLPMetricExporter(endpoint)


def _over_http(endpoint: str, problem: _Problem) -> tuple[LogRecordExporter, MetricExporter]:
    import requests
    from opentelemetry.exporter.otlp.proto.http import _log_exporter, metric_exporter

    class Session(requests.Session):
        def send(self, request: requests.PreparedRequest, **settings: Any) -> requests.Response:
            # A redirected request becomes a GET, which any page of a login answers with 200.
            try:
                answer = super().send(request, **{**settings, "allow_redirects": False})
            except requests.RequestException as error:
                problem.text = str(error)
                raise
            problem.text = f"{request.path_url} answered {answer.status_code} {answer.reason}"
            if 300 <= answer.status_code < 400:
                problem.text += "; redirects are not followed: name the final address"
                raise requests.TooManyRedirects(problem.text)
            if "html" in answer.headers.get("Content-Type", "") and answer.ok:
                problem.text += " with a page, so it is no OTLP endpoint; check the address"
                raise requests.RequestException(problem.text)
            if request.path_url.endswith("/v1/logs") and answer.ok:
                _report_rejected(answer.content)
            return answer

    base = endpoint.rstrip("/").removesuffix("/v1/logs")
    return (
        _log_exporter.OTLPLogExporter(f"{base}/v1/logs", session=Session()),
        metric_exporter.OTLPMetricExporter(f"{base}/v1/metrics", session=Session()),
    )


def _report_rejected(answer: bytes) -> None:
    """Log what an endpoint rejected of a batch that it accepted; OTLP forbids to send it again."""
    with suppress(DecodeError):  # some endpoints answer with other bodies, which say nothing
        said = ExportLogsServiceResponse.FromString(answer).partial_success
        if said.rejected_log_records:
            log.warning(
                "the OTLP endpoint rejected %s: %s",
                counted(said.rejected_log_records, "score"),
                said.error_message or "no reason given",
            )


Redact = Callable[[str], str]


def otlp_scores(
    store: Store, at: datetime, key: str, limit: int, *, explained: Redact | None = None
) -> list[Item]:
    """Return the next turn scores of live runs as log records, one per row.

    With `explained`, a function that redacts text, they include the metrics' reasons.
    """
    found = store.records(sql(__name__, "otlp_scores"), {"at": at, "key": key, "limit": limit})
    return [Item(row["scored_at"], row["score_id"], _record(row, explained)) for row in found]


def _record(row: Mapping[str, Any], explained: Redact | None) -> ReadableLogRecord:
    """Return a score as a log record in the context of the span that it is about."""
    reason = row["reason"] if explained is not None else None
    failed = row["status"] == "error"
    label = None if failed else _LABELS.get(row["status"], row["status"])
    attributes = {
        "gen_ai.evaluation.name": row["metric_name"],
        "gen_ai.evaluation.score.value": None if failed else row["score"],
        "gen_ai.evaluation.score.label": label,
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
    moment = _nanoseconds(row["scored_at"])
    record = LogRecord(
        timestamp=moment,
        observed_timestamp=moment,
        context=set_span_in_context(NonRecordingSpan(_span_of(row)), Context()),
        severity_number=SeverityNumber.WARN if failed else SeverityNumber.INFO,
        severity_text="WARN" if failed else "INFO",
        event_name=EVENT,
        attributes={name: value for name, value in attributes.items() if value is not None},
    )
    return ReadableLogRecord(record, _resource(), _scope())


def _span_of(row: Mapping[str, Any]) -> SpanContext:
    """Return the judged span; without recorded ids, or with ids that are not OpenTelemetry's, none."""
    trace, span = row["trace_id"], row["span_id"]
    if not _is_id(trace, 32):
        return SpanContext(0, 0, is_remote=True)
    if not _is_id(span, 16):
        return SpanContext(int(trace, 16), 0, is_remote=True)
    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace, 16), int(span, 16), is_remote=True, trace_flags=flags)


def _is_id(value: str | None, length: int) -> bool:
    return value is not None and len(value) == length and _HEX.fullmatch(value) is not None


def _metric(family: Family, began_ns: int) -> Metric | None:
    """Return a family as OpenTelemetry's, its name with dots; histograms stay with Prometheus."""
    if family.kind == "histogram" or not family.samples:
        return None
    now = time.time_ns()
    points = [
        NumberDataPoint(
            {name: value for name, value in zip(family.labels, values, strict=True) if value},
            began_ns if family.kind == "counter" else 0,
            now,
            figure,
        )
        for values, figure in family.samples.items()
    ]
    name = "evaltap." + family.name.removeprefix("evaltap_").removesuffix("_total")
    data = (
        Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        if family.kind == "counter"
        else Gauge(points)
    )
    return Metric(name, family.help, "", data)


@cache
def _resource() -> Resource:
    return Resource({"service.name": "evaltap", "service.version": version("evaltap")})


@cache
def _scope() -> InstrumentationScope:
    return InstrumentationScope(SCOPE, version("evaltap"))


def _nanoseconds(moment: datetime) -> int:
    whole = moment.replace(tzinfo=UTC, microsecond=0)
    return int(whole.timestamp()) * 1_000_000_000 + moment.microsecond * 1_000
