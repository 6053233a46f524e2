"""The contract of a case source, for every source."""

import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Protocol

import pytest

from evaltap.evaluator.ingest.sources.base import CaseSource, Partition, SourceBatch, SourceRecord
from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.location import KafkaClientName
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records, write_log
from support.builders.memory_source import MemorySource
from support.builders.topics import location, publish
from support.servers.broker import Broker

RECORDS = make_records([make_case(f"s-{n}") for n in range(7)])
BROKEN = WireRecord(b"\xff", b"\x00not json", (("schema", b"?"),))


class Held(Protocol):
    """A log of some kind: open it as often as you like, append to it from elsewhere."""

    def open(self) -> CaseSource: ...

    def append(self, records: Sequence[WireRecord]) -> None: ...


def next_batch(source: CaseSource, most: int = 100) -> SourceBatch:
    """Return the next batch with records: a broker's come when they come."""
    while not (batch := source.poll(most, 0.2)).records:
        pass
    return batch


def read(source: CaseSource, count: int, most: int = 100) -> list[SourceRecord]:
    """Return so many records, read in batches of at most so many."""
    found: list[SourceRecord] = []
    while len(found) < count:
        records = next_batch(source, most).records
        assert len(records) <= most
        found += records
    return found


class Contract:
    """What every source of cases does; the fixture `held` is a log of RECORDS of one kind.

    That of raw OTLP is left out: its records are made of others, and have no place of their own.
    """

    def test_all_records_come_in_order_in_batches_of_the_asked_size(self, held: Held) -> None:
        with closing(held.open()) as source:
            assert [item.record for item in read(source, len(RECORDS), most=3)] == RECORDS
            assert source.poll(3, 0).records == ()

    def test_a_restart_at_the_stored_offsets_misses_and_repeats_nothing(self, held: Held) -> None:
        with closing(held.open()) as source:
            first = next_batch(source, 3)

        with closing(held.open()) as again:
            again.seek(first.next_offsets)
            rest = read(again, len(RECORDS) - len(first.records))

        assert [item.record for item in (*first.records, *rest)] == RECORDS

    def test_offsets_of_other_logs_mean_nothing_to_this_one(self, held: Held) -> None:
        with closing(held.open()) as source:
            source.seek({Partition("elsewhere", 3): 5})

            assert len(read(source, len(RECORDS))) == len(RECORDS)

    def test_each_record_knows_its_place_and_the_batch_where_to_go_on(self, held: Held) -> None:
        with closing(held.open()) as source:
            batch = next_batch(source)

            (partition,) = source.bounds()
            offsets = [item.offset for item in batch.records]
            assert offsets == sorted(set(offsets))
            assert {item.partition for item in batch.records} == {partition}
            assert batch.next_offsets == {partition: offsets[-1] + 1}
            assert source.bounds()[partition] == (offsets[0], offsets[0] + len(RECORDS))

    def test_what_is_appended_later_is_read_later(self, held: Held) -> None:
        with closing(held.open()) as source:
            read(source, len(RECORDS))
            before = source.poll(100, 0)

            held.append(RECORDS[:2])

            assert (before.records, before.next_offsets) == ((), {})
            assert [item.record for item in read(source, 2)] == RECORDS[:2]

    def test_a_waiting_poll_returns_as_soon_as_something_arrives(self, held: Held) -> None:
        with closing(held.open()) as source:
            read(source, len(RECORDS))
            appending = threading.Timer(0.05, held.append, [RECORDS[:1]])
            appending.start()

            batch = source.poll(100, 60)

            assert len(batch.records) == 1
            appending.join()

    def test_closing_ends_a_waiting_poll(self, held: Held) -> None:
        source = held.open()
        read(source, len(RECORDS))
        closes = threading.Timer(0.05, source.close)
        closes.start()

        batch = source.poll(100, 60)

        assert batch.records == ()
        closes.join()

    def test_a_broken_record_comes_through_byte_for_byte(self, held: Held) -> None:
        held.append([BROKEN])
        with closing(held.open()) as source:
            last = read(source, len(RECORDS) + 1)[-1].record

        assert (last.key, last.value) == (BROKEN.key, BROKEN.value)


class Memory:
    """The twin in memory."""

    def __init__(self) -> None:
        self._records = list(RECORDS)
        self._opened: list[MemorySource] = []

    def open(self) -> CaseSource:
        self._opened.append(MemorySource(self._records))
        return self._opened[-1]

    def append(self, records: Sequence[WireRecord]) -> None:
        self._records += records
        for source in self._opened:
            source.append(records)


class LocalLog:
    """A file."""

    def __init__(self, path: Path) -> None:
        self._path = write_log(path, RECORDS)

    def open(self) -> CaseSource:
        return LocalLogSource(self._path)

    def append(self, records: Sequence[WireRecord]) -> None:
        write_log(self._path, records)


class KafkaTopic:
    """A topic of one partition."""

    def __init__(self, url: str, client: KafkaClientName) -> None:
        self._url = url
        self._client: KafkaClientName = client
        create_topics(location(url), {location(url).topics[0]: 1})
        publish(url, RECORDS)

    def open(self) -> CaseSource:
        source = KafkaSource(location(self._url), client=self._client)
        source.seek({})
        return source

    def append(self, records: Sequence[WireRecord]) -> None:
        publish(self._url, records)


class TestMemory(Contract):
    @pytest.fixture
    def held(self) -> Held:
        return Memory()


class TestLocalLog(Contract):
    @pytest.fixture
    def held(self, tmp_path: Path) -> Held:
        return LocalLog(tmp_path / "log.db")


@pytest.mark.timeout(120)
class TestKafka(Contract):
    @pytest.fixture
    def held(self, broker: Broker, client: KafkaClientName) -> Held:
        return KafkaTopic(broker.log(), client)


def read_all(source: CaseSource) -> None:
    while source.poll(10, 0).records:
        pass


class TestLocalLogAlone:
    """What only the file can suffer."""

    def test_it_reads_while_another_process_writes(self, tmp_path: Path) -> None:
        program = (
            "import sys\nfrom evaltap.schemas.log.local import open_log\n"
            "from evaltap.schemas.wire.record import WireRecord\n"
            "log = open_log(sys.argv[1], mode='append')\nprint(flush=True)\n"
            "for n in range(300): log.append([WireRecord(b'k', b'%d' % n)])"
        )
        path = tmp_path / "log.db"
        writer = subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
        assert writer.stdout is not None
        writer.stdout.readline()
        source = LocalLogSource(path)

        seen: list[bytes | None] = []
        while len(seen) < 300:
            seen += [item.record.value for item in source.poll(50, 30).records]

        assert writer.wait() == 0
        assert seen == [b"%d" % n for n in range(300)]
        source.close()
        writer.stdout.close()

    def test_it_leaves_the_file_as_it_was(self, tmp_path: Path) -> None:
        path = write_log(tmp_path / "log.db", RECORDS)
        before = path.read_bytes()

        source = LocalLogSource(path)
        source.poll(100, 0)
        source.close()

        assert path.read_bytes() == before

    def test_a_moved_log_goes_on_and_a_new_log_at_its_place_starts_anew(
        self, tmp_path: Path
    ) -> None:
        old = write_log(tmp_path / "log.db", RECORDS)
        source = LocalLogSource(old)
        stored = source.poll(5, 0).next_offsets
        source.close()
        moved = old.rename(tmp_path / "moved.db")
        new = write_log(tmp_path / "log.db", RECORDS)

        read = {}
        for path in (moved, new):
            source = LocalLogSource(path)
            source.seek(stored)
            read[path] = len(source.poll(100, 0).records)
            source.close()

        assert read == {moved: 2, new: 7}

    def test_a_log_that_replaces_the_one_being_read_is_read_too(self, tmp_path: Path) -> None:
        path = write_log(tmp_path / "log.db", RECORDS)
        source = LocalLogSource(path)
        first = source.poll(5, 0)
        moved = path.rename(tmp_path / "moved.db")
        path.touch()

        rest = [source.poll(100, 0), source.poll(100, 0)]
        path.unlink()
        write_log(path, RECORDS)
        anew = source.poll(100, 0)
        path.unlink()
        moved.rename(path)

        assert [len(one.records) for one in (first, *rest, anew)] == [5, 2, 0, 7]
        assert first.next_offsets.keys() != anew.next_offsets.keys()
        assert source.poll(100, 0).records == (), "it was read before"
        source.close()

    def test_a_log_that_was_put_back_from_a_copy_is_read_from_its_start(
        self, tmp_path: Path
    ) -> None:
        source = LocalLogSource(write_log(tmp_path / "log.db", RECORDS))

        source.seek({source.partition: 4_000})

        assert [item.record for item in source.poll(100, 0).records] == RECORDS
        source.close()

    def test_trimmed_records_show_in_the_bounds(self, tmp_path: Path) -> None:
        path = write_log(tmp_path / "log.db", RECORDS)
        log = open_log(path, mode="append")
        log.trim(4)
        log.close()

        source = LocalLogSource(path)

        assert list(source.bounds().values()) == [(4, 8)]
        source.close()

    def test_an_absent_log_is_an_error_or_waited_for_as_told(self, tmp_path: Path) -> None:
        path = tmp_path / "log.db"

        with pytest.raises(InputError, match="no log at"):
            LocalLogSource(path)
        source = LocalLogSource(path, must_exist=False)
        before = (source.poll(10, 0).records, source.bounds())
        write_log(path, RECORDS)

        assert before == ((), {})
        assert len(source.poll(10, 0).records) == 7
        source.close()

    def test_a_damaged_file_is_reported_with_a_remedy(self, tmp_path: Path) -> None:
        path = write_log(tmp_path / "log.db", RECORDS * 50)
        source = LocalLogSource(path)
        data = bytearray(path.read_bytes())
        data[4096:] = b"\xa5" * (len(data) - 4096)
        path.write_bytes(data)

        with pytest.raises(InputError, match="move it away"):
            read_all(source)
        source.close()
