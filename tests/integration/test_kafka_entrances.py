"""All producers accept a topic: commands, span processor, exporter; and the resulting records."""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from evaltap.cli.main import main
from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.store.database import Store
from evaltap.recorder import CaseSpanProcessor, Recorder
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.recorder.delivery.spool.spool import spool_states
from evaltap.schemas.log.folders import spool_path
from support.builders.cases import make_case, make_records, make_turn
from support.builders.topics import cases, landed, location, messages, record, turns
from support.builders.waiting import wait_for
from support.corpora.span_facts import files_of
from support.servers.broker import Broker, GivenCluster, free_port, listens
from support.servers.faulty_network import PRODUCE, proxied

pytestmark = pytest.mark.timeout(120)

EVALTAP = "import sys; from evaltap.cli.main import main; sys.exit(main())"
RUN_AN_AGENT = """
import json
from opentelemetry import trace
messages = lambda role, text: json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
with trace.get_tracer("app").start_as_current_span("invoke_agent support", attributes={
    "gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s-1",
    "gen_ai.input.messages": messages("user", "hi"),
    "gen_ai.output.messages": messages("assistant", "hello"),
}):
    pass
"""
CONFIGURED = (
    "from opentelemetry.sdk._configuration import _OTelSDKConfigurator as C; C().configure()\n"
)


@pytest.mark.slow
def test_record_cases_returns_when_all_is_acknowledged_also_through_an_outage(
    broker: Broker, tmp_path: Path
) -> None:
    lines = tmp_path / "c.jsonl"
    lines.write_text("".join(json.dumps(case) + "\n" for case in cases(500)))
    broker.stop()
    codes: list[int] = []
    command = ["record", "cases", str(lines), "--log", broker.log()]
    running = threading.Thread(target=lambda: codes.append(main(command)))

    running.start()
    wait_for(lambda: bool(list(tmp_path.rglob("*.log.db"))))
    assert running.is_alive(), "it waits for the broker"
    broker.start()
    running.join(60)

    assert codes == [0]
    assert not list(tmp_path.rglob("*.log.db")), "nothing is left on the spool"
    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 500


@pytest.mark.slow
def test_record_that_is_interrupted_says_how_many_turns_wait_and_the_next_one_sends_them(
    broker: Broker, tmp_path: Path
) -> None:
    broker.must_be_ours()
    lines = tmp_path / "c.jsonl"
    lines.write_text("".join(json.dumps(case) + "\n" for case in cases(300)))
    broker.stop()
    handled = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", handled + EVALTAP, "record", "cases", str(lines),
               "--log", broker.log()]  # fmt: skip
    running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    folder = spool_path(location(broker.log()))

    # The last record is the manifest.
    wait_for(lambda: sum(state.records for state in spool_states(folder)) == 301)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)

    assert running.returncode == 130
    assert said.splitlines()[-1] == (
        "evaltap record: interrupted; 300 turns wait on the spool:"
        " the next `evaltap record` or recorder with this log sends them"
    )
    broker.start()
    assert main(["record", "cases", str(_one_turn("cases", tmp_path)), "--log", broker.log()]) == 0
    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 300 + 1


@pytest.mark.parametrize("source", ["cases", "claude-code", "otlp"])
def test_record_says_which_turns_a_broker_refused_and_where_they_are(
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_REQUEST_SIZE", "200")

    code = main(
        ["record", source, str(_one_turn(source, tmp_path)), "--log", broker.log(), "--json"]
    )

    (aside,) = tmp_path.rglob("*.rejected")
    said = capsys.readouterr()
    assert code == 3
    assert "the broker refused 1 turn as too large or invalid" in said.err
    assert said.err.rstrip().endswith(f"evaltap consume --log {aside}")
    assert json.loads(said.out)["refused"] == 1


@pytest.mark.slow
def test_record_waits_for_the_broker_where_the_spool_is_full(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(broker, GivenCluster):
        pytest.skip("a given cluster is not made slow")
    monkeypatch.setenv("EVALTAP_LOG_MAX_BYTES", "1048576")
    file = tmp_path / "cases.jsonl"
    large = [make_case(f"s-{n}", [make_turn(answer="x" * 20_000)]) for n in range(420)]
    file.write_text("".join(json.dumps(case) + "\n" for case in large))

    with proxied(broker.port) as slow:
        slow.delay_seconds = 0.1
        log = broker.log().replace(broker.address, slow.address)
        assert main(["record", "cases", str(file), "--log", log]) == 0

    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 420


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "REQUEST_TIMEOUT_MS",
            "abc",
            "EVALTAP_KAFKA_REQUEST_TIMEOUT_MS is 'abc'; expected a number",
        ),
        ("SECURITY_PROTOCOL", "TLS", "EVALTAP_KAFKA_SECURITY_PROTOCOL is 'TLS'; expected one of"),
        ("CLIENT_DNS_LOOKUP", "x", "client_dns_lookup must be one of"),
        ("KEY_SERIALIZER", "x", "the Kafka client rejects its settings ("),
    ],
)
def test_a_wrong_setting_ends_record_with_what_is_wrong_and_what_waits(
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    value: str,
    said: str,
) -> None:
    command = ["record", "cases", str(_one_turn("cases", tmp_path)), "--log", broker.log()]
    monkeypatch.setenv(f"EVALTAP_KAFKA_{name}", value)

    assert main(command) == 2

    found = capsys.readouterr().err
    assert said in found.split("evaltap record: ")[1]
    assert "1 turn waits on the spool: the next `evaltap record`" in found
    monkeypatch.delenv(f"EVALTAP_KAFKA_{name}")
    assert main(command) == 0
    assert not list(tmp_path.rglob("*.log.db")), "the next one sends what waited"


def _one_turn(source: str, tmp_path: Path) -> Path:
    """Return a file with one turn, of the kind that `evaltap record SOURCE` reads."""
    if source == "otlp":
        (path,) = files_of("pydantic-ai-v5/single_tool")
        return path
    path = tmp_path / "given.jsonl"
    lines = cases(1) if source == "cases" else [_line("user", "hi"), _line("assistant", "hello")]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _line(role: str, text: str) -> dict[str, Any]:
    """Return a line of a transcript of Claude Code."""
    message = {"role": role, "id": "m", "content": [{"type": "text", "text": text}]}
    return {"type": role, "uuid": role, "sessionId": "s-1", "isSidechain": False,
            "parentUuid": None if role == "user" else "user",
            "timestamp": "2026-04-01T00:00:00.000Z", "message": message}  # fmt: skip


@pytest.mark.slow
def test_a_consumer_goes_on_through_an_outage(broker: Broker) -> None:
    broker.must_be_ours()
    with (
        closing(KafkaSink(location(broker.log()))) as sink,
        closing(KafkaSource(location(broker.log()))) as source,
        Store(":memory:") as store,
    ):
        consumer = Consumer(source, store)
        running = threading.Thread(
            target=lambda: consumer.run(until_idle=False, report=lambda _: None)
        )
        running.start()
        for part in range(2):
            sink.append(make_records(cases(100, first=part * 100), first_seq=part * 100 + 1))
            assert sink.flush(60)
            wait_for(lambda part=part: consumer.consumed.landed.turns == (part + 1) * 100)  # type: ignore[misc]
            if part == 0:
                broker.stop()
                broker.start()
        consumer.stop()
        running.join(30)

        found = turns(store)
    assert len(found) == len(set(found)) == 200


@pytest.mark.slow
def test_collect_writes_to_a_topic(broker: Broker, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-c", EVALTAP, "collect", "--log", broker.log(),
               "--port", str(port)]  # fmt: skip
    collecting = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for(lambda: listens(port))
    (tmp_path / "app.py").write_text(CONFIGURED + RUN_AN_AGENT)
    environment = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "otlp",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{port}",
    }

    subprocess.run([sys.executable, str(tmp_path / "app.py")], env=environment, check=True)
    collecting.send_signal(signal.SIGTERM)
    assert collecting.wait(60) == 0

    with Store(":memory:") as store:
        wait_for(lambda: landed(broker.log(), store) == 1)


@pytest.mark.slow
def test_the_exporter_of_the_entry_point_writes_to_a_topic(broker: Broker, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(CONFIGURED + RUN_AN_AGENT)
    environment = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "evaltap",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "EVALTAP_LOG": broker.log(),
        "EVALTAP_CLOSE_TIMEOUT_SECONDS": "30",
    }

    subprocess.run([sys.executable, str(tmp_path / "app.py")], env=environment, check=True)

    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 1


def test_a_span_processor_writes_to_a_topic_with_the_trace_as_data(broker: Broker) -> None:
    processor = CaseSpanProcessor(log=broker.log())
    provider = TracerProvider()
    provider.add_span_processor(processor)
    with provider.get_tracer("app").start_as_current_span(
        "invoke_agent support",
        attributes={"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s-1"},
    ) as span:
        context = span.get_span_context()
    assert processor.force_flush(60_000)
    provider.shutdown()

    case = next(one for one in messages(broker.log()) if one.header("ce_type") == "evaltap.case")
    telemetry = json.loads(case.value or b"")["actualConversation"][0]["telemetry"]
    assert telemetry["traceId"] == trace.format_trace_id(context.trace_id)
    assert telemetry["rootSpanId"] == trace.format_span_id(context.span_id)


def test_what_lies_on_a_topic_is_a_compressed_cloud_event(broker: Broker) -> None:
    if isinstance(broker, GivenCluster):
        pytest.skip("a given cluster is not put behind a proxy")
    with proxied(broker.port) as network:
        recorder = Recorder(broker.log().replace(broker.address, network.address))
        record(recorder, 3, answer="The order has shipped. " * 100)
        assert recorder.close(60)
        request = network.last["request", PRODUCE]

    found = messages(broker.log())
    assert [one.header("ce_type") for one in found] == ["evaltap.case"] * 3 + ["evaltap.manifest"]
    expected = {"ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time", "ce_subject",
                "content-type", "schema", "producer_id", "seq", "content_sha256"}  # fmt: skip
    assert {name for name, _ in found[0].headers} == expected
    assert found[0].header("content-type") == "application/json"
    assert found[0].key == b"s-0"
    assert b"\x28\xb5\x2f\xfd" in request, "a frame of zstd"
    assert b"has shipped" not in request
