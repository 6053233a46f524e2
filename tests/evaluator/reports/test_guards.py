"""Guards: the strictness of a verdict, and conclusions from latencies that are partly unknown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.reports.exit_status import FailOn, GuardFinding, latency_guard
from evaltap.evaluator.reports.summary import MetricCounts, Summary, exit_code


def summary(
    *,
    passed: int = 0,
    failed: int = 0,
    not_evaluated: int = 0,
    errors: int = 0,
    not_applicable: int = 0,
) -> Summary:
    counts = MetricCounts("m", passed, failed, not_evaluated, errors, not_applicable=not_applicable)
    return Summary("run", 1, (counts,), (), ())


@pytest.mark.parametrize(
    ("found", "codes"),
    [
        (summary(passed=1), (0, 0, 0, 0)),
        (summary(passed=1, failed=1), (0, 1, 1, 1)),
        (summary(passed=1, errors=1), (0, 0, 3, 3)),
        (summary(passed=1, not_evaluated=1), (0, 0, 0, 3)),
        (summary(failed=1, errors=1, not_evaluated=1), (0, 1, 1, 1)),
        (summary(not_evaluated=1), (0, 0, 0, 3)),
        (summary(passed=1, not_evaluated=1, not_applicable=1), (0, 0, 0, 0)),
        (summary(passed=1, not_evaluated=2, not_applicable=1), (0, 0, 0, 3)),
        (summary(not_evaluated=1, not_applicable=1), (0, 0, 0, 3)),
        (Summary(None, 0, (), (), ()), (0, 3, 3, 3)),
    ],
)
def test_each_strictness_includes_those_before_it(
    found: Summary, codes: tuple[int, int, int, int]
) -> None:
    assert tuple(exit_code(found, fail_on) for fail_on in FailOn) == codes
    assert exit_code(found) == codes[-1]


@pytest.mark.parametrize(("holds", "code"), [(True, 0), (None, 3), (False, 1)])
def test_a_guard_that_does_not_hold_fails_and_one_that_cannot_tell_is_incomplete(
    holds: bool | None, code: int
) -> None:
    finding = GuardFinding(holds, "")

    assert exit_code(summary(passed=1), FailOn.FAILED, [finding]) == code
    assert exit_code(summary(passed=1), FailOn.NEVER, [finding]) == 0


@pytest.mark.parametrize(
    ("latencies", "holds"),
    [
        ([100.0] * 95 + [101.0] * 5, True),
        ([100.0] * 94 + [101.0] * 6, False),
        ([100.0] * 95 + [None] * 5, True),
        ([100.0] * 94 + [None] * 6, None),
        ([100.0] * 10 + [101.0] * 6 + [None] * 84, False),
        ([None], None),
        ([], None),
    ],
)
def test_95_of_100_turns_must_be_within_the_limit(
    latencies: list[float | None], holds: bool | None
) -> None:
    assert latency_guard(latencies, 100).holds is holds


@given(
    st.lists(st.one_of(st.none(), st.floats(1, 200)), min_size=1, max_size=60),
    st.lists(st.floats(1, 200), min_size=60, max_size=60),
)
def test_a_verdict_with_gaps_is_that_of_every_way_to_fill_them(
    latencies: list[float | None], fillings: list[float]
) -> None:
    known = latency_guard(latencies, 100).holds
    filled = [
        filling if latency is None else latency
        for latency, filling in zip(latencies, fillings, strict=False)
    ]

    if known is not None:
        assert latency_guard(filled, 100).holds is known
    if None not in latencies:
        assert known is not None
