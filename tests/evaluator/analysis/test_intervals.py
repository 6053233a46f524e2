"""Wilson's interval and percentiles agree with scipy and numpy's definition."""

import pytest
import scipy  # type: ignore[import-untyped]  # scipy ships no types
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.analysis.stats.rate import Rate, percentile


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_equals_scipy(counts: tuple[int, int]) -> None:
    successes, total = counts

    rate = Rate.of_counts(successes, total, "cases")

    expected = scipy.stats.binomtest(successes, total).proportion_ci(method="wilson")
    assert rate is not None
    assert rate.interval == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= rate.interval.low <= rate.value <= rate.interval.high <= 1


def test_nothing_counted_has_no_interval_and_nonsense_is_refused() -> None:
    assert Rate.of_counts(0, 0, "cases") is None
    with pytest.raises(ValueError, match="3 of 2 cases"):
        Rate.of_counts(3, 2, "cases")


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=50),
    st.sampled_from([0.0, 0.25, 0.5, 0.95, 1.0]),
)
def test_a_percentile_interpolates_between_neighbours(values: list[float], share: float) -> None:
    expected = scipy.stats.scoreatpercentile(values, share * 100)

    assert percentile(values, share) == pytest.approx(expected, abs=1e-6)


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.95) is None
