"""`evaltap store prune`: old sessions are deleted as a whole, but nothing that proves completeness."""

import json
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.curation.review.queue import Wanted, add_items, decide, edited, items
from evaltap.evaluator.pipeline.maintenance import pruning
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.opening import ROWS_PER_GROUP
from support.builders.cases import SAYS_YES, make_case, make_records, make_turn, write_log
from support.worlds.once import made_once

NOW = datetime.now(UTC)
METRICS = [SAYS_YES]


def turn(name: str, days: float) -> dict[str, object]:
    began = (NOW - timedelta(days=days)).timestamp()
    return make_turn(name, answer="yes", creationTimestamp=began)


@made_once
def landed(folder: Path) -> Path:
    cases = [
        make_case("old", [turn("t-1", 100)]),
        make_case("goes on", [turn("t-1", 100)]),
        make_case("goes on", [turn("t-2", 2)]),
        make_case("new", [turn("t-1", 1)]),
    ]
    write_log(folder / "log.db", make_records(cases, producer_id="p"))
    (folder / "m.json").write_text(json.dumps(METRICS))
    consume(folder)
    return folder / "x.duckdb"


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return landed(tmp_path)


def consume(folder: Path) -> int:
    return main(
        ["consume", "--log", str(folder / "log.db"), "--db", str(folder / "x.duckdb"),
         "--metrics", str(folder / "m.json"), "--until-idle", "--json"]
    )  # fmt: skip


def prune(db: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, object]:
    capsys.readouterr()
    assert main(["store", "prune", str(db), "--older-than", "90d", "--json", *more]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def sessions(db: Path) -> list[str]:
    with Store(db, create=False) as store:
        return [name for (name,) in store.rows("SELECT DISTINCT eval_id FROM turns ORDER BY 1")]


@pytest.mark.slow
def test_a_session_goes_by_its_newest_turn_with_all_that_is_known_of_it(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = prune(db, capsys)

    assert found["sessions"] == 1
    assert found["rows"] == {
        "cases": 1, "turns": 1, "tool_calls": 1, "scores": 1, "turn_scores": 1
    }  # fmt: skip
    assert sessions(db) == ["goes on", "new"]
    with Store(db, create=False) as store:
        assert store.rows("SELECT count(*) FROM turns") == [(3,)]
        assert store.rows("SELECT DISTINCT eval_id FROM scores ORDER BY 1") == [
            ("goes on",),
            ("new",),
        ]


@pytest.mark.slow
def test_reviews_go_with_their_turns_and_none_is_left_to_review(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(db) as store:
        keys = store.rows(
            "SELECT app_name, eval_set_id, eval_id, invocation_id FROM latest_turns ORDER BY landed_seq"
        )
        wanted = [
            Wanted(app, name, eval_id, turn, "all", alone=True) for app, name, eval_id, turn in keys
        ]
        add_items(store, wanted)
        for one in items(store):
            if one.eval_id in ("old", "new"):
                decide(store, one, "ann", "edit", after=edited(one, answer=f"for {one.eval_id}"))

    pruned = prune(db, capsys)

    assert isinstance(pruned["rows"], dict)
    assert (pruned["rows"]["review_items"], pruned["rows"]["reviews"]) == (1, 1)
    assert b"for old" not in db.read_bytes()
    assert main(["estimate", str(db), "--labels", str(db)]) != 2
    assert main(["review", "undo", str(db), "--as", "ann"]) == 0


@pytest.mark.slow
def test_what_was_pruned_is_neither_missed_nor_landed_again(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prune(db, capsys)

    assert consume(db.parent) == 0

    assert sessions(db) == ["goes on", "new"]
    with Store(db, create=False) as store:
        assert store.rows("SELECT missing FROM v_completeness") == [(0,)]


@pytest.mark.slow
def test_what_was_dropped_before_is_not_held_against_what_remains(
    db: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def covered(place: Path) -> float:
        capsys.readouterr()
        assert main(["estimate", str(place), "--json"]) == 0
        return float(json.loads(capsys.readouterr().out)[0]["covered"])

    at = [NOW.replace(tzinfo=None) - timedelta(days=days) for days in (100, 1)]
    with Store(db, create=False) as store:
        store.append(
            "manifests",
            [("p", 2, '{"queue_full": 5}', False, at[0], at[0]),
             ("p", 4, '{"queue_full": 7}', True, at[1], at[1])],
        )  # fmt: skip
    assert main(["store", "archive", str(db), "--to", str(tmp_path / "archive")]) == 0
    assert covered(db) == pytest.approx(4 / (4 + 7))

    prune(db, capsys)

    assert covered(db) == pytest.approx(3 / (3 + 2))
    assert main(["store", "archive", str(db), "--to", str(tmp_path / "archive")]) == 0
    assert covered(tmp_path / "archive") == pytest.approx(4 / (4 + 7))


@pytest.mark.slow
def test_a_dry_run_only_counts(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = prune(db, capsys, "--dry-run")

    assert (found["dry_run"], found["sessions"]) == (True, 1)
    assert sessions(db) == ["goes on", "new", "old"]


@pytest.mark.slow
def test_scores_of_files_go_by_when_they_were_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case("c", [make_turn(answer="yes")])))
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    db = tmp_path / "x.duckdb"
    main(
        ["score", str(tmp_path / "c.jsonl"), "--metrics", str(tmp_path / "m.json"), "--db", str(db)]
    )
    with Store(db) as store:
        store.execute("UPDATE scores SET scored_at = scored_at - INTERVAL 100 DAY")
        store.execute("UPDATE runs SET started_at = started_at - INTERVAL 100 DAY")

    prune(db, capsys)
    again = prune(db, capsys)

    with Store(db, create=False) as store:
        for table in ("scores", "turn_scores", "runs", "run_metrics", "run_ends"):
            assert store.rows(f"SELECT count(*) FROM {table}") == [(0,)], (table, again)


@pytest.mark.slow
def test_the_file_gives_its_room_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    began = (NOW - timedelta(days=100)).timestamp()
    cases = [
        make_case(f"s-{n}", [make_turn("t", answer=f"{n} " * 3_000, creationTimestamp=began)])
        for n in range(300)
    ]
    write_log(tmp_path / "log.db", make_records(cases))
    main(
        [
            "consume",
            "--log",
            str(tmp_path / "log.db"),
            "--db",
            str(tmp_path / "x.duckdb"),
            "--until-idle",
        ]
    )
    before = (tmp_path / "x.duckdb").stat().st_size

    prune(tmp_path / "x.duckdb", capsys)

    assert (tmp_path / "x.duckdb").stat().st_size < before


REWRITE = """
import resource, sys
from pathlib import Path
from evaltap.evaluator.store.rewriting import rewrite_file
resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
rewrite_file(Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_what_stops_before_the_file_is_rewritten_is_completed_by_the_next_run(
    db: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(path: Path) -> None:
        path.with_name(f"{path.name}.erasing").write_text("half a copy")
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, suppress(KeyboardInterrupt):
        patched.setattr(pruning, "rewrite_file", killed)
        pruning.prune(db, NOW - timedelta(days=90))

    before = pruning.prune(db, NOW - timedelta(days=90), dry_run=True)
    then = pruning.prune(db, NOW - timedelta(days=90))
    later = pruning.prune(db, NOW - timedelta(days=90))

    assert [(one.sessions, one.rewritten) for one in (before, then, later)] == [
        (0, False), (0, True), (0, False),
    ]  # fmt: skip
    assert [one.name for one in db.parent.glob("x.duckdb*")] == ["x.duckdb"]


@pytest.mark.slow
def test_a_file_that_cannot_be_rewritten_leaves_no_copy_and_says_what_is_deleted(db: Path) -> None:
    found = subprocess.run(
        [sys.executable, "-c", REWRITE, str(db)], capture_output=True, text=True, check=False
    )

    assert "the rows are deleted, but not their bytes" in found.stderr
    assert "run the command again" in found.stderr
    assert [one.name for one in db.parent.glob("x.duckdb*")] == ["x.duckdb"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.duckdb", "--older-than", "90d"], "nothing.duckdb"),
        (["x.duckdb", "--older-than", "tomorrow"], "expected hours or days, e.g. 24h or 7d"),
        (["x.duckdb"], "--older-than"),
    ],
)
def test_a_mistake_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], says: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["store", "prune", *arguments])
    except SystemExit as refused:
        code = int(str(refused.code))

    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_the_rewritten_file_has_small_row_groups_as_before(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A checkpoint rewrites a table's last row group, so large ones would make each take up to a second."""
    with Store(db) as store:
        store.execute(
            "INSERT INTO turns SELECT t.* REPLACE (landed_seq + n AS landed_seq)"
            " FROM (FROM turns WHERE eval_id = 'new') t, range(1, 10_001) r(n)"
        )

    prune(db, capsys)

    with Store(db, create=False) as store:
        sizes = store.rows(
            "SELECT max(count), count(DISTINCT row_group_id) FROM pragma_storage_info('turns')"
        )
    assert sizes == [(ROWS_PER_GROUP, 3)]
