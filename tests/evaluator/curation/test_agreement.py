"""How far reviewers agree: kappa and alpha are those of the textbooks, and intervals hold the truth."""

import random

import pytest

from evaltap.evaluator.analysis.stats.agreement import agreement, alpha, kappa


def test_kappa_is_that_of_the_textbook() -> None:
    pairs = [("y", "y")] * 20 + [("y", "n")] * 5 + [("n", "y")] * 10 + [("n", "n")] * 15

    assert kappa(pairs) == pytest.approx(0.4)
    assert kappa([("y", "y")] * 3) is None
    assert kappa([]) is None


def test_alpha_is_that_of_krippendorff() -> None:
    # Krippendorff (2011), "Computing Krippendorff's Alpha-Reliability", C: nominal data, any number of
    # observers, values missing.
    units = ["111", "2223", "3333", "3333", "2222", "1234", "4444", "1121", "2222", "555", "11"]

    assert alpha([list(unit) for unit in units]) == pytest.approx(0.743, abs=5e-4)
    assert alpha([["a", "a"]]) is None


@pytest.mark.slow
def test_the_interval_holds_the_truth_of_most_samples() -> None:
    rng = random.Random(4)

    def pair() -> tuple[str, str]:
        truth = rng.random() < 0.5
        one, other = (truth if rng.random() < 0.8 else not truth for _ in range(2))
        return str(one), str(other)

    true_kappa = 2 * (0.8**2 + 0.2**2) - 1
    held = 0
    for _ in range(30):
        pairs = [pair() for _ in range(80)]
        found = agreement([list(one) for one in pairs], pairs).kappa
        assert found is not None
        interval = found.interval
        held += interval.low <= true_kappa <= interval.high
    assert held >= 25
