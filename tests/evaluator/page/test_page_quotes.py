"""Judges' quotes are marked in the text from which they were taken."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import case
from evaltap.evaluator.reports.html.rendering import Quote, pieces_of
from evaltap.evaluator.scoring.evaluators.judged.quotes import places_of, quoted_from
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from support.servers.page_server import served
from support.worlds.page_store import GENEROUS, NOON, support_store

ANSWER = "I have refunded 10 euros for order A-100."
KEY = {"app": "shop", "set": "live", "id": GENEROUS}


@pytest.mark.parametrize(
    ("quote", "text", "marked"),
    [
        ("refunded 10 euros", ANSWER, ["refunded 10 euros"]),
        ("\u201cI HAVE\n refunded\u201d", ANSWER, ["I have refunded"]),
        ("I have … order A-100", ANSWER, ["I have", "order A-100"]),
        ("ﬁve euros", "She got five  euros.", ["five  euros"]),
        ("refunded … 20 euros", ANSWER, []),
        ("…", ANSWER, []),
    ],
)
def test_a_quote_is_found_as_the_judge_may_write_it(
    quote: str, text: str, marked: list[str]
) -> None:
    assert [text[start:end] for start, end in places_of(quote, text)] == marked


@given(st.text(), st.lists(st.text(min_size=1, max_size=6), max_size=4))
def test_the_pieces_of_a_text_are_the_text(text: str, quotes: list[str]) -> None:
    pieces = pieces_of(text, [Quote(n, "rubric", quote) for n, quote in enumerate(quotes)])

    assert "".join(piece.text for piece in pieces) == text


@given(st.text(alphabet="aBc .…\n", max_size=40), st.data())
def test_a_part_of_a_text_is_found_in_it(text: str, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(text)))
    quote = text[start : data.draw(st.integers(start, len(text)))]
    if quoted_from(quote, [" ".join(text.casefold().split())]):
        assert places_of(quote, text)


@pytest.mark.slow
def test_evidence_is_linked_both_ways(tmp_path: Path) -> None:
    path = support_store(tmp_path, count=1)
    with Store(path) as store:
        store.execute(
            "UPDATE rubric_votes SET evidence = 'REFUNDED 10 euros', evidence_found = true"
            " WHERE invocation_id = 'g-2' AND rubric_id = 'no-promise'"
        )
        store.execute(
            "UPDATE rubric_votes SET evidence = 'never said', evidence_found = false"
            " WHERE invocation_id = 'g-2' AND rubric_id = 'names-order'"
        )
        asked = PageRequest(KEY, Person("ann", "admin"), path, now=NOON)
        with Readers(store).reading() as reader:
            page = case.view(reader, asked).data
    quotes = {
        one.rubric_id: one.quote
        for verdict in page.verdicts
        for one in verdict.rubrics
        if one.turn and one.turn.place == 2
    }
    assert quotes == {"no-promise": 1, "names-order": None}

    with served(path, tmp_path) as site:
        shown = site.ask(f"/case?app=shop&set=live&id={GENEROUS}").text

    assert '<mark id="e1">refunded 10 euros</mark>' in shown
    assert '<a class="cited" href="#v-llm_rubric_response">' in shown
    assert '<a href="#e1">evidence 1 in the conversation</a>' in shown
    assert "not found in the trace" in shown
