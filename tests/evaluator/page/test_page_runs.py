"""Runs and their comparison on the page, read without a server and over HTTP."""

import json
import re
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import compare, runs
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Readers
from support.builders.cases import RESPONSE, make_case, make_turn
from support.servers.page_server import served
from support.worlds.page_store import GENEROUS, NOON, TRAJECTORY_F1, compared_store, support_store
from support.worlds.shop import POLITE, Asked, landed


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two runs over two versions of 31 sessions."""
    return compared_store(tmp_path_factory.mktemp("page"))


def asked(**parameters: str) -> PageRequest:
    return PageRequest(parameters, Person("ann", "viewer"), Path("x.duckdb"), now=NOON)


@pytest.mark.slow
def test_runs_are_newest_first_and_the_two_newest_are_chosen(reader: StoreReader) -> None:
    page = runs.read(reader, asked())

    assert [(line.run.kind, line.run.cases, line.role) for line in page.runs] == [
        ("landed", 31, "b"),
        ("landed", 31, "a"),
    ]
    assert page.runs[0].run.started_at > page.runs[1].run.started_at
    assert runs.read(reader, asked(at="1")).newer_href == "/runs"


def test_a_run_has_its_metrics_and_its_worst_cases(reader: StoreReader) -> None:
    run_id = runs.read(reader, asked()).runs[0].run.run_id
    page = runs.read_one(reader, run_id)

    assert page is not None
    metric = {one.metric_name: one for one in page.summary.metrics}["trajectory_f1"]
    assert (metric.passed, metric.failed, metric.crashed) == (23, 6, 2)
    failing = {one.case.eval_id: one.href for one in page.worst if one.case.status == "failed"}
    assert len(failing) == 6
    assert failing[GENEROUS].startswith(f"/case?set=branch&id={GENEROUS}&app=shop&run={run_id}")
    assert page.cases_href.startswith("/cases?q=run")
    assert runs.view_one(reader, asked(id="none")).status == 404


@pytest.mark.slow
def test_a_comparison_without_most_cases_of_a_says_that_it_decides_nothing(tmp_path: Path) -> None:
    metrics = tmp_path / "m.json"
    metrics.write_text(json.dumps([RESPONSE]))
    for cases in (10, 3):
        lines = [make_case(f"c-{number}", conversation=[make_turn()]) for number in range(cases)]
        (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
        main(["score", str(tmp_path / "c.jsonl"), "--metrics", str(metrics),
              "--db", str(tmp_path / "x.duckdb")])  # fmt: skip

    with Store(tmp_path / "x.duckdb") as store, Readers(store).reading(seconds=60) as reader:
        page = compare.read(reader, asked())

        (newest, _) = runs.read(reader, asked()).runs
        of_files = runs.read_one(reader, newest.run.run_id)

    assert of_files is not None
    assert of_files.cases_href == "", "none of them has landed, so no list has them"
    assert page.headline.startswith("inconclusive")
    assert page.notes[0].startswith("7 of 10 cases of base are not in head")


def test_a_comparison_tells_what_broke_and_what_was_fixed(reader: StoreReader) -> None:
    page = compare.read(reader, asked())

    assert page.problem == ""
    assert page.metric == "trajectory_f1"
    counts = {tab.name: tab.count for tab in page.tabs}
    assert counts == {"broken": 7, "fixed": 2, "flaky": 0, "failing": 1, "all": 31}
    assert page.show == "broken"
    assert {row.case.outcome for row in page.rows} == {"newly_failing"}
    (line,) = [one for one in page.metrics if one.metric.metric == "trajectory_f1"]
    assert line.rates == ("90.3%", "74.2%")
    assert line.verdict == "no significant change"
    assert page.a is not None
    assert page.b is not None
    other_way = {"a": page.b.run.run_id, "b": page.a.run.run_id, "metric": "trajectory_f1"}
    swapped = compare.read(reader, asked(**other_way))
    assert {tab.name: tab.count for tab in swapped.tabs}["broken"] == 2


def test_a_row_has_the_question_and_why_the_failing_run_failed(reader: StoreReader) -> None:
    broken = {row.case.name: row for row in compare.read(reader, asked()).rows}
    fixed = compare.read(reader, asked(show="fixed")).rows

    assert broken[GENEROUS].opening == "Hello, I need help with an order."
    assert "refund (amount: expected 10, found 100)" in broken[GENEROUS].reason
    assert len(fixed) == 2
    assert all("missing" in row.reason for row in fixed)


def test_broken_cases_stand_by_reason_frequent_ones_first(reader: StoreReader) -> None:
    rows = compare.read(reader, asked()).rows

    assert [(row.group.rpartition(": ")[2], bool(row.reason)) for row in rows] == [
        ("missing track_parcel (4 cases)", False),
        *[("", False)] * 3,
        ("the model did not answer) (2 cases)", False),
        ("", False),
        ("other reasons", True),
    ]
    assert not any(row.group for row in compare.read(reader, asked(show="all")).rows)


def test_an_open_row_has_the_difference_of_both_sides(reader: StoreReader) -> None:
    closed = compare.read(reader, asked())
    row = next(one for one in closed.rows if one.case.name == GENEROUS)
    app, eval_set, eval_id = row.case.key
    page = compare.read(reader, asked(app=app, set=eval_set, id=eval_id))

    a, b = page.opened
    assert (a.cell and a.cell.status, b.cell and b.cell.status) == ("passed", "failed")
    assert [line.kind for line in a.turns[1].lines] == ["same"] * 3
    assert [line.kind for line in b.turns[1].lines] == ["same", "left_out", "changed", "missing"]
    assert [one.opened for one in page.rows].count(True) == 1


@pytest.mark.slow
def test_runs_of_files_show_verdicts_and_no_turns(tmp_path: Path) -> None:
    path = compared_store(tmp_path, count=12, files=True)
    with Store(path) as store:
        page = compare.read(store, asked(app="", set="", id=GENEROUS))
        (row,) = [one for one in page.rows if one.case.name == GENEROUS]
        assert (row.opening, "refund" in row.reason) == ("", True)
        app, eval_set, eval_id = row.case.key
        page = compare.read(store, asked(app=app, set=eval_set, id=eval_id))

    assert [(side.cell and side.cell.status, side.turns) for side in page.opened] == [
        ("passed", ()),
        ("failed", ()),
    ]
    assert all("scored from a file" in side.note for side in page.opened)


def test_what_cannot_be_compared_says_why(reader: StoreReader, tmp_path: Path) -> None:
    assert "no run 'x' with scores" in compare.read(reader, asked(a="x")).problem
    with Store(tmp_path / "empty.duckdb") as store:
        assert compare.read(store, asked()).problem == "A comparison needs two runs."
        assert runs.read(store, asked()).runs == ()


def test_runs_and_comparisons_have_a_twin(path: Path, tmp_path: Path) -> None:
    with served(path, tmp_path) as site:
        page = site.ask("/compare?show=all")
        twin = json.loads(site.ask("/compare?show=all&format=json").body)
        listed = json.loads(site.ask("/runs?format=json", role="viewer").body)

    assert page.status == 200
    assert "no significant change" in page.text
    assert len(twin["data"]["rows"]) == 31
    assert listed["data"]["total"] == 2


@pytest.mark.slow
def test_a_run_that_there_is_not_is_said_on_the_page(tmp_path: Path) -> None:
    with served(support_store(tmp_path, count=5), tmp_path) as site:
        answer = site.ask("/compare?a=x")

    assert answer.status == 200
    assert "Nothing to compare" in answer.text
    assert "There is no run &#39;x&#39; with scores." in answer.text


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with one run over the traffic of two versions; the newer one is mostly impolite."""
    asked_of = {
        version: [
            Asked(
                f"Where is order {version} {number}?",
                answer="No." if version == "2.0" and number % 4 else "Here, please.",
                session=f"{version}-{number}",
                hours=float(version),
                source={"version": version},
            )
            for number in range(40)
        ]
        for version in ("1.0", "2.0")
    }
    return landed(tmp_path_factory.mktemp("versions"), [*asked_of["1.0"], *asked_of["2.0"]])


@pytest.mark.slow
def test_two_versions_in_one_store_are_compared_by_their_traffic(two_versions: Path) -> None:
    with Store(two_versions) as store:
        Summaries(store).refresh()
        with Readers(store).reading(seconds=120) as reader:
            listed = runs.read(reader, asked())
            page = compare.read(reader, asked())
            swapped = compare.read(reader, asked(a="version:2.0", b="version:1.0"))
            mixed = compare.read(reader, asked(a="version:1.0", b=listed.runs[0].run.run_id))

    assert (len(listed.runs), listed.versions) == (1, 2)
    assert page.chosen == ("version:1.0", "version:2.0")
    (metric,) = page.metrics
    assert (metric.verdict, metric.rates) == ("worse", ("100.0%", "25.0%"))
    assert metric.href == "/cases?q=version%3A2.0+metric%3Apolite%3Dfailed%2Ccrashed"
    assert swapped.metrics[0].verdict == "better"
    assert mixed.problem.startswith("One side is a version")


def test_the_form_offers_the_versions(two_versions: Path, tmp_path: Path) -> None:
    with served(two_versions, tmp_path) as page:
        shown = page.ask("/compare").text
        cases = json.loads(
            page.ask("/cases?q=version%3A2.0+metric%3Apolite%3Dfailed%2Ccrashed&format=json").body
        )["data"]

    assert '<option value="version:2.0" selected>2.0</option>' in shown
    assert "Sessions of traffic are not paired" in shown
    assert "A, base" in shown, "reasons name the sides so"
    assert re.search(r'class="whole"><div><span class="change .*</div></td>', shown)
    assert cases["matched"] == 30


@pytest.mark.slow
def test_recordings_of_one_case_are_told_apart_and_reasons_stand_apart(tmp_path: Path) -> None:
    asked_of = [
        Asked(
            "Where is A-1?", answer="No.", session="s-1", source={"version": version, "run": "ci"}
        )
        for version in ("1.0", "2.0")
    ]
    store = landed(tmp_path, asked_of, metrics=[POLITE, TRAJECTORY_F1])

    with served(store, tmp_path) as page:
        run_id = json.loads(page.ask("/runs?format=json").body)["data"]["runs"][0]["run"]["run_id"]
        shown = page.ask(f"/run?id={run_id}").text

    names = re.findall(r"<b[^>]*>([^<]*s-1)</b>", shown)
    assert len(names) == len(set(names)) == 2
    assert re.search("2 \u00d7</span></span> <span", shown)
