"""Sampling: the same sessions everywhere, with the configured share."""

import math

from hypothesis import given
from hypothesis import strategies as st

from evaltap.recorder.sampling.sampler import is_sampled, position


@given(st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_larger_rate_keeps_every_session_of_a_smaller_one(
    session: str, one: float, other: float
) -> None:
    small, large = sorted((one, other))

    assert is_sampled(session, small) <= is_sampled(session, large)
    assert is_sampled(session, 1.0)
    assert not is_sampled(session, 0.0)


def test_the_answer_is_the_same_in_every_process_and_version() -> None:
    assert position("session-1") == 0.606568871765196
    assert 0 <= position("") < 1


def test_the_share_that_is_kept_is_the_rate() -> None:
    number, rate = 20_000, 0.1

    kept = sum(is_sampled(f"session-{n}", rate) for n in range(number))

    # Five standard deviations of a binomial count.
    assert abs(kept - number * rate) < 5 * math.sqrt(number * rate * (1 - rate))
