"""What a worker commits: never past a job that is not done, and how often each was begun."""

from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.job_progress import ALONE_FROM, MOST_TRIES, JobProgress


def progress(count: int) -> JobProgress:
    found = JobProgress(0)
    for offset in range(count):
        found.read(offset)
    return found


def test_the_committed_offset_waits_for_the_oldest_job() -> None:
    jobs = progress(3)

    jobs.done(1)
    jobs.done(2)
    assert jobs.to_commit() == (0, "")

    jobs.done(0)
    assert jobs.to_commit() == (3, "")


def test_what_was_begun_and_not_done_counts_for_the_next_worker() -> None:
    jobs = progress(3)
    jobs.begin(0)
    jobs.begin(1)
    jobs.done(0)

    after = JobProgress.restored(*jobs.to_commit())

    assert (after.position, after.tries) == (1, {1: 1})


def test_what_was_left_in_good_order_counts_for_nothing() -> None:
    jobs = progress(2)
    jobs.begin(0)
    jobs.abandon()

    assert jobs.to_commit() == (0, "")


def test_a_job_that_ends_its_workers_runs_alone_and_then_no_more() -> None:
    position, metadata = 0, ""
    for tries in range(MOST_TRIES):
        jobs = JobProgress.restored(position, metadata)
        assert jobs.is_suspect(0) == (tries >= ALONE_FROM)
        assert not jobs.is_hopeless(0)
        jobs.read(0)
        jobs.begin(0)
        position, metadata = jobs.to_commit()

    assert JobProgress.restored(position, metadata).is_hopeless(0)


def test_metadata_of_somebody_else_means_nothing() -> None:
    for metadata in ("", "x", "[]", '{"begun": 3}', '{"begun": {"a": 1}}', "null"):
        assert JobProgress.restored(7, metadata).tries == {}


@given(st.permutations(range(12)), st.integers(0, 12))
def test_nothing_that_is_not_done_is_ever_behind_the_commit(order: list[int], count: int) -> None:
    jobs = progress(12)

    for offset in order[:count]:
        jobs.begin(offset)
        jobs.done(offset)

    left = set(order[count:])
    assert jobs.to_commit()[0] == min(left, default=12)


@given(st.sets(st.integers(0, 2_000)))
def test_metadata_fits_what_a_broker_takes(begun: set[int]) -> None:
    jobs = JobProgress(10**12)
    for offset in begun:
        jobs.read(10**12 + offset)
        jobs.begin(10**12 + offset)

    assert len(jobs.to_commit()[1]) <= 4_096
