"""Reading a store from other threads while its own thread writes, closes and opens it."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import duckdb
import pytest

from evaltap.evaluator.pipeline.live.background import BackgroundRead
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import (
    BusyError,
    NotReadingError,
    StoreError,
    StoreHeldError,
    TooSlowError,
)
from evaltap.evaluator.store.file_type import is_database
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Readers, shared_reader
from evaltap.evaluator.store.shards import ShardedStore, shards_sql

COUNT = "SELECT count(*) FROM meta"
ENDLESS = "SELECT sum(random()) FROM range(100_000_000_000)"
OPEN_ELSEWHERE = """
import sys
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import StoreHeldError
try:
    Store(sys.argv[1])
except StoreHeldError:
    sys.exit(3)
"""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "x.duckdb") as opened:
        yield opened


def is_refused_elsewhere(path: Path) -> bool:
    """Tell whether another process finds the file held."""
    ended = subprocess.run(
        [sys.executable, "-c", OPEN_ELSEWHERE, str(path)], check=False, capture_output=True
    )
    assert ended.returncode in (0, 3), ended.stderr
    return ended.returncode == 3


def test_a_file_that_is_held_here_stays_held_whatever_else_is_tried(store: Store) -> None:
    link = store.path.with_name("link.duckdb")
    link.symlink_to(store.path)

    for path in (store.path, link):
        assert is_database(path)
        with pytest.raises(StoreHeldError, match="this process has it open already"):
            Store(path)
        with pytest.raises(StoreError, match="this process has it open already"):
            ShardedStore([path])
    store.reopen()
    with pytest.raises(StoreHeldError):
        Store(store.path)

    assert is_refused_elsewhere(store.path)


def test_a_file_that_was_closed_can_be_opened_again(tmp_path: Path) -> None:
    for _ in range(2):
        Store(tmp_path / "x.duckdb").close()

    with pytest.raises(StoreError, match="not evaltap's"):
        make_other(tmp_path / "other.duckdb")
    with pytest.raises(StoreError, match="not evaltap's"):
        Store(tmp_path / "other.duckdb")


def make_other(path: Path) -> None:
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE other (value INTEGER)")
    Store(path)


def test_a_reader_sees_one_state_of_the_store_and_the_next_one_the_newest(store: Store) -> None:
    readers = Readers(store)
    with readers.reading() as first:
        before = first.rows(COUNT)
        store.append("meta", [("step", "1")])
        assert first.rows(COUNT) == before
    with readers.cursor() as cursor:
        assert cursor.execute(COUNT).fetchall() == [(before[0][0] + 1,)]


def test_a_scratch_table_holds_a_query_and_more_rows_within_its_block(store: Store) -> None:
    many = [(f"n{number}", number) for number in range(500)]
    for reader in (store, None):
        with Readers(store).reading() as cursor:
            reads = reader or cursor
            with reads.scratch("SELECT 'a' AS name, 1::BIGINT AS number", rows=many) as chosen:
                assert reads.rows(f"SELECT count(*), sum(number) FROM {chosen}") == [(501, 124_751)]
                assert reads.records(f"FROM {chosen} LIMIT 1") == [{"name": "a", "number": 1}]
                with reads.scratch(f"SELECT number FROM {chosen} WHERE number < 3") as other:
                    assert reads.rows(f"SELECT sum(number) FROM {other}") == [(4,)]

            assert not reads.rows("SELECT 1 FROM duckdb_tables() WHERE temporary")


def test_a_block_that_fails_leaves_no_scratch_table_and_its_own_error(store: Store) -> None:
    with Readers(store).reading() as reader:
        with pytest.raises(duckdb.ConversionException), reader.scratch("SELECT 'a' AS b") as one:
            reader.rows(f"SELECT b::INTEGER FROM {one}")

        assert not reader.rows("SELECT 1 FROM duckdb_tables() WHERE temporary")


def test_a_block_reads_other_rows_under_the_name_of_a_table(store: Store) -> None:
    store.append("meta", [("step", "1")])
    with Readers(store).reading() as reader:
        whole = reader.rows("FROM meta")
        for copied in (False, True):
            fewer = {"meta": "FROM evaltap.main.meta WHERE key = $key"}
            if not copied:
                fewer = {"meta": "FROM evaltap.main.meta WHERE key = 'step'"}
            with reader.seeing(fewer, {"key": "step"} if copied else None, copied=copied):
                assert reader.rows("FROM meta") == [("step", "1")]
            assert reader.rows("FROM meta") == whole


def test_a_stream_goes_on_beside_other_statements(store: Store) -> None:
    with Readers(store).reading() as reader:
        seen: list[int] = []
        for chunk in reader.stream("SELECT range FROM range(5_000)", size=1_000):
            seen += [number for (number,) in chunk]
            assert reader.rows("SELECT 1") == [(1,)]
        assert seen == [*range(5_000)]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO meta VALUES ('a', 'b')",
        "DELETE FROM meta",
        "CREATE TABLE other (value INTEGER)",
        "CREATE VIEW other AS FROM meta",
        "DROP VIEW latest_turns",
        "EXPLAIN ANALYZE DELETE FROM meta",
    ],
)
def test_a_reader_cannot_write(store: Store, statement: str) -> None:
    before = store.rows("FROM meta")
    readers = Readers(store)
    with readers.reading() as reader:
        with pytest.raises(
            (duckdb.Error, NotReadingError), match=r"read-only|expected one that reads"
        ):
            reader.rows(statement)
        assert reader.rows("FROM meta") == before
    with pytest.raises(duckdb.Error, match="read-only"), readers.cursor() as cursor:
        cursor.execute(statement)
    assert store.rows("FROM meta") == before


@pytest.mark.parametrize(
    "statement",
    [
        "SET threads = 8",
        "RESET memory_limit",
        "USE memory",
        "COMMIT",
        "SELECT 1; COMMIT; DELETE FROM meta",
        "ATTACH ':memory:' AS other",
        "COPY meta TO 'x.csv'",
        "PRAGMA memory_limit = '1GB'",
        "CALL enable_logging()",
        "CHECKPOINT",
        "PREPARE p AS DELETE FROM meta",
        "LOAD json",
        "EXPORT DATABASE 'x'",
    ],
)
def test_a_reader_changes_no_setting(store: Store, statement: str) -> None:
    with Readers(store).reading() as reader:
        for run in (reader.rows, reader.records, reader.stream):
            with pytest.raises(NotReadingError, match="expected one that reads"):
                run(statement)


def test_who_takes_too_long_is_interrupted_and_others_go_on(store: Store) -> None:
    readers = Readers(store)

    def read_for_ever() -> None:
        with readers.cursor(seconds=0.2) as cursor:
            cursor.execute(ENDLESS).fetchall()

    with readers.reading(seconds=10) as other:
        before = other.rows(COUNT)
        began = time.monotonic()
        with pytest.raises(TooSlowError, match=r"not read within 0\.2 s"):
            read_for_ever()
        assert time.monotonic() - began < 8
        assert other.rows(COUNT) == before


def test_who_comes_when_too_many_wait_is_turned_away(store: Store) -> None:
    readers = Readers(store, most_waiting=1, at_once=1)
    turned_away: list[str] = []

    def read() -> None:
        try:
            with readers.reading(seconds=10) as reader:
                reader.rows(COUNT)
        except BusyError as error:
            turned_away.append(str(error))

    with readers.reading(seconds=10):
        others = [threading.Thread(target=read) for _ in range(4)]
        for other in others:
            other.start()
        while len(turned_away) < 3:
            time.sleep(0.001)
    for other in others:
        other.join()

    assert len(turned_away) == 3
    assert "1 readers are already waiting" in turned_away[0]


def test_who_gets_no_place_in_time_is_turned_away(store: Store) -> None:
    readers = Readers(store, at_once=1)
    with (
        readers.reading(),
        pytest.raises(BusyError, match="other readers took longer"),
        readers.reading(seconds=0.05),
    ):
        pass


@pytest.mark.slow
def test_opening_anew_waits_for_readers_and_readers_for_it(store: Store) -> None:
    readers = Readers(store)
    failed: list[BaseException] = []
    over = threading.Event()

    def read() -> None:
        try:
            while not over.is_set():
                with readers.reading() as reader:
                    ((before,),) = reader.rows(COUNT)
                    assert reader.rows(COUNT) == [(before,)]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(20):
        store.append("meta", [("step", str(number))])
        store.reopen()
    over.set()
    for thread in threads:
        thread.join()

    assert failed == []
    assert store.rows("SELECT count(*) FROM meta WHERE key = 'step'") == [(20,)]


@pytest.mark.slow
def test_opening_anew_ends_a_reader_that_does_not_end(store: Store) -> None:
    readers = Readers(store)
    began = threading.Event()
    ended: list[str] = []

    def read() -> None:
        try:
            with readers.cursor(seconds=60) as cursor:
                began.set()
                cursor.execute(ENDLESS).fetchall()
        except BusyError as error:
            ended.append(str(error))

    thread = threading.Thread(target=read)
    thread.start()
    began.wait()
    store.reopen()
    thread.join(5)

    assert ended == [
        f"{store.path}: was closed by the process that has it open; run the command again"
    ]
    assert store.rows(COUNT)


@pytest.mark.slow
def test_opening_anew_takes_the_cursor_of_one_that_never_lets_go(store: Store) -> None:
    def read() -> None:
        with Readers(store).reading(seconds=60) as reader:
            reader.rows(COUNT)
            store.reopen()
            reader.rows(COUNT)

    with pytest.raises(BusyError, match="was closed"):
        read()


def test_nobody_reads_a_closed_store(tmp_path: Path) -> None:
    store = Store(tmp_path / "x.duckdb")
    readers = Readers(store)
    store.close()

    with pytest.raises(BusyError, match="is closed"), readers.reading():
        pass


def test_a_store_with_readers_has_memory_for_them(store: Store) -> None:
    def limits() -> list[tuple[object, ...]]:
        return store.rows("SELECT current_setting('memory_limit'), current_setting('threads')")

    with store.limited_memory(64):
        Readers(store)
        shared = limits()
        store.limit_memory(256)
        assert limits() == shared == [("488.2 MiB", 1)]
        store.reopen()
        assert limits() == shared
        with store.unlimited_memory():
            assert limits() != shared
        assert limits() == shared


def test_a_reader_that_comes_as_another_leaves_has_its_memory(store: Store) -> None:
    found: set[str] = set()

    def come_and_leave() -> None:
        for _ in range(40):
            with shared_reader(store, 10) as session:
                found.update(session.reader.rows("SELECT current_setting('memory_limit')")[0])

    with store.limited_memory(48):
        readers = [threading.Thread(target=come_and_leave) for _ in range(4)]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()

    assert found == {"488.2 MiB"}


@pytest.mark.slow
def test_a_limit_that_a_reader_exceeds_holds_when_it_has_left(store: Store) -> None:
    large = "SELECT len(list(i || repeat('x', 60))) FROM range(10_000_000) r(i)"

    def read() -> None:
        with shared_reader(store, 60) as session:
            session.reader.rows(large)

    used = "SELECT sum(memory_usage_bytes) FROM duckdb_memory()"
    store.execute("SET threads = 1")
    reader = threading.Thread(target=read)
    reader.start()  # before there is a limit
    while reader.is_alive() and store.rows(used)[0][0] < 600 << 20:
        time.sleep(0.01)
    with store.limited_memory(64):
        assert reader.is_alive()
        reader.join()
        assert store.rows("SELECT current_setting('memory_limit')") == [("61.0 MiB",)]


def test_rows_of_people_are_written_beside_the_stores_transaction(store: Store) -> None:
    with store.transaction():
        store.append("meta", [("step", "1")])
        with Readers(store).writing() as cursor:
            cursor.execute(
                "INSERT INTO outbox VALUES ('page', now()::TIMESTAMP, 'x', now()::TIMESTAMP)"
            )
    with suppress(StoreError):
        store.reopen()

    assert store.rows("SELECT name FROM outbox") == [("page",)]
    assert store.rows("SELECT value FROM meta WHERE key = 'step'") == [("1",)]


def test_a_file_that_is_named_twice_is_refused_since_its_rows_would_count_twice(
    folder: Path,
) -> None:
    Store(folder / "a.duckdb").close()

    assert shards_sql([Path("a.duckdb")])
    with pytest.raises(StoreError, match="a file is named twice"):
        shards_sql([Path("a.duckdb"), folder / "a.duckdb"])


def test_a_background_read_is_cancelled_when_its_consumer_ends(store: Store) -> None:
    begun = threading.Event()
    reading = BackgroundRead(store, lambda reader: endless(reader, begun), "test", "it failed")
    reading.start()
    assert begun.wait(10)

    began = time.monotonic()
    reading.close()

    assert time.monotonic() - began < 5
    assert store.rows(COUNT)


def test_a_background_read_that_takes_too_long_is_logged_and_ends_nothing(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    reading = BackgroundRead(
        store, lambda reader: endless(reader, threading.Event()), "test", "it failed", seconds=0.2
    )
    reading.start()

    assert reading.take(wait=True) == []
    assert "it failed: " in caplog.text


def endless(reader: StoreReader, begun: threading.Event) -> object:
    """Read for as long as it is allowed."""
    begun.set()
    return reader.rows(ENDLESS)
