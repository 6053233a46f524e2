"""The contract of a sink, for every sink."""

from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.recorder import LocalLogSink, MemorySink, Sink, SinkError
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records
from support.builders.topics import location, messages
from support.servers.broker import Broker

RECORDS = make_records([make_case(f"s-{n}") for n in range(7)])
FLUSH_SECONDS = 30.0


class Place(Protocol):
    """Where a sink puts its records."""

    @property
    def sink(self) -> Sink: ...

    def kept(self) -> list[WireRecord]:
        """Return what outlives the process that took it."""
        ...

    def arrived(self) -> list[WireRecord]:
        """Return what lies at the far end."""
        ...


class Contract:
    """What every sink does; the fixture `place` has a new one, the most that may wait is `waiting`."""

    waiting = 0

    def test_batches_are_taken_in_order(self, place: Place) -> None:
        place.sink.append(RECORDS[:3])
        place.sink.append(RECORDS[3:])

        assert place.kept() == RECORDS
        place.sink.close()

    def test_what_was_taken_is_kept_before_a_flush_and_has_arrived_after_it(
        self, place: Place
    ) -> None:
        place.sink.append(RECORDS)
        before = place.kept()

        assert place.sink.flush(FLUSH_SECONDS)
        assert before == place.arrived() == RECORDS
        place.sink.close()

    def test_what_was_taken_is_kept_by_a_sink_that_closes_without_a_flush(
        self, place: Place
    ) -> None:
        place.sink.append(RECORDS)

        place.sink.close()

        assert place.kept() == RECORDS

    def test_a_flush_goes_on_where_the_last_one_ended(self, place: Place) -> None:
        place.sink.append(RECORDS[:3])
        assert place.sink.flush(FLUSH_SECONDS)

        place.sink.append(RECORDS[3:])
        assert place.sink.flush(FLUSH_SECONDS)

        assert place.arrived() == RECORDS
        place.sink.close()

    def test_an_empty_batch_is_taken(self, place: Place) -> None:
        place.sink.append([])

        assert place.sink.flush(FLUSH_SECONDS)
        assert place.kept() == place.arrived() == []
        place.sink.close()

    def test_nothing_waits_after_a_flush(self, place: Place) -> None:
        place.sink.append(RECORDS)

        assert place.sink.backlog() <= self.waiting
        assert place.sink.flush(FLUSH_SECONDS)
        assert place.sink.backlog() == 0
        place.sink.close()

    def test_closing_without_a_record_is_fine(self, place: Place) -> None:
        assert place.sink.flush(FLUSH_SECONDS)

        place.sink.close()

        assert place.kept() == place.arrived() == []


class Memory:
    """A list."""

    def __init__(self) -> None:
        self.sink = MemorySink()

    def kept(self) -> list[WireRecord]:
        return self.sink.records

    arrived = kept


class LocalLog:
    """A file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.sink = LocalLogSink(path)

    def kept(self) -> list[WireRecord]:
        return records_in(self._path) if self._path.exists() else []

    arrived = kept


class Topic:
    """A topic of one partition, and the spool in front of it."""

    def __init__(self, url: str, spools: Path) -> None:
        self._url, self._spools = url, spools
        create_topics(location(url), {location(url).topics[0]: 1})
        self.sink = KafkaSink(location(url))

    def kept(self) -> list[WireRecord]:
        # In this order: a record leaves the spool when it lies on the topic.
        spooled = [one for path in self._spools.rglob("*.log.db") for one in records_in(path)]
        arrived = self.arrived()
        return arrived + [one for one in spooled if one not in arrived]

    def arrived(self) -> list[WireRecord]:
        return messages(self._url)


def records_in(path: Path) -> list[WireRecord]:
    """Return what a local log holds."""
    with closing(open_log(path, mode="read")) as log:
        return [record for _, record in log.read(0, 1000)]


class TestMemory(Contract):
    @pytest.fixture
    def place(self) -> Place:
        return Memory()


class TestLocalLog(Contract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Place:
        return LocalLog(tmp_path / "log.db")


@pytest.mark.timeout(120)
class TestKafka(Contract):
    waiting = len(RECORDS)

    @pytest.fixture
    def place(self, broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
        monkeypatch.setenv("EVALTAP_SPOOL_DIR", str(tmp_path / "spool"))
        return Topic(broker.log(), tmp_path / "spool")


class TestLocalLogAlone:
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

        assert len(records_in(tmp_path / "log.db")) == 2
        sink.close()

    def test_a_disk_with_little_room_is_left_to_the_agent(self, tmp_path: Path) -> None:
        sink = LocalLogSink(tmp_path / "log.db", min_free_bytes=1 << 60)

        with pytest.raises(SinkError, match="the disk has"):
            sink.append(RECORDS)
        sink.close()

    def test_a_deleted_file_is_made_again(self, tmp_path: Path) -> None:
        sink = LocalLogSink(tmp_path / "log.db")
        sink.append(RECORDS[:1])
        for path in tmp_path.iterdir():
            path.unlink()

        sink.append(RECORDS[1:3])

        assert records_in(tmp_path / "log.db") == RECORDS[1:3]
        sink.close()

    def test_a_deleted_directory_refuses_until_it_is_back(self, tmp_path: Path) -> None:
        folder = tmp_path / "logs"
        folder.mkdir()
        sink = LocalLogSink(folder / "log.db")
        sink.append(RECORDS[:1])
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()

        with pytest.raises(SinkError, match="does not exist; create it first"):
            sink.append(RECORDS[1:2])
        folder.mkdir()
        sink.append(RECORDS[1:2])

        assert records_in(folder / "log.db") == RECORDS[1:2]
        sink.close()

    def test_a_foreign_file_is_refused_and_left_alone(self, tmp_path: Path) -> None:
        path = tmp_path / "log.db"
        path.write_text("dear diary, " * 50)

        with pytest.raises(SinkError, match="not an evaltap log"):
            LocalLogSink(path).append(RECORDS)

        assert path.read_text() == "dear diary, " * 50


class TestMemoryAlone:
    """What only the list has."""

    def test_it_forgets_the_oldest_beyond_its_limit(self) -> None:
        sink = MemorySink(limit=3)

        sink.append(RECORDS)

        assert sink.records == RECORDS[-3:]
        assert [case["evalId"] for case in sink.cases] == ["s-4", "s-5", "s-6"]
