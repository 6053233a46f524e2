"""Scores as OpenTelemetry events: within the judged span, each once, valid OTLP, and never traffic again."""

import copy
import json
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest
from opentelemetry._logs import LogRecord
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.logs.v1.logs_service_pb2_grpc import (
    LogsServiceServicer,
    add_LogsServiceServicer_to_server,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import (
    MetricsServiceServicer,
    add_MetricsServiceServicer_to_server,
)
from opentelemetry.sdk._logs import ReadableLogRecord
from opentelemetry.sdk.resources import Resource

from evaltap.evaluator.pipeline.live.figures import Figures
from evaltap.evaluator.pipeline.live.otlp import EndpointUnavailableError, OtlpWriter
from evaltap.evaluator.pipeline.live.outbox import Item, Outbox
from evaltap.evaluator.pipeline.live.status import LiveStatus
from evaltap.evaluator.store.database import Store
from evaltap.recorder.telemetry.otlp_json import decode_request
from evaltap.recorder.telemetry.spans import EVALUATION_EVENT, OWN_SCOPE, is_evaluation
from evaltap.schemas.log.local import open_log
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_turn,
    write_log,
)
from support.builders.commands import Evaltap
from support.builders.program import Program
from support.builders.waiting import wait_for
from support.servers.alert_server import Received, alert_server
from support.servers.broker import free_port
from support.servers.quiet_http import Handler, serving

TRACE, ROOT, CHAT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", "00f067aa0ba902b7"


@pytest.fixture
def server() -> Iterator[Received]:
    with alert_server() as received:
        yield received


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    Path("m.json").write_text(json.dumps([RESPONSE, TRAJECTORY]))
    telemetry = {"traceId": TRACE, "rootSpanId": ROOT, "lastChatSpanId": CHAT}
    cases = [
        make_case(
            f"s-{number}",
            [make_turn(answer=answer, telemetry=telemetry)],
            conversation=[make_turn()],
        )
        for number, answer in enumerate(("done", "no", "done"))
    ]
    cases.append(make_case("s-3", [make_turn()], conversation=[make_turn()]))
    write_log(Path("t.log.db"), make_records(cases))
    return evaltap


def consume(evaltap: Evaltap, url: str, *more: str) -> tuple[int, str, str]:
    return evaltap("consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
                   "--until-idle", "--scores-otlp", url, *more)  # fmt: skip


def records(server: Received) -> list[dict[str, Any]]:
    """Return the log records that came, with their attributes by name and their scope."""
    return [
        record | {"attributes": values(record["attributes"]), "scope": scope["scope"]["name"]}
        for path, _, body in server.requests
        if path == "/v1/logs"
        for resource in body["resourceLogs"]
        for scope in resource["scopeLogs"]
        for record in scope["logRecords"]
    ]


def values(attributes: list[dict[str, Any]]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in attributes}


@pytest.mark.slow
def test_each_score_is_an_event_within_the_span_that_it_judges(
    evaltap: Evaltap, server: Received, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b,other=c")
    consume(evaltap, server.url)

    found = records(server)
    assert len(found) == 8
    one = next(
        record for record in found
        if record["attributes"]["gen_ai.conversation.id"] == "s-1"
        and record["attributes"]["gen_ai.evaluation.name"] == "final_response_avg_score"
    )  # fmt: skip
    assert (one["eventName"], one["scope"]) == (EVALUATION_EVENT, OWN_SCOPE)
    assert (one["traceId"], one["spanId"], one["flags"]) == (TRACE, CHAT, 1)
    said = one["attributes"]
    assert (said["gen_ai.evaluation.score.value"], said["gen_ai.evaluation.score.label"]) == (
        0,
        "fail",
    )
    assert said["evaltap.inclusion_probability"] == 1
    assert said["evaltap.evaluator.id"] == "final_response_avg_score"
    assert not any("explanation" in name for name in said), "content is not sent"
    spans = {
        record["attributes"]["gen_ai.evaluation.name"]: record.get("spanId")
        for record in found if record["attributes"]["gen_ai.conversation.id"] == "s-0"
    }  # fmt: skip
    assert spans == {"final_response_avg_score": CHAT, "tool_trajectory_avg_score": ROOT}
    untraced = [one for one in found if one["attributes"]["gen_ai.conversation.id"] == "s-3"]
    assert not any("spanId" in one or "traceId" in one for one in untraced)
    with Store("t.duckdb") as store:
        ids = {name for (name,) in store.rows("SELECT score_id FROM turn_scores")}
    assert {one["attributes"]["evaltap.score.id"] for one in found} == ids
    assert {headers["x-key"] for _, headers, _ in server.requests} == {"a b"}

    before = len(server.requests)
    consume(evaltap, server.url)
    assert not [path for path, _, _ in server.requests[before:] if path == "/v1/logs"]


@pytest.mark.slow
def test_explanations_are_sent_when_asked_for_and_redacted(
    evaltap: Evaltap, server: Received
) -> None:
    case = make_case(
        "s-9", [make_turn(answer="write to jane.doe@corp-mail.io")], conversation=[make_turn()]
    )
    write_log(Path("t.log.db"), make_records([case], producer_id="q"))

    consume(evaltap, server.url, "--explanations")

    said = {
        one["gen_ai.conversation.id"]: one.get("gen_ai.evaluation.explanation", "")
        for one in (record["attributes"] for record in records(server))
        if one["gen_ai.evaluation.name"] == "final_response_avg_score"
    }  # fmt: skip
    assert "does not contain" in said["s-1"]
    assert "jane.doe" not in said["s-9"]
    assert "<email:" in said["s-9"]
    code, _, error = evaltap("consume", "--log", "t.log.db", "--db", "u.duckdb", "--explanations",
                             "--until-idle")  # fmt: skip
    assert (code, "only works with --scores-otlp" in error) == (2, True)


@pytest.mark.slow
def test_a_score_that_could_not_be_had_is_an_error_without_a_value(
    evaltap: Evaltap, server: Received
) -> None:
    metric = {**RESPONSE, "metricName": "broken", "evaluatorName": "external_command",
              "criterion": {"command": {"argv": ["false"]}}}  # fmt: skip
    Path("m.json").write_text(json.dumps([metric]))
    consume(evaltap, server.url, "--allow-code")

    found = records(server)
    assert all(one["severityText"] == "WARN" for one in found)
    assert all(one["attributes"]["error.type"] for one in found)
    assert not any("gen_ai.evaluation.score.value" in one["attributes"] for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["none", "gzip"])
@pytest.mark.parametrize("protocol", ["", "http/protobuf"])
def test_what_is_sent_is_otlp(
    evaltap: Evaltap,
    server: Received,
    monkeypatch: pytest.MonkeyPatch,
    protocol: str,
    compression: str,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", compression)
    consume(evaltap, server.url)

    assert {path for path, _, _ in server.requests} == {"/v1/logs", "/v1/metrics"}
    for _, headers, _ in server.requests:
        assert headers["content-type"] == "application/x-protobuf"
        assert headers.get("content-encoding", "none") == compression
    assert {one["traceId"] for one in records(server) if "traceId" in one} == {TRACE}
    metrics = [
        one["name"]
        for path, _, body in server.requests if path == "/v1/metrics"
        for one in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
    ]  # fmt: skip
    assert "evaltap.turns_scored" in metrics


@pytest.mark.slow
def test_counters_began_with_the_process_also_after_its_settings_were_read_again(
    evaltap: Evaltap, server: Received, tmp_path: Path
) -> None:
    consume(evaltap, server.url)
    server.requests.clear()
    status = LiveStatus()
    with Store(tmp_path / "t.duckdb") as store:
        for _ in range(2):  # SIGHUP makes a new writer
            Figures(store, status, OtlpWriter(server.url)).close()

    began = {
        point["startTimeUnixNano"]
        for _, _, body in server.requests
        for one in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        for point in one.get("sum", {"dataPoints": []})["dataPoints"]
    }
    assert began == {str(status.since_start.began_ns)}


@pytest.mark.slow
def test_an_endpoint_that_was_away_gets_everything_later(
    evaltap: Evaltap, server: Received, tmp_path: Path
) -> None:
    server.answers = [503] * 1_000
    program = Program(
        ["consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
         "--scores-otlp", server.url], tmp_path / "said",
    )  # fmt: skip
    wait_for(lambda: len([1 for path, _, _ in server.requests if path == "/v1/logs"]) >= 1)
    program.process.kill()
    program.process.wait()
    server.answers = []
    server.requests.clear()

    consume(evaltap, server.url)

    assert len({one["attributes"]["evaltap.score.id"] for one in records(server)}) == 8


def test_an_endpoint_that_is_away_is_told_once_a_minute_with_the_reason(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.5")  # less than a pause of the exporter
    now = 0.0
    writer = OtlpWriter(f"http://127.0.0.1:{free_port()}", clock=lambda: now)

    def scores(store: Store, at: datetime, key: str, limit: int) -> list[Item]:
        return [Item(at, "s-1", RECORD)]

    with Store(":memory:") as store:
        outbox = Outbox(store, writer, "collector", scores, name="scores", clock=lambda: now)
        for seconds in range(0, 120, 2):
            now = float(seconds)
            outbox.step(None)
    writer.close()

    assert len(caplog.messages) == 2
    assert all("the OTLP endpoint accepts nothing: " in told for told in caplog.messages)
    assert all("Connection refused" in told for told in caplog.messages)


RECORD = ReadableLogRecord(LogRecord(body="x"), Resource({}))


@pytest.mark.parametrize(
    ("status", "headers", "reason"),
    [
        (302, {"Location": "/login"}, "redirects are not followed"),
        (308, {"Location": "/login"}, "redirects are not followed"),
        (200, {"Content-Type": "text/html; charset=utf-8"}, "is no OTLP endpoint"),
    ],
)
def test_a_page_of_a_login_has_accepted_nothing(
    status: int, headers: dict[str, str], reason: str
) -> None:
    asked: list[str] = []

    class Login(Handler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.body()
            self.reply(status, b"", **headers)

        def do_GET(self) -> None:
            asked.append(self.path)
            self.reply(200)

    with (
        serving(Login) as url,
        closing(OtlpWriter(url)) as writer,
        pytest.raises(EndpointUnavailableError, match=reason),
    ):
        writer.write_or_cut("collector", [RECORD])

    assert asked == ["/v1/logs"]


def test_what_an_endpoint_rejects_of_a_batch_is_told(caplog: pytest.LogCaptureFixture) -> None:
    answer = ExportLogsServiceResponse()
    answer.partial_success.rejected_log_records = 1
    answer.partial_success.error_message = "over quota"

    class Partial(Handler):
        def do_POST(self) -> None:
            self.body()
            self.reply(200, answer.SerializeToString())

    with serving(Partial) as url, closing(OtlpWriter(url)) as writer:
        writer.write_or_cut("collector", [RECORD])

    assert caplog.messages == ["the OTLP endpoint rejected 1 score: over quota"]


@pytest.mark.slow
def test_scores_that_come_back_are_no_traffic(
    evaltap: Evaltap, server: Received, tmp_path: Path
) -> None:
    consume(evaltap, server.url)
    bodies = [body for path, _, body in server.requests if path == "/v1/logs"]
    assert all(is_evaluation(one) for body in bodies for one in decode_request(copy.deepcopy(body)))

    collector = Program(["collect", "--log", "back.log.db", "--port", "0"], tmp_path / "said")
    wait_for(lambda: "http://" in collector.output)
    port = re.search(r":(\d+)/v1", collector.output)
    assert port is not None
    with Store("t.duckdb") as store:
        store.execute("DELETE FROM outbox")
    consume(evaltap, f"http://127.0.0.1:{port[1]}")
    assert collector.stop() == 0
    assert "0 turns recorded" in collector.output

    assert not Path("back.log.db").exists() or not landed("back.log.db")


def landed(log: str) -> list[bytes | None]:
    """Return the cases on a log."""
    opened = open_log(Path(log), mode="read")
    try:
        return [one.value for _, one in opened.records() if b"invocationId" in (one.value or b"")]
    finally:
        opened.close()


@pytest.mark.slow
def test_scores_and_metrics_go_over_grpc_with_the_headers_of_the_environment(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-key=a%20b")

    with grpc_server() as (url, received):
        consume(evaltap, url)

    logs = [request for request, _ in received if isinstance(request, ExportLogsServiceRequest)]
    records = [record for one in logs for record in one.resource_logs[0].scope_logs[0].log_records]
    assert len({record.SerializeToString() for record in records}) == 8
    assert {record.event_name for record in records} == {EVALUATION_EVENT}
    kinds = {type(request).__name__ for request, _ in received}
    assert kinds == {"ExportLogsServiceRequest", "ExportMetricsServiceRequest"}
    assert {headers["x-key"] for _, headers in received} == {"a b"}


@contextmanager
def grpc_server() -> Iterator[tuple[str, list[tuple[object, Mapping[str, str]]]]]:
    """Yield the URL of an OTLP endpoint, and the requests and headers that it receives."""
    received: list[tuple[object, Mapping[str, str]]] = []

    class Logs(LogsServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportLogsServiceResponse:
            received.append((request, dict(context.invocation_metadata())))
            return ExportLogsServiceResponse()

    class Metrics(MetricsServiceServicer):
        def Export(self, request: Any, context: Any) -> ExportMetricsServiceResponse:
            received.append((request, dict(context.invocation_metadata())))
            return ExportMetricsServiceResponse()

    server = grpc.server(ThreadPoolExecutor(2))
    add_LogsServiceServicer_to_server(Logs(), server)  # type: ignore[no-untyped-call]
    add_MetricsServiceServicer_to_server(Metrics(), server)  # type: ignore[no-untyped-call]
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"http://127.0.0.1:{port}", received
    finally:
        server.stop(None).wait()


@pytest.mark.parametrize("protocol", ["http/json", "http"])
def test_an_encoding_that_the_exporters_do_not_have_is_refused(
    evaltap: Evaltap, server: Received, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)

    code, _, error = consume(evaltap, server.url)

    assert code == 2
    assert f"found {protocol!r}" in error
    assert "http/protobuf" in error


def test_a_setting_that_makes_no_sense_is_told(
    evaltap: Evaltap,
    server: Received,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "soon")

    code, _, error = consume(evaltap, server.url)

    if "soon" in caplog.text:  # from 1.45 on, OpenTelemetry warns and takes its default
        assert "using default" in caplog.text
    else:
        assert code == 2
        assert "OTEL_EXPORTER_OTLP_... is invalid" in error


@pytest.mark.parametrize("url", ["collector:4318", "ftp://h", "http://user:pw@h:4318"])
def test_an_endpoint_that_is_none_is_refused(evaltap: Evaltap, url: str) -> None:
    code, _, said = consume(evaltap, url)

    assert code == 2
    assert "--scores-otlp" in said
    assert "pw" not in said
