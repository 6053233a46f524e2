"""Exchange tests between two runs: equal to enumeration and scipy, with the promised level and power."""

import itertools
import math
import random
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # scipy ships no types
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.analysis.stats import exchange
from evaltap.evaluator.analysis.stats.difference import (
    Difference,
    benjamini_hochberg,
    detectable_drop,
    difference,
    fisher,
    holm,
    mean_rate,
)
from evaltap.evaluator.analysis.stats.exchange import (
    Pair,
    Trials,
    broken,
    drop_p_value,
    head_law,
    least_possible,
    shift_p_value,
    sign_flip_p_value,
    worse,
)
from evaltap.evaluator.analysis.stats.rate import Interval, Rate
from support.proofs.estimate_coverage import SETTINGS
from support.proofs.gate_simulation import (
    LEVEL,
    SCENARIOS,
    TWENTY,
    Scenario,
    simulate,
    simulate_traffic,
)
from support.worlds.traffic import binomial_bounds

PASSED = st.lists(st.booleans(), min_size=1, max_size=3)
CASES = st.lists(st.tuples(PASSED, PASSED), min_size=1, max_size=4)


def pair(base: Sequence[bool], head: Sequence[bool]) -> Pair:
    return Pair(Trials(sum(base), len(base)), Trials(sum(head), len(head)))


def statistics(pairs: Sequence[Pair]) -> tuple[float, float, float]:
    values = [float(scipy.stats.hypergeom.cdf(*_hypergeometric(one))) for one in pairs]
    return (
        sum(one.base.passes / one.base.trials - one.head.passes / one.head.trials for one in pairs),
        sum(map(_falls_much, pairs)),
        sum(value**-0.5 for value in values),
    )


def _falls_much(one: Pair) -> float:
    """Return ln(1 + r), r the likelihood ratio of odds of passing that fell to a twentieth."""
    count, *law = _hypergeometric(one)
    same = float(scipy.stats.hypergeom.pmf(count, *law))
    fell = float(scipy.stats.nchypergeom_fisher.pmf(count, *law, 0.05))
    return math.log1p(fell / same)


def _hypergeometric(one: Pair) -> tuple[int, int, int, int]:
    (base_passes, base), (head_passes, head) = one
    return head_passes, base + head, base_passes + head_passes, head


@settings(max_examples=40, deadline=None)
@given(cases=CASES)
def test_the_p_value_is_that_of_every_exchange_of_trials(
    cases: list[tuple[list[bool], list[bool]]],
) -> None:
    outcomes: Counter[tuple[Pair, ...]] = Counter()
    splits = [
        Counter(
            pair([every[i] for i in range(len(every)) if i not in heads], [every[i] for i in heads])
            for every in [[*base, *head]]
            for heads in itertools.combinations(range(len(every)), len(head))
        )
        for base, head in cases
    ]
    for chosen in itertools.product(*(split.items() for split in splits)):
        outcomes[tuple(one for one, _ in chosen)] += math.prod(times for _, times in chosen)
    every = sum(outcomes.values())
    known = {found: statistics(found) for found in outcomes}

    def tail(place: int, value: float) -> float:
        reached = (n for found, n in outcomes.items() if known[found][place] >= value - 1e-7)
        return sum(reached) / every

    least = {found: min(map(tail, range(3), known[found])) for found in outcomes}
    observed = tuple(pair(base, head) for base, head in cases)
    expected = sum(n for found, n in outcomes.items() if least[found] <= least[observed] + 1e-12)

    assert drop_p_value(observed, level=LEVEL) == pytest.approx(expected / every)


@pytest.mark.parametrize(("got_worse", "got_better"), [(6, 0), (5, 0), (7, 2), (0, 3), (1, 1)])
def test_with_one_trial_each_it_is_the_sign_test(got_worse: int, got_better: int) -> None:
    pairs = [pair([True], [False])] * got_worse + [pair([False], [True])] * got_better
    pairs += [pair([True], [True])] * 9 + [pair([False], [False])] * 4

    expected = scipy.stats.binomtest(
        got_worse, got_worse + got_better, alternative="greater"
    ).pvalue

    assert drop_p_value(pairs, level=LEVEL) == pytest.approx(expected)


def test_what_is_drawn_is_near_what_is_enumerated(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = SCENARIOS["three cases at half"].draw(random.Random(4))
    exact = drop_p_value(pairs, level=LEVEL)

    monkeypatch.setattr(exchange, "_FOLDED", 40)
    drawn = drop_p_value(pairs, level=LEVEL)

    assert drawn != exact
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / exchange.DRAWS))
    assert drop_p_value(list(reversed(pairs)), level=LEVEL) == drawn


@given(st.integers(1, 12), st.integers(1, 12), st.data())
def test_passes_of_head_are_hypergeometric(base: int, head: int, data: st.DataObject) -> None:
    one = Pair(
        Trials(data.draw(st.integers(0, base)), base), Trials(data.draw(st.integers(0, head)), head)
    )
    passes = one.base.passes + one.head.passes

    for reached, chance in head_law(one):
        assert chance == pytest.approx(
            scipy.stats.hypergeom.pmf(reached, base + head, passes, head)
        )
    assert worse(one) == pytest.approx(scipy.stats.hypergeom.cdf(*_hypergeometric(one)))


@settings(max_examples=30, deadline=None)
@given(cases=st.lists(st.tuples(PASSED, PASSED), min_size=1, max_size=12))
def test_neither_order_nor_a_comparison_with_itself_makes_a_difference(
    cases: list[tuple[list[bool], list[bool]]],
) -> None:
    pairs = [pair(base, head) for base, head in cases]
    itself = [Pair(one.base, one.base) for one in pairs]

    assert drop_p_value(pairs, level=LEVEL) == drop_p_value(sorted(pairs), level=LEVEL)
    assert drop_p_value(itself, level=LEVEL) > LEVEL
    assert _drop(itself).value == 0
    there, back = _drop(pairs), _drop([one.swapped for one in pairs])
    assert there.value == pytest.approx(-back.value)
    assert there.interval.low == pytest.approx(-back.interval.high)


def test_thousands_of_trials_of_a_case_are_compared() -> None:
    steady = [Pair(Trials(900, 1000), Trials(900, 1000))] * 2

    assert drop_p_value([Pair(Trials(1000, 1000), Trials(0, 1000)), *steady], level=LEVEL) < 1e-3
    assert drop_p_value([Pair(Trials(1000, 1000), Trials(1000, 1000)), *steady], level=LEVEL) > 0.4


def test_a_broken_case_is_named_and_flaky_ones_are_not() -> None:
    pairs = {
        "broken": Pair(Trials(10, 10), Trials(0, 5)),
        "flaky": Pair(Trials(6, 10), Trials(2, 5)),
        "fine": Pair(Trials(10, 10), Trials(5, 5)),
    }

    assert broken(pairs, level=LEVEL) == ["broken"]
    assert broken({name: one.swapped for name, one in pairs.items()}, level=LEVEL) == []


def test_many_cases_at_once_need_stronger_evidence_to_be_named() -> None:
    suspicious = Pair(Trials(5, 5), Trials(1, 5))  # p = 0.024
    assert worse(suspicious) < 0.025

    alone = broken({"one": Pair(Trials(5, 5), Trials(0, 5))}, level=LEVEL)
    among = broken({str(n): Pair(Trials(4, 5), Trials(n % 5, 5)) for n in range(40)}, level=LEVEL)

    assert alone == ["one"]
    assert among == []


def test_nothing_can_be_called_worse_with_three_cases_and_one_trial_each() -> None:
    assert least_possible([pair([True], [True])] * 3) == pytest.approx(0.125)
    assert least_possible([pair([True], [False])] * 6) < LEVEL
    assert least_possible([pair([False], [False])] * 50) == 1


def test_scores_of_one_trial_flip_signs_over_cases() -> None:
    source = random.Random(1)
    before = [source.random() for _ in range(10)]
    now = [one - source.uniform(-0.1, 0.3) for one in before]
    differences = [one - other for one, other in zip(before, now, strict=True)]
    signs = itertools.product((1, -1), repeat=10)
    reached = sum(
        sum(s * d for s, d in zip(sign, differences, strict=True)) >= sum(differences) - 1e-9
        for sign in signs
    )

    found = shift_p_value([((b,), (n,)) for b, n in zip(before, now, strict=True)], level=LEVEL)

    assert found == pytest.approx(reached / 2**10)
    assert sign_flip_p_value(differences, level=LEVEL) == pytest.approx(min(1, 2 * found))


def test_one_trial_a_side_is_the_sign_test_however_many_cases_changed() -> None:
    worse_cases, better_cases = 30_300, 29_700
    pairs = [
        *[pair([True], [False])] * worse_cases,
        *[pair([False], [True])] * better_cases,
        *[pair([True], [True])] * 1_000,
    ]

    expected = scipy.stats.binomtest(worse_cases, worse_cases + better_cases, alternative="greater")
    assert drop_p_value(pairs, level=LEVEL) == pytest.approx(expected.pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("trials", [1, 3])
def test_the_sum_of_many_scores_has_the_p_value_of_its_exchanges(trials: int) -> None:
    draw = np.random.default_rng(trials)
    cases = [
        (draw.normal(0.05, 1, trials).tolist(), draw.normal(0, 1, trials).tolist())
        for _ in range(400)
    ]
    sums = np.zeros(4_000)
    for base, head in cases:
        every = draw.permuted(np.tile([*base, *head], (len(sums), 1)), axis=1)
        sums += every[:, :trials].sum(axis=1) - every[:, trials:].sum(axis=1)
    observed = sum(sum(base) - sum(head) for base, head in cases)
    reached = float(np.mean(sums >= observed))

    low, high = binomial_bounds(len(sums), reached)
    assert low <= shift_p_value(cases, level=LEVEL) <= high


@pytest.mark.slow
def test_one_difference_that_outweighs_all_others_is_not_taken_as_normal() -> None:
    balanced = [sign * 0.001 * size for size in range(1, 151) for sign in (1, -1)]
    cases = [((one,), (0.0,)) for one in (1_000.0, *balanced)]

    # It is positive in half of the exchanges; in half of these, the others add up to at least 0.
    assert shift_p_value(cases, level=LEVEL) == pytest.approx(0.25, abs=0.01)


def test_scores_of_several_trials_are_exchanged_within_their_case() -> None:
    base, head = (0.9, 0.8, 1.0), (0.1, 0.2, 0.3)
    result = scipy.stats.permutation_test(
        (base, head), lambda x, y: sum(x) / 3 - sum(y) / 3, alternative="greater", n_resamples=1_000
    )

    assert shift_p_value([(base, head)], level=LEVEL) == pytest.approx(result.pvalue)


def test_adjusted_p_values_are_those_of_the_books() -> None:
    values = [0.01, 0.04, 0.03, 0.005]

    assert holm(values) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert benjamini_hochberg(values) == pytest.approx(scipy.stats.false_discovery_control(values))
    assert holm([]) == benjamini_hochberg([]) == []


@given(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
def test_fisher_is_that_of_scipy(a: int, b: int, c: int, d: int) -> None:
    _, expected = scipy.stats.fisher_exact([[a, b], [c, d]])

    assert fisher(a, a + b, c, c + d) == pytest.approx(expected)


def test_fisher_takes_no_minutes_for_a_million_trials() -> None:
    _, expected = scipy.stats.fisher_exact([[40_000, 960_000], [40_500, 959_500]])

    assert fisher(40_000, 1_000_000, 40_500, 1_000_000) == pytest.approx(expected, rel=1e-4)


def test_cases_that_all_passed_are_not_taken_for_certain() -> None:
    rate = mean_rate([Trials(5, 5)] * 20)

    assert rate.value == rate.interval.high == 1
    assert rate.interval.low == pytest.approx(0.963, abs=0.001)


def test_four_times_the_trials_halve_what_can_be_seen() -> None:
    few = [Pair(Trials(16, 20), Trials(16, 20))] * 10
    many = [Pair(Trials(64, 80), Trials(64, 80))] * 10

    assert detectable_drop(many, LEVEL) == pytest.approx(detectable_drop(few, LEVEL) / 2, rel=0.03)


@pytest.mark.parametrize(
    "name",
    [
        "nothing changed",
        "nothing changed, 3 trials",
        pytest.param("nothing changed, 20 trials in base", marks=pytest.mark.slow),
    ],
)
def test_runs_in_which_nothing_changed_are_called_worse_in_2_of_100_at_most(name: str) -> None:
    rounds = 300
    found = simulate(SCENARIOS[name], rounds, seed=11, ideal=False)
    most = binomial_bounds(rounds, LEVEL)[1]

    assert found.product <= most
    assert found.any_drop > most, "the naive gate would pass this test, too"
    assert found.covered > 0.93


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "least"),
    [("one case broke", 0.86), ("one case broke, 10 trials in base, 3 in head", 0.85)],
)
def test_a_broken_case_among_twenty_is_found(name: str, least: float) -> None:
    found = simulate(SCENARIOS[name], 200, seed=12)

    assert found.product > least
    assert found.five_points < found.product


@pytest.mark.slow
def test_a_fall_of_all_cases_is_found_about_as_often_as_by_the_informed_test() -> None:
    found = simulate(Scenario(TWENTY, 20, lambda q: q - 0.15), 100, seed=13)

    assert found.product > found.ideal - 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["errors kept", "two draws"])
def test_two_weeks_of_the_same_traffic_are_called_worse_in_2_of_100_at_most(name: str) -> None:
    rounds = 200
    found = simulate_traffic(SETTINGS[name], rounds, seed=21)

    assert found.unchanged <= binomial_bounds(rounds, LEVEL)[1]
    assert found.covered >= binomial_bounds(rounds, 0.95)[0]


def test_a_difference_and_its_p_value_agree_and_turn_with_the_sides() -> None:
    one, other = (
        Rate(0.9, Interval(0.85, 0.94), 200, 200.0, "turns"),
        Rate(0.8, Interval(0.74, 0.85), 200, 200.0, "turns"),
    )
    found, back = difference(one, other), difference(other, one)

    assert (found.p_value <= 0.025) == (found.interval.low >= 0)
    assert found.value == -back.value
    assert found.interval.low == pytest.approx(-back.interval.high)
    assert found.p_value == pytest.approx(1 - back.p_value)
    assert difference(one, one).p_value == 0.5


def _drop(pairs: Sequence[Pair]) -> Difference:
    """Return the drop of the mean rate over the cases of both sides."""
    return difference(*(mean_rate(list(side)) for side in zip(*pairs, strict=True)))
