"""Statements that only look as if they read, and values that would fill the memory of a consumer."""

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import SHARED_MEMORY
from evaltap.evaluator.store.errors import NotReadingError
from evaltap.evaluator.store.remote.client import RemoteReader
from evaltap.evaluator.store.remote.messages import socket_path
from evaltap.recorder import Recorder
from evaltap.schemas.errors import EvaltapError
from support.builders.waiting import wait_for

CHANGES = [
    "SET GLOBAL memory_limit='1MB'",
    "SET GLOBAL max_expression_depth=3",
    "SET GLOBAL lock_configuration=true",
    "SET threads=1",
    "RESET threads",
    "PRAGMA default_order='DESC'",
    "PRAGMA/**/threads=1",
    "CALL enable_logging()",
    "CHECKPOINT",
    "VACUUM",
    "LOAD json",
    "COMMIT",
    "USE memory",
    "DELETE FROM meta",
    "PREPARE p AS SET threads=1",
    "COPY meta TO 'x.csv'",
    "ATTACH ':memory:' AS other",
    "CREATE MACRO m() AS TABLE FROM query('FROM enable_logging()')",
]
SOURCES = [
    "enable_logging()",
    "enable_logging/**/()",
    "enable_logging--\n()",
    '"enable_logging"/**/()',
    "Enable_Logging ( )",
    "main.enable_logging()",
    "force_checkpoint /* */ ()",
    "checkpoint()",
    "query('FROM enable_log'||'ging()')",
    "query_table('meta')",
    "json_execute_serialized_sql/**/(json_serialize_sql('FROM meta'))",
    "truncate_duckdb_logs()",
    "disable_optimizer()",
    "read_text('/etc/passwd')",
    "duckdb_logs()",
]
HIDDEN = [
    *CHANGES,
    *(f"EXPLAIN ANALYZE {one}" for one in CHANGES),
    *(f"/* SELECT */ {one}" for one in CHANGES),
    *(f"EXPLAIN (ANALYZE) {one}" for one in CHANGES[:3]),
    "EXPLAIN ANALYZE EXPLAIN SELECT 1",
    "EXPLAIN /* ANALYZE */ ANALYZE -- SELECT\n SET threads=1",
    *(f"FROM {one}" for one in SOURCES),
    *(f"EXPLAIN ANALYZE FROM {one}" for one in SOURCES),
    *(f"WITH a AS (FROM {one}) FROM a" for one in SOURCES[:9]),
    *(f"SELECT (SELECT count(*) FROM {one})" for one in SOURCES[:9]),
    *(f"CREATE TEMP TABLE t AS FROM {one}" for one in SOURCES[:9]),
    *(f"CREATE TEMP VIEW v AS SELECT * FROM (FROM {one})" for one in SOURCES[:9]),
    *(f"INSERT INTO t FROM {one}" for one in SOURCES[:9]),
    "CREATE TEMP MACRO m() AS TABLE FROM query('FROM enable_log'||'ging()')",
    "CREATE TEMP TABLE t (a INT DEFAULT write_log('x'))",
    "SELECT write_log('x')",
    "SELECT 1; SET threads=1",
    "SELECT 'x'.write_log()",
]
REFUSED = (NotReadingError, duckdb.ParserException, duckdb.CatalogException)
LARGE = [
    "SELECT repeat('x', 2000000000)",
    "SELECT len(range(100000000))",
    "SELECT lpad('x', 600000000, 'yz')",
    "SELECT a||b||c FROM"
    " (SELECT repeat('x', 200000000) a, repeat('y', 200000000) b, repeat('z', 200000000) c)",
    "SELECT repeat('x', 300000000)",
    "SELECT sum(len(repeat('x', 10000000))) FROM range(100000)",
    "WITH RECURSIVE r(s, n) AS (SELECT 'x', 1 UNION ALL SELECT s||s, n+1 FROM r WHERE n < 40)"
    " SELECT max(len(s)) FROM r",
    "SELECT replace(repeat('x', 100000), 'x', repeat('y', 100000))",
    "SELECT levenshtein(repeat('a', 300000), repeat('b', 300000))",
    "SELECT string_agg(repeat('x', 100000), '') FROM range(100000)",
    "SELECT list(repeat('x', 100000)) FROM range(100000)",
    "SELECT len(list_resize([1], 1000000000, 7))",
    "SELECT format('{:>1500000000}', 'x')",
]  # fmt: skip


@pytest.fixture(scope="module")
def consumer(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Path, "subprocess.Popen[str]"]]:
    """Return a store that a consumer holds, and the consumer."""
    folder = tmp_path_factory.mktemp("held")
    log, db = folder / "log.db", folder / "x.duckdb"
    with Recorder(log) as recorder:
        for number in range(200):
            with recorder.turn(session_id=f"s-{number}", user="u") as turn:
                turn.respond("a " * 100)
    consume = ["consume", "--log", str(log), "--db", str(db)]
    assert main([*consume, "--until-idle"]) == 0
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("evaltap")), *consume],
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(socket_path(db).exists)
    yield db, process
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=30)
    assert process.returncode == 0, said


def reader_of(db: Path) -> RemoteReader:
    reader = RemoteReader.of(db)
    assert reader is not None
    return reader


def settings_of(db: Path) -> dict[str, Any]:
    with reader_of(db) as reader:
        return dict(reader.rows("SELECT name, value FROM duckdb_settings()"))


def settled(db: Path) -> dict[str, Any]:
    """Return the settings once the consumer has limited its memory, and set all that goes with it."""
    before: dict[str, Any] = {}
    while (found := settings_of(db)) != before or found["max_memory"].endswith("GiB"):
        before = found
        time.sleep(0.05)
    return found


def files_beside(db: Path) -> set[str]:
    """Return the names of the files there, without the log that the consumer writes as it likes."""
    return {path.name for path in db.parent.iterdir()} - {f"{db.name}.wal"}


def test_no_wrapped_statement_changes_anything(
    consumer: tuple[Path, "subprocess.Popen[str]"],
) -> None:
    db, process = consumer
    before, files = settled(db), files_beside(db)

    for statement in HIDDEN:
        with closing(reader_of(db)) as reader, pytest.raises(REFUSED):
            reader.rows(statement)

    assert process.poll() is None
    assert settings_of(db) == before
    assert files_beside(db) == files
    assert len(HIDDEN) > 60


@pytest.mark.parametrize(
    "statement",
    ["EXPLAIN SELECT 1", "EXPLAIN ANALYZE FROM meta", "/* why */ EXPLAIN -- so\n FROM meta",
     "DESCRIBE meta", "SHOW TABLES", "SUMMARIZE meta", "WITH a AS (FROM range(3)) FROM a",
     "SELECT 'FROM enable_logging()'", "SELECT 1 AS \"set threads\"", "VALUES (1)", "FROM duckdb_tables()"],
)  # fmt: skip
def test_what_only_reads_is_answered(
    consumer: tuple[Path, "subprocess.Popen[str]"], statement: str
) -> None:
    with reader_of(consumer[0]) as reader:
        assert reader.rows(statement)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the growth of a process")
def test_no_value_takes_the_memory_or_the_time_of_the_consumer(
    consumer: tuple[Path, "subprocess.Popen[str]"], capfd: pytest.CaptureFixture[str]
) -> None:
    db, process = consumer
    for statement in LARGE:
        began = time.monotonic()
        with reader_of(db) as reader:
            reader.seconds = 5
            with suppress(duckdb.Error, EvaltapError):
                reader.rows(statement)
        took = time.monotonic() - began
        print(f"{took:5.1f} s, peak {megabytes(process.pid)} MB: {statement[:70]}")

        assert took < 20, statement
        # One asks for 10 GB.
        assert megabytes(process.pid) < 4 * SHARED_MEMORY, statement
        assert process.poll() is None
    with reader_of(db) as reader:
        assert reader.rows("SELECT count(*) FROM turns") == [(200,)]


def megabytes(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024
