"""What is committed is published: dead letters and scores, those that are larger than a topic takes too."""

import json
import random
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.schemas.wire.dead_letter import CUT_BYTES
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import RESPONSE, make_records
from support.builders.program import Program
from support.builders.topics import messages, publish, record_sessions, sessions
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(120)

FULL = 1_048_400
"""Bytes that do not shrink, and with which a topic takes a record without headers, but none with some."""


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def consume(broker: Broker, folder: Path, metric: dict[str, Any], *more: str) -> Program:
    """Land and score what lies on the topic of the test in `x.duckdb`, up to its end."""
    metrics = folder / "metrics.json"
    metrics.write_text(json.dumps([metric]))
    program = Program(
        ["consume", "--log", broker.log(), "--db", str(folder / "x.duckdb"), "--until-idle",
         "--metrics", str(metrics), *more], folder / "out",
    )  # fmt: skip
    try:
        program.wait()
    finally:
        program.process.kill()
    return program


def query(folder: Path, statement: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(folder / "x.duckdb"), read_only=True) as store:
        return store.execute(statement).fetchall()


def letters_of(broker: Broker, tmp_path: Path) -> list[WireRecord]:
    """Return what consuming a topic of junk publishes as dead letters."""
    consume(broker, tmp_path, RESPONSE, "--dlq-topic", broker.name("dlq"))
    return messages(broker.log("dlq"))


@pytest.mark.slow
def test_what_is_committed_is_published(broker: Broker, tmp_path: Path) -> None:
    good = make_records(sessions(3, turns=1))
    publish(broker.log(), [good[0], WireRecord(b"k", b"{", good[0].headers), *good[1:]])
    more = ["--dlq-topic", broker.name("dlq"), "--scores-topic", broker.name("scores")]

    for _ in range(2):  # the second finds nothing new to publish
        assert consume(broker, tmp_path, RESPONSE, *more).wait() == 1

    (letter,) = messages(broker.log("dlq"))
    assert (letter.key, letter.value) == (b"k", b"{")
    assert letter.header("dead_letter_reason") == "hash_mismatch"
    assert letter.header("dead_letter_offset") == "1"
    assert letter.header("ce_type") == "evaltap.case", "its own headers stay"
    scores = [json.loads(one.value or b"") for one in messages(broker.log("scores"))]
    assert sorted((one["evalId"], one["status"]) for one in scores) == [
        ("s-0", "failed"),
        ("s-1", "passed"),
        ("s-2", "passed"),
    ]


@pytest.mark.slow
def test_a_letter_beyond_the_clients_own_limit_is_published_whole(
    broker: Broker, tmp_path: Path
) -> None:
    large = WireRecord(b"k", b"x" * 1_500_000)
    publish(broker.log(), [large, WireRecord(b"k", b"{")])

    found = letters_of(broker, tmp_path)

    assert [one.value for one in found] == [large.value, b"{"]


@pytest.mark.slow
@pytest.mark.parametrize("clients_limit", ["", "500000"], ids=["by the broker", "by the client"])
def test_a_letter_that_is_refused_for_its_size_is_cut_and_says_so(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients_limit: str
) -> None:
    publish(broker.log(), [WireRecord(b"k", noise(FULL), (("own", b"1"),)), WireRecord(b"k", b"{")])
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_REQUEST_SIZE", clients_limit)

    found = letters_of(broker, tmp_path)

    cut = next(one for one in found if one.header("dead_letter_cut_from"))
    assert len(found) == 2
    assert cut.value == noise(FULL)[:CUT_BYTES]
    assert cut.header("dead_letter_cut_from") == str(FULL)
    assert cut.header("dead_letter_reason") == "too_large"
    assert cut.header("own") == "1"


@pytest.mark.slow
def test_a_letter_that_no_cut_makes_small_enough_holds_up_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    publish(broker.log(), [WireRecord(noise(FULL), b"{"), WireRecord(b"k", b"{")])

    found = letters_of(broker, tmp_path)

    assert [one.key for one in found] == [b"k"]


@pytest.mark.slow
def test_dead_letters_that_do_not_fit_into_memory_together_are_published_all_the_same(
    broker: Broker, tmp_path: Path
) -> None:
    large = [WireRecord(b"k", noise(900_000 + number)) for number in range(80)]
    for first in range(0, len(large), 8):
        publish(broker.log(), large[first : first + 8])

    consume(broker, tmp_path, RESPONSE)  # lands them all, and publishes none
    letters = letters_of(broker, tmp_path)

    assert [letter.value for letter in letters] == [record.value for record in large]


TALKATIVE = {
    "metricName": "external_command",
    "threshold": 1,
    "criterion": {
        "command": {
            "argv": [
                sys.executable,
                "-c",
                "import json, sys; json.load(sys.stdin);"
                'print(json.dumps({"score": 1, "reason": "x" * 1_040_000}))',
            ]
        }
    },
}


@pytest.mark.slow
def test_a_score_with_a_reason_that_no_record_holds_is_published_with_the_beginning_of_it(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2, turns=1)

    consuming = consume(
        broker, tmp_path, TALKATIVE, "--scores-topic", broker.name("scores"), "--allow-code"
    )

    assert consuming.wait() == 0, consuming.output
    ((reason,),) = query(tmp_path, "SELECT DISTINCT reason FROM scores")
    published = [json.loads(one.value or b"") for one in messages(broker.log("scores"))]
    assert len(published) == 2
    for score in published:
        assert score["status"] == "passed"
        assert score["reason"].endswith("characters cut)")
        assert reason.startswith(score["reason"].partition("…")[0])


@pytest.mark.slow
def test_a_score_that_no_record_holds_at_all_holds_up_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2, turns=1)
    consume(broker, tmp_path, RESPONSE)
    with duckdb.connect(str(tmp_path / "x.duckdb")) as store:
        store.execute("UPDATE scores SET eval_id = repeat('x', 1_000_000) WHERE eval_id = 's-0'")

    consuming = consume(broker, tmp_path, RESPONSE, "--scores-topic", broker.name("scores"))

    published = [json.loads(one.value or b"") for one in messages(broker.log("scores"))]
    assert "s-1" in {score["evalId"] for score in published}
    assert "was not published" in consuming.output
