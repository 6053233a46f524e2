"""Raw OTLP topics over real brokers, and behind a real Collector."""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer

from evaltap.cli.main import main
from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.evaluator.store.database import Store
from evaltap.schemas.log.location import KafkaClientName
from support.builders.telemetry_log import Message, collector_messages, one_span_each
from support.builders.topics import location
from support.builders.waiting import wait_for
from support.corpora.span_facts import captures, files_of
from support.servers import otel_collector
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(120)

SPANS, LOGS = "otlp_spans", "otlp_logs"
NOTHING_DELETED = {
    "metricName": "trajectory_forbidden",
    "threshold": 1,
    "criterion": {"trajectory": {"forbidden": ["delete_account"]}},
}

ANSWERED = {
    "metricName": "answered",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "said", "type": "contains", "values": ["never"]}]}},
}


@pytest.fixture(autouse=True)
def _as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALTAP_REDACTION", "off")


def make_telemetry_topics(broker: Broker, partitions: int = 3) -> None:
    partitions_of = {broker.name(topic): partitions for topic in (SPANS, LOGS)}
    create_topics(location(broker.log(SPANS)), partitions_of)


def send(
    broker: Broker, messages: Iterable[Message], *, partitions: int = 0, compression: Any = None
) -> None:
    """Write messages by their key, or to `partitions` in turn."""
    producer = KafkaProducer(bootstrap_servers=broker.address, compression_type=compression)
    for number, message in enumerate(messages):
        producer.send(
            broker.name(message.topic),
            message.value,
            key=message.key,
            partition=number % partitions if partitions else None,
        )
    producer.flush(30)
    producer.close()


@pytest.fixture
def with_client(client: KafkaClientName, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consume with each client."""
    monkeypatch.setenv("EVALTAP_KAFKA_CLIENT", client)


def consume(broker: Broker, db: Path, *more: str) -> int:
    log = broker.log(SPANS, LOGS, form="otlp")
    return main(["consume", "--log", log, "--db", str(db), "--until-idle", *more])


def recorded_turns(db: Path) -> list[dict[str, Any]]:
    with Store(db, create=False) as store:
        rows = store.rows("SELECT actual_json FROM latest_turns ORDER BY started_at, invocation_id")
    return [without_context(json.loads(turn)) for (turn,) in rows]


def without_context(turn: dict[str, Any]) -> dict[str, Any]:
    """Return a turn without instructions: turns of topics repeat them, as they may be read again alone."""
    return {key: value for key, value in turn.items() if key != "contextMessages"}


def turns_of_files(paths: Sequence[Path], folder: Path) -> list[dict[str, Any]]:
    """Return what `evaltap record otlp` makes of the files that hold the same spans."""
    out = folder / "files.evalset.json"
    assert main(["record", "otlp", *map(str, paths), "--out", str(out)]) == 0
    found = [
        without_context(turn)
        for case in json.loads(out.read_text())["evalCases"]
        for turn in case["actualConversation"]
    ]
    return sorted(found, key=lambda turn: (turn["creationTimestamp"], turn["invocationId"]))


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "gzip", "zstd"])
def test_what_a_collector_wrote_gives_the_turns_that_files_give(
    broker: Broker, tmp_path: Path, compression: str | None
) -> None:
    make_telemetry_topics(broker)
    messages = collector_messages()
    send(broker, messages, compression=compression)

    assert consume(broker, tmp_path / "x.duckdb") == 0

    files = [path for name in captures() for path in files_of(name)]
    assert recorded_turns(tmp_path / "x.duckdb") == turns_of_files(files, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("with_client")
def test_one_span_a_record_over_all_partitions_gives_the_same(
    broker: Broker, tmp_path: Path
) -> None:
    make_telemetry_topics(broker)
    messages = collector_messages()
    parts = [p for m in messages for p in (one_span_each(m) if m.topic == SPANS else [m])]
    send(broker, reversed(parts), partitions=3)

    assert consume(broker, tmp_path / "x.duckdb") == 0

    files = [path for name in captures() for path in files_of(name)]
    assert recorded_turns(tmp_path / "x.duckdb") == turns_of_files(files, tmp_path)


@pytest.mark.slow
def test_a_second_run_lands_only_what_is_new_and_says_what_it_read(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_telemetry_topics(broker)
    db = tmp_path / "x.duckdb"
    send(broker, collector_messages("adk-v2span/single_tool"))
    consume(broker, db)
    capsys.readouterr()
    send(broker, [*collector_messages("strands-latest/single_tool"), Message(SPANS, b"\xffbad")])

    code = consume(broker, db, "--json")

    said = capsys.readouterr()
    data = json.loads(said.out)
    assert code == 2  # a bad record
    assert (data["turns_landed"], data["duplicates"], data["dead_letters"]) == (1, 0, 1)
    assert "1 undecodable" in said.err
    assert len(recorded_turns(db)) == 2


@pytest.mark.slow
@pytest.mark.usefixtures("with_client")
def test_a_killed_consumer_loses_and_doubles_nothing(broker: Broker, tmp_path: Path) -> None:
    make_telemetry_topics(broker)
    db = tmp_path / "x.duckdb"
    log = broker.log(SPANS, LOGS, form="otlp")
    program = str(Path(sys.executable).with_name("evaltap"))
    parts = [
        p for m in collector_messages() for p in (one_span_each(m) if m.topic == SPANS else [m])
    ]
    waiting = threading.Event()

    for kill in range(4):
        part = len(parts) // 4
        send(broker, parts[kill * part : (kill + 1) * part + (kill == 3) * 4], partitions=3)
        process = subprocess.Popen([program, "consume", "--log", log, "--db", str(db)])
        written = db.with_name(db.name + ".wal")
        deadline = time.monotonic() + 60
        while not (written.exists() and written.stat().st_size):
            assert time.monotonic() < deadline, "nothing landed"
            waiting.wait(0.01)
        process.kill()
        process.wait(20)
    assert consume(broker, db) == 0

    files = [path for name in captures() for path in files_of(name)]
    latest = recorded_turns(db)
    assert latest == turns_of_files(files, tmp_path)
    with Store(db) as store:
        assert store.rows("SELECT coalesce(sum(missing), 0) FROM v_completeness") == [(0,)]


def test_a_topic_of_raw_telemetry_cannot_be_recorded_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = "kafka://127.0.0.1:9/otlp_spans?format=otlp"

    code = main(["collect", "--log", log])

    assert code == 2
    assert "are read-only" in capsys.readouterr().err


# On each test itself: that of the broker is nearer than that of a class.
building = pytest.mark.timeout(1_500)


@pytest.mark.slow
class TestRealCollector:
    """An OpenTelemetry Collector of our building between the agents and the topics."""

    @pytest.fixture(autouse=True)
    def _with_go(self) -> None:
        reason = otel_collector.missing()
        if reason is not None:
            pytest.skip(reason)

    @building
    @pytest.mark.parametrize("encoding", ["otlp_proto", "otlp_json"])
    @pytest.mark.parametrize("by_trace", [True, False])
    def test_what_agents_export_through_it_is_recorded_as_from_files(
        self, broker: Broker, tmp_path: Path, encoding: str, *, by_trace: bool
    ) -> None:
        make_telemetry_topics(broker)
        exporter = {
            "traces": {"topic": broker.name(SPANS), "encoding": encoding},
            "logs": {"topic": broker.name(LOGS), "encoding": encoding},
            "partition_traces_by_id": by_trace,
            "producer": {"compression": "zstd"},
        }
        files = [path for name in captures() for path in files_of(name)]

        with otel_collector.Collector(tmp_path, broker.address, exporter) as collector:
            for path in files:
                post(collector.endpoint, path)

        assert consume(broker, tmp_path / "x.duckdb") == 0
        assert recorded_turns(tmp_path / "x.duckdb") == turns_of_files(files, tmp_path)

    @building
    def test_the_spans_of_an_sdk_arrive_as_turns(self, broker: Broker, tmp_path: Path) -> None:
        make_telemetry_topics(broker)
        exporter = {"traces": {"topic": broker.name(SPANS)}, "logs": {"topic": broker.name(LOGS)}}

        with otel_collector.Collector(tmp_path, broker.address, exporter) as collector:
            export_from_sdk(collector.endpoint, sessions=5)

        assert consume(broker, tmp_path / "x.duckdb") == 0
        said = [
            (turn["userContent"]["content"], turn["finalResponse"]["content"], len(turn["tools"]))
            for turn in recorded_turns(tmp_path / "x.duckdb")
        ]
        assert said == [(f"question {n}", f"answer {n}", 1) for n in range(5)]

    @building
    def test_scores_join_the_spans_that_they_judge(self, broker: Broker, tmp_path: Path) -> None:
        make_telemetry_topics(broker)
        metrics = tmp_path / "m.json"
        metrics.write_text(json.dumps([ANSWERED, NOTHING_DELETED]))
        exporter = {
            kind: {"topic": broker.name(topic), "encoding": "otlp_json"}
            for kind, topic in {"traces": SPANS, "logs": LOGS, "metrics": "figures"}.items()
        }
        scored = ["--metrics", str(metrics), "--scores-otlp"]

        with otel_collector.Collector(tmp_path, broker.address, exporter) as collector:
            export_from_sdk(collector.endpoint, sessions=5)
            wait_for(lambda: len(telemetry(broker, SPANS)) == 10)
            assert consume(broker, tmp_path / "x.duckdb", *scored, collector.endpoint) == 1
            wait_for(lambda: len(telemetry(broker, LOGS)) == 10)

        spans = {(one["traceId"], one["spanId"]): one for one in telemetry(broker, SPANS)}
        events = telemetry(broker, LOGS)
        for event in events:
            said = attributes(event)
            judged = attributes(spans[event["traceId"], event["spanId"]])
            passes = said["gen_ai.evaluation.name"] == NOTHING_DELETED["metricName"]
            assert event["eventName"] == "gen_ai.evaluation.result"
            assert judged["gen_ai.operation.name"] == "invoke_agent"
            assert judged["gen_ai.conversation.id"] == said["gen_ai.conversation.id"]
            assert said["gen_ai.evaluation.score.label"] == ("pass" if passes else "fail")
        assert len({attributes(event)["evaltap.score.id"] for event in events}) == 10
        assert any("evaltap." in one["name"] for one in telemetry(broker, "figures"))

        # The scores are on a topic that is read: they are no traffic.
        consume(broker, tmp_path / "x.duckdb", "--metrics", str(metrics))
        assert len(recorded_turns(tmp_path / "x.duckdb")) == 5


def telemetry(broker: Broker, topic: str) -> list[dict[str, Any]]:
    """Return the spans, log records or metrics that a Collector has written to a topic as JSON."""
    reader = KafkaConsumer(
        broker.name(topic),
        bootstrap_servers=broker.address,
        auto_offset_reset="earliest",
        consumer_timeout_ms=1_000,
    )
    requests = [json.loads(message.value or b"{}") for message in reader]
    reader.close()
    return [
        one
        for request in requests
        for resource in next(iter(request.values()))
        for scope in next(many for name, many in resource.items() if name.startswith("scope"))
        for one in next(many for name, many in scope.items() if isinstance(many, list))
    ]


def attributes(record: dict[str, Any]) -> dict[str, Any]:
    return {one["key"]: next(iter(one["value"].values())) for one in record["attributes"]}


def post(endpoint: str, path: Path) -> None:
    """Hand a file of OTLP/JSON to a Collector."""
    kind = "logs" if ".logs." in path.name else "traces"
    request = urllib.request.Request(
        f"{endpoint}/v1/{kind}",
        data=path.read_bytes(),
        headers={"content-type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=30) as answer:
        assert answer.status == 200


def export_from_sdk(endpoint: str, sessions: int) -> None:
    """Run an instrumented agent, written by hand, that exports over OTLP/HTTP."""
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(f"{endpoint}/v1/traces")))
    tracer = provider.get_tracer("agent")
    for number in range(sessions):
        run = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "helper",
            "gen_ai.conversation.id": f"s-{number}",
            "gen_ai.input.messages": messages("user", f"question {number}"),
            "gen_ai.output.messages": messages("assistant", f"answer {number}"),
        }
        with tracer.start_as_current_span("invoke_agent helper", attributes=run):
            call = {
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": "look_up",
                "gen_ai.tool.call.id": f"call-{number}",
                "gen_ai.tool.call.arguments": json.dumps({"id": number}),
                "gen_ai.tool.call.result": json.dumps({"found": True}),
            }
            with tracer.start_as_current_span("execute_tool look_up", attributes=call):
                pass
    provider.shutdown()


def messages(role: str, text: str) -> str:
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
