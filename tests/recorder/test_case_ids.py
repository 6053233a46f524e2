"""Functions of the user name the set and the case of a run."""

import logging
from collections.abc import Callable
from typing import Any

import pytest

from evaltap.recorder import IdResolver, MemorySink, Recorder, RunFacts
from evaltap.schemas.wire.record import decode_record


def say(recorder: Recorder, session: str = "s-1", **more: Any) -> None:
    with recorder.turn(session_id=session, user="hi", **more) as turn:
        turn.respond("hello")


def test_a_case_has_the_ids_that_the_functions_return_from_the_facts_of_its_run() -> None:
    sink, seen = MemorySink(), list[RunFacts]()

    def set_of(run: RunFacts) -> str:
        seen.append(run)
        return f"{run.app_name}-{run.state['tenant']}"

    with Recorder(
        sink=sink, tags=["canary"], eval_set_id=set_of,
        eval_id=lambda run: f"{run.user_id}/{run.session_id}",
    ) as recorder:  # fmt: skip
        say(recorder, app_name="shop", user_id="u-7", state={"tenant": "acme"})

    (case,) = sink.cases
    assert (case["evalSetId"], case["evalId"]) == ("shop-acme", "u-7/s-1")
    assert seen == [RunFacts("s-1", "shop", "u-7", {"tenant": "acme"}, ("canary",))]


def test_without_a_function_the_session_is_the_case() -> None:
    sink = MemorySink()

    with Recorder(sink=sink, eval_set_id=lambda _: "traffic") as recorder:
        say(recorder)

    (case,) = sink.cases
    assert (case["evalSetId"], case["evalId"]) == ("traffic", "s-1")


def raises(run: RunFacts) -> str:
    raise LookupError(f"secret of {run.session_id}")


def only_first(run: RunFacts) -> str:
    return "first" if run.session_id == "s-1" else " "


@pytest.mark.parametrize(
    ("resolver", "told"),
    [
        (raises, "raised LookupError"),
        (lambda _: "", "returned a blank id"),
        (lambda _: None, "returned NoneType"),
    ],
)
@pytest.mark.parametrize("name", ["eval_set_id", "eval_id"])
def test_a_turn_without_an_id_is_dropped_counted_and_told_once(
    name: str, resolver: Callable[[RunFacts], Any], told: str, caplog: pytest.LogCaptureFixture
) -> None:
    sink = MemorySink()
    given: dict[str, IdResolver] = {name: resolver}

    with caplog.at_level(logging.WARNING), Recorder(sink=sink, **given) as recorder:  # type: ignore[arg-type]  # one of two names
        for number in range(150):
            say(recorder, f"s-{number}")
    counters = recorder.counters()

    assert sink.cases == []
    assert dict(counters.dropped) == {"unresolved_id": 150}
    assert counters.faults == 0, "the recorder has not failed, and does not switch itself off"
    messages = [one.getMessage() for one in caplog.records if "resolver" in one.getMessage()]
    assert len(messages) == 1
    assert told in messages[0]
    assert "secret" not in caplog.text


def test_one_bad_turn_does_not_stop_the_others() -> None:
    sink = MemorySink()

    with Recorder(sink=sink, eval_id=only_first) as recorder:
        for session in ("s-0", "s-1", "s-2"):
            say(recorder, session)

    assert [case["evalId"] for case in sink.cases] == ["first"]
    assert recorder.counters().dropped == {"unresolved_id": 2}


@pytest.mark.parametrize("rules", ["", '[{"name": "angry", "keep": 1, "negativeFeedback": true}]'])
def test_feedback_is_about_the_case_of_its_session(rules: str) -> None:
    sink = MemorySink()
    rate = 0.0 if rules else 1.0

    with Recorder(
        sink=sink, eval_id=lambda run: run.state["order"], sample_rules=rules, sample_rate=rate
    ) as recorder:
        say(recorder, state={"order": "A-1"})
        recorder.flush(5)
        recorder.feedback("s-1", positive=False)

    items = [decode_record(one) for one in sink.records]
    ids = {getattr(one, "eval_id", None) or getattr(one, "case", {}).get("evalId") for one in items}
    assert ids - {None} == {"A-1"}
    assert recorder.counters().feedback == 1
    assert [case["evalId"] for case in sink.cases] == ["A-1"]


def test_feedback_on_a_session_whose_id_is_unknown_is_lost_and_counted() -> None:
    with Recorder(sink=MemorySink(), eval_id=lambda run: run.state["order"]) as recorder:
        recorder.feedback("never-seen", positive=True)

    assert recorder.counters().lost_feedback == 1


def test_the_run_of_an_experiment_keeps_its_ids() -> None:
    sink = MemorySink()

    with (
        Recorder(sink=sink, eval_set_id=lambda _: "x", eval_id=lambda _: "y") as recorder,
        recorder.run_labels(trial=1, eval_set_id="golden", eval_id="case-1"),
    ):
        say(recorder)

    assert [(one["evalSetId"], one["evalId"]) for one in sink.cases] == [("golden", "case-1")]
