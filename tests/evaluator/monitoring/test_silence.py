"""Silence, which only the clock sees, and the states of watches between alarms."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.monitoring.history import Alert, read_states
from evaltap.evaluator.monitoring.replay import Watches
from evaltap.evaluator.pipeline.live.watcher import CAUGHT_UP_SECONDS, LOOK_SECONDS, LogEnd, Watcher
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.monitor import MonitorFile, Watch
from evaltap.schemas.wire.record import WireRecord, encode_case
from support.builders.cases import make_case, make_turn, write_log
from support.builders.commands import Evaltap
from support.builders.memory_source import MemorySource
from support.builders.waiting import wait_for
from support.worlds.watched_traffic import FIRST, traffic

DAILY = 40


def consume(evaltap: Evaltap) -> None:
    assert evaltap("consume", "--log", "t.log.db", "--db", "t.duckdb", "--until-idle")[0] == 0


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.slow
def test_silence_begins_while_nothing_lands_and_only_when_the_log_is_read(evaltap: Evaltap) -> None:
    write_log(Path("t.log.db"), traffic(lambda tool, day: 0, days=1))
    consume(evaltap)
    clock, heard = Clock(), list[Alert]()
    rules = MonitorFile(watch=[Watch(name="alive", signal="silence", minutes=60)])
    last = FIRST + timedelta(minutes=30 * (DAILY - 1))
    wall = last + timedelta(minutes=59)
    with Store("t.duckdb") as store:
        watcher = Watcher(store, rules, heard.extend, clock=clock, now=lambda: wall)
        for minutes, waits in ((59, 0.0), (61, LOOK_SECONDS), (61, CAUGHT_UP_SECONDS), (90, 60.0)):
            wall = last + timedelta(minutes=minutes)
            clock.now += waits
            watcher.step({} if minutes == 59 else None)
            wait_for(lambda: watcher.step(None) or watcher.idle)
            if waits == LOOK_SECONDS:
                assert not heard, "records may still wait on the log"
        watcher.close()

        assert [(one.event.status, one.event.since) for one in heard] == [
            ("firing", last.astimezone(UTC).replace(tzinfo=None))
        ]


@pytest.mark.slow
def test_silence_of_one_app_begins_and_ends_while_others_send_turns(evaltap: Evaltap) -> None:
    write_log(Path("t.log.db"), turn_of("desk", 0))
    consume(evaltap)
    clock, heard, wall = Clock(), list[Alert](), FIRST
    watch = Watch(name="desk", signal="silence", minutes=5, where={"app": "desk"})
    read_to: datetime | None = None
    with Store("t.duckdb") as store:
        watcher = Watcher(
            store, MonitorFile(watch=[watch]), heard.extend,
            clock=clock, now=lambda: wall, read_to=lambda: read_to,
        )  # fmt: skip
        source, lander, states = MemorySource(), Lander(store), []
        for minute in range(1, 15):
            app = "desk" if minute == 10 else "shop"
            source.append(turn_of(app, minute))
            lander.land(source.poll(1, 0.0))
            wall = FIRST + timedelta(minutes=minute)
            read_to = wall if minute >= 8 else None
            clock.now += LOOK_SECONDS
            watcher.step({})
            wait_for(lambda: watcher.step(None) or watcher.idle)
            states.append([one.event.status for one in read_states(store)])
        watcher.close()
        last = read_states(store)[0].event

    assert [(one.event.status, one.event.at) for one in heard] == [
        ("firing", at_minute(5)),
        ("resolved", at_minute(10)),
    ]
    assert states[6] == [], "the consumer may be behind"
    assert (states[7], states[9]) == (["firing"], ["ok"])
    assert (last.status, last.at) == ("ok", at_minute(10))


def at_minute(minute: int) -> datetime:
    return (FIRST + timedelta(minutes=minute)).replace(tzinfo=None)


def turn_of(app: str, minute: int, latency: float = 100.0) -> list[WireRecord]:
    """A session of one turn."""
    at = FIRST + timedelta(minutes=minute)
    turn = make_turn(creationTimestamp=at.timestamp(), telemetry={"latencyMs": latency})
    case = make_case(f"m-{minute}", [turn])
    case["sessionInput"]["appName"] = app
    return [encode_case(case, producer_id="p", seq=minute + 1, time=at)]


def test_a_log_is_read_up_to_when_it_was_asked_once_all_that_it_held_has_landed() -> None:
    now, delay = FIRST, timedelta(seconds=10)
    source = MemorySource([*turn_of("shop", 0), *turn_of("shop", 1)])
    with Store(":memory:") as store:
        log_end = LogEnd(source, store, now=lambda: now)
        source.seek({})
        lander = Lander(store)

        assert log_end.read_to() is None
        now += timedelta(minutes=1)
        lander.land(source.poll(1, 0.0))
        assert log_end.read_to() is None, "one record waits"
        lander.land(source.poll(1, 0.0))
        assert log_end.read_to() == FIRST - delay, "when it was asked, not now"
        assert log_end.read_to() == now - delay


def test_the_states_of_the_last_evaluation_are_stored_in_the_end() -> None:
    clock = Clock()
    watch = Watch(name="slow", signal="mean_latency", above=500, hours=24)
    with Store(":memory:") as store:
        source, lander = MemorySource(), Lander(store)
        watcher = Watcher(
            store, MonitorFile(watch=[watch]), lambda _: None,
            clock=clock, now=lambda: FIRST + timedelta(hours=9),
        )  # fmt: skip
        for place, latency in enumerate((100, 300)):
            records = [
                record
                for minute in range(30 * place, 30 * place + 30)
                for record in turn_of("shop", minute, latency)
            ]
            source.append(records)
            lander.land(source.poll(100, 0.0))
            clock.now += LOOK_SECONDS
            watcher.step({})
            wait_for(lambda: watcher.step(None) or watcher.idle)
        watcher.close()
        (state,) = read_states(store)

    assert state.event.rate_after == 200


def test_the_state_after_an_alarm_is_that_of_now_and_not_of_its_end() -> None:
    watch = Watch(name="slow", signal="mean_latency", above=500, hours=1)
    turns = [turn_of("shop", minute, 900 if minute < 30 else 100) for minute in range(200)]
    with Store(":memory:") as store:
        Lander(store).land(MemorySource([one for (one,) in turns]).poll(200, 0.0))
        fires, ends, now = Watches(MonitorFile(watch=[watch])).evaluate(store)

    assert [one.status for one in (fires, ends, now)] == ["firing", "resolved", "ok"]
    assert (now.at, now.rate_after) == (at_minute(200), 100)
    assert ends.rate_after is not None
    assert ends.rate_after > 100


def test_a_limit_is_not_kept_by_figures_of_traffic_that_has_ended() -> None:
    watch = Watch(name="slow", signal="mean_latency", above=500, hours=1)
    minutes = {minute: 100 for minute in range(100)} | {230: 900}
    records = [turn_of("shop", minute, latency) for minute, latency in minutes.items()]
    with Store(":memory:") as store:
        Lander(store).land(MemorySource([one for (one,) in records]).poll(200, 0.0))
        (now,) = Watches(MonitorFile(watch=[watch])).evaluate(store)

    assert (now.status, now.rate_after) == ("learning", None)
    assert now.progress == "effectively fewer than 10 sessions in 1 hour"


def test_who_only_waits_for_the_watches_to_end_waits_through_no_pause() -> None:
    ends = False
    rules = MonitorFile(watch=[Watch(name="alive", signal="silence", minutes=60)])
    with Store(":memory:") as store:
        watcher = Watcher(store, rules, lambda _: None, ends=lambda: ends, clock=Clock())
        wait_for(lambda: watcher.step(None) or watcher.idle)
        watcher.step({})
        watcher.step(None)
        assert not watcher._evaluation.runs, "landing has priority"

        ends = True
        wait_for(lambda: watcher.step(None) or watcher.idle)
        watcher.close()


@pytest.mark.slow
def test_a_turn_of_a_fast_clock_ends_no_silence(evaltap: Evaltap) -> None:
    fast = make_turn(creationTimestamp=(FIRST + timedelta(days=900)).timestamp())
    record = encode_case(make_case("fast", [fast]), producer_id="q", seq=1, time=FIRST)
    write_log(Path("t.log.db"), [*traffic(lambda tool, day: 0, days=1), record])
    consume(evaltap)
    rules = MonitorFile(watch=[Watch(name="alive", signal="silence", minutes=60)])

    now = FIRST + timedelta(days=2)
    with Store("t.duckdb") as store:
        (event,) = Watches(rules).evaluate(store, now, silent_to=now)

    assert event.status == "firing"
