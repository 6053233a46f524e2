"""Untrusted DuckDB files: their content must not read the reader's files, or run indefinitely."""

import json
import os
from collections.abc import Callable, Iterator
from contextlib import chdir, suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import StoreError
from support.builders.cases import NOON, SAYS_YES, make_case, make_records, make_turn, write_log
from support.servers.page_server import served
from support.worlds.once import made_once

SECRET = "ssh-private-key-of-the-reader"
VIEWS_OF_REPORTS = ("latest_scores", "latest_cases", "latest_turns", "v_pass_rate", "v_worst_cases")


@made_once
def scored(folder: Path) -> Path:
    (folder / "id_rsa").write_text(SECRET)
    case = make_case(turns=[make_turn(answer="On Monday.")])
    case["conversation"] = [make_turn("e-1", "On Tuesday.")]
    (folder / "c.jsonl").write_text(json.dumps(case) + "\n")
    metric = {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}},
    }
    (folder / "m.json").write_text(json.dumps([metric]))
    with chdir(folder):
        assert main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"]) == 1
    return folder / "x.duckdb"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return scored(tmp_path).parent


def reports() -> Iterator[tuple[int, str]]:
    """Read the file in every way; yield exit codes and what came out."""
    commands = [
        *(["report", "x.duckdb", "--out", f"r.{kind}"] for kind in ("html", "md", "json", "xml")),
        ["report", "x.duckdb"],
        ["runs", "x.duckdb", "--json"],
        ["show", "x.duckdb", "s-1"],
        ["why", "x.duckdb", "s-1"],
        ["set", "export", "x.duckdb", "--out", "e.evalset.json"],
        ["estimate", "x.duckdb"],
        ["score", "x.duckdb", "--metrics", "m.json", "--retry"],
    ]  # fmt: skip
    for command in commands:
        try:
            code = main(command)
        except SystemExit as ended:  # an option that this command does not have
            code = int(str(ended.code))
        yield code, command[0]


def change(statements: Callable[[duckdb.DuckDBPyConnection], Any]) -> None:
    with duckdb.connect("x.duckdb") as connection:
        statements(connection)


def everything_written(folder: Path) -> str:
    ours = {folder / "id_rsa", folder / "x.duckdb", folder / "x.duckdb.wal"}
    files = [path for path in folder.rglob("*") if path.is_file() and path not in ours]
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS_OF_REPORTS)
def test_a_view_of_the_file_is_replaced_by_ours(
    folder: Path, view: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def poison(connection: duckdb.DuckDBPyConnection) -> None:
        columns = [name for name, *_ in connection.execute(f"DESCRIBE {view}").fetchall()]
        chosen = ", ".join(
            f"(SELECT content FROM read_text('id_rsa')) AS {name}" if kind == "VARCHAR" else name
            for name, kind, *_ in connection.execute(f"DESCRIBE {view}").fetchall()
        )
        old = connection.execute(
            "SELECT sql FROM duckdb_views() WHERE view_name = ?", [view]
        ).fetchall()[0][0]
        assert columns
        connection.execute(f"CREATE VIEW hidden AS {old.partition(' AS ')[2]}")
        connection.execute(f"CREATE OR REPLACE VIEW {view} AS SELECT {chosen} FROM hidden")

    change(poison)
    codes = [*reports()]

    assert any(code in (0, 1) for code, _ in codes), codes
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err + everything_written(folder)


@pytest.mark.parametrize("table", ["scores", "cases", "turns", "meta", "runs", "offsets"])
def test_a_view_in_the_place_of_a_table_is_refused(
    folder: Path, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def poison(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(f"ALTER TABLE {table} RENAME TO hidden")
        described = connection.execute("DESCRIBE hidden").fetchall()
        first = next(name for name, kind, *_ in described if kind == "VARCHAR")
        connection.execute(
            f"CREATE VIEW {table} AS SELECT * REPLACE"
            f" ((SELECT content FROM read_text('id_rsa')) AS {first}) FROM hidden"
        )

    change(poison)

    for code, command in reports():
        assert code == 2, command
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err + everything_written(folder)
    assert f"{table} is a view" in said.err


@pytest.mark.slow
def test_a_function_in_the_place_of_duckdbs_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stolen = "SELECT content AS table_name FROM read_text('id_rsa')"
    change(lambda c: c.execute(f"CREATE MACRO date_trunc(a, b) AS ({stolen})"))
    change(lambda c: c.execute(f"CREATE MACRO duckdb_tables() AS TABLE {stolen}"))

    for code, command in reports():
        assert code == 2, command
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err + everything_written(folder)
    assert "contains functions" in said.err


def test_a_trigger_is_refused_before_it_can_change_what_is_written(folder: Path) -> None:
    change(
        lambda c: c.execute(
            "CREATE TRIGGER amends AFTER INSERT ON turns FOR EACH STATEMENT"
            " UPDATE scores SET status = 'passed'"
        )
    )

    with pytest.raises(StoreError, match=r"contains triggers \(amends\)"):
        Store("x.duckdb")


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "SELECT * FROM read_text('id_rsa')",
        "SELECT * FROM read_blob('/proc/self/environ')",
        "SELECT * FROM 'id_rsa.csv'",
        "SELECT * FROM glob('*')",
        "COPY (SELECT 1) TO 'out.csv'",
        "ATTACH 'other.duckdb'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET enable_external_access = true",
        "SET allowed_directories = ['/']",
    ],
)
def test_no_sql_of_an_open_store_reaches_outside(folder: Path, statement: str) -> None:
    (folder / "id_rsa.csv").write_text(f"a\n{SECRET}\n")
    with Store("x.duckdb") as store, pytest.raises(duckdb.Error):
        store.rows(statement)
    with Store("x.duckdb") as store:
        store.reopen()
        with pytest.raises(duckdb.Error):
            store.rows(statement)


def test_a_file_cannot_name_a_folder_for_its_results(folder: Path) -> None:
    other = folder / "somebody's"
    other.mkdir()

    def poison(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("INSERT INTO meta VALUES ('results_folder', ?)", [str(other)])
        for word in ("", "..", ".", "readers", "a/../b"):
            connection.execute("INSERT INTO meta VALUES ('results_folder_word', ?)", [word])

    change(poison)
    with pytest.raises(StoreError, match="does not know this file"):
        Store("x.duckdb")


def test_files_of_several_consumers_are_read_in_the_same_way(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["score", "c.jsonl", "--metrics", "m.json", "--db", "y.duckdb"])

    def poison(connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute("ALTER TABLE scores RENAME TO hidden")
        connection.execute(
            "CREATE VIEW scores AS SELECT * REPLACE"
            " ((SELECT content FROM read_text('id_rsa')) AS reason) FROM hidden"
        )

    change(poison)
    capsys.readouterr()

    assert main(["report", "x.duckdb", "y.duckdb"]) == 2
    said = capsys.readouterr()
    assert SECRET not in said.out + said.err
    assert "scores is a view" in said.err


def test_views_of_ones_own_stay_and_ours_are_not_written_again(folder: Path) -> None:
    change(lambda c: c.execute("CREATE VIEW mine AS SELECT count(*) AS n FROM scores"))
    before = (folder / "x.duckdb").read_bytes()

    with Store("x.duckdb") as store:
        assert store.rows("SELECT n FROM mine") == [(1,)]

    assert (folder / "x.duckdb").read_bytes() == before


def test_a_store_that_lacks_a_column_is_refused_with_what_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with duckdb.connect("x.duckdb") as connection:
        views = "SELECT view_name FROM duckdb_views() WHERE NOT internal"
        for (view,) in connection.execute(views).fetchall():
            connection.execute(f'DROP VIEW "{view}"')
        connection.execute("ALTER TABLE turns DROP COLUMN user_text")

    assert main(["report", "x.duckdb"]) == 2

    error = capsys.readouterr().err
    assert "x.duckdb: its tables are not those of layout" in error
    assert "land the log again into a new file" in error


@pytest.mark.slow
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE meta SET value = 'five' WHERE key = 'schema_version'",
        "ALTER TABLE scores DROP COLUMN reason",
        "ALTER TABLE runs ALTER COLUMN run_id SET DATA TYPE VARCHAR[] USING [run_id]",
        "UPDATE scores SET status = NULL",
    ],
)
def test_tables_of_another_shape_are_a_message(
    folder: Path, statement: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with duckdb.connect("x.duckdb") as connection, suppress(duckdb.Error):
        for view in ("latest_scores", "v_pass_rate", "v_worst_cases"):
            connection.execute(f"DROP VIEW {view}")
        connection.execute(statement)

    for code, command in reports():
        assert code in (0, 1, 2, 3), command


@pytest.mark.parametrize(
    ("statement", "found"),
    [
        ("UPDATE scores SET status = '<b>'", "a score has the status '<b>'"),
        ("UPDATE turns SET actual_json = '{'", "a case is not valid JSON"),
        ("UPDATE cases SET case_json = '{'", "a case is not valid JSON"),
        (
            "ALTER TABLE turns ALTER landed_seq DROP NOT NULL; UPDATE turns SET landed_seq = NULL",
            "turns have no position",
        ),
    ],
)
def test_rows_that_evaltap_did_not_write_are_a_message(
    tmp_path: Path, statement: str, found: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "x.duckdb")
    case = make_case(turns=[make_turn(answer="On Monday.")])
    case["conversation"] = [make_turn("e-1", "On Tuesday.")]
    write_log(tmp_path / "log.db", make_records([case]))
    metric = {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}},
    }
    (tmp_path / "m.json").write_text(json.dumps([metric]))
    arguments = ["--log", str(tmp_path / "log.db"), "--metrics", str(tmp_path / "m.json")]
    assert main(["consume", *arguments, "--db", path, "--until-idle"]) == 1
    with duckdb.connect(path) as connection:
        connection.execute(statement)

    assert main(["report", path, "--out", str(tmp_path / "r.html")]) == 2
    assert found in capsys.readouterr().err


def test_a_case_that_no_eval_set_can_hold_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tmp_path / "x.duckdb")
    case = make_case("odd")
    case["actualConversation"][0]["creationTimestamp"] = 1e300
    write_log(tmp_path / "log.db", make_records([case]))
    main(["consume", "--log", str(tmp_path / "log.db"), "--db", path, "--until-idle"])

    assert main(["set", "export", path, "--out", str(tmp_path / "e.evalset.json")]) == 2
    assert "case 'odd'" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("time", ["0001-01-01 00:00:00", "9999-12-31 23:59:59"])
def test_a_turn_at_an_end_of_the_calendar_ends_no_command(tmp_path: Path, time: str) -> None:
    path = tmp_path / "x.duckdb"
    began = NOON.timestamp()
    turn = make_turn(answer="yes", creationTimestamp=began, telemetry={"latencyMs": 100.0})
    write_log(tmp_path / "log.db", make_records([make_case(turns=[turn])]))
    (tmp_path / "m.json").write_text(json.dumps([SAYS_YES]))
    (tmp_path / "watches.json").write_text(
        json.dumps({"watch": [
            {"name": "errors", "signal": "error_rate"},
            {"name": "slow", "signal": "mean_latency", "above": 50},
        ]})
    )  # fmt: skip
    main(["consume", "--log", str(tmp_path / "log.db"), "--db", str(path),
          "--metrics", str(tmp_path / "m.json"), "--until-idle"])  # fmt: skip
    with Store(path) as store:
        store.execute(f"UPDATE turns SET started_at = TIMESTAMP '{time}'")

    assert main(["estimate", str(path), "--by", "day"]) == 0
    assert main(["report", str(path), "--by", "hour"]) == 0
    replay = ["monitor", "replay", str(path), "--rules", str(tmp_path / "watches.json")]
    assert main(replay) == 3, "not enough data"
    with served(path, tmp_path) as page:
        assert [page.ask(one).status for one in ("/", "/coverage")] == [200, 200]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_a_name_of_duckdb_is_no_file_of_the_folder(folder: Path, kind: str) -> None:
    if kind == "file":
        (folder / ":memory:").write_text("not a database")
    else:
        (folder / ":memory:").mkdir()

    with Store(":memory:") as one, Store(":memory:") as other:
        assert one.rows("SELECT 1") == other.rows("SELECT 1") == [(1,)]


def test_a_pipe_is_no_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo(tmp_path / "pipe.duckdb")

    assert main(["report", str(tmp_path / "pipe.duckdb")]) == 2
    assert "is a pipe or device; expected a DuckDB file" in capsys.readouterr().err


def test_a_name_of_millions_of_characters_is_cut(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change(lambda store: store.execute("UPDATE turn_scores SET metric_name = repeat('a', 2000000)"))

    assert main(["show", "x.duckdb", "s-1"]) == 0
    said = capsys.readouterr().out
    assert "more characters, see --json" in " ".join(said.split())
    assert len(said) < 100_000
