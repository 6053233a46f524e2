"""Repeated evaluation of watches equals a first evaluation, whatever lands in between, and when."""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from evaltap.evaluator.analysis.estimates.scope import SLICES
from evaltap.evaluator.monitoring import learned
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.replay import Watches
from evaltap.evaluator.monitoring.turns import NOTHING, ChangeFinder, read_turns, turns_of
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.monitor import MonitorFile, Watch
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import WireRecord, encode_case, encode_feedback
from support.builders.cases import make_case, make_turn, write_log
from support.builders.commands import Evaltap
from support.worlds.watched_traffic import FIRST, traffic, write_metrics

RULES = MonitorFile(
    watch=[
        Watch(name="helpful", metric="helpful", by=["tool"]),
        Watch(name="desk", metric="helpful", where={"app": "desk"}, baseline_days=7),
        Watch(name="slow", signal="slow_rate", baseline_days=7),
        Watch(name="floor", metric="helpful", below=0.9),
        Watch(name="slower", signal="slow_rate", above=0.2, hours=48),
        Watch(name="alive", signal="silence", minutes=600),
    ]
)
DAILY = 40


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    write_metrics()
    return evaltap


def breaks(tool: str, day: int) -> float:
    return 0.8 if tool == "refund" and 16 <= day < 20 else 0.04


def drags(day: int, number: int) -> float:
    return 100.0 + (max(number, 17) if 16 <= day < 20 else number)


def land(evaltap: Evaltap, records: Sequence[WireRecord]) -> None:
    write_log(Path("t.log.db"), list(records))
    evaltap(
        "consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json", "--until-idle"
    )


def complaint(session: str) -> WireRecord:
    given = Feedback(
        f"f-{session}", session, session, FIRST, invocation_id="t-1", name="thumbs", positive=False
    )
    return encode_feedback(given, producer_id="q")


@contextmanager
def stored() -> Iterator[Store]:
    with Store("t.duckdb", create=False) as store:
        yield store


def settled(events: Sequence[Event]) -> list[Event]:
    """Return events without the time of those that only learn: they are looked at once an hour."""
    return [replace(one, at=None) if one.status == "learning" else one for one in events]


def chunks(source: random.Random) -> Iterator[tuple[list[WireRecord], datetime]]:
    """Yield what lands between two looks, and the time of the look: some days come late, out of order."""
    daily = 32
    records = traffic(breaks, days=26, daily=daily, latency=drags)
    late: list[WireRecord] = []
    place = 0
    while place < len(records):
        end = min(len(records), place + source.choice((daily // 2, daily, 3 * daily, 6 * daily)))
        some = records[place:end]
        held = [one for one in some if source.random() < 0.03]
        now = [one for one in some if one not in held]
        if source.random() < 0.4:
            now, late = [*now, *late], []
        late += held
        place = end
        yield now, FIRST + timedelta(days=end / daily)
    yield late, FIRST + timedelta(days=27)


@pytest.mark.slow
def test_looks_that_go_on_find_what_a_first_look_finds(evaltap: Evaltap) -> None:
    going_on, fired = Watches(RULES), set()

    for records, now in chunks(random.Random(3)):
        land(evaltap, records)
        with stored() as store:
            found = settled(going_on.evaluate(store, now, silent_to=now))
            first = Watches(RULES).evaluate(store, now, silent_to=now)
            assert found == settled(first), now
        fired |= {(one.watch, one.quantile) for one in found if one.status == "firing"}

    assert fired >= {("helpful", None), ("slow", 0.5), ("floor", None), ("alive", None)}


@pytest.mark.slow
def test_a_look_reads_no_day_that_is_over(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(*given: object, **more: object) -> object:
        found = read_turns(*given, **more)  # type: ignore[arg-type]  # as they come
        read.append(len(found))
        return found

    monkeypatch.setattr(learned, "read_turns", counted)
    records = traffic(lambda tool, day: 0.04, days=21)
    watches = Watches(MonitorFile(watch=[Watch(name="helpful", metric="helpful")]))
    land(evaltap, records[: 20 * DAILY])
    with stored() as store:
        watches.evaluate(store)
    assert read == [20 * DAILY]

    for place in range(20 * DAILY, 21 * DAILY, 10):
        land(evaltap, records[place : place + 10])
        with stored() as store:
            watches.evaluate(store)

    assert max(read[1:]) <= 2 * DAILY


@pytest.mark.slow
def test_many_alarms_read_the_whole_traffic_as_often_as_one(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(*given: object, **more: object) -> object:
        read.extend(given[3][:1])  # type: ignore[index]  # the slices
        return turns_of(*given, **more)  # type: ignore[arg-type]  # as they come

    monkeypatch.setattr(learned, "turns_of", counted)
    land(evaltap, traffic(lambda tool, day: 0.6 if day in (14, 15, 22, 23) else 0.04, days=30))
    rules = MonitorFile(watch=[Watch(name="helpful", metric="helpful", baseline_days=14)])

    with stored() as store:
        found = Watches(rules).evaluate(store)

    assert [one.status for one in found].count("firing") == 2
    assert sorted(read) == sorted(SLICES)


@pytest.mark.slow
def test_what_was_erased_rebased_or_complained_about_is_seen(evaltap: Evaltap) -> None:
    unhappy = Watch(name="unhappy", signal="negative_feedback", baseline_days=7)
    rules = MonitorFile(watch=[Watch(name="helpful", metric="helpful"), unhappy])
    watches = Watches(rules)
    land(evaltap, traffic(breaks, days=20))

    def same() -> list[Event]:
        with stored() as store:
            found = watches.evaluate(store)
            assert settled(found) == settled(Watches(rules).evaluate(store))
        return found

    first = same()
    assert [one.status for one in first if one.watch == "helpful"] == ["firing"]
    write_log(
        Path("t.log.db"),
        [complaint(f"s-10-{at}") for at in range(20)],
    )
    land(evaltap, [])
    complained = same()
    assert evaltap("store", "erase", "--subject", first[0].cases[0], "--db", "t.duckdb")[0] == 0
    erased = same()
    assert evaltap("monitor", "rebase", "t.duckdb", "helpful")[0] == 0
    rebased = same()

    assert first != complained != erased
    assert [one.status for one in rebased if one.watch == "helpful"] == ["no_data"]


def test_nothing_new_is_nothing_to_read(evaltap: Evaltap) -> None:
    finder = ChangeFinder()
    land(evaltap, traffic(breaks, days=2))
    with stored() as store:
        finder.find(store)
        again = finder.find(store)

    assert again.since == NOTHING
    assert not again.versions


@pytest.mark.slow
def test_turns_of_a_fast_clock_end_no_alarm_before_their_time(evaltap: Evaltap) -> None:
    records = traffic(lambda tool, day: 0.8 if day >= 16 else 0.04, days=20)
    for number in range(2 * DAILY):
        at = FIRST + timedelta(days=900, minutes=number)
        turn = make_turn(answer="done", creationTimestamp=at.timestamp())
        case = make_case(f"fast-{number}", [turn], conversation=[make_turn()])
        records.append(encode_case(case, producer_id="q", seq=number + 1, time=FIRST))
    land(evaltap, records)
    rules = MonitorFile(watch=[Watch(name="helpful", metric="helpful")])

    with stored() as store:
        now = Watches(rules).evaluate(store, FIRST + timedelta(days=21))
        later = Watches(rules).evaluate(store, FIRST + timedelta(days=910))

    assert [one.status for one in now] == ["firing"]
    assert [one.status for one in later][:2] == ["firing", "resolved"]
