"""`evaltap score --engine ray`: the same rows as one process, whichever node dies; and valid options."""

import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pyarrow
import pyarrow.parquet
import pytest

from evaltap.cli.main import main
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn
from support.builders.waiting import wait_for
from support.servers.ray_nodes import nodes

SLOW_METRIC = """
import time
def slowly(actual, expected):
    time.sleep(0.08)
    return actual.final_text is not None and len(actual.invocation_id) / 10
"""


DEADLY_METRIC = """
import os, pathlib
def deadly(actual, expected):
    if actual.final_text == "an answer 17":
        with pathlib.Path(__file__).with_name("tries").open("a") as file:
            file.write("x")
        os._exit(9)
    return True
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def score(*arguments: str, path: str = "") -> tuple[int, str]:
    """Run the command in a process of its own, as Ray leaves threads and warnings behind.

    Returns its exit code and what it said, but for its progress, which it tells once a minute.
    """
    program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    done = subprocess.run(
        [sys.executable, "-c", program, "score", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path, "EVALTAP_ALLOW_CODE": "1"},
    )
    return done.returncode, re.sub(r"evaltap: [\d,]+ cases scored\n", "", done.stderr)


def write_cases(path: Path, first: int, count: int) -> None:
    """Write sessions of two turns; in every third one call is wrong."""
    lines = []
    for number in range(first, first + count):
        turns = [make_turn(f"t-{turn}", answer=f"an answer {number}") for turn in range(2)]
        other = [make_tool(arguments={"order_id": "other"})] if number % 3 == 0 else []
        expected = [turns[0] | ({"tools": other} if other else {}), turns[1]]
        lines.append(orjson.dumps(make_case(f"s-{number}", turns, conversation=expected)))
    path.write_bytes(b"\n".join(lines) + b"\n")


def write_metrics(*metrics: dict[str, Any]) -> None:
    Path("m.json").write_bytes(orjson.dumps(metrics or [TRAJECTORY, RESPONSE]))


def rows(path: str, table: str) -> list[tuple[Any, ...]]:
    """Return what a table says, without what differs from run to run."""
    with duckdb.connect(path, read_only=True) as connection:
        return connection.execute(
            f"SELECT * EXCLUDE (score_id, run_id, scored_at) FROM {table} ORDER BY ALL"
        ).fetchall()


def assert_same_rows(one: str, other: str) -> None:
    for table in ("scores", "turn_scores"):
        found = rows(one, table)
        assert found
        assert found == rows(other, table)


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_cluster_gives_the_rows_of_one_process_for_json_lines_documents_and_parquet() -> None:
    write_metrics()
    write_cases(Path("a.jsonl"), 0, 700)
    Path("b.evalset.json").write_bytes(
        orjson.dumps({"evalSetId": "b", "evalCases": [make_case("one", [make_turn("t")])]})
    )
    write_cases(Path("c.jsonl"), 1000, 300)
    texts = [line.decode() for line in Path("c.jsonl").read_bytes().splitlines()]
    pyarrow.parquet.write_table(
        pyarrow.table({"eval_case": texts}), "c.parquet", row_group_size=100
    )
    files = ("a.jsonl", "b.evalset.json", "c.parquet")

    on_ray = score(*files, "--metrics", "m.json", "--engine", "ray", "--db", "ray.duckdb")
    local = score(*files, "--metrics", "m.json", "--db", "local.duckdb")

    assert on_ray == local
    assert on_ray[0] == 1
    assert_same_rows("ray.duckdb", "local.duckdb")
    with duckdb.connect("ray.duckdb", read_only=True) as connection:
        assert connection.execute("SELECT sum(passed + failed) FROM v_pass_rate").fetchone() == (
            2 * 1001,
        )


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_without_an_address_a_cluster_that_runs_already_is_not_joined() -> None:
    write_metrics()
    write_cases(Path("a.jsonl"), 0, 3)

    with nodes(count=1):
        code, said = score("a.jsonl", "--metrics", "m.json", "--engine", "ray", "--db", "r.duckdb")

    assert code == 1, said
    assert rows("r.duckdb", "scores")


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_lines_and_rows_that_are_no_cases_are_the_same_dead_letters_as_in_one_process(
    tmp_path: Path,
) -> None:
    write_metrics()
    write_cases(Path("a.jsonl"), 0, 3)
    texts: list[str | None] = [
        line.decode() for line in Path("a.jsonl").read_bytes().replace(b"s-", b"c-").splitlines()
    ]
    with Path("a.jsonl").open("ab") as file:
        file.write(b'{"broken\n')
    pyarrow.parquet.write_table(pyarrow.table({"colour": ["red"]}), "p.parquet")
    cells = [None, texts[0], '{"broken', texts[1], "", texts[2]]
    pyarrow.parquet.write_table(pyarrow.table({"eval_case": cells}), "c.parquet", row_group_size=2)
    # A cluster's nodes name files by their whole path.
    files = [str(tmp_path / name) for name in ("a.jsonl", "c.parquet", "p.parquet")]

    code, said = score(*files, "--metrics", "m.json", "--engine", "ray", "--db", "r.duckdb")
    local_code, local_said = score(*files, "--metrics", "m.json", "--db", "local.duckdb")

    assert code == local_code == 2
    assert sorted(said.splitlines()) == sorted(local_said.splitlines())
    assert_same_rows("r.duckdb", "local.duckdb")
    letters_of = "SELECT * EXCLUDE landed_at FROM dead_letters ORDER BY ALL"
    found = []
    for path in ("r.duckdb", "local.duckdb"):
        with duckdb.connect(path, read_only=True) as connection:
            found.append(connection.execute(letters_of).fetchall())
    assert found[0] == found[1]
    assert "a.jsonl: line 4" in said
    assert "p.parquet: row 0: no column for the input" in said
    with duckdb.connect("r.duckdb", read_only=True) as connection:
        letters = connection.execute(
            "SELECT topic, record_value FROM dead_letters ORDER BY topic, record_offset"
        ).fetchall()
    assert [(Path(topic).name, value) for topic, value in letters] == [
        ("a.jsonl", b'{"broken\n'),
        ("c.parquet", b'{"eval_case":null}'),
        ("c.parquet", b'{"eval_case":"{\\"broken"}'),
        ("c.parquet", b'{"eval_case":""}'),
        ("p.parquet", b'{"colour":"red"}'),
    ]


def wait_for_parts(folder: Path, count: int) -> None:
    wait_for(lambda: len(list(folder.glob("2*/part-*"))) >= count, 120)


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_node_killed_in_the_middle_costs_no_row_and_doubles_none(tmp_path: Path) -> None:
    (tmp_path / "slow_metric.py").write_text(SLOW_METRIC)
    slow = {
        "metricName": "slow",
        "evaluatorName": "python_function",
        "threshold": 0.5,
        "criterion": {"function": {"path": "slow_metric:slowly"}},
    }
    write_metrics(TRAJECTORY, slow)
    files = [f"f-{number}.jsonl" for number in range(14)]
    for number, name in enumerate(files):
        write_cases(Path(name), 100 * number, 10)

    with nodes(path=str(tmp_path)) as cluster:
        outcome: list[tuple[int, str]] = []
        arguments = ("--metrics", "m.json", "--engine", "ray", "--ray-address", cluster.address)
        run = threading.Thread(
            target=lambda: outcome.append(
                score(*files, *arguments, "--db", "ray.duckdb", path=str(tmp_path))
            )
        )
        run.start()
        wait_for_parts(tmp_path / "ray.parquet", 4)
        cluster.kill_one()
        killed_before_the_end = not outcome
        run.join()
    local = score(*files, "--metrics", "m.json", "--db", "local.duckdb", path=str(tmp_path))

    assert killed_before_the_end
    assert outcome == [local]
    assert_same_rows("ray.duckdb", "local.duckdb")
    assert not list((tmp_path / "ray.parquet").glob("2*/.part-*"))


@pytest.mark.slow
@pytest.mark.timeout(280)
def test_a_case_that_kills_its_worker_is_an_error_after_three_tries(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text(DEADLY_METRIC)
    write_cases(Path("c.jsonl"), 0, 60)
    deadly = {
        "metricName": "deadly",
        "evaluatorName": "python_function",
        "threshold": 0.5,
        "criterion": {"function": {"path": "deadly:deadly"}},
    }
    write_metrics(deadly)

    with nodes(2, path=str(tmp_path)) as cluster:
        code, said = score(
            "c.jsonl", "--metrics", "m.json", "--engine", "ray", "--ray-address", cluster.address,
            "--db", "ray.duckdb", path=str(tmp_path),
        )  # fmt: skip

    assert code == 3, said
    found = rows(
        "ray.duckdb", "(SELECT eval_id, status, reason, score_id, run_id, scored_at FROM scores)"
    )
    errors = [(eval_id, reason) for eval_id, status, reason in found if status == "error"]
    assert len(found) == 60
    assert [eval_id for eval_id, _ in errors] == ["s-17"]
    assert "died 2 times while scoring only this case" in errors[0][1]
    assert not list((tmp_path / "ray.parquet").glob("2*/.part-*"))
    assert (tmp_path / "tries").read_text() == "xxx"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "ray"], "name a folder with --out DIR, or give --db"),
        (
            ["--engine", "ray", "--db", "x.duckdb", "--budget-usd", "1"],
            "--budget-usd: a limit of one",
        ),
        (
            ["--engine", "ray", "--db", "x.duckdb", "--result", "r"],
            "--result: a limit of one process",
        ),
        (["--out", "folder"], "--out: only works with --engine ray"),
        (["--ray-address", "auto"], "--ray-address: only works with --engine ray"),
    ],
)
def test_an_option_that_cannot_be_kept_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: Sequence[str], said: str
) -> None:
    write_metrics()
    write_cases(Path("a.jsonl"), 0, 3)

    code = main(["score", "a.jsonl", "--metrics", "m.json", *arguments])

    assert code == 2
    assert said in capsys.readouterr().err
