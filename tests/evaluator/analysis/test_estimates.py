"""Estimates from sampled turns: equal to the oracle's, with the promised properties and coverage."""

import random
from dataclasses import replace

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # scipy ships no types
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.analysis.estimates.rates import SliceRate
from evaltap.evaluator.analysis.stats.estimate import (
    Cell,
    Estimate,
    Profile,
    estimate,
    mean_of_cases,
    rate_of_trials,
)
from evaltap.evaluator.analysis.stats.labelled import Judged, Labels, people
from evaltap.evaluator.analysis.stats.rate import Interval, Rate, pass_at_k, t95, wilson_of
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.reports.rates import print_rates
from support.proofs.estimate_coverage import SETTINGS, Tally, estimated, profiles_of
from support.proofs.estimate_oracle import Oracle
from support.worlds.traffic import Setting, binomial_bounds, draw


@pytest.mark.slow
def test_the_quantile_of_student_is_that_of_scipy() -> None:
    for degrees in (1, 1.5, 2, 3.3, 9, 40, 199, 201, 5_000, 1e7):
        assert t95(degrees) == pytest.approx(scipy.stats.t.ppf(0.975, degrees), abs=1e-8)
    with pytest.raises(ValueError, match=r"0\.5 degrees"):
        t95(0.5)


SESSIONS = st.lists(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 1), st.floats(0, 1)), min_size=1, max_size=5),
    min_size=1,
    max_size=16,
)  # fmt: skip
FIRST = (1.0, 0.1, 0.5, 0.03, 0.9, 0.2, 0.7, 0.33, 0.05, 0.6, 0.011, 0.15)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    sessions=SESSIONS,
    strata=st.integers(1, 12),
    second=st.sampled_from([1.0, 0.3]),
    by_turn=st.booleans(),
    binary=st.booleans(),
)
def test_every_figure_is_that_of_the_oracle(
    sessions: list[list[tuple[int, int, float]]],
    strata: int,
    second: float,
    by_turn: bool,
    binary: bool,
) -> None:
    rows = [
        (
            name,
            FIRST[at % strata],
            second if draws else 1.0,
            float(y > 0.3) if binary else round(y, 3),
        )
        for name, turns in enumerate(sessions)
        for at, draws, y in turns
    ]
    oracle = Oracle(*zip(*rows, strict=True), by_turn=by_turn, binary=binary)
    found = estimated(
        [
            Profile(
                tuple(Cell(p1, 1, y, y * y, p2, by_turn) for at, p1, p2, y in rows if at == session)
            )
            for session in range(len(sessions))
        ],
        scores=not binary,
    )

    assert found.rate.value == pytest.approx(oracle.rate)
    assert found.rate.interval == pytest.approx(oracle.process, abs=1e-7)
    assert found.traffic == pytest.approx(oracle.traffic, abs=1e-6)
    assert found.estimated_turns == pytest.approx(oracle.estimated_turns)
    assert found.rate.effective_n == pytest.approx(oracle.effective_turns, rel=1e-6)
    assert found.design_effect == (
        None if oracle.design_effect is None else pytest.approx(oracle.design_effect, rel=1e-6)
    )
    assert found.effective_sessions == pytest.approx(oracle.effective_sessions, rel=1e-6)


# -- properties ------------------------------------------------------------------------------------


MIXED = Setting(turns=400, longest=6, rate=0.85, correlation=0.2, head=0.3, rule=1)


def mixed(seed: int = 1) -> list[Profile]:
    """Return profiles of a sample in two strata."""
    return profiles_of(draw(MIXED, np.random.default_rng(seed)))


def test_of_nothing_there_is_no_estimate() -> None:
    assert estimate([]) is None


@given(passed=st.integers(0, 200), failed=st.integers(0, 200))
def test_unsampled_sessions_of_one_turn_have_wilsons_interval_with_t(
    passed: int, failed: int
) -> None:
    total = passed + failed
    if total < 11:
        return
    found = estimated([Profile((Cell(1, 1, 1, 1),), passed), Profile((Cell(1, 1, 0, 0),), failed)])

    trials = total - 1 if passed and failed else total
    expected = wilson_of(passed / total, trials, float(scipy.stats.t.ppf(0.975, total - 1)))
    assert found.rate.interval == pytest.approx(expected)
    assert found.traffic == Interval(found.rate.value, found.rate.value)


def test_neither_the_order_of_sessions_nor_of_their_cells_matters() -> None:
    profiles = mixed()
    shuffled = [one._replace(cells=one.cells[::-1]) for one in profiles]
    random.Random(3).shuffle(shuffled)

    one, other = estimated(profiles), estimated(shuffled)
    assert (*other.rate.interval, *other.traffic) == pytest.approx(
        (*one.rate.interval, *one.traffic), rel=1e-12
    )
    rate = replace(other.rate, value=one.rate.value, interval=one.rate.interval)
    assert replace(other, rate=rate, traffic=one.traffic) == one


def test_failing_is_passing_the_other_way_round() -> None:
    profiles = mixed()
    swapped = [
        Profile(
            tuple(
                c._replace(total=c.turns - c.total, squares=c.turns - c.total) for c in one.cells
            ),
            one.sessions,
        )
        for one in profiles
    ]

    passing, failing = estimated(profiles), estimated(swapped)

    assert failing.rate.value == pytest.approx(1 - passing.rate.value)
    for one, other in (
        (passing.rate.interval, failing.rate.interval),
        (passing.traffic, failing.traffic),
    ):
        assert (1 - other.high, 1 - other.low) == pytest.approx(one)


def test_half_the_probability_of_everything_doubles_the_turns_and_leaves_the_process() -> None:
    profiles = mixed()
    halved = [
        one._replace(cells=tuple(c._replace(recorded=c.recorded / 2) for c in one.cells))
        for one in profiles
    ]

    once, twice = estimated(profiles), estimated(halved)

    assert twice.estimated_turns == pytest.approx(2 * once.estimated_turns)
    assert twice.rate.interval == pytest.approx(once.rate.interval)


def test_more_sessions_narrow_and_more_turns_of_the_same_sessions_hardly() -> None:
    def width(profiles: list[Profile]) -> float:
        found = estimated(profiles)
        return found.rate.interval.high - found.rate.interval.low

    few = [Profile((Cell(1, 5, 5, 5),), 40), Profile((Cell(1, 5, 0, 0),), 10)]
    longer = [Profile((Cell(1, 50, 50, 50),), 40), Profile((Cell(1, 50, 0, 0),), 10)]
    more = [one._replace(sessions=one.sessions * 10) for one in few]

    assert width(longer) == pytest.approx(width(few), rel=0.01)
    assert width(more) < width(few) / 2.9


def test_a_stratum_without_a_failure_keeps_its_doubt() -> None:
    # 50 turns of weight 20, none failed; and 100 errors that were all kept, all failed.
    found = estimated([Profile((Cell(0.05, 1, 1, 1),), 50), Profile((Cell(1, 1, 0, 0),), 100)])

    assert found.rate.value == pytest.approx(1000 / 1100)
    assert found.rate.interval.low < 0.86, "one failure among the 50 would be 20 in the traffic"


def test_two_draws_of_a_session_are_not_those_of_its_turns() -> None:
    cells = [
        (Cell(1, 4, total, total, 0.25, by_turn=by_turn), sessions)
        for by_turn in (False, True)
        for total, sessions in ((4.0, 60), (0.0, 15))
    ]
    by_session = estimated([Profile((cell,), count) for cell, count in cells if not cell.by_turn])
    by_turn = estimated([Profile((cell,), count) for cell, count in cells if cell.by_turn])

    assert by_session.rate.interval == by_turn.rate.interval
    assert by_session.traffic.high - by_session.traffic.low > 1.5 * (
        by_turn.traffic.high - by_turn.traffic.low
    ), "sessions that are drawn whole say less of their traffic"


# -- means ---------------------------------------------------------------------------------------


def test_a_mean_of_scores_has_the_interval_of_its_own_variance() -> None:
    scores = np.random.default_rng(2).beta(60, 20, 400)
    profiles = [Profile((Cell(1, 1, y, y * y),)) for y in scores.tolist()]

    found = estimated(profiles, scores=True)

    error = scipy.stats.t.ppf(0.975, 399) * scores.std(ddof=1) / 20
    assert found.rate.value == pytest.approx(scores.mean())
    assert (
        found.rate.value - found.rate.interval.low,
        found.rate.interval.high - found.rate.value,
    ) == pytest.approx((error, error), rel=0.05)


def test_equal_scores_everywhere_prove_no_certainty() -> None:
    found = estimated([Profile((Cell(1, 1, 0.7, 0.49),), 30)], scores=True)

    assert found.rate.value == pytest.approx(0.7)
    assert found.rate.interval.low < 0.6


def test_the_chance_of_one_try_is_as_certain_as_the_share_of_trials() -> None:
    rng = np.random.default_rng(3)
    passes = rng.binomial(8, rng.beta(5, 5, 100)).tolist()

    by_case = mean_of_cases(pass_at_k(8, one, 1) for one in passes)
    by_trial = rate_of_trials([(8, one, 1) for one in passes])

    assert by_case is not None
    assert by_trial is not None
    assert by_case.value == pytest.approx(by_trial.value)
    assert by_case.interval == pytest.approx(by_trial.interval, abs=0.003)


@pytest.mark.slow
def test_intervals_of_a_mean_near_1_cover_as_often_as_they_say() -> None:
    """pass@3 of cases of which most always pass: the rare ones that never do may be missing from a sample."""
    rng, runs = np.random.default_rng(4), 5
    truth = float((1 - (1 - rng.beta(8, 1, 400_000)) ** 3).mean())
    for cases in (50, 200):
        held = 0
        for _ in range(400):
            passes = rng.binomial(runs, rng.beta(8, 1, cases)).tolist()
            found = mean_of_cases(pass_at_k(runs, one, 3) for one in passes)
            assert found is not None
            held += found.interval.low <= truth <= found.interval.high

        assert held >= 0.93 * 400


# -- labels ----------------------------------------------------------------------------------------


@given(
    q=st.floats(0, 1), c=st.floats(0, 0.2), passed=st.integers(1, 50), failed=st.integers(1, 50),
    share=st.floats(0, 1), other=st.floats(0, 1),
)  # fmt: skip
def test_what_people_would_find_is_the_documented_formula(
    q: float, c: float, passed: int, failed: int, share: float, other: float
) -> None:
    labels = (
        Labels(passed, passed, passed, share * passed),
        Labels(failed, failed, failed, other * failed),
    )
    found = Judged(q, c, *labels).rate_of(people)

    assert found is not None
    (l1, u1), (l0, u0) = wilson_of(share, passed), wilson_of(other, failed)
    rate = q * share + (1 - q) * other
    low = np.sqrt(
        (q * (share - l1)) ** 2 + ((1 - q) * (other - l0)) ** 2 + (c * (share - other)) ** 2
    )
    high = np.sqrt(
        (q * (u1 - share)) ** 2 + ((1 - q) * (u0 - other)) ** 2 + (c * (share - other)) ** 2
    )
    assert found.value == pytest.approx(rate, abs=1e-9)
    assert found.interval == pytest.approx((max(0, rate - low), min(1, rate + high)), abs=1e-9)


def test_without_labels_of_a_verdict_all_of_it_is_open() -> None:
    found = Judged(0.9, 0.02, Labels(50, 50, 50, 50), Labels()).rate_of(people)

    assert found is not None
    assert found.value == pytest.approx(0.95)
    assert found.interval.high - found.interval.low > 0.1


# -- coverage --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_estimates_are_unbiased_and_cover_the_truth_as_often_as_they_say(name: str) -> None:
    found = Tally(SETTINGS[name], rounds=250, seed=11)

    low, _ = binomial_bounds(250, 0.93)
    _, high = binomial_bounds(250, 0.975)
    assert abs(found.bias) < 3.5 * found.error + 0.002
    assert low <= found.process / 250 <= high
    if SETTINGS[name].head < 1:
        assert low <= found.traffic / 250 <= high


def test_what_is_wrong_with_other_ways_shows_in_the_same_simulation() -> None:
    kept_errors = Tally(SETTINGS["errors kept"], rounds=100, seed=5)
    clustered = Tally(
        Setting(turns=1000, longest=20, correlation=0.3, head=0.3), rounds=100, seed=5
    )

    assert abs(kept_errors.bias_unweighted) > 0.1, "unweighted"
    assert clustered.kish / 100 < 0.8, "Wilson with Kish's size, which knows no sessions"


@pytest.mark.slow
@pytest.mark.parametrize("name", SETTINGS)
def test_a_thousand_samples_of_each_setting_are_covered(name: str) -> None:
    found = Tally(SETTINGS[name], rounds=1000, seed=2026)

    assert abs(found.bias) < 3.5 * found.error + 0.001
    assert 0.925 <= found.process / 1000 <= 0.98
    if SETTINGS[name].head < 1:
        assert 0.92 <= found.traffic / 1000 <= 0.98


def test_the_table_of_rates_breaks_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    rate = Rate(0.5, Interval(0.25, 0.75), 4, 4.0, "turns")
    half = Estimate(rate, rate.interval, 4, 4.0, None, 4.0)
    rates = [
        SliceRate({}, "pass_rate", name, "81bc209f", half, 1.0, ("few_sessions",), 0.5, 0.0, None)
        for name in ("tool_trajectory_avg_score", "kw")
    ]  # fmt: skip

    print_rates(rates, (), console())

    assert "tool_trajectory_avg_score" in capsys.readouterr().out
