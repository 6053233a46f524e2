"""Commands read a store while a consumer holds it, and say what they say of a free file."""

import gzip
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import duckdb
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import BusyError, NotReadingError, StoreHeldError, TooSlowError
from evaltap.evaluator.store.remote.client import RemoteReader, open_to_read
from evaltap.evaluator.store.remote.messages import LONGEST, packed, socket_path, unpacked
from evaltap.evaluator.store.remote.server import MOST_READERS, served
from support.builders.waiting import wait_for

DATA = Path(__file__).parent.parent / "data" / "upgrade" / "layout-7"
ENDLESS = "SELECT sum(random()) FROM range(100_000_000_000)"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Path]]:
    """Return a store that a consumer holds, and one with the same rows that is free."""
    folder = tmp_path_factory.mktemp("stores")
    (folder / "log.db").write_bytes(gzip.decompress((DATA / "log.db.gz").read_bytes()))
    shutil.copy(DATA / "metrics.json", folder)
    held, free = folder / "held.duckdb", folder / "free.duckdb"
    consume = ["consume", "--log", str(folder / "log.db"), "--db", str(held), "--metrics",
               str(folder / "metrics.json")]  # fmt: skip
    assert main([*consume, "--until-idle"]) == 1
    assert main(["review", "add", str(held), "status:failed"]) == 0
    assert main(["set", "export", str(held), "--out", str(folder / "set.evalset.json")]) == 0
    shutil.copy(held, free)
    consumer = subprocess.Popen([str(Path(sys.executable).with_name("evaltap")), *consume])
    try:
        wait_for(lambda: is_listening(held))
        yield held, free
    finally:
        consumer.send_signal(signal.SIGTERM)
        assert consumer.wait(30) == 0
    assert not socket_path(held).exists()


def is_listening(path: Path) -> bool:
    try:
        with closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.connect(str(socket_path(path)))
    except OSError:
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ["report", "{db}"],
        ["report", "{db}", "--json"],
        ["report", "{db}", "--filter", "status:failed", "--json"],
        ["report", "{db}", "--filter", "tool:nothing"],
        ["runs", "{db}", "--json"],
        ["cases", "{db}"],
        ["cases", "{db}", "status:failed sort:worst", "--json"],
        ["show", "{db}", "s-0"],
        ["show", "{db}", "nobody"],
        ["why", "{db}", "s-0"],
        ["estimate", "{db}"],
        ["set", "export", "{db}", "--out", "{out}.jsonl"],
        ["set", "export", "{db}", "--filter", "status:failed", "--out", "{out}.evalset.json"],
        ["compare", "{db}", "{db}"],
        ["set", "coverage", "{db}", "--set", "{set}"],
        ["doctor", "--db", "{db}"],
        ["store", "dlq", "list", "{db}"],
        ["review", "list", "{db}"],
        ["review", "export", "{db}"],
        ["sql", "SELECT * FROM v_pass_rate", "--db", "{db}"],
        ["sql", "FROM latest_turns ORDER BY ALL", "--db", "{db}", "--json"],
        [
            "sql",
            "SELECT eval_id, tools, outcome FROM curation_turns ORDER BY ALL",
            "--db",
            "{db}",
            "--csv",
        ],
        ["sql", "SELECT 1 WHERE false", "--db", "{db}", "--csv"],
        ["sql", "SELECT nothing", "--db", "{db}"],
        ["sql", "DELETE FROM turns", "--db", "{db}"],
        ["sql", "SET threads = 1", "--db", "{db}"],
        ["sql", "FROM read_csv('/etc/passwd')", "--db", "{db}"],
        ["sql", "SELECT 1; SELECT 2", "--db", "{db}"],
        ["sql", ENDLESS, "--db", "{db}", "--seconds", "1"],
    ],
    ids=" ".join,
)
def test_a_command_says_the_same_of_a_held_and_a_free_file(
    stores: tuple[Path, Path], command: list[str], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    said = []
    for db in stores:
        out = tmp_path / db.stem
        code = main(
            [word.format(db=db, out=out, set=db.with_name("set.evalset.json")) for word in command]
        )
        printed, errors = capfd.readouterr()
        written = [path.read_text().replace(db.stem, "X") for path in tmp_path.glob(f"{db.stem}.*")]
        said.append((code, *(text.replace(db.stem, "X") for text in (printed, errors)), written))

    assert said[0] == said[1]
    assert said[0][0] in (0, 1, 2, 3)
    assert said[0][1] or said[0][2] or said[0][3]


@pytest.mark.slow
def test_the_live_run_is_running_while_its_consumer_does(
    stores: tuple[Path, Path], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    said = []
    for db in stores:
        assert main(["runs", str(db)]) == 0
        said.append(capfd.readouterr().out)

    assert ["running" in one for one in said] == [True, False]
    assert "stopped, last score" in said[1]


@pytest.mark.slow
def test_what_writes_says_who_holds_the_file(
    stores: tuple[Path, Path], capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["review", "approve", str(stores[0]), "x", "--as", "ann"]) == 2
    assert "open in another process" in capfd.readouterr().err


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "x.duckdb") as opened, served(opened):
        yield opened


def reader_of(store: Store) -> RemoteReader:
    reader = RemoteReader.of(store.path)
    assert reader is not None
    return reader


def test_values_come_as_duckdb_has_them(store: Store) -> None:
    query = """SELECT NULL, true, 1::BIGINT, 170141183460469231731687303715884105727, 1.5, 'NaN'::DOUBLE > 1,
      'text', 'x'::BLOB, TIMESTAMP '2026-11-23 12:00:00.123',
      DATE '2026-11-23', TIME '12:30', INTERVAL 90 MINUTE, 1.25::DECIMAL(9,2), uuid() IS NULL,
      UUID '00000000-0000-0000-0000-00000000000a', [1, NULL], {'a': [DATE '2026-01-01']},
      MAP {1: 'x', 2: 'y'}, 'inf'::DOUBLE, -9223372036854775808"""
    with reader_of(store) as reader:
        assert reader.rows(query) == store.rows(query)
        assert reader.records("SELECT 1 AS a, 2 AS b") == [{"a": 1, "b": 2}]
        for given in (7, "x", datetime(2026, 1, 1), [1, 2], None):
            assert reader.rows("SELECT $v", {"v": given}) == store.rows("SELECT $v", {"v": given})
            assert reader.rows("SELECT ?", [given]) == store.rows("SELECT ?", [given])


@pytest.mark.parametrize(
    "value",
    [2**63, -(2**63) - 1, 2**63 - 1, Decimal("1.20"), UUID(int=7), date(1, 1, 1), clock(1, 2, 3),
     timedelta(days=-1, microseconds=5), {"a": {1: (2, [3])}, (1, 2): b"x"}, datetime(9999, 1, 1)],
    ids=repr,
)  # fmt: skip
def test_a_value_is_what_it_was_before_it_was_packed(value: Any) -> None:
    import msgspec

    assert unpacked(msgspec.msgpack.decode(msgspec.msgpack.encode(packed(value)))) == value


def test_a_reader_has_temporary_tables_streams_and_one_state(store: Store) -> None:
    columns = "SELECT '' AS name, 0::BIGINT AS number, now()::TIMESTAMP AS moment LIMIT 0"
    rows = [(f"n{n}", n, datetime(2026, 1, 1)) for n in range(5_000)]
    with reader_of(store) as reader, reader.scratch(columns, rows=rows) as chosen:
        store.append("meta", [("step", "later")])

        seen = []
        for chunk in reader.stream(f"SELECT number FROM {chosen} ORDER BY 1", size=700):
            seen += [number for (number,) in chunk]
            assert reader.rows("SELECT count(*) FROM meta WHERE key = 'step'") == [(0,)]
        assert seen == [*range(5_000)]
        assert len(reader.rows("FROM range(20000)")) == 20_000
        with reader_of(store) as other, pytest.raises(duckdb.CatalogException):
            other.rows(f"FROM {chosen}")
    with reader_of(store) as other:
        assert other.rows("SELECT value FROM meta WHERE key = 'step'") == [("later",)]


@pytest.mark.parametrize(
    "statement",
    ["SET threads = 8", "ATTACH ':memory:' AS m", "COPY meta TO 'x.csv'", "CHECKPOINT", "COMMIT",
     "FROM force_checkpoint()", "FROM enable_logging()", "CALL truncate_duckdb_logs()"],
)  # fmt: skip
def test_a_reader_may_only_read(store: Store, statement: str) -> None:
    with reader_of(store) as reader:
        with pytest.raises(NotReadingError):
            reader.rows(statement)
        for other in ("DELETE FROM meta", "CREATE TABLE x (i INTEGER)"):
            with pytest.raises(NotReadingError):
                reader.rows(other)
        for other in ("DROP TABLE meta", "INSERT INTO meta VALUES ('a', 'b')"):
            with pytest.raises(duckdb.Error, match="read-only"):
                reader.rows(other)
        with pytest.raises(NotReadingError):
            reader.rows("FROM read_text('/etc/passwd')")
        assert reader.rows("SELECT count(*) > 0 FROM meta") == [(True,)]


def test_only_the_user_can_connect_and_only_so_many_at_once(store: Store) -> None:
    assert stat.S_IMODE(os.stat(socket_path(store.path)).st_mode) == 0o600
    readers = [reader_of(store) for _ in range(MOST_READERS)]
    assert all(reader.rows("SELECT 1") for reader in readers)

    with pytest.raises(BusyError, match="commands are already reading it"):
        reader_of(store)
    for reader in readers:
        reader.close()
    wait_for(lambda: store.gate.is_read is False)
    with reader_of(store) as reader:
        assert reader.rows("SELECT 1")


def test_a_reader_that_takes_too_long_ends(store: Store) -> None:
    with reader_of(store) as reader:
        reader.seconds = 0.3
        with pytest.raises(TooSlowError):
            reader.rows(ENDLESS)


@pytest.mark.slow
def test_a_reader_learns_that_the_file_was_opened_anew(store: Store) -> None:
    with reader_of(store) as reader:
        reader.rows("SELECT 1")
        store.reopen()
        with pytest.raises(BusyError, match=r"run the command again|has ended"):
            reader.rows("SELECT 1")
    with reader_of(store) as again:
        assert again.rows("SELECT 1")


def test_nonsense_on_the_socket_harms_nobody(store: Store) -> None:
    for nonsense in (b"", b"x", b"\xff\xff\xff\xff", b"\0\0\0\5hello", b"GET / HTTP/1.1\r\n\r\n"):
        with closing(socket.socket(socket.AF_UNIX)) as connection:
            connection.connect(str(socket_path(store.path)))
            connection.sendall(nonsense)
    with reader_of(store) as reader:
        assert reader.rows("SELECT 1") == [(1,)]


def test_memory_is_given_while_somebody_reads_and_taken_back(store: Store) -> None:
    setting = "SELECT current_setting('memory_limit')"
    with store.limited_memory(64):
        with reader_of(store) as reader:
            assert reader.rows(setting) == [("488.2 MiB",)]
        wait_for(lambda: store.rows(setting) == [("61.0 MiB",)])


@pytest.mark.slow
def test_a_long_path_has_its_socket_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = tmp_path / "run"
    runtime.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime)[:LONGEST])
    folder = tmp_path / ("x" * 80)
    folder.mkdir()
    with Store(folder / "x.duckdb") as store:
        if len(os.fsencode(runtime)) < LONGEST - 60:
            with served(store), reader_of(store) as reader:
                assert reader.rows("SELECT 1") == [(1,)]
            assert not (folder / "x.duckdb.sock").exists()


@pytest.mark.slow
def test_a_dead_consumers_socket_is_no_door(tmp_path: Path) -> None:
    hold = (
        "import sys, time, os\n"
        "from evaltap.evaluator.store.database import Store\n"
        "store = Store(sys.argv[1]); print('open', flush=True); time.sleep(60)"
    )
    path = tmp_path / "x.duckdb"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(socket_path(path)))
    with subprocess.Popen(
        [sys.executable, "-c", hold, str(path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        with pytest.raises(StoreHeldError, match=f"process {holder.pid}"):
            open_to_read(path)
        holder.kill()
    with open_to_read(path) as store:
        assert isinstance(store, Store)
        with served(store), reader_of(store) as reader:
            assert reader.rows("SELECT 1")
