"""The local log: appended records are stored in order, and foreign files are not modified."""

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaltap.schemas.errors import InputError
from evaltap.schemas.log import opening
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.opening import FORMAT_VERSION
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records

RECORDS = make_records([make_case(f"s-{n}") for n in range(5)])


def test_records_are_read_back_in_order_with_growing_offsets(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db", mode="append")

    last = log.append(RECORDS)

    assert log.read(0, 100) == list(enumerate(RECORDS, start=1))
    assert log.read(4, 1) == [(4, RECORDS[3])]
    assert (last, log.start_offset(), log.end_offset()) == (5, 1, 6)
    log.close()


def test_offsets_are_never_given_twice_even_after_trimming(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db", mode="append")
    log.append(RECORDS)

    assert log.trim(before_offset=99) == 5
    empty = (log.start_offset(), log.end_offset(), log.read(0, 10))
    log.append(RECORDS[:1])

    assert empty == (6, 6, [])
    assert [offset for offset, _ in log.read(0, 10)] == [6]
    log.close()


def test_erasing_what_is_trimmed_already_erases_nothing_else(tmp_path: Path) -> None:
    with closing(open_log(tmp_path / "log.db", mode="append")) as log:
        log.append(make_records([make_case("a"), make_case("b")]))
        log.trim(2)

        log.erase([1])

        assert log.erased() == []
        assert [offset for offset, _ in log.records()] == [2]


def test_a_failed_batch_leaves_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db", mode="append")
    nothing_that_sqlite_takes: Any = object()
    unusable = WireRecord(b"k", nothing_that_sqlite_takes, (("x", b"1"),))

    with pytest.raises(sqlite3.Error):
        log.append([*RECORDS, unusable])
    log.append(RECORDS[:1])

    assert len(log.read(0, 10)) == 1
    log.close()


def test_the_file_is_for_its_owner_only_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        log = open_log(tmp_path / "log.db", mode="append")
        log.append(RECORDS)
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
        log.close()
    finally:
        os.umask(before)

    assert modes == dict.fromkeys(("log.db", "log.db-wal", "log.db-shm"), 0o600)


def test_a_cursor_moves_forward_only_and_survives(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db", mode="append")
    assert log.cursor("kafka") == 0

    log.move_cursor("kafka", 7)
    log.move_cursor("kafka", 3)
    log.close()

    log = open_log(tmp_path / "log.db", mode="append")
    assert log.cursor("kafka") == 7
    log.close()


def test_a_log_keeps_its_id_and_another_file_has_another(tmp_path: Path) -> None:
    first = open_log(tmp_path / "a.db", mode="append")
    second = open_log(tmp_path / "b.db", mode="append")
    again = open_log(tmp_path / "a.db", mode="read")

    assert first.log_id == again.log_id != second.log_id
    for log in (first, second, again):
        log.close()


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_log(tmp_path / "log.db", mode="append").close()
    log = open_log(tmp_path / "log.db", mode="read")

    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        log.append(RECORDS)
    log.close()


def test_many_processes_may_be_the_first_to_open_it(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom evaltap.schemas.log.local import open_log\n"
        "from evaltap.schemas.wire.record import WireRecord\n"
        "log = open_log(sys.argv[1], mode='append')\n"
        "for n in range(20): log.append([WireRecord(b'k', b'%d' % n)])\n"
        "print(log.log_id)"
    )
    path = tmp_path / "log.db"

    running = [
        subprocess.Popen([sys.executable, "-c", program, path], stdout=subprocess.PIPE)
        for _ in range(4)
    ]
    ids = {process.communicate()[0] for process in running}

    log = open_log(path, mode="read")
    assert [process.returncode for process in running] == [0] * 4
    assert len(ids) == 1
    assert [offset for offset, _ in log.read(0, 1000)] == list(range(1, 81))
    log.close()


def make_text(path: Path) -> None:
    path.write_text("this is a diary, not a database\n" * 10)


def make_database(path: Path) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE mine (x)")
    connection.close()


def make_newer(path: Path) -> None:
    open_log(path, mode="append").close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT_VERSION + 1}")
    connection.close()


@pytest.mark.parametrize("mode", ["append", "read"])
@pytest.mark.parametrize(
    ("make", "said"),
    [
        (make_text, "not an evaltap log"),
        (make_database, "not an evaltap log"),
        (make_newer, "upgrade evaltap"),
        (Path.mkdir, "directory"),
    ],
)
def test_what_is_no_log_is_refused_and_left_as_it_is(
    tmp_path: Path, make: object, said: str, mode: str
) -> None:
    path = tmp_path / "x.db"
    make(path)  # type: ignore[operator]  # one of the functions above
    before = path.read_bytes() if path.is_file() else b""

    with pytest.raises(InputError, match=said):
        open_log(path, mode=mode)  # type: ignore[arg-type]  # one of the two literals

    assert (path.read_bytes() if path.is_file() else b"") == before


@pytest.mark.parametrize(
    ("path", "mode", "said"),
    [
        ("absent.db", "read", "no log at"),
        ("absent/log.db", "read", "no log at"),
        ("absent/log.db", "append", "does not exist; create it first"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused_with_a_remedy(
    tmp_path: Path, path: str, mode: str, said: str
) -> None:
    with pytest.raises(InputError, match=said):
        open_log(tmp_path / path, mode=mode)  # type: ignore[arg-type]  # one of the two literals


def test_an_empty_file_becomes_a_log_for_a_writer_and_is_none_for_a_reader(tmp_path: Path) -> None:
    path = tmp_path / "log.db"
    path.touch()

    with pytest.raises(InputError, match="empty"):
        open_log(path, mode="read")
    open_log(path, mode="append").close()
    open_log(path, mode="read").close()


def test_a_row_with_damaged_headers_is_still_returned(tmp_path: Path) -> None:
    log = open_log(tmp_path / "log.db", mode="append")
    log.append(RECORDS[:1])
    log.connection.execute("UPDATE records SET headers = '{nonsense'")

    ((_, record),) = log.read(0, 10)

    assert (record.value, record.headers) == (RECORDS[0].value, ())
    log.close()


def test_after_the_machine_went_down_no_offset_is_given_that_a_reader_may_have_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "log.db"
    monkeypatch.setattr(opening, "boot_id", lambda: "first")
    log = open_log(path, mode="append")
    seen = log.append(RECORDS)
    log.close()
    open_log(path, mode="append").close()
    again = open_log(path, mode="append")
    assert again.end_offset() == seen + 1
    again.close()

    monkeypatch.setattr(opening, "boot_id", lambda: "second")
    after = open_log(path, mode="append")

    assert after.append(RECORDS[:1]) == seen + 1 + opening.SKIPPED_AFTER_BOOT
    assert [record for _, record in after.read(0, 100)] == [*RECORDS, RECORDS[0]]
    after.close()
    open_log(path, mode="append").close()
    reader = open_log(path, mode="read")
    assert reader.end_offset() == seen + 2 + opening.SKIPPED_AFTER_BOOT
    reader.close()


def test_a_second_power_cut_does_not_bring_back_offsets_that_were_given_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, left = tmp_path / "a.log.db", tmp_path / "left.log.db"
    monkeypatch.setattr(opening, "boot_id", lambda: "first")
    open_log(path, mode="append").close()
    monkeypatch.setattr(opening, "boot_id", lambda: "second")
    log = open_log(path, mode="append")
    seen = log.append(RECORDS)
    left.write_bytes(path.read_bytes())  # nothing of the journal had reached the disk
    log.close()

    monkeypatch.setattr(opening, "boot_id", lambda: "third")
    after = open_log(left, mode="append")

    assert after.append(RECORDS[:1]) > seen
    after.close()


def test_several_may_open_a_new_log_at_the_same_moment(tmp_path: Path) -> None:
    def opened(path: Path, together: threading.Barrier) -> str:
        together.wait(10)
        log = open_log(path, mode="append")
        log.close()
        return log.log_id

    with ThreadPoolExecutor(4) as pool:
        for number in range(30):
            together = threading.Barrier(4)
            path = tmp_path / f"{number}.log.db"
            asked = [pool.submit(opened, path, together) for _ in range(4)]

            assert len({one.result() for one in asked}) == 1, "they all see the one log"
