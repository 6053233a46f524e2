"""Files of older versions: opened by today's code, nothing in them changed, and consumed on."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path

import duckdb
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import SCHEMA_VERSION, Store
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.opening import SKIPPED_AFTER_BOOT, boot_id

DATA = Path(__file__).parent.parent / "data" / "upgrade"
LAYOUTS = sorted(
    (path.name for path in DATA.iterdir() if path.is_dir()),
    key=lambda name: int(name.rpartition("-")[2]),
)
KEPT = (
    "cases",
    "turns",
    "tool_calls",
    "dead_letters",
    "offsets",
    "manifests",
    "scores",
    "turn_scores",
)


@pytest.fixture(params=LAYOUTS)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a folder with the log, database and metrics of an older version."""
    for name in ("log.db", "x.duckdb"):
        (tmp_path / name).write_bytes(
            gzip.decompress((DATA / request.param / f"{name}.gz").read_bytes())
        )
    metrics = (DATA / request.param / "metrics.json").read_bytes()
    (tmp_path / "metrics.json").write_bytes(metrics)
    return tmp_path


def consume(folder: Path) -> int:
    return main(
        ["consume", "--log", str(folder / "log.db"), "--db", str(folder / "x.duckdb"),
         "--metrics", str(folder / "metrics.json"), "--until-idle"]
    )  # fmt: skip


def test_there_is_a_file_of_every_older_layout() -> None:
    assert [f"layout-{number}" for number in range(1, SCHEMA_VERSION)] == LAYOUTS


def test_an_upgrade_makes_the_tables_of_a_new_file_and_changes_no_row(old: Path) -> None:
    tables = "SELECT table_name FROM duckdb_tables() ORDER BY 1"
    with duckdb.connect(str(old / "x.duckdb"), read_only=True) as before:
        columns = {
            table: [name for (name,) in before.execute(
                "SELECT column_name FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index",
                [table]).fetchall()]
            for table in KEPT
        }  # fmt: skip
        rows = {
            table: before.execute(f"SELECT {', '.join(names)} FROM {table} ORDER BY ALL").fetchall()
            for table, names in columns.items()
        }

    with Store(old / "x.duckdb") as store, Store(":memory:") as new:
        after = {
            table: store.rows(f"SELECT {', '.join(names)} FROM {table} ORDER BY ALL")
            for table, names in columns.items()
        }
        assert store.rows(tables) == new.rows(tables)

    assert after == rows
    assert len(rows["turns"]) == 10


@pytest.mark.slow
def test_an_older_log_and_database_are_consumed_on_where_they_stood(old: Path) -> None:
    assert consume(old) == 1
    assert_all_landed_once(old)


@pytest.mark.slow
@pytest.mark.parametrize("old", [LAYOUTS[0], LAYOUTS[-1]], indirect=True)
def test_the_next_run_after_an_upgrade_changes_nothing(old: Path) -> None:
    assert (consume(old), consume(old)) == (1, 1)
    assert_all_landed_once(old)


def assert_all_landed_once(folder: Path) -> None:
    with Store(folder / "x.duckdb") as store:
        assert store.rows(
            "SELECT count(*), count(DISTINCT (eval_id, invocation_id)) FROM turns"
        ) == [(12, 12)]
        assert store.rows("SELECT eval_id, status FROM latest_scores ORDER BY 1") == [
            ("s-0", "failed"), ("s-1", "passed"), ("s-2", "passed"), ("s-3", "passed"), ("s-4", "passed"),
        ]  # fmt: skip
        assert store.rows("SELECT count(*) FROM dead_letters") == [(1,)]
        assert store.rows("SELECT count(*) FROM offsets WHERE next_offset = 15") == [(1,)]


def test_an_older_log_is_appended_to(old: Path) -> None:
    with closing(sqlite3.connect(old / "log.db")) as file:
        noted = file.execute("SELECT value FROM meta WHERE name = 'boot_id'").fetchone()
    rebooted = (
        noted is not None and noted[0] != boot_id()
    )  # the file was written on another machine
    log = open_log(old / "log.db", mode="append")
    before = log.read(0, 100)

    last = log.append([before[0][1]])

    assert before[-1][0] == 14
    assert last == 15 + (SKIPPED_AFTER_BOOT if rebooted else 0)
    assert [record for _, record in log.read(0, 100)] == [*(r for _, r in before), before[0][1]]
    log.close()


@pytest.mark.parametrize("old", [LAYOUTS[0], LAYOUTS[-1]], indirect=True)
@pytest.mark.parametrize(
    "command", [["report"], ["runs"], ["doctor", "--db"], ["store", "dlq", "list"], ["why", "s-0"]]
)
def test_commands_read_an_older_database(old: Path, command: list[str]) -> None:
    path = str(old / "x.duckdb")
    arguments = ["why", path, "s-0"] if command[0] == "why" else [*command, path]

    assert main(arguments) in (0, 1, 3)
