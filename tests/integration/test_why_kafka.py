"""`evaltap why` looks for a case on topics as it does in a local log."""

from contextlib import closing
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.schemas.wire.record import Manifest, encode_manifest
from support.builders.cases import NOON, make_case, make_records
from support.builders.topics import location
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Store("x.duckdb").close()


def why(case: str, log: str, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = main(["why", "x.duckdb", case, "--log", log])
    said = capsys.readouterr()
    return code, said.out + said.err


@pytest.mark.slow
def test_a_case_that_has_not_landed_is_looked_for_on_the_topic(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    log, topic = broker.log(), broker.name("evaltap.cases")
    in_a_set = make_case("s-2") | {"evalSetId": "golden"}
    manifest = encode_manifest(Manifest("p", 2, NOON))
    with closing(KafkaSink(location(log))) as sink:
        sink.append([*make_records([make_case("s-1"), in_a_set]), manifest])
        assert sink.flush(30)

    for name in ("s-1", "s-2", "golden/s-2"):
        code, said = why(name, log, capsys)
        assert code == 3
        assert f"{log} has it at offset " in said
        assert f" of {topic} 0; land it with evaltap consume" in said
    for name in ("s-3", "p"):
        assert f"{log} does not contain it" in why(name, log, capsys)[1]


def test_a_topic_without_a_record_does_not_hold_it(
    broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records([make_case("s-1")]))
        assert sink.flush(30)

    code, said = why("s-1", f"{broker.log()}-of-nobody", capsys)

    assert code in (2, 3)
    assert "does not contain it" in said or "no such topic" in said


def test_without_a_broker_or_on_raw_telemetry_it_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_BOOTSTRAP_TIMEOUT_MS", "300")

    away = why("s-1", "kafka://127.0.0.1:9/cases", capsys)
    raw = why("s-1", "kafka://127.0.0.1:9/spans?format=otlp", capsys)

    assert away[0] == raw[0] == 2
    assert "no broker answers" in away[1]
    assert "raw telemetry has no case ids yet" in raw[1]
