"""The demo's cases agree with its script, field by field."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pytest

from evaltap.cli.demo.script import SESSIONS, TOOLS, Call, Exchange, Step
from evaltap.evaluator.store.remote.client import open_to_read
from support.builders.program import Program

pytestmark = pytest.mark.slow

PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main())"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Path]:
    folder = tmp_path_factory.mktemp("demo")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "demo", "--dir", "out", "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(ran.stdout), folder / "out" / "cases.duckdb"


@pytest.fixture(scope="module")
def store(demo: tuple[dict[str, Any], Path]) -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(str(demo[1]), read_only=True) as opened:
        yield opened


def calls(step: Step) -> tuple[Call, ...]:
    return step if isinstance(step, tuple) else ()


def turns() -> list[tuple[str, int, Exchange]]:
    return [
        (name, i, exchange) for name, said in SESSIONS.items() for i, exchange in enumerate(said)
    ]


def test_every_turn_says_what_the_script_says(store: duckdb.DuckDBPyConnection) -> None:
    recorded = store.sql(
        "SELECT eval_id, user_text, final_text, tool_count, status FROM latest_turns"
        " ORDER BY eval_id, started_at"
    ).fetchall()

    script = [
        (name, exchange.user, exchange.steps[-1], sum(len(calls(s)) for s in exchange.steps), "ok")
        for name, _, exchange in sorted(turns(), key=lambda turn: turn[:2])
    ]
    without_address = [
        tuple(
            part.replace("ada@example.com", "?") if isinstance(part, str) else part for part in row
        )
        for row in script
    ]
    assert [
        tuple(_masked(part) if isinstance(part, str) else part for part in row) for row in recorded
    ] == without_address


def _masked(text: str) -> str:
    before, found, after = text.partition("<email:")
    return before + "?" + after.partition(">")[2] if found else text


def test_every_tool_call_has_the_scripts_arguments_and_the_tools_result(
    store: duckdb.DuckDBPyConnection,
) -> None:
    recorded = store.sql(
        "SELECT eval_id, tool_name, arguments, result FROM latest_tool_calls c"
        " JOIN latest_turns t USING (app_name, eval_set_id, eval_id, invocation_id)"
        " ORDER BY eval_id, t.started_at, call_index"
    ).fetchall()

    script = [
        (name, call.name, dict(call.arguments), TOOLS[call.name](**call.arguments))
        for name, _, exchange in sorted(turns(), key=lambda turn: turn[:2])
        for step in exchange.steps
        for call in calls(step)
    ]
    assert [(a, b, json.loads(c), json.loads(d)) for a, b, c, d in recorded] == script


def test_the_failed_tool_call_is_marked(store: duckdb.DuckDBPyConnection) -> None:
    failed = store.sql(
        "SELECT eval_id, tool_name FROM latest_tool_calls WHERE error_type IS NOT NULL"
    ).fetchall()

    assert failed == [("s-outage", "track_parcel")]


def test_no_address_is_in_any_file(demo: tuple[dict[str, Any], Path]) -> None:
    for path in demo[1].parent.iterdir():
        assert b"ada@example.com" not in path.read_bytes(), path


def test_the_verdicts_are_those_the_script_provokes(demo: tuple[dict[str, Any], Path]) -> None:
    summary = demo[0]

    assert (summary["turns"], summary["cases"]) == (6, 4)
    assert {(case["eval_id"], case["metric_name"]) for case in summary["worst"]} == {
        ("s-too-generous", "tool_trajectory_avg_score"),
        ("s-promise", "llm_rubric_response"),
    }


def test_the_sql_that_it_suggests_runs(store: duckdb.DuckDBPyConnection) -> None:
    from evaltap.cli.commands.demo import QUERIES

    assert all(store.sql(query).fetchall() for query in QUERIES)


def test_with_a_page_the_agent_goes_on_until_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "out" / "cases.duckdb"
    demo = Program(["demo", "--dir", str(path.parent), "--ui", "127.0.0.1:0"], tmp_path)
    demo.wait_for(lambda: "/login#" in demo.output)
    before = _scored(path)
    demo.wait_for(lambda: _scored(path) >= before + 2)
    code = demo.stop()

    assert code == 0, demo.output
    assert re.search(r"evaltap demo: http://\S+\.localhost:\d+/login#\S+", demo.output)
    assert before >= len(SESSIONS)
    with duckdb.connect(str(path), read_only=True) as store:
        landed, scored = store.sql(
            "SELECT (SELECT count(DISTINCT eval_id) FROM cases), (SELECT count(DISTINCT eval_id) FROM scores)"
        ).fetchall()[0]
    assert landed >= scored >= before + 2


def _scored(path: Path) -> int:
    with closing(open_to_read(path)) as reader:
        return int(reader.rows("SELECT count(DISTINCT eval_id) FROM scores")[0][0])
