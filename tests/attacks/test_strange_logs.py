"""Untrusted SQLite files that pose as evaltap logs and do more than contain records."""

import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import open_log
from support.builders.cases import make_case, make_records, write_log

ENDLESS = (
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
    " SELECT i AS \"offset\", x'' AS key, '[]' AS headers, x'' AS value, 0.0 AS appended_at FROM n"
    " WHERE i < 0"
)
ATTACKS = {
    "a view that never ends in place of the records": [
        "DROP TABLE records", f"CREATE VIEW records AS {ENDLESS}",
    ],
    "a view that never ends in place of the cursors": [
        "DROP TABLE cursors",
        "CREATE VIEW cursors AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
        " SELECT i AS name, i AS next_offset, 0.0 AS updated_at FROM n WHERE i < 0",
    ],
    "a trigger that erases what a reader has read": [
        "CREATE TRIGGER t AFTER INSERT ON cursors BEGIN DELETE FROM records; END",
    ],
    "a trigger on a table of its own": [
        "CREATE TABLE mine (x)",
        "CREATE TRIGGER t AFTER INSERT ON mine BEGIN DELETE FROM records; END",
    ],
    "a column that is computed for each row": [
        "DROP TABLE records",
        'CREATE TABLE records ("offset" INTEGER PRIMARY KEY, key BLOB, headers TEXT, appended_at REAL,'
        " value BLOB AS (zeroblob(900000000)))",
        'INSERT INTO records ("offset", key, headers, appended_at) VALUES (1, x\'\', \'[]\', 0)',
    ],
    "an index on an expression": ["CREATE INDEX i ON records (hex(zeroblob(1000)))"],
    "another table of that name": [
        "DROP TABLE meta", "CREATE TABLE meta (name TEXT, value TEXT, CHECK (length(value) < 100))",
    ],
    "another table of trimmed records": [
        "CREATE TABLE trimmed (producer_id TEXT PRIMARY KEY, last_seq INTEGER, headers TEXT, value BLOB)",
        "INSERT INTO trimmed VALUES ('p', 'x', 'nope', x'00')",
    ],
    "a virtual table": [
        "DROP TABLE cursors", "CREATE VIRTUAL TABLE cursors USING fts5(name, next_offset, updated_at)",
    ],
    "a hundred thousand tables' worth of schema": [
        f"CREATE TABLE t{number} (x)" for number in range(300)
    ],
    "no records at all": ["DROP TABLE records"],
}  # fmt: skip


def strange_log(folder: Path, statements: Sequence[str]) -> Path:
    path = folder / "agent.log.db"
    write_log(path, make_records([make_case(f"e{n}") for n in range(3)]))
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


@pytest.mark.parametrize("name", ATTACKS)
def test_a_log_that_does_more_than_hold_records_is_refused_at_once(
    tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = strange_log(tmp_path, ATTACKS[name])
    began = time.monotonic()

    code = main(["consume", "--log", str(path), "--db", str(tmp_path / "x.duckdb"), "--until-idle"])

    assert (code, time.monotonic() - began < 10) == (2, True)
    assert "differs from evaltap's schema" in capsys.readouterr().err
    with pytest.raises(InputError, match="name the file that a recorder wrote"):
        open_log(path, mode="append")


def test_a_log_that_somebody_analysed_is_still_a_log(tmp_path: Path) -> None:
    path = strange_log(tmp_path, ["ANALYZE", "CREATE TABLE notes (text)"])

    with closing(open_log(path, mode="read")) as log:
        assert len([*log.records()]) == 3


@pytest.mark.parametrize("limit", ["²", "9" * 5_000, "-5", ""])
def test_an_odd_limit_of_a_log_is_none(tmp_path: Path, limit: str) -> None:
    path = strange_log(tmp_path, [])
    with closing(sqlite3.connect(path)) as connection:
        for name in ("max_bytes", "trimmed_until"):
            connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, limit))
        connection.commit()

    assert main(["doctor", "--log", str(path)]) in (0, 1)
