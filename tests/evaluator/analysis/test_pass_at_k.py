"""pass@k and pass^k against counting all choices of k runs."""

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.analysis.stats.rate import pass_at_k, pass_hat_k, pass_hat_k_unbiased


@given(st.integers(1, 7), st.data())
def test_the_estimates_count_all_choices_of_runs(n: int, data: st.DataObject) -> None:
    c, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    choices = [*itertools.combinations([place < c for place in range(n)], k)]

    assert pass_at_k(n, c, k) == pytest.approx(sum(map(any, choices)) / len(choices))
    assert pass_hat_k_unbiased(n, c, k) == pytest.approx(sum(map(all, choices)) / len(choices))
    assert pass_hat_k_unbiased(n, c, k) <= pass_hat_k(n, c, k) + 1e-12


def test_fewer_runs_than_tries_say_nothing() -> None:
    assert math.isnan(pass_hat_k_unbiased(2, 2, 3))
    assert pass_hat_k(2, 2, 3) == 1
    with pytest.raises(ValueError, match="at most as many tries as runs"):
        pass_at_k(2, 2, 3)


def test_many_runs_are_no_trouble() -> None:
    assert pass_at_k(100_000, 1, 50_000) == pytest.approx(0.5)
