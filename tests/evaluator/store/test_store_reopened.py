"""A store that is reopened from time to time, so that DuckDB's memory for the file does not grow."""

import subprocess
import sys
from pathlib import Path

import pytest

from evaltap.evaluator.store import opening
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import StoreHeldError

HOLD = """
import duckdb, sys, time
while True:
    try:
        connection = duckdb.connect(sys.argv[1])
        break
    except duckdb.Error:
        time.sleep(0.001)
time.sleep(float(sys.argv[2]))
"""

OPEN = """
import sys
from evaltap.evaluator.store.database import Store
Store(sys.argv[1]).close()
"""


def add(store: Store, value: str) -> None:
    with store.transaction():
        store.append("meta", [("step", value)])


def values(store: Store) -> list[str]:
    return [value for (value,) in store.rows("SELECT value FROM meta WHERE key = 'step'")]


def limits(store: Store) -> list[tuple[object, ...]]:
    return store.rows("SELECT current_setting('memory_limit'), current_setting('threads')")


def test_what_was_written_is_there_and_what_is_left_behind_is_written_first(tmp_path: Path) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        add(store, "1")
        store.run_in_background(lambda: add(store, "2"))

        store.reopen()
        add(store, "3")

        assert values(store) == ["1", "2", "3"]


def test_a_block_that_writes_much_keeps_its_limits(tmp_path: Path) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        unlimited = limits(store)
        with store.limited_memory(64):
            limited = limits(store)
            store.reopen()
            assert limits(store) == limited != unlimited
        assert limits(store) == unlimited


def test_a_store_in_memory_keeps_what_it_holds() -> None:
    with Store(":memory:") as store:
        add(store, "1")
        store.reopen()
        assert values(store) == ["1"]


def holder(path: Path, seconds: float) -> subprocess.Popen[bytes]:
    """Start a process that opens the file as soon as it can, and keeps it for a while."""
    return subprocess.Popen([sys.executable, "-c", HOLD, str(path), str(seconds)])


def reopen_for_ever(store: Store) -> None:
    while True:
        store.reopen()


@pytest.mark.slow
def test_it_waits_for_a_process_that_comes_in_between(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        add(store, "1")
        with holder(tmp_path / "x.duckdb", 0.5):
            while not caplog.records:
                store.reopen()
        add(store, "2")

        assert values(store) == ["1", "2"]
    assert "open in another process" in caplog.text
    assert "waiting for it" in caplog.text


@pytest.mark.slow
def test_a_process_that_stays_in_the_file_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "HELD_SECONDS", 0.2)
    with (
        Store(tmp_path / "x.duckdb") as store,
        holder(tmp_path / "x.duckdb", 2) as other,
        pytest.raises(StoreHeldError, match=f"process {other.pid}"),
        store.limited_memory(),
    ):
        reopen_for_ever(store)


@pytest.mark.slow
def test_what_does_not_fit_into_memory_lies_beside_the_file_and_goes_with_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)

    with Store(tmp_path / "x.duckdb") as store, store.limited_memory(64):
        store.execute(
            "CREATE TEMP TABLE large AS SELECT repeat('x', 100) || range AS text FROM range(1_000_000)"
        )
        store.execute("CREATE TEMP TABLE sorted AS SELECT * FROM large ORDER BY text DESC")
        spilled = list((tmp_path / "x.duckdb.tmp").iterdir())

    assert spilled
    assert list(elsewhere.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir() if path != elsewhere] == ["x.duckdb"]


@pytest.mark.slow
def test_opening_a_file_writes_nothing_to_it(tmp_path: Path) -> None:
    path = tmp_path / "x.duckdb"
    Store(path).close()
    before = path.read_bytes()
    for _ in range(3):  # DuckDB prints sets of names in another order in each process
        subprocess.run([sys.executable, "-c", OPEN, str(path)], check=True)

    assert path.read_bytes() == before
