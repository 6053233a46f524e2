"""Steps that a store's user defers: in order, visible to the next reader, none after a failed one."""

import threading
from pathlib import Path

import pytest

from evaltap.evaluator.store.database import MOST_WAITING, Store


def write(store: Store, value: str) -> None:
    with store.transaction():
        store.append("meta", [("step", value)])


def written(store: Store) -> list[str]:
    return [value for (value,) in store.rows("SELECT value FROM meta WHERE key = 'step'")]


def test_steps_are_taken_in_order_by_another_thread_and_seen_by_whoever_reads_next(
    tmp_path: Path,
) -> None:
    threads = set()
    with Store(tmp_path / "x.duckdb") as store:

        def step(value: str) -> None:
            threads.add(threading.current_thread())
            write(store, value)

        for number in range(20):
            store.run_in_background(lambda number=number: step(str(number)))  # type: ignore[misc]

        assert written(store) == [str(number) for number in range(20)]
    assert len(threads) == 1
    assert threading.current_thread() not in threads


def test_who_leaves_many_steps_behind_waits_for_the_first_of_them() -> None:
    taken = threading.Semaphore(0)
    may_go = threading.Event()
    with Store(":memory:") as store:

        def step() -> None:
            may_go.wait(10)
            taken.release()

        for _ in range(MOST_WAITING):
            store.run_in_background(step)
        threading.Timer(0.05, may_go.set).start()
        store.run_in_background(step)

        assert taken.acquire(blocking=False), "one was done before the last one was let in"


def test_after_a_step_that_failed_none_is_taken_and_its_error_is_raised(tmp_path: Path) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        begun = threading.Event()

        def fail() -> None:
            begun.wait(10)
            raise OSError("the disk is gone")

        store.run_in_background(fail)
        store.run_in_background(lambda: write(store, "after"))
        begun.set()
        with pytest.raises(OSError, match="disk is gone"):
            written(store)

        assert written(store) == []


def test_closing_raises_what_a_step_raised(tmp_path: Path) -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    store = Store(tmp_path / "x.duckdb")
    store.run_in_background(fail)

    with pytest.raises(OSError, match="disk is gone"):
        store.close()
    Store(tmp_path / "x.duckdb", create=False).close()


def test_the_file_is_an_ordinary_database_to_everybody_else(tmp_path: Path) -> None:
    import duckdb

    with Store(tmp_path / "x.duckdb") as store:
        write(store, "here")

    with duckdb.connect(str(tmp_path / "x.duckdb"), read_only=True) as connection:
        assert ("step", "here") in connection.execute("FROM meta").fetchall()
        views = connection.execute("SELECT view_name FROM duckdb_views() WHERE NOT internal")
        for (view,) in views.fetchall():
            connection.execute(f"FROM {view}").fetchall()
