"""`evaltap doctor` over a topic: what waits on it, what was read, and that nothing is missing."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.schemas.log.location import KafkaLocation, parse_log_location
from evaltap.schemas.wire.record import Manifest, encode_manifest
from support.builders.cases import NOON, make_case, make_records, make_turn
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(60)


def send(broker: Broker, first: int, count: int) -> None:
    """Send turns of the producer `p`, numbered from `first`, and what it says of them."""
    location = parse_log_location(broker.log())
    assert isinstance(location, KafkaLocation)
    cases = [make_case(f"s-{n}", [make_turn(f"t-{n}")]) for n in range(first, first + count)]
    sink = KafkaSink(location)
    sink.append(make_records(cases, first_seq=first))
    sink.append([encode_manifest(Manifest("p", first + count - 1, NOON, {"queue_full": first}))])
    assert sink.flush(30)
    sink.close()


def doctor(broker: Broker, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    capsys.readouterr()
    main(["doctor", "--log", broker.log(), "--db", "x.duckdb", "--json"])
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.slow
def test_what_waits_on_a_topic_is_told_apart_from_what_is_lost(
    broker: Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    consume = ["consume", "--log", broker.log(), "--db", "x.duckdb", "--until-idle"]
    send(broker, 1, 40)
    assert main(consume) == 1  # turns were dropped before they reached the topic

    read = doctor(broker, capsys)
    send(broker, 41, 25)
    behind = doctor(broker, capsys)
    main(["doctor", "--log", broker.log(), "--db", "x.duckdb"])
    told = capsys.readouterr().out
    assert main(consume) == 1
    caught_up = doctor(broker, capsys)

    assert [one["waiting"] for one in (*read["partitions"], *caught_up["partitions"])] == [0, 0]
    assert behind["partitions"][0] | {"topic": ""} == {
        "topic": "", "partition": 0, "start": 0, "end": 67, "next_offset": 41, "waiting": 26,
        "gap": None,
    }  # fmt: skip
    assert "records 0 to 67, read to 41, 26 waiting" in told
    (producer,) = caught_up["producers"]
    assert (producer["recorded"], producer["landed"], producer["dropped"]) == (
        65 + 41, 65, {"queue_full": 41},
    )  # fmt: skip
    assert producer["gaps"] == []
