"""Watches on live traffic: quiet in quiet months, fast when something breaks, and naming the change."""

import math
import random
from datetime import date, timedelta
from typing import Any

import pytest

from evaltap.evaluator.analysis.stats.detector import (
    BadTurns,
    Detector,
    Usual,
    longest_session,
    usual,
)
from evaltap.evaluator.monitoring.learned import Alarms
from support.proofs.latency_simulation import LatencyMonth, simulate_latencies, simulate_means
from support.proofs.watch_simulation import Month, alarm_of, simulate_months, simulate_rises
from support.worlds.traffic import binomial_bounds

CHANCE = 0.05
FIRST_DAY = date(2026, 11, 1)


@pytest.mark.parametrize(
    "month",
    [
        Month(50),
        pytest.param(Month(200, day_spread=0.02), marks=pytest.mark.slow),
        pytest.param(Month(500, day_spread=0.01), marks=pytest.mark.slow),
    ],
)
def test_quiet_months_stay_quiet_though_days_differ(month: Month) -> None:
    rounds = 50
    found = simulate_months(month, rounds, chance=CHANCE, seed=3)

    assert found.alarms <= binomial_bounds(rounds, CHANCE)[1]
    if month.sessions < 500:  # so many sessions hardly vary from day to day
        assert found.naive > 0.2, "an alarm at a threshold would pass this test, too"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("month", "days"), [(Month(200, later=0.1), 4.0), (Month(50, later=0.2), 3.0)]
)
def test_a_rise_is_found_within_days(month: Month, days: float) -> None:
    found = simulate_months(month, 40, chance=CHANCE, seed=4)

    assert found.alarms > 0.9
    assert found.delay <= days


NIGHT, OFFICE = (0, 6), (8, 17)


@pytest.mark.parametrize(
    "month",
    [
        Month(200, rate=0.03, hours=NIGHT, hours_rate=0.2),
        Month(200, rate=0.43, hours=NIGHT, hours_rate=0.73),
        Month(100, weekend_rate=0.2),
        pytest.param(Month(500, rate=0.04, hours=NIGHT, hours_rate=0.12), marks=pytest.mark.slow),
        pytest.param(Month(500, hours=OFFICE, hours_rate=0.15), marks=pytest.mark.slow),
        pytest.param(Month(500, hours=(0, 9), hours_rate=0.15), marks=pytest.mark.slow),
    ],
)
def test_what_repeats_every_day_or_week_is_no_news(month: Month) -> None:
    rounds = 12
    found = simulate_months(month, rounds, chance=CHANCE, seed=3)

    assert found.alarms <= binomial_bounds(rounds, CHANCE)[1]


@pytest.mark.slow
def test_a_rise_is_found_as_soon_though_hours_differ() -> None:
    month = Month(200, later=0.25, rate=0.03, hours=NIGHT, hours_rate=0.2)

    found = simulate_months(month, 20, chance=CHANCE, seed=4)

    assert found.alarms > 0.9
    assert found.delay <= 2


@pytest.mark.slow
@pytest.mark.parametrize("month", [Month(20, later=0.2), Month(100, later=0.15)])
def test_an_alarm_does_not_resolve_while_the_rise_lasts_and_does_when_it_is_over(
    month: Month,
) -> None:
    found = simulate_rises(month, 20, chance=CHANCE, seed=6)

    assert found.alarms >= 18
    assert found.resolved <= binomial_bounds(found.alarms, CHANCE)[1]
    assert found.days <= 10


def test_a_few_good_sessions_in_an_outage_end_no_alarm() -> None:
    watch = Alarms(Usual(0.05, 0.1, 400), 1, CHANCE)
    today = date(2026, 11, 20)
    while not watch.firing:
        watch.observe(today, BadTurns(1, 1))

    shares = [watch.recovered(today, BadTurns(0, 1)) for _ in range(19)]

    assert set(shares) == {None}
    assert watch.recovered(today, BadTurns(0, 1)) == 0


@pytest.mark.slow
def test_an_alarm_says_since_when() -> None:
    source = random.Random(5)
    begun = [alarm_of(Month(200, later=0.15), CHANCE, source) for _ in range(20)]

    days = [alarm.began for alarm in begun if alarm is not None]
    assert len(days) == 20
    assert sum(abs(day - Month.CHANGES) <= 1 for day in days) >= 17


def test_days_that_differ_raise_what_a_usual_day_may_have() -> None:
    alike = [[BadTurns(1, 10)] * 10 for _ in range(14)]
    unlike = [[BadTurns(at % 2 * 2, 10)] * 10 for at in range(14)]

    assert usual(alike).share == usual(unlike).share == pytest.approx(0.1)
    assert usual(unlike).most > usual(alike).most > 0.1
    assert usual(alike, 0.05).most == pytest.approx(usual(alike).most + 0.05)


def test_values_that_are_always_equal_leave_room_for_chance() -> None:
    days = [[BadTurns(0.1, 1)] * 50 for _ in range(14)]

    assert usual(days).most > 0.11


def test_one_session_alone_raises_no_alarm_however_long_it_is() -> None:
    detector = Detector(Usual(0.05, 0.05, 1), longest_session([1, 2, 900]), CHANCE)
    detector.new_day()

    assert not detector.observe(BadTurns(900, 900))
    assert detector.evidence < 0.05


def test_weights_of_sampled_traffic_change_the_unit_and_nothing_else() -> None:
    source = random.Random(9)
    known = Usual(0.1, 0.1, 1)
    one, ten = Detector(known, 4, CHANCE), Detector(known, 40, CHANCE)
    for _ in range(3):
        one.new_day()
        ten.new_day()
        for _ in range(30):
            turns = source.randint(1, 4)
            bad = sum(source.random() < 0.3 for _ in range(turns))
            assert one.observe(BadTurns(bad, turns)) == ten.observe(BadTurns(10 * bad, 10 * turns))

    assert one.evidence == pytest.approx(ten.evidence)
    assert one.evidence > 0.01


@pytest.mark.parametrize(
    "later", [lambda day: 0.25 / (1 + day / 5), lambda day: 0.04 + 0.2 * (day % 2)]
)
def test_months_in_which_good_turns_are_sampled_otherwise_than_before_stay_quiet(
    later: Any,
) -> None:
    source, rounds, failing, alarms = random.Random(5), 20, 0.05, 0

    def sampled(rate: float) -> list[BadTurns]:
        turns = (source.random() < failing for _ in range(200))
        return [
            BadTurns(1, 1) if bad else BadTurns(0, 1 / rate)
            for bad in turns
            if bad or source.random() < rate
        ]

    for _ in range(rounds):
        watched = Alarms(usual([sampled(0.25) for _ in range(14)]), 4, CHANCE)
        days = ((FIRST_DAY + timedelta(day), sampled(later(day))) for day in range(30))
        alarms += any(watched.observe(day, one) for day, many in days for one in many)

    assert alarms <= binomial_bounds(rounds, CHANCE)[1] * rounds


@pytest.mark.slow
def test_latencies_of_quiet_months_stay_quiet_though_two_shares_are_watched() -> None:
    rounds = 60
    found = simulate_latencies(LatencyMonth(50, day_spread=0.05), rounds, chance=CHANCE, seed=3)

    assert found.alarms <= binomial_bounds(rounds, CHANCE)[1]


@pytest.mark.slow
def test_a_shift_of_all_latencies_is_found_sooner_than_by_the_slowest_turns_alone() -> None:
    found = simulate_latencies(LatencyMonth(100, slower=0.3), 15, chance=CHANCE, seed=4)

    assert found.alarms == 1
    assert found.delay < 0.8 * found.tail_delay


@pytest.mark.slow
@pytest.mark.parametrize(
    "month",
    [
        LatencyMonth(50),
        LatencyMonth(100, day_spread=0.1),
        LatencyMonth(100, night=1.0),
        LatencyMonth(50, spread=1.2),
    ],
)
def test_means_of_quiet_months_stay_quiet(month: LatencyMonth) -> None:
    rounds = 100

    alarms, _ = simulate_means(month, rounds, chance=CHANCE, seed=5)

    assert alarms <= CHANCE + 3 * math.sqrt(CHANCE * (1 - CHANCE) / rounds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("month", "days"),
    [(LatencyMonth(50, 0.5), 2), (LatencyMonth(200, 0.3), 1), (LatencyMonth(200, tail=0.02), 5)],
)
def test_a_rise_of_a_mean_is_found_within_days(month: LatencyMonth, days: float) -> None:
    alarms, delay = simulate_means(month, 20, chance=CHANCE, seed=5)

    assert alarms >= 0.9
    assert delay <= days
