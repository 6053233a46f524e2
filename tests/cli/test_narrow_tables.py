"""Tables fit 80 columns, without truncated names and ids."""

from pathlib import Path

import pytest

from support.builders.commands import Evaltap, runner
from support.worlds.shop import POLITE, Asked, landed

LONG = "Please tell me, when you have found the time for it, where my order may be by now"


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Evaltap:
    tools = ("get_order", "get_parcel", "get_customer")
    landed(tmp_path, [Asked(LONG, tools, session="a-session"), Asked(LONG, tools), Asked("Hi")])
    capsys.readouterr()
    return evaltap


def test_near_duplicates_are_a_table_of_80_columns(evaltap: Evaltap) -> None:
    code, out, _ = evaltap("set", "duplicates", "x.duckdb")

    lines = out.splitlines()
    assert code == 0
    assert max(map(len, lines)) <= 80
    assert lines[1].split() == ["turns", "first", "words", "tools", "outcome", "case"]
    assert [line.split()[0] for line in lines[3:5]] == ["2", "1"]
    assert "Please tell me, when" in lines[3]
    assert lines[3].rstrip().endswith("a-session")


@pytest.mark.parametrize("command", ["cases", "set duplicates", "sql"])
def test_wide_letters_are_not_cut_where_there_is_room(
    evaltap: Evaltap, tmp_path: Path, command: str
) -> None:
    landed(tmp_path / "wide", [Asked("请取消订单一二三四五六")])
    query = ["SELECT user_text FROM latest_turns"] if command == "sql" else []

    _, out, _ = evaltap(*command.split(), "wide/x.duckdb", *query)

    assert "请取消订单一二三四五六" in out


@pytest.mark.parametrize("command", [["runs"], ["cases"], ["report"], ["estimate"]])
def test_lines_in_a_pipe_do_not_end_in_blanks(evaltap: Evaltap, command: list[str]) -> None:
    name, *options = command

    _, out, _ = evaltap(name, "x.duckdb", *options)

    assert out
    assert [line for line in out.splitlines() if line.endswith(" ")] == []


@pytest.mark.parametrize("columns", [46, 60, 80])
def test_runs_fit_a_narrow_terminal_with_whole_ids_and_titles(
    evaltap: Evaltap, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))

    _, out, _ = evaltap("runs", "x.duckdb")

    table = out[out.index(" run") :]
    assert max(map(len, table.splitlines())) <= columns
    assert "…" not in table
    assert "passed" in table


def test_without_turns_there_is_no_table(evaltap: Evaltap) -> None:
    _, out, _ = evaltap("set", "duplicates", "x.duckdb", "--since", "2100-01-01T00:00:00Z")

    assert out == "0 turns in 0 groups, 0% of the turns in groups of several\n"


def test_flags_of_estimates_are_whole_and_versions_shown_where_there_are_several(
    evaltap: Evaltap,
) -> None:
    _, out, _ = evaltap("estimate", "x.duckdb", "--by", "tool")

    assert max(map(len, out.splitlines())) <= 80
    assert out.splitlines()[0].startswith("polite, of all turns")
    assert "few_sessions" in out


@pytest.mark.slow
def test_a_drop_of_more_than_100_points_is_none_to_detect(evaltap: Evaltap) -> None:
    _, out, _ = evaltap("compare", "x.duckdb", "x.duckdb")

    assert "too few to detect any" in out
    assert "detect a drop of" not in out


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 100])
def test_a_report_with_crashes_and_unscored_cases_has_whole_names_and_intervals(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    expected = {
        "metricName": "tool_trajectory_avg_score",
        "threshold": 1,
        "criterion": {"toolTrajectory": {}},
    }
    landed(tmp_path, [Asked("Hi"), Asked("Hi", error="TimeoutError")], metrics=[POLITE, expected])
    capsys.readouterr()
    monkeypatch.setenv("COLUMNS", str(columns))

    _, out, _ = runner(capsys)("report", str(tmp_path / "x.duckdb"))

    table = out[: out.index("Only crashed cases")].splitlines()
    assert max(map(len, table)) <= max(80, columns)
    assert "…" not in "".join(table)
    assert [line.split()[0] for line in table if line.startswith(("polite", "tool_"))] == [
        "polite",
        "tool_trajectory_avg_score",
    ]
    assert {"passed", "failed", "crashed", "evaluated", "interval"} <= set(" ".join(table).split())
    assert "(9% to 91%)" in "\n".join(table)
