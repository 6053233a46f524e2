"""Feedback that another process gives, which knows the session but not in which eval set it is."""

import json

import pytest

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.analysis.filters.restricted import restricted
from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from support.builders.commands import Evaltap


@pytest.fixture
def landed(evaltap: Evaltap) -> Evaltap:
    """Three sessions of the eval set `live` in d.duckdb, two of them with a thumb."""
    with Recorder("l.db", eval_set_id=lambda run: "live") as agent:
        for session in ("s-up", "s-down", "s-none"):
            with agent.turn(session_id=session, user="hi", app_name="shop") as turn:
                turn.respond("done")
    with Recorder("l.db") as website:
        website.feedback("s-up", positive=True)
        website.feedback("s-down", positive=False)
    evaltap("consume", "--log", "l.db", "--db", "d.duckdb", "--until-idle")
    return evaltap


@pytest.mark.parametrize("summarised", [False, True])
def test_lists_and_filters_know_it(landed: Evaltap, *, summarised: bool) -> None:
    if summarised:
        with Store("d.duckdb") as store:
            Summaries(store).make()

    _, every, _ = landed("cases", "d.duckdb", "--json")
    _, down, _ = landed("cases", "d.duckdb", "feedback:down", "--json")

    thumbs = {one["eval_id"]: one["feedback"] for one in json.loads(every)}
    assert thumbs == {"s-up": "up", "s-down": "down", "s-none": None}
    assert [one["eval_id"] for one in json.loads(down)] == ["s-down"]


def test_a_store_restricted_to_the_case_has_it(landed: Evaltap) -> None:
    with Store("d.duckdb") as store, restricted(store, Choice(parse_filter("feedback:up"))):
        assert store.rows("SELECT eval_set_id, eval_id, positive FROM v_feedback") == [
            ("live", "s-up", True)
        ]
