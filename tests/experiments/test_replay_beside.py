"""A replay beside its recording: which calls stand in one row, where it forked, and the HTML file."""

import json
import re
from collections.abc import Iterator
from contextlib import chdir
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.forecast.fates import Fork, fates, fork_of
from evaltap.evaluator.pipeline.maintenance.erasure import Subject, erase_from_store
from evaltap.evaluator.pipeline.maintenance.pruning import prune
from evaltap.evaluator.reports.html.beside import CallCell, SessionBeside, sessions_beside
from evaltap.evaluator.store.database import Store
from evaltap.experiments.replay.html import replay_html
from evaltap.experiments.replay.result import ForkedTool, ReplayResult
from evaltap.recorder import Recorder
from support.worlds.replayed_shop import METRICS, SESSIONS, replay, replayed_store


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a replay with two runs, read only."""
    return replayed_store(tmp_path_factory.mktemp("replayed"))


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as found:
        yield found


def experiment(store: Store) -> str:
    return store.column("SELECT DISTINCT experiment_id FROM experiments")[0]


def beside(store: Store, eval_id: str) -> SessionBeside:
    (found,) = sessions_beside(store, experiment(store), [eval_id])
    return found


def kinds(row: tuple[CallCell | None, ...]) -> list[str]:
    return ["" if one is None else f"{one.kind} {one.name}" for one in row]


@pytest.mark.slow
def test_equal_calls_stand_in_one_row_and_such_turns_are_alike(store: Store) -> None:
    found = beside(store, "s-same")

    assert found.columns == ("recorded", "run 1", "run 2")
    assert [turn.differs for turn in found.turns] == [False, False]
    (row,) = found.turns[0].rows
    assert kinds(row) == ["base get_order", "same get_order", "same get_order"]
    assert [end.is_same for end in found.turns[0].ends] == [False, True, True]


@pytest.mark.slow
def test_a_fork_stands_beside_the_recorded_call_with_its_arguments_and_why(store: Store) -> None:
    found = beside(store, "s-fork")
    _, forked, after = found.turns

    assert not found.turns[0].differs, "the turn before was faithful"
    assert [kinds(row) for row in forked.rows] == [
        ["base get_order", "same get_order", "same get_order"],
        ["base refund", "fork refund", "fork refund"],
    ]
    recorded, new, _ = forked.rows[1]
    assert recorded is not None
    assert new is not None
    assert {one.name: one.value for one in recorded.arguments}["amount"] == "10"
    assert [(one.path, one.expected, one.actual) for one in new.differing] == [
        ("amount", "10", "11")
    ]
    assert {one.name for one in new.arguments} == {"id", "note"}, "the equal arguments, too"
    assert new.why == "refund has no recorded result for these arguments"
    assert [end.answer for end in forked.ends] == ["Refunded.", None, None]
    assert "ended at the call" in forked.ends[1].note
    assert "not run: the user's message answers something else" in after.ends[1].note


def test_a_call_that_only_one_run_made_has_a_row_of_its_own(store: Store) -> None:
    (turn,) = beside(store, "s-extra").turns

    assert [kinds(row) for row in turn.rows] == [
        ["", "", "fork search"],
        ["base get_order", "same get_order", "not_reached get_order"],
    ]


def test_recorded_calls_that_were_not_made_are_marked_and_the_next_turn_is_off_script(
    store: Store,
) -> None:
    skipped, after = beside(store, "s-skip").turns

    assert [kinds(row)[1] for row in skipped.rows] == ["missing get_order", "missing refund"]
    assert skipped.ends[1].answer == "Ask later."
    assert "answers something else" in after.ends[1].note


def test_a_result_that_was_not_recorded_is_invalid_and_no_fork_of_the_agent() -> None:
    lost = Fork("refund", {"id": 1}, "result of refund was not recorded")
    asked = {"misses": [{"tool": lost.tool, "arguments": lost.arguments, "why": lost.why}],
             "unused": [], "real": [], "invented": []}  # fmt: skip

    assert [one.fate for one in fates("forked", [asked], 2)] == ["invalid", "off_script"]
    assert lost.sentence == "result of refund was not recorded"
    assert Fork("refund", {}, "ran for real").sentence == "refund ran for real"


@pytest.mark.parametrize("kind", ["misses", "real", "invented", "closest"])
def test_a_fork_is_the_call_with_its_arguments_whatever_answered_it(kind: str) -> None:
    call = {"tool": "get", "arguments": {"id": 1}, "why": "ran for real"}

    assert fork_of({kind: [call], "unused": []}) == Fork("get", {"id": 1}, "ran for real")


@pytest.mark.slow
def test_of_two_calls_of_a_tool_the_one_that_the_recording_did_not_answer_is_the_fork(
    tmp_path: Path,
) -> None:
    agents = """
def both(messages, turn, orders=("1", "3")):
    for order in orders:
        turn.run_tool("get_order", {"id": order}, lambda id: "shipped")
    return "Shipped."
"""
    with chdir(tmp_path):
        Path("agents.py").write_text(agents)
        Path("metrics.json").write_text(json.dumps(METRICS))
        recorder = Recorder(log="shop.log.db", app_name="shop")
        with recorder.turn(session_id="s", user="where are they") as turn:
            for order in ("1", "2"):
                turn.run_tool("get_order", {"id": order}, lambda id: "shipped")
            turn.respond("Shipped.")
        recorder.close()
        scored = ["--metrics", "metrics.json"]
        main(["consume", "--log", "shop.log.db", "--db", "shop.duckdb", "--until-idle", *scored])
        both = ["--agent", "agents:both", "--on-miss", "get_order=closest", *scored]
        main(["replay", "shop.duckdb", *both, "--runs", "1", "--db", "replay.duckdb"])
        with Store("replay.duckdb") as store:
            (shown,) = beside(store, "s").turns

    assert [kinds(row) for row in shown.rows] == [
        ["base get_order", "same get_order"],
        ["base get_order", "fork get_order"],
    ]


def test_an_agent_that_does_not_start_or_dies_has_failed_in_the_first_turn() -> None:
    first, second = fates("crashed", [], 2)

    assert (first.fate, first.verdict(None)) == ("faithful", False)
    assert (second.fate, second.verdict(None)) == ("off_script", None)


def test_a_crash_of_which_nothing_was_recorded_is_a_failure() -> None:
    asked: dict[str, list[Any]] = {"misses": [], "unused": [], "real": [], "invented": []}

    found = list(fates("crashed", [asked, asked], 3))

    assert [one.verdict(True) for one in found[:1]] == [True]
    assert [one.verdict(None) for one in found] == [None, False, None]


def test_verdicts_stand_where_they_differ(store: Store) -> None:
    (turn,) = beside(store, "s-worse").turns

    assert [end.verdicts for end in turn.ends] == [
        (("ends_with_stop", "passed"),),
        (("ends_with_stop", "failed"),),
        (("ends_with_stop", "failed"),),
    ]
    assert turn.differs


def test_a_crash_is_said_where_the_answer_would_be(store: Store) -> None:
    (turn,) = beside(store, "s-crash").turns

    assert turn.ends[1].error == "ValueError: no such order"
    assert ("run_succeeded", "crashed") in turn.ends[1].verdicts or (
        ("run_succeeded", "failed") in turn.ends[1].verdicts
    )


def test_without_a_recording_runs_are_compared_with_the_first(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(path.read_bytes())
    with Store(copy) as store:
        store.execute("DELETE FROM recorded_sessions")

        found = beside(store, "s-extra")

    assert (found.columns, found.is_recorded) == (("run 1", "run 2"), False)
    assert kinds(found.turns[0].rows[0]) == ["", "fork search"]
    assert found.turns[0].user == "where is F-7"


@pytest.mark.slow
def test_resuming_keeps_each_recorded_session_once(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    folder.mkdir()
    for file in filter(Path.is_file, path.parent.iterdir()):
        (folder / file.name).write_bytes(file.read_bytes())
    with Store(folder / path.name) as store:
        store.execute("DELETE FROM recorded_sessions WHERE eval_id = 's-fork'")
    with chdir(folder):
        replay("--resume")

    with Store(folder / path.name) as store:
        assert sorted(store.column("SELECT eval_id FROM recorded_sessions")) == sorted(SESSIONS)


@pytest.mark.slow
def test_what_was_recorded_is_erased_and_pruned_with_its_session(
    path: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.duckdb"
    copy.write_bytes(path.read_bytes())

    erase_from_store(copy, Subject(frozenset({"s-fork"})), dry_run=False)

    with Store(copy) as store:
        assert "s-fork" not in store.column("SELECT eval_id FROM recorded_sessions")
        later = store.now().astimezone().replace(year=2100)
    prune(copy, later)
    with Store(copy) as store:
        tables = ("recorded_sessions", "units", "experiments", "turns")
        assert [store.rows(f"SELECT count(*) FROM {one}")[0][0] for one in tables] == [0, 0, 0, 0]


# -- the HTML file --


class Page(HTMLParser):
    """The text of elements by class, and everything that could load or run something."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[tuple[str, str]] = []
        """Class and text of each table cell."""
        self.titles: list[str] = []
        self.loads: list[str] = []
        self._into: list[str] | None = None
        self._class = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in ("script", "iframe", "object", "img") or "src" in given or tag == "a":
            self.loads.append(tag)
        if tag == "link" and given.get("href") != "data:,":
            self.loads.append(tag)
        if tag in ("td", "th", "summary", "h1", "h2"):
            self._into, self._class = [], given.get("class", "")

    def handle_data(self, data: str) -> None:
        if self._into is not None:
            self._into.append(data)

    def handle_endtag(self, tag: str) -> None:
        if self._into is None or tag not in ("td", "th", "summary", "h1", "h2"):
            return
        text = " ".join("".join(self._into).split())
        if tag in ("td", "th"):
            self.cells.append((self._class, text))
        else:
            self.titles.append(text)
        self._into = None


@pytest.fixture(scope="module")
def text(path: Path) -> str:
    return (path.parent / "replay.html").read_text("utf-8")


def test_the_file_has_the_forecast_and_the_changed_sessions_and_loads_nothing(text: str) -> None:
    page = Page(text)

    assert page.loads == []
    assert "default-src 'none'" in text
    headings = [one for _, one in page.cells][:7]
    assert headings == [
        "metric",
        "old",
        "new, faithful",
        "difference",
        "estimate",
        "bounds",
        "verdict",
    ]
    assert "Newly failing 2" in page.titles
    assert "Newly passing 1" in page.titles
    assert "Forked 2" in page.titles
    assert "s-worse: ends_with_stop" in page.titles
    assert "s-fork: refund" in page.titles


def test_a_fork_is_marked_in_the_file_with_tool_arguments_and_why(text: str) -> None:
    forks = [one for kind, one in Page(text).cells if kind == "fork"]

    assert len(forks) == 3
    refund = next(one for one in forks if "refund" in one)
    for part in ("amount11 +1", '"D-5"', "refund has no recorded result for these arguments"):
        assert part in refund


def test_not_enough_to_tell_is_nowhere_marked_as_a_success(text: str) -> None:
    verdicts = re.findall(r'<span class="status (\w+)"><i[^>]*>(.)</i>([^<]+)</span>', text)

    assert verdicts == [("error", "?", "not enough to tell")] * 2, "seven sessions tell little"


def test_recorded_text_is_text(text: str) -> None:
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" not in text, "the turn is alike in a session that is not listed"


def test_what_there_is_no_room_for_is_counted(store: Store) -> None:
    forks = (ForkedTool("refund", 2, 0.1, sessions=("s-fork", "s-extra")),)
    found = ReplayResult(7, 11, None, None, {}, forks)

    whole = replay_html(found, store, experiment(store))
    cut = replay_html(found, store, experiment(store), most_bytes=1)

    assert "more sessions are not shown" not in whole
    assert "2 more sessions are not shown, to limit the size of this file" in cut
    assert 'class="fork"' not in cut
    hostile = replace(
        found, forks=(ForkedTool("<img src=x>", 1, 0.1, why="<b>", sessions=("s-same",)),)
    )
    shown = replay_html(hostile, store, experiment(store))
    assert Page(shown).loads == []
    assert "&lt;script&gt;alert(1)" in shown
