"""Coverage on the page agrees with `evaltap set coverage`."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from evaltap.evaluator.page.request import PageRequest, key_of
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import coverage
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Readers
from support.builders.reports import write_cases
from support.servers.page_server import served
from support.worlds.page_store import GENEROUS, NOON, support_cases, support_store
from support.worlds.shop import Asked, landed


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return support_store(tmp_path_factory.mktemp("page"), count=14)


@pytest.fixture
def reader(path: Path) -> Iterator[StoreReader]:
    with Store(path) as store, Readers(store).reading(seconds=120) as found:
        yield found


def asked(*sets: Path, **parameters: str) -> PageRequest:
    person = Person("ann", "viewer")
    return PageRequest(parameters, person, Path("x.duckdb"), now=NOON, sets=sets)


@pytest.mark.slow
def test_what_no_set_has_is_listed_with_its_share(reader: StoreReader, tmp_path: Path) -> None:
    golden = write_cases(tmp_path, support_cases(14)[1:2], "golden.jsonl")

    page = coverage.read(reader, asked(golden, by="tool"))

    assert page.turns == 16
    assert page.found is not None
    assert {gap.value: gap.turns for gap in page.gaps} == {"refund": 1, "search": 1}
    assert page.gaps[0].href.startswith("/cases?q=tool%3A%22")
    paths = coverage.read(reader, asked(golden))
    assert "get_order > search > refund" in {gap.value for gap in paths.gaps}
    intents = coverage.read(reader, asked(golden, by="language"))
    assert intents.found is not None


def test_without_a_set_the_page_shows_what_a_first_one_could_hold(
    path: Path, tmp_path: Path
) -> None:
    with served(path, tmp_path) as site:
        answer = site.ask("/coverage")

    assert answer.status == 200
    assert "ui support.duckdb --set golden.evalset.json" in answer.text
    assert "get_order &gt; search" in answer.text


@pytest.mark.slow
def test_a_sample_of_what_is_not_covered_goes_to_the_basket(path: Path, tmp_path: Path) -> None:
    with Store(path) as store, Readers(store).reading(seconds=120) as found:
        gap = next(one for one in coverage.read(found, asked(by="tool")).gaps if one.turns >= 2)

    with served(path, tmp_path) as site:
        fields = {f"case-{number}": key for number, key in enumerate(gap.keys, start=1)}
        answer = site.ask(
            "/basket/pick", "POST", form={"next": "/coverage", **fields},
            headers={"Sec-Fetch-Site": "same-origin"},
        )  # fmt: skip
        basket = site.ask("/basket")

    assert answer.status == 303
    assert len(gap.keys) == len(set(gap.keys)) > 1
    assert all(key_of(key)[2] in basket.text for key in gap.keys)


def test_an_intent_is_named_by_the_words_of_its_user(reader: StoreReader) -> None:
    page = coverage.read(reader, asked(by="intent"))

    said = {text for (text,) in reader.rows("SELECT user_text FROM turns")}
    assert page.gaps
    assert {gap.value for gap in page.gaps} <= said


def test_sets_that_cannot_be_read_are_said(path: Path, tmp_path: Path) -> None:
    missing = (tmp_path / "none.json",)
    with served(path, tmp_path, sets=missing) as site:
        answer = site.ask("/coverage")

    assert answer.status == 400
    assert "none.json" in answer.text
    assert GENEROUS not in answer.text


@pytest.mark.slow
def test_a_long_question_does_not_fill_the_page(tmp_path: Path) -> None:
    store = landed(tmp_path, [Asked("Where is my order, please? " * 500)], metrics=[])

    with served(store, tmp_path) as site:
        text = site.ask("/coverage?by=intent").text

    assert text.count("Where is my order") < 20


def test_traffic_without_tools_is_no_period_without_turns(tmp_path: Path) -> None:
    store = landed(tmp_path, [Asked("Hello?", ())], metrics=[])

    with served(store, tmp_path) as site:
        tools, languages = (
            site.ask("/coverage?by=tool").text,
            site.ask("/coverage?by=language").text,
        )

    assert "No tool was called in this period" in tools
    assert "No language is known in this period" in languages


def test_commands_quote_the_name_of_the_store(tmp_path: Path) -> None:
    store = landed(tmp_path, [Asked("Hi")], metrics=[]).rename(tmp_path / "my shop.duckdb")

    with served(store, tmp_path) as site:
        text = site.ask("/coverage").text

    assert "evaltap ui &#39;my shop.duckdb&#39; --set" in text


def test_two_sessions_cannot_show_a_change(tmp_path: Path) -> None:
    store = landed(tmp_path, [Asked("Hi"), Asked("Hi", ("refund",), hours=30)], metrics=[])

    with served(store, tmp_path) as site:
        text = site.ask("/coverage?period=24h").text

    assert "Too few sessions (1 and 1) to find a change of the mix of tool paths." in text
