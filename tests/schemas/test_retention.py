"""Retention of a local log: records that every consumer has landed may be deleted, and are known as
deleted."""

import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.schemas.log.local import LocalLog, open_log
from evaltap.schemas.log.retention import (
    EXPIRES_SECONDS,
    consumers,
    landed_until,
    limit_of,
    note_limit,
    register,
    trim_landed,
    trimmed,
    trimmed_until,
    waiting_bytes,
)
from evaltap.schemas.wire.record import Manifest, decode_record, encode_manifest
from support.builders.cases import make_case, make_records

NOW = time.time()
MANIFEST = Manifest("p", 10, datetime(2026, 11, 21, tzinfo=UTC), {"queue_full": 3})


@pytest.fixture
def log(tmp_path: Path) -> Iterator[LocalLog]:
    with closing(open_log(tmp_path / "log.db", mode="append")) as log:
        cases = [make_case(f"s-{n}") for n in range(10)]
        log.append([*make_records(cases, producer_id="p"), encode_manifest(MANIFEST)])
        yield log


def offsets(log: LocalLog) -> list[int]:
    return [offset for offset, _ in log.read(0, 100)]


def test_without_a_consumer_nothing_goes(log: LocalLog) -> None:
    assert trim_landed(log) == 0
    assert landed_until(log) == 0
    assert len(offsets(log)) == 11
    assert waiting_bytes(log) == log.used_bytes()


def test_what_every_consumer_has_landed_goes(log: LocalLog) -> None:
    register(log, "fast", 12)
    register(log, "slow", 4)

    assert trim_landed(log) == 3
    assert offsets(log)[0] == trimmed_until(log) == 4
    assert trim_landed(log) == 0
    register(log, "slow", 12)
    assert trim_landed(log) == 8
    assert offsets(log) == []
    assert waiting_bytes(log) == 0


def test_a_consumer_that_was_not_heard_of_for_a_week_holds_nothing_back(log: LocalLog) -> None:
    register(log, "gone", 1)
    log.connection.execute("UPDATE cursors SET updated_at = ?", (NOW - EXPIRES_SECONDS - 60,))
    register(log, "alive", 6)

    assert [one.name for one in consumers(log)] == ["alive"]
    assert trim_landed(log) == 5


def test_what_is_not_old_enough_stays(log: LocalLog) -> None:
    log.connection.execute('UPDATE records SET appended_at = 100.0 + "offset"')
    register(log, "one", 12)

    assert trim_landed(log, older_than=105.0) == 4
    assert offsets(log)[0] == 5


def test_what_is_gone_is_known_with_the_last_word_of_its_producer(log: LocalLog) -> None:
    assert trimmed(log) == {}
    register(log, "one", 8)
    trim_landed(log)
    assert trimmed(log)["p"] == (7, None)

    register(log, "one", 12)
    trim_landed(log)

    found = trimmed(log)["p"]
    assert found.last_seq == 10
    assert found.manifest is not None
    assert decode_record(found.manifest) == MANIFEST


def test_the_cursor_of_a_forwarder_is_no_consumer(log: LocalLog) -> None:
    log.move_cursor("kafka", 12)

    assert trim_landed(log) == 0


def test_its_limit_is_written_down(log: LocalLog) -> None:
    assert limit_of(log) == 0
    note_limit(log, 1 << 20)
    assert limit_of(log) == 1 << 20


def test_a_reader_sees_what_was_trimmed(log: LocalLog, tmp_path: Path) -> None:
    register(log, "one", 5)
    trim_landed(log)

    reader = open_log(tmp_path / "log.db", mode="read")

    assert trimmed(reader)["p"].last_seq == 4
    assert [one.next_offset for one in consumers(reader)] == [5]
    reader.close()


def test_pages_are_used_again_so_the_file_grows_no_further(tmp_path: Path) -> None:
    batch = make_records([make_case(f"s-{n}", text="x" * 2_000) for n in range(50)])
    sizes = []
    with closing(open_log(tmp_path / "log.db", mode="append")) as log:
        for _ in range(12):
            last = log.append(batch)
            register(log, "one", last + 1)
            while trim_landed(log):
                pass
            log.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            sizes.append((tmp_path / "log.db").stat().st_size)

    assert max(sizes[2:]) <= sizes[1] + 16_384


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4))
def test_nothing_that_a_consumer_lacks_ever_goes(landed: list[int]) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        log = open_log(Path(folder) / "log.db", mode="append")
        log.append(make_records([make_case(f"s-{n}") for n in range(11)]))
        for number, offset in enumerate(landed):
            register(log, f"c-{number}", offset)

        trim_landed(log)

        assert offsets(log) == list(range(min(landed), 12))
        log.close()
