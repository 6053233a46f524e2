"""The contract of a sink, for every sink."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cases import make_case, make_records
from evaltap.recorder.sinks.base import Sink, SinkError
from evaltap.recorder.sinks.local_log import LocalLogSink
from evaltap.recorder.sinks.memory import MemorySink
from evaltap.schemas.local_log import open_log
from evaltap.schemas.record import WireRecord

RECORDS = make_records([make_case(f"s-{n}") for n in range(7)])

Opened = tuple[Sink, Callable[[], list[WireRecord]]]
"""A sink and a look at what it has taken."""


@pytest.fixture(params=["memory", "local log"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Opened]:
    if request.param == "memory":
        memory = MemorySink()
        yield memory, lambda: memory.records
        return
    path = tmp_path / "log.db"

    def taken() -> list[WireRecord]:
        if not path.exists():
            return []
        log = open_log(path, mode="read")
        records = [record for _, record in log.read(0, 1000)]
        log.close()
        return records

    yield LocalLogSink(path), taken


def test_batches_are_taken_in_order(opened: Opened) -> None:
    sink, taken = opened

    sink.append(RECORDS[:3])
    sink.append(RECORDS[3:])

    assert taken() == RECORDS
    sink.close()


def test_what_was_taken_is_there_before_flush_and_close(opened: Opened) -> None:
    sink, taken = opened

    sink.append(RECORDS)
    before = taken()

    assert sink.flush(1.0)
    sink.close()
    assert before == taken() == RECORDS


def test_an_empty_batch_is_taken(opened: Opened) -> None:
    sink, taken = opened

    sink.append([])

    assert taken() == []
    sink.close()


def test_nothing_waits_behind_a_sink_without_a_broker(opened: Opened) -> None:
    sink, _ = opened

    sink.append(RECORDS)

    assert sink.backlog() == 0
    sink.close()


def test_closing_without_a_record_is_fine(opened: Opened) -> None:
    sink, taken = opened

    sink.close()

    assert taken() == []


class TestLocalLogSink:
    """What only the file can suffer."""

    def test_it_opens_nothing_before_the_first_batch(self, tmp_path: Path) -> None:
        LocalLogSink(tmp_path / "log.db").close()

        assert list(tmp_path.iterdir()) == []

    def test_a_full_log_refuses_and_keeps_what_it_has(self, tmp_path: Path) -> None:
        sink = LocalLogSink(tmp_path / "log.db", max_bytes=60_000)
        large = make_records([make_case(extra="x" * 30_000)])
        sink.append(large)
        sink.append(large)

        with pytest.raises(SinkError, match="limit"):
            sink.append(large)

        log = open_log(tmp_path / "log.db", mode="read")
        assert len(log.read(0, 100)) == 2
        log.close()
        sink.close()

    def test_a_disk_with_little_room_is_left_to_the_agent(self, tmp_path: Path) -> None:
        sink = LocalLogSink(tmp_path / "log.db", min_free_share=1.0)

        with pytest.raises(SinkError, match="of the disk"):
            sink.append(RECORDS)
        sink.close()

    def test_a_deleted_file_is_made_again(self, tmp_path: Path) -> None:
        sink = LocalLogSink(tmp_path / "log.db")
        sink.append(RECORDS[:1])
        for path in tmp_path.iterdir():
            path.unlink()

        sink.append(RECORDS[1:3])

        log = open_log(tmp_path / "log.db", mode="read")
        assert [record for _, record in log.read(0, 10)] == RECORDS[1:3]
        log.close()
        sink.close()

    def test_a_deleted_directory_refuses_until_it_is_back(self, tmp_path: Path) -> None:
        folder = tmp_path / "logs"
        folder.mkdir()
        sink = LocalLogSink(folder / "log.db")
        sink.append(RECORDS[:1])
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

        with pytest.raises(SinkError, match="no directory"):
            sink.append(RECORDS[1:2])
        folder.mkdir()
        sink.append(RECORDS[1:2])

        log = open_log(folder / "log.db", mode="read")
        assert [record for _, record in log.read(0, 10)] == RECORDS[1:2]
        log.close()
        sink.close()

    def test_a_foreign_file_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "log.db"
        path.write_text("dear diary, " * 50)

        with pytest.raises(SinkError, match="no evaltap log"):
            LocalLogSink(path).append(RECORDS)

        assert path.read_text() == "dear diary, " * 50


class TestMemorySink:
    """What only the list has."""

    def test_it_forgets_the_oldest_beyond_its_limit(self) -> None:
        sink = MemorySink(limit=3)

        sink.append(RECORDS)

        assert sink.records == RECORDS[-3:]
        assert [case["evalId"] for case in sink.cases] == ["s-4", "s-5", "s-6"]
