"""`evaltap store archive`: Parquet files that are read as the store that they are from, proof for `prune`."""

import json
import random
import shutil
import string
from collections.abc import Callable
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.curation.review.queue import Wanted, add_items, decide, items
from evaltap.evaluator.pipeline.maintenance.archiving import archive
from evaltap.evaluator.store.archives.reading import ArchiveStore
from evaltap.evaluator.store.archives.rows import COPIED, DATED, SUMMARIES, UNDATED
from evaltap.evaluator.store.database import SCHEMA_VERSION, Store, layout
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.schemas.wire.record import encode_case
from support.builders.cases import NOON, SAYS_YES, make_case, make_records, make_turn, write_log

NOW = datetime.now(UTC)
METRICS = [SAYS_YES]
Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def turn(name: str, days: float, answer: str = "yes") -> dict[str, Any]:
    began = (NOW - timedelta(days=days)).timestamp()
    return make_turn(name, answer=answer, creationTimestamp=began)


def fill(cases: list[dict[str, Any]], first_seq: int = 1) -> None:
    """Land cases in x.duckdb and score them."""
    Path("m.json").write_text(json.dumps(METRICS))
    write_log(Path("log.db"), make_records(cases, producer_id="p", first_seq=first_seq))
    consume()


def consume() -> None:
    log = ["--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle", "--json"]
    main(["consume", *log])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a store and its archive."""
    folder = tmp_path_factory.mktemp("made")
    with chdir(folder):
        fill(
            [
                make_case("old", [turn("t-1", 100)]),
                make_case("old", [turn("t-2", 99, "no")]),
                make_case("new", [turn("t-1", 1)]),
            ]
        )
        archive(Path("x.duckdb"), Path("a"))
    return folder


@pytest.fixture
def filled(made: Path) -> None:
    shutil.copytree(made, ".", dirs_exist_ok=True)


def run(capsys: Out, *command: str) -> tuple[int, Any]:
    """Run a command; return its exit code and its JSON, or what it says on stderr."""
    capsys.readouterr()
    code = main([*command])
    found = capsys.readouterr()
    return code, found.err if code == 2 else json.loads(found.out)


def archived(capsys: Out, to: str = "a") -> dict[str, int]:
    """Archive x.duckdb; return the number of new rows by table."""
    code, found = run(capsys, "store", "archive", "x.duckdb", "--to", to, "--json")
    assert code == 0, found
    rows: dict[str, int] = found["rows"]
    return rows


def contents(path: str) -> dict[str, list[str]]:
    """Return the rows of all archived tables of a store or an archive, sorted, without keys of the file."""
    tables = sorted({*DATED, *UNDATED, *COPIED})
    with open_to_read(Path(path)) as store:
        found = {table: sorted(map(repr, store.rows(f"FROM {table}"))) for table in tables}
    found["meta"] = [row for row in found["meta"] if "schema_version" not in row]
    return found


def manifest(folder: str = "a") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "evaltap-archive.json").read_text())
    return found


def files(folder: str = "a") -> dict[str, bytes]:
    """Return the Parquet files of an archive."""
    return {str(one): one.read_bytes() for one in Path(folder).rglob("*.parquet")}


def test_every_table_is_archived_or_computed_from_those_that_are() -> None:
    tables = [*DATED, *UNDATED, *COPIED, *SUMMARIES]

    assert sorted(tables) == sorted(layout().tables)


@pytest.mark.slow
def test_every_table_reads_back_as_it_was(capsys: Out) -> None:
    with Store("x.duckdb") as store:
        for table in {*DATED, *UNDATED, *COPIED} - {"meta", "units"}:
            kinds = store.rows(f"DESCRIBE {table}")
            store.append(table, [[_value(kind) for _, kind, *_ in kinds] for _ in range(5)])
        store.append("meta", [("cluster:topic", "c-1")])

    archived(capsys)

    assert contents("a") == contents("x.duckdb")
    assert main(["store", "archive", "--verify", "a"]) == 0


def _value(kind: str) -> object:
    """Return a value that is hard to store, of a type of DuckDB."""
    text = "".join(random.choices(string.ascii_letters + "\x00\x1f'\"\\ä\n,[]", k=12))
    values: dict[str, object] = {
        "VARCHAR": text,
        "VARCHAR[]": [text, "", None],
        "JSON": json.dumps({"a": text.replace("\x00", ""), "b": [1.0, None]}),
        "BLOB": text.encode(),
        "INTEGER": random.randrange(-(2**31), 2**31),
        "BIGINT": random.randrange(-(2**63), 2**63),
        "DOUBLE": random.uniform(-1e300, 1e300),
        "BOOLEAN": random.random() < 0.5,
        "TIMESTAMP": datetime(1970, 1, 1) + timedelta(microseconds=random.randrange(2**51)),
    }
    return values[kind]


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_files_are_divided_by_table_and_day() -> None:
    day = (NOW - timedelta(days=100)).date()
    for table in ("turns", "tool_calls"):
        (file,) = [
            one for one in manifest()["files"] if one["path"].startswith(f"{table}/day={day}")
        ]
        assert (file["rows"], file["layout"]) == (1, SCHEMA_VERSION)
    with duckdb.connect() as connection:
        by_day = connection.execute(
            "SELECT day, count(*) FROM read_parquet('a/turns/*/*.parquet') GROUP BY day ORDER BY day"
        ).fetchall()
    assert by_day == [((NOW - timedelta(days=days)).date(), 1) for days in (100, 99, 1)]


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_files_and_folders_are_their_owners() -> None:
    archive(Path("x.duckdb"), Path("deep/b"))

    modes = {one.stat().st_mode & 0o077 for one in (Path("deep/b"), *Path("deep/b").rglob("*"))}
    assert modes == {0}


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_a_second_run_adds_only_what_is_new(capsys: Out) -> None:
    before = files()
    assert archived(capsys) == {}
    fill([make_case("newer", [turn("t-1", 1)])], first_seq=4)

    added = archived(capsys)

    assert added["turns"] == added["cases"] == added["tool_calls"] == added["scores"] == 1
    assert {name: content for name, content in files().items() if name in before} == {
        name: content for name, content in before.items() if "/offsets/" not in name
        and "/consumed_ranges/" not in name
    }  # fmt: skip
    assert contents("a") == contents("x.duckdb")


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_of_a_session_that_goes_on_after_it_was_archived_the_latest_state_is_read(
    capsys: Out,
) -> None:
    again = make_case("new", [turn("t-1", 1, "now another answer")], source={"revision": 2})
    grown = encode_case(again, producer_id="p", seq=4, time=NOON)
    write_log(Path("log.db"), [grown])
    consume()

    archived(capsys)

    with open_to_read(Path("a")) as store:
        assert store.rows(
            "SELECT turn_revision, final_text FROM latest_turns WHERE eval_id = 'new'"
        ) == [(2, "now another answer")]
        assert store.rows("SELECT revision FROM latest_cases WHERE eval_id = 'new'") == [(2,)]
        assert store.rows("SELECT status FROM latest_scores WHERE eval_id = 'new'") == [("failed",)]


READING: tuple[tuple[str, ...], ...] = (
    ("report", "--json"),
    ("runs", "--json"),
    ("cases", "--json"),
    ("cases", "status:failed", "--json"),
    ("show", "old", "--json"),
    ("why", "old", "--json"),
    ("estimate", "--json"),
    ("set export", "--format", "jsonl", "--out", "out.jsonl", "--json"),
    ("curate", "--like", "representative", "--out", "s.evalset.json", "--dry-run", "--json"),
    ("sql", "SELECT * FROM v_pass_rate_by_tool", "--json"),
)


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("command", READING, ids=lambda command: " ".join(command[:2]))
def test_commands_that_read_say_of_an_archive_what_they_say_of_its_store(
    capsys: Out, command: tuple[str, ...]
) -> None:
    name, *options = command

    of_store = run(capsys, *name.split(), "x.duckdb", *options)
    of_archive = run(capsys, *name.split(), "a", *options)

    assert of_store[0] != 2
    assert json.dumps(of_archive).replace('"a"', '"x.duckdb"') == json.dumps(of_store)


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_an_archive_is_read_in_the_folder_of_the_usual_store(capsys: Out) -> None:
    Path("x.duckdb").rename("cases.duckdb")

    code, found = run(capsys, "report", "a", "--json")
    pruned = run(capsys, "store", "prune", "--older-than", "90d", "--archived", "a", "--json")

    assert code != 2, found
    assert pruned[0] == 0, pruned


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_a_store_and_its_archive_compare_as_equal(capsys: Out) -> None:
    code, found = run(capsys, "compare", "x.duckdb", "a", "--json")

    assert code != 2, found
    sides = [found[side] | {"name": "", "case_count": None} for side in ("base", "head")]
    assert sides[0] == sides[1]
    assert found["drop"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_an_archive_is_scored_into_a_new_file_with_its_rows(capsys: Out) -> None:
    Path("m2.json").write_text(json.dumps(METRICS).replace('["yes"]', '["e", "o"]'))
    score = ("score", "a", "--metrics", "m2.json", "--json")

    assert "name a new DuckDB file" in run(capsys, *score)[1]
    code, found = run(capsys, *score, "--db", "y.duckdb")

    assert (code, found["cases"]) == (0, 2)
    with open_to_read(Path("y.duckdb")) as store:
        assert store.rows("SELECT count(*), count(DISTINCT metric_digest) FROM scores") == [(4, 2)]
    assert contents("y.duckdb")["turns"] == contents("x.duckdb")["turns"]
    assert "already contains turns" in run(capsys, *score, "--db", "y.duckdb")[1]


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_an_interrupted_run_leaves_the_archive_as_it_was_and_the_next_goes_on(capsys: Out) -> None:
    def interrupt(rows: int) -> None:
        if rows > stop_at:
            raise KeyboardInterrupt

    shutil.rmtree("a")
    stop_at = 5
    with pytest.raises(KeyboardInterrupt):
        archive(Path("x.duckdb"), Path("a"), progress=interrupt)
    assert "its first run did not end" in run(capsys, "runs", "a")[1]
    written = files()
    assert written
    Path("a", "turns", "day=2026-01-01").mkdir()
    Path("a", "turns", "day=2026-01-01", "tmp_part-000001.parquet").write_bytes(b"PAR1 half")

    archived(capsys)
    whole = contents("a")
    fill([make_case("newer", [turn("t-1", 2)])], first_seq=4)
    stop_at = 1
    with pytest.raises(KeyboardInterrupt):
        archive(Path("x.duckdb"), Path("a"), progress=interrupt)

    assert contents("a") == whole
    assert archived(capsys)
    assert contents("a") == contents("x.duckdb")
    assert {one["path"] for one in manifest()["files"]} == {name[2:] for name in files()}


def prune(capsys: Out, *more: str) -> tuple[int, Any]:
    options = ("--older-than", "90d", "--archived", "a", "--json", *more)
    return run(capsys, "store", "prune", "x.duckdb", *options)


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_what_is_pruned_stays_in_the_archive(capsys: Out) -> None:
    before = contents("a")

    code, found = prune(capsys)

    assert (code, found["sessions"]) == (0, 1)
    assert found["rows"]["turns"] == found["rows"]["tool_calls"] == 2
    assert len(contents("x.duckdb")["turns"]) == 1
    assert archived(capsys).keys() <= {*COPIED}
    assert {table: rows for table, rows in contents("a").items() if table not in COPIED} == {
        table: rows for table, rows in before.items() if table not in COPIED
    }


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_reviews_of_pruned_turns_stay_in_the_archive(capsys: Out) -> None:
    with Store("x.duckdb") as store:
        keys = store.rows("SELECT app_name, eval_set_id, eval_id, invocation_id FROM turns")
        add_items(store, [Wanted(a, b, c, d, "all", alone=True) for a, b, c, d in keys])
        for one in items(store):
            decide(store, one, "ann", "approve")
    archive(Path("x.duckdb"), Path("a"))

    prune(capsys)
    archive(Path("x.duckdb"), Path("a"))

    read = "SELECT DISTINCT eval_id FROM v_review_items WHERE verdict = 'good' ORDER BY 1"
    with Store("x.duckdb") as store, ArchiveStore(Path("a")) as archived:
        assert store.column(read) == ["new"]
        assert archived.column(read) == ["new", "old"]


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("more", [(), ("--dry-run",)], ids=["prune", "dry run"])
def test_nothing_is_pruned_that_the_archive_lacks(capsys: Out, more: tuple[str, ...]) -> None:
    fill([make_case("older", [turn("t-1", 100)])], first_seq=4)
    before = contents("x.duckdb")

    code, said = prune(capsys, *more)

    assert code == 2
    assert "lacks rows that would be deleted (cases 1, tool_calls 1, turns 1, scores 1" in said
    assert "`evaltap store archive x.duckdb --to a`" in said
    assert contents("x.duckdb") == before


@pytest.mark.usefixtures("filled")
def test_nothing_is_pruned_on_the_word_of_a_damaged_file(capsys: Out) -> None:
    _overwrite("turns", 100)
    before = contents("x.duckdb")

    code, said = prune(capsys)

    assert code == 2
    assert f"a: turns/day={(NOW - timedelta(days=100)).date()}/part-0" in said
    assert contents("x.duckdb") == before


def _overwrite(table: str, days: int) -> None:
    """Change a byte of the texts in a file; its size stays."""
    (file,) = Path("a", table, f"day={(NOW - timedelta(days=days)).date()}").iterdir()
    content = bytearray(file.read_bytes())
    content[len(content) // 3] ^= 0x55
    file.write_bytes(content)


def _other_rows() -> None:
    """Replace a file by a sound one of the same size with another row."""
    (one,) = Path("a", "turns", f"day={(NOW - timedelta(days=1)).date()}").iterdir()
    _write_again(one, "* REPLACE ('no!' AS final_text)")
    found = manifest()
    for file in found["files"]:
        if file["path"] == str(one)[2:]:
            file["bytes"] = one.stat().st_size
    Path("a", "evaltap-archive.json").write_text(json.dumps(found))


def _write_again(file: Path, columns: str) -> None:
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t AS SELECT {columns} FROM read_parquet('{file}')")
        connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")


def _changed_manifest(**change: object) -> None:
    Path("a", "evaltap-archive.json").write_text(json.dumps(manifest() | change))


def _file_of_layout(layout: int, path: str | None = None) -> None:
    first, *rest = manifest()["files"]
    _changed_manifest(files=[first | {"layout": layout, "path": path or first["path"]}, *rest])


def _without_a_file() -> None:
    Path("a", manifest()["files"][0]["path"]).unlink()


def _cut_file() -> None:
    file = Path("a", manifest()["files"][0]["path"])
    file.write_bytes(file.read_bytes()[:-1])


def _another_store() -> None:
    with Store("x.duckdb") as store:
        store.execute("UPDATE meta SET value = 'another' WHERE key = 'store_id'")


def _file_in_the_way() -> None:
    Path("b").mkdir()
    Path("b", "turns").write_text("")


NOTHING = lambda: None  # noqa: E731
ARCHIVE = ("store", "archive", "x.duckdb", "--to", "a")
VERIFY = ("store", "archive", "--verify", "a")
BAD: tuple[tuple[str, Callable[[], None], tuple[str, ...], str], ...] = (
    ("no place", NOTHING, ("store", "archive", "x.duckdb"), "X.duckdb --to DIR"),
    ("no store", NOTHING, ("store", "archive", "y.duckdb", "--to", "b"), "y.duckdb"),
    ("not a store", NOTHING, ("store", "archive", "m.json", "--to", "b"), "m.json: not a DuckDB file"),
    ("an archive", NOTHING, ("store", "archive", "a", "--to", "b"), "a: is an archive, which is only read"),
    ("no archive", NOTHING, ("store", "archive", "--verify", "."), "no archive of evaltap"),
    ("a folder", NOTHING, ("report", "."), ".: is a folder; expected a DuckDB file"),
    ("read with others", NOTHING, ("report", "x.duckdb", "a"), "a: is an archive; read it alone"),
    ("written to", NOTHING, ("store", "dlq", "replay", "a"), "a: is an archive, which is only read"),
    ("a file in the way", _file_in_the_way, ("store", "archive", "x.duckdb", "--to", "b"), "b/turns"),
    ("another store's", _another_store, ARCHIVE, "a: is the archive of another store"),
    ("another's proof", _another_store,
     ("store", "prune", "x.duckdb", "--older-than", "9d", "--archived", "a"), "not the archive of x.duckdb"),
    ("no proof", NOTHING,
     ("store", "prune", "x.duckdb", "--older-than", "9d", "--archived", "b"), "b: no archive of evaltap"),
    ("newer layout", lambda: _file_of_layout(SCHEMA_VERSION + 1), ("runs", "a"), "upgrade evaltap"),
    ("newer format", lambda: _changed_manifest(format=9, new=1), ARCHIVE, "upgrade evaltap"),
    ("no manifest", lambda: _changed_manifest(files=1), ("runs", "a"), "cannot be read"),
    ("outside", lambda: _file_of_layout(12, "../x.parquet"), ("runs", "a"), "'../x.parquet'"),
    ("a missing file", _without_a_file, ("runs", "a"), "part-000001.parquet is missing"),
    ("a cut file", _cut_file, ARCHIVE, "bytes long, not"),
    ("changed bytes", lambda: _overwrite("turns", 100), VERIFY, "turns/day="),
    ("changed rows", _other_rows, VERIFY, "has other rows than the manifest says (1 with hash"),
)  # fmt: skip


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("prepare", "command", "said"), [row[1:] for row in BAD], ids=[row[0] for row in BAD]
)
def test_bad_input_is_one_clear_error(
    capsys: Out, prepare: Callable[[], None], command: tuple[str, ...], said: str
) -> None:
    prepare()

    code, found = run(capsys, *command)

    assert code == 2
    assert said in found
    assert len(found.strip().splitlines()) == 1 or "usage:" in found


@pytest.mark.slow
@pytest.mark.usefixtures("filled")
def test_files_of_an_older_layout_lack_columns_and_hold_no_new_rows(capsys: Out) -> None:
    for one in Path("a", "turns").rglob("*.parquet"):
        _write_again(one, "* EXCLUDE run")
    found = manifest()
    for file in found["files"]:
        if file["table"] == "turns":
            size = Path("a", file["path"]).stat().st_size
            file |= {"layout": SCHEMA_VERSION - 1, "bytes": size}
    Path("a", "evaltap-archive.json").write_text(json.dumps(found))

    assert contents("a") == contents("x.duckdb")
    assert main([*VERIFY]) == 0
    assert archived(capsys) == {}


@pytest.mark.slow
def test_an_experiment_is_archived_when_its_units_have_ended(capsys: Out) -> None:
    fill([make_case("c", [turn("t-1", 1)]), make_case("d", [turn("t-1", 1)])])
    unit = ("e", None, "default", "d", 1, 1, "begun", None, 1, 1.0, None)
    with Store("x.duckdb") as store:
        ((app, eval_set),) = store.rows(
            "SELECT app_name, eval_set_id FROM cases WHERE eval_id = 'd'"
        )
        row = [unit[0], app, eval_set, *unit[3:], store.now(), None, None]
        store.append("units", [row])

    first = archived(capsys)
    with Store("x.duckdb") as store:
        row[6:7], row[11] = ["scored"], store.now()
        store.append("units", [row])
    second = archived(capsys)

    assert (first["turns"], second["turns"]) == (1, 1)


@pytest.mark.slow
def test_a_person_is_erased_from_an_archive(capsys: Out) -> None:
    mine = make_case("mine", [turn("t-1", 9, "CANARY")], sessionInput={"userId": "alice"})
    fill([mine, make_case("other", [turn("t-1", 9)])])
    archived(capsys)
    erase = ("store", "erase", "--subject", "alice", "--db", "a", "--json")

    _, previewed = run(capsys, *erase, "--dry-run")
    assert "CANARY" in str(contents("a"))
    code, found = run(capsys, *erase)

    assert code == 0, found
    assert found["places"] == previewed["places"]
    assert found["places"][0]["removed"]["turns"] == 1
    assert "CANARY" not in str(contents("a"))
    assert len(contents("a")["turns"]) == len(contents("a")["cases"]) == 1
    assert {one["path"] for one in manifest()["files"]} == {name[2:] for name in files()}
    assert main([*VERIFY]) == 0


@pytest.mark.slow
def test_an_archive_store_is_only_read(capsys: Out) -> None:
    fill([make_case("c", [turn("t-1", 1)])])
    archived(capsys)

    with ArchiveStore(Path("a")) as store, pytest.raises(duckdb.Error):
        store.execute("DELETE FROM turns")
