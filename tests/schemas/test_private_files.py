"""Files that only their owner can read."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from evaltap.schemas.files.private import private_file


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_file_is_its_owners_and_a_replaced_one_keeps_its_mode(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(b"before")
    old.chmod(0o640)

    for path in (new, old):
        with private_file(path) as file:
            file.write(b"after")

    assert (new.read_bytes(), old.read_bytes()) == (b"after", b"after")
    assert (mode(new), mode(old)) == (0o600, 0o640)


def test_a_file_that_is_not_finished_leaves_the_old_one_and_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")

    def write_half() -> None:
        with private_file(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()

    assert os.listdir(tmp_path) == ["x"]
    assert path.read_bytes() == b"before"


def test_a_link_that_waits_beside_the_file_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "x.tmp").symlink_to(victim)

    with private_file(tmp_path / "x") as file:
        file.write(b"new")

    assert victim.read_bytes() == b"mine"


def test_a_database_is_not_replaced_but_a_text_about_one_is(tmp_path: Path) -> None:
    log, store, text = tmp_path / "log", tmp_path / "store", tmp_path / "text"
    with closing(sqlite3.connect(log)) as connection:
        connection.execute("CREATE TABLE t (x)")
    duckdb.connect(str(store)).close()
    text.write_bytes(b"SQLite format 3 is what a log begins with")

    for path in (log, store):
        before = path.read_bytes()
        with pytest.raises(FileExistsError, match="it is a database"), private_file(path) as file:
            file.write(b"after")
        assert path.read_bytes() == before
    with private_file(text) as file:
        file.write(b"after")

    assert text.read_bytes() == b"after"
