"""Experiments on the page: the list, one experiment, and the runs of a session beside each other."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest

from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import experiments
from evaltap.evaluator.store.queries import StoreReader
from support.servers.page_server import Served, served
from support.worlds.page_store import NOON, support_store
from support.worlds.replayed_shop import CANARY, SESSIONS, replayed_store


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a replay with two runs."""
    return replayed_store(tmp_path_factory.mktemp("replayed"))


@pytest.fixture
def page(path: Path, tmp_path: Path) -> Iterator[Served]:
    with served(path, tmp_path, masks=True) as found:
        yield found


def asked(**parameters: str) -> PageRequest:
    return PageRequest(parameters, Person("ann", "viewer"), Path("x.duckdb"), now=NOON)


def one(reader: StoreReader, **more: str) -> Any:
    (line,) = experiments.read(reader, asked()).experiments
    return experiments.view_one(reader, asked(id=line.experiment_id, **more)).data


def data_of(page: Served, path: str, role: str = "viewer") -> Any:
    answer = page.ask(f"{path}{'&' if '?' in path else '?'}format=json", role=role)
    assert answer.status == 200
    return orjson.loads(answer.body)["data"]


class Table(HTMLParser):
    """The cells of tables, by class, and the links."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.columns: list[str] = []
        self.differences = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag == "td" and given.get("data-column"):
            self.columns.append(given["data-column"] or "")
            self.differences += "data-difference" in given


@pytest.mark.slow
def test_the_list_tells_agent_states_and_the_rate_with_its_interval(reader: StoreReader) -> None:
    (line,) = experiments.read(reader, asked()).experiments

    assert (line.agent, line.runs, line.starts, line.is_replay) == ("agents:new", 2, 1, True)
    assert {one.state: one.count for one in line.states} == {"scored": 9, "crashed": 2, "forked": 3}
    rates = {one.metric: one for one in line.rates}
    assert (rates[""].passed, rates[""].rate.n) == (7, 11), "forked runs are in no rate"
    assert (rates["run_succeeded"].passed, rates["run_succeeded"].rate.n) == (9, 11)
    assert rates[""].rate.interval.low < 7 / 11 < rates[""].rate.interval.high


def test_an_experiment_lists_what_changed_first_as_the_forecast_does(reader: StoreReader) -> None:
    found = one(reader)

    kinds = {line.eval_id: line.kind for line in found.sessions}
    assert kinds == {
        "s-crash": "newly failing",
        "s-worse": "newly failing",
        "s-better": "newly passing",
        "s-extra": "forked",
        "s-fork": "forked",
        "s-skip": "off script",
        "s-same": "passed",
    }
    assert [tab.name for tab in found.tabs] == [
        "all", "newly failing", "newly passing", "forked", "off script", "passed",
    ]  # fmt: skip
    assert [*kinds][:2] == ["s-crash", "s-worse"]
    assert [run.kind for run in one(reader, show="forked").sessions[0].runs] == ["passed", "forked"]


def test_why_runs_have_no_result_is_counted_by_reason(reader: StoreReader) -> None:
    reasons = {(found.state, found.tool, found.why): found.count for found in one(reader).reasons}

    assert reasons == {
        ("forked", "refund", "has no recorded result for these arguments"): 2,
        ("forked", "search", "was not called in the recorded turn"): 1,
        ("crashed", "", "ValueError: no such order"): 2,
    }


def test_a_session_has_its_neighbours_in_the_shown_list(reader: StoreReader) -> None:
    found = one(reader, case="s-extra", show="forked")

    assert found.place == "1 of 2"
    assert found.previous_href == ""
    assert "case=s-fork" in found.next_href
    assert "show=forked" in found.next_href
    assert [bool(href) for href in found.run_hrefs] == [True, False], "the fork left no whole turn"


def test_the_page_shows_recorded_and_runs_in_columns(page: Served) -> None:
    href = data_of(page, "/experiments")["experiments"][0]["href"]

    text = page.ask(f"{href}&case=s-fork").text

    table = Table(text)
    assert set(table.columns) == {"recorded", "run 1", "run 2"}
    assert table.differences == 2, "the fork of each run, as targets of the keys"
    assert "refund has no recorded result for these arguments" in text
    assert CANARY in text


@pytest.mark.parametrize("case", ["", *SESSIONS])
def test_a_viewer_of_a_masked_page_sees_tools_and_no_word_of_what_was_said(
    page: Served, case: str
) -> None:
    href = data_of(page, "/experiments")["experiments"][0]["href"]
    path = f"{href}&case={case}" if case else href

    seen = page.ask(path, role="viewer").text + page.ask(f"{path}&format=json", role="viewer").text

    assert CANARY not in seen
    assert "D-5" not in seen
    assert "get_order" in seen or not case
    assert case != "s-fork" or CANARY in page.ask(path, role="reviewer").text


def test_what_does_not_exist_is_not_found(page: Served) -> None:
    href = data_of(page, "/experiments")["experiments"][0]["href"]

    assert page.ask("/experiment?id=x0").status == 404
    assert page.ask("/experiment").status == 404
    assert page.ask(f"{href}&case=s-none").status == 404
    assert page.ask(f"{href}&show=none&at=x").status == 200


def test_a_file_without_experiments_says_how_to_make_one(tmp_path: Path) -> None:
    with served(support_store(tmp_path, count=3), tmp_path) as page:
        text = page.ask("/experiments").text

    assert "No experiments yet" in text
    assert "evaltap replay" in text


def test_the_remark_under_the_list_is_one_paragraph(page: Served) -> None:
    """A paragraph that is laid out as a row breaks at each word in another type."""
    text = page.ask("/experiments").text

    assert re.search(r'<div class="under-table"><p class="remark">A run passes .*</p></div>', text)
