"""Early stopping: the promise holds however often one looks, and cases may differ."""

import random
from functools import cache

import pytest

from evaltap.experiments.early_stop import Until, bounds, parse_until
from evaltap.schemas.errors import InputError

SETS = 500


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("pass_rate>=0.9@95%", Until(0.9, 0.95)),
        ("pass_rate >= .5 @ 99 %", Until(0.5, 0.99)),
        ("pass_rate>=0.8", Until(0.8, 0.95)),
    ],
)
def test_a_target_is_read(text: str, until: Until) -> None:
    assert parse_until(text) == until


@pytest.mark.parametrize("text", ["", "pass_rate>0.9", "pass_rate>=1", "pass_rate>=0.9@20%", "0.9"])
def test_a_target_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="expected a target"):
        parse_until(text)


def test_bounds_hold_the_observed_rate_and_narrow() -> None:
    wide, narrow = bounds(8, 10, 0.05), bounds(80, 100, 0.05)

    assert wide[0] < narrow[0] < 0.8 < narrow[1] < wide[1]
    assert bounds(0, 10, 0.05)[0] == 0.0
    assert bounds(10, 10, 0.05)[1] == 1.0


def wrong_decisions(rates: list[float], target: float, rounds: int, sets: int, seed: int) -> int:
    """Simulate sets of cases with given pass rates; count those on which the decision is wrong."""
    draw = random.Random(seed)
    truth = sum(rates) / len(rates) >= target
    decide, wrong = cache(Until(target, 0.95).decide), 0
    for _ in range(sets):
        passed = 0
        for number in range(1, rounds + 1):
            passed += sum(draw.random() < rate for rate in rates)
            decision = decide(passed, number * len(rates))
            if decision != "open":
                wrong += (decision == "reached") != truth
                break
    return wrong


@pytest.mark.slow
@pytest.mark.parametrize(
    "rates",
    [
        [0.899] * 20,
        [1.0] * 17 + [0.32] * 3,
        [0.9001] * 5,
        [1.0] * 9 + [0.01],
        [0.5, 0.9, 1.0, 1.0, 1.0] * 4,
    ],
)
def test_a_decision_is_wrong_at_most_as_often_as_promised(rates: list[float]) -> None:
    wrong = wrong_decisions(rates, 0.9, rounds=60, sets=SETS, seed=7)

    assert wrong <= 0.05 * SETS + 3 * (0.05 * 0.95 * SETS) ** 0.5
