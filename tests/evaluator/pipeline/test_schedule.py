"""When a consumer scores and stops, decided without a log or a store."""

import pytest

from evaltap.evaluator.pipeline.live.consumer import ConsumerLimits, Schedule

LIMITS = ConsumerLimits(
    records_per_batch=100, poll_seconds=0.2, score_every_seconds=1.0, score_soon_seconds=0.3
)


class Clock:
    """A clock that is set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def live(clock: Clock) -> Schedule:
    """Return the schedule of a consumer that goes on, with all that landed before scored."""
    schedule = Schedule(LIMITS, clock, until_idle=False)
    schedule.scored()
    return schedule


def test_what_a_killed_consumer_left_is_looked_at_although_nothing_lands() -> None:
    schedule = Schedule(LIMITS, Clock(), until_idle=False)

    assert schedule.is_due(0, at_end=True, full=False)
    schedule.scored()
    assert not schedule.is_due(0, at_end=True, full=False)


@pytest.mark.parametrize(("records", "pause"), [(1, 0.3), (24, 0.3), (25, 1.0), (100, 1.0)])
def test_records_that_flood_in_are_scored_in_lots_and_others_soon(
    records: int, pause: float
) -> None:
    clock = Clock()
    schedule = live(clock)
    schedule.landed(records)

    clock.now = pause - 0.01
    assert not schedule.is_due(records, at_end=False, full=False)
    clock.now = pause
    assert schedule.is_due(records, at_end=False, full=False)


@pytest.mark.parametrize(
    ("records", "rest"), [(0, 0.0), (1, 0.2), (24, 0.2), (25, 0.0), (100, 0.0)]
)
def test_records_that_trickle_in_gather_before_the_next_poll(records: int, rest: float) -> None:
    clock = Clock()
    schedule = live(clock)
    clock.now = 5.0
    schedule.landed(records)

    assert schedule.rest_seconds(busy=False) == pytest.approx(rest)
    assert schedule.rest_seconds(busy=True) == 0
    clock.now += 0.15
    assert schedule.rest_seconds(busy=False) == pytest.approx(max(0, rest - 0.15))
    schedule.finish()
    assert schedule.rest_seconds(busy=False) == 0
    assert schedule.rest_seconds(busy=False, waits=True) == pytest.approx(0.2)


def test_at_the_end_of_the_log_and_when_too_much_waits_nothing_waits() -> None:
    schedule = live(Clock())
    schedule.landed(1)

    assert schedule.is_due(0, at_end=True, full=False)
    assert schedule.is_due(100, at_end=False, full=True)
    assert not schedule.is_due(100, at_end=False, full=False)


def test_a_batch_without_records_makes_nothing_due() -> None:
    clock = Clock()
    schedule = live(clock)
    schedule.landed(0)
    clock.now = 100.0

    assert not schedule.is_due(0, at_end=False, full=True)


def test_who_reads_to_the_end_scores_only_there_or_when_too_much_waits() -> None:
    clock = Clock()
    schedule = Schedule(LIMITS, clock, until_idle=True)
    schedule.landed(100)
    clock.now = 100.0

    assert not schedule.is_due(100, at_end=False, full=False)
    assert schedule.is_due(100, at_end=False, full=True)
    assert schedule.is_due(0, at_end=True, full=False)


@pytest.mark.parametrize(
    ("until_idle", "at_end", "due", "over"),
    [
        (True, True, False, True),
        (True, True, True, False),  # scoring may have left rows to publish
        (True, False, False, False),
        (False, True, False, False),
    ],
)
def test_it_is_over_once_all_has_landed_and_is_scored(
    *, until_idle: bool, at_end: bool, due: bool, over: bool
) -> None:
    schedule = Schedule(LIMITS, Clock(), until_idle=until_idle)

    assert schedule.is_over(at_end=at_end, due=due) is over


def test_nobody_waits_for_records_while_there_is_other_work() -> None:
    schedule = live(Clock())

    assert schedule.poll_seconds(busy=True) == 0
    assert schedule.poll_seconds(busy=False) == 0.2
    schedule.landed(1)
    assert schedule.poll_seconds(busy=False) == 0.1


def test_who_reads_to_the_end_waits_only_for_records_that_the_log_still_has() -> None:
    schedule = Schedule(LIMITS, Clock(), until_idle=True)

    assert schedule.poll_seconds(busy=False) == 0
    schedule.landed(0, more=True)
    assert schedule.poll_seconds(busy=False) > 0
    schedule.landed(1)
    assert schedule.poll_seconds(busy=False) == 0


def test_who_is_told_to_finish_waits_as_before_for_records_on_their_way() -> None:
    schedule = live(Clock())
    schedule.finish()
    schedule.landed(0)

    assert schedule.poll_seconds(busy=False) > 0
