"""A local log that fills up: landed records make room, a manifest always fits, and a warning is logged."""

import logging
from datetime import UTC, datetime
from pathlib import Path

import pytest

from evaltap.recorder import Recorder
from evaltap.recorder.delivery.retrying_writer import LOG_BATCHES
from evaltap.recorder.delivery.sinks.local_log import RESERVE_SHARE, LocalLogSink
from evaltap.recorder.diagnostics import log_diagnostic
from evaltap.recorder.faults import SinkError
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.retention import register
from evaltap.schemas.wire.record import Manifest, WireRecord, decode_record, encode_manifest
from support.builders.cases import make_case, make_records

LIMIT = 1 << 20
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def batch(first: int) -> list[WireRecord]:
    cases = [make_case(f"s-{n}", extra="x" * 5_000) for n in range(first, first + 10)]
    return make_records(cases, first_seq=first)


def fill(sink: LocalLogSink) -> int:
    """Append until the log is full; return how many records it took."""
    for number in range(0, 10_000, 10):
        try:
            sink.append(batch(number + 1))
        except SinkError:
            return number
    raise AssertionError("it is never full")


def landed(path: Path, next_offset: int) -> None:
    log = open_log(path, mode="append")
    register(log, "x.duckdb", next_offset)
    log.close()


def test_a_full_log_takes_more_once_its_consumers_have_landed_it(tmp_path: Path) -> None:
    sink = LocalLogSink(tmp_path / "log.db", max_bytes=LIMIT, min_free_bytes=0)
    full = fill(sink)
    landed(tmp_path / "log.db", full + 1)

    for number in range(full, 5 * full, 10):
        sink.append(batch(number + 1))
        landed(tmp_path / "log.db", number + 11)

    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert size < 1.6 * LIMIT, "with its journal"
    sink.close()


def test_what_a_consumer_lacks_is_never_given_up_for_new_turns(tmp_path: Path) -> None:
    sink = LocalLogSink(tmp_path / "log.db", max_bytes=LIMIT, min_free_bytes=0)
    fill(sink)
    landed(tmp_path / "log.db", 3)

    fill(sink)

    log = open_log(tmp_path / "log.db", mode="read")
    assert log.start_offset() == 3
    log.close()
    sink.close()


@pytest.mark.slow
def test_a_full_log_takes_manifests_and_keeps_the_last_one_only(tmp_path: Path) -> None:
    sink = LocalLogSink(tmp_path / "log.db", max_bytes=LIMIT, min_free_bytes=0)
    full = fill(sink)
    before = sum(file.stat().st_size for file in tmp_path.iterdir())

    for drops in range(1, 2_000):
        sink.append([encode_manifest(Manifest("p", full, NOW, {"log_unavailable": drops}))])

    log = open_log(tmp_path / "log.db", mode="read")
    stated = [decode_record(one) for _, one in log.records()][full:]
    log.close()
    sink.close()
    assert stated == [Manifest("p", full, NOW, {"log_unavailable": 1_999})]
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < before + LIMIT / 4


def test_a_manifest_fits_however_far_the_last_batch_exceeded_the_limit(tmp_path: Path) -> None:
    sink = LocalLogSink(tmp_path / "log.db", max_bytes=LIMIT, min_free_bytes=0)
    records = make_records([make_case(f"s-{n}") for n in range(5_000)])
    batch_of = LIMIT // LOG_BATCHES // records[0].size
    log = open_log(tmp_path / "log.db", mode="append")
    while log.used_bytes() < LIMIT * 0.99:
        sink.append([records.pop()])
    sink.append(records[:batch_of])
    assert log.used_bytes() > LIMIT * (1 + RESERVE_SHARE)
    log.close()

    with pytest.raises(SinkError):
        sink.append(records[batch_of:])
    sink.append([encode_manifest(Manifest("p", 1, NOW, {"log_unavailable": 1}))])

    sink.close()


def test_drops_are_on_the_log_however_full_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    recorder = Recorder(str(path), log_max_bytes=LIMIT, queue_max_bytes=1 << 16)
    for number in range(600):
        with recorder.turn(user="hello", session_id=f"s-{number}") as turn:
            turn.respond("x" * 4_000)
        if number % 50 == 0:
            recorder.flush(1.0)
    recorder.close()

    counters = recorder.counters()
    log = open_log(path, mode="read")
    records = [decode_record(one) for _, one in log.records()]
    log.close()
    stated = [one for one in records if isinstance(one, Manifest)][-1]
    assert counters.dropped["log_unavailable"] > 0
    assert dict(stated.drops) == dict(counters.dropped)
    assert stated.closing
    assert len(records) < 600
    assert stated.highest_seq + sum(stated.drops.values()) == 600


def test_it_warns_before_turns_are_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink = LocalLogSink(tmp_path / "log.db", max_bytes=LIMIT, min_free_bytes=0)

    with caplog.at_level(logging.WARNING, logger="evaltap.recorder"):
        fill(sink)

    (warning,) = [one.getMessage() for one in caplog.records]
    assert "of its limit of 1,048,576 bytes" in warning
    assert "evaltap consume" in warning
    sink.close()


def test_the_doctor_warns_at_four_fifths_by_the_limit_of_the_recorder(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    sink = LocalLogSink(path, max_bytes=LIMIT, min_free_bytes=0)
    sink.append(batch(1))
    assert log_diagnostic(str(path), 1 << 30).severity == "ok"

    full = fill(sink)
    found = log_diagnostic(str(path), 1 << 30)
    assert (found.severity, "is full" in found.found) == ("problem", True)
    assert "1,048,576" in found.found

    landed(path, full // 6)
    assert "is nearly full" in log_diagnostic(str(path), 1 << 30).found
    landed(path, full)
    assert log_diagnostic(str(path), 1 << 30).severity == "ok", "what was landed makes room"
    sink.close()
