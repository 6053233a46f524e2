"""The contract of a case source, for every source."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from cases import make_case, make_records, write_log
from evaltap.evaluator.sources.base import CaseSource, Partition
from evaltap.evaluator.sources.local_log import LocalLogSource
from evaltap.evaluator.sources.memory import MemorySource
from evaltap.schemas.errors import InputError
from evaltap.schemas.local_log import open_log
from evaltap.schemas.record import WireRecord

RECORDS = make_records([make_case(f"s-{n}") for n in range(7)])
BROKEN = WireRecord(b"\xff", b"\x00not json", (("schema", b"?"),))


class Held:
    """A log of some kind: open it as often as you like, append to it from elsewhere."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.memory = MemorySource(RECORDS) if kind == "memory" else None
        self.path = folder / "log.db"
        if self.memory is None:
            write_log(self.path, RECORDS)

    def open(self) -> CaseSource:
        if self.memory is None:
            return LocalLogSource(self.path)
        self.memory.seek({})
        return self.memory

    def append(self, records: list[WireRecord]) -> None:
        if self.memory is None:
            write_log(self.path, records)
        else:
            self.memory.append(records)


@pytest.fixture(params=["memory", "local log"])
def held(request: pytest.FixtureRequest, tmp_path: Path) -> Held:
    return Held(request.param, tmp_path)


def test_all_records_come_in_order_in_batches_of_the_asked_size(held: Held) -> None:
    source = held.open()

    batches = [source.poll(3, 0).records for _ in range(4)]

    assert [len(batch) for batch in batches] == [3, 3, 1, 0]
    assert [item.record for batch in batches for item in batch] == RECORDS
    source.close()


def test_a_restart_at_the_stored_offsets_misses_and_repeats_nothing(held: Held) -> None:
    source = held.open()
    first = source.poll(3, 0)

    again = held.open()
    again.seek(first.next_offsets)
    rest = again.poll(100, 0)

    assert [item.record for item in first.records + rest.records] == RECORDS
    again.close()


def test_offsets_of_other_logs_mean_nothing_to_this_one(held: Held) -> None:
    source = held.open()

    source.seek({Partition("elsewhere", 3): 5})

    assert len(source.poll(100, 0).records) == len(RECORDS)
    source.close()


def test_each_record_knows_its_place_and_the_batch_where_to_go_on(held: Held) -> None:
    source = held.open()

    batch = source.poll(100, 0)

    (partition,) = source.bounds()
    offsets = [item.offset for item in batch.records]
    assert offsets == sorted(set(offsets))
    assert {item.partition for item in batch.records} == {partition}
    assert batch.next_offsets == {partition: offsets[-1] + 1}
    assert source.bounds()[partition] == (offsets[0], offsets[-1] + 1)
    source.close()


def test_what_is_appended_later_is_read_later(held: Held) -> None:
    source = held.open()
    source.poll(100, 0)
    before = source.poll(100, 0)

    held.append(RECORDS[:2])

    assert (before.records, before.next_offsets) == ((), {})
    assert [item.record for item in source.poll(100, 0).records] == RECORDS[:2]
    source.close()


def test_a_waiting_poll_returns_as_soon_as_something_arrives(held: Held) -> None:
    source = held.open()
    source.poll(100, 0)
    appending = threading.Timer(0.05, held.append, [RECORDS[:1]])
    appending.start()

    batch = source.poll(100, 60)

    assert len(batch.records) == 1
    appending.join()
    source.close()


def test_closing_ends_a_waiting_poll(held: Held) -> None:
    source = held.open()
    source.poll(100, 0)
    closing = threading.Timer(0.05, source.close)
    closing.start()

    batch = source.poll(100, 60)

    assert batch.records == ()
    closing.join()


def test_a_broken_record_comes_through_byte_for_byte(held: Held) -> None:
    held.append([BROKEN])
    source = held.open()

    last = source.poll(100, 0).records[-1].record

    assert (last.key, last.value) == (BROKEN.key, BROKEN.value)
    source.close()


def read_all(source: CaseSource) -> None:
    while source.poll(10, 0).records:
        pass


class TestLocalLogSource:
    """What only the file can suffer."""

    def test_it_reads_while_another_process_writes(self, tmp_path: Path) -> None:
        program = (
            "import sys\nfrom evaltap.schemas.local_log import open_log\n"
            "from evaltap.schemas.record import WireRecord\n"
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
