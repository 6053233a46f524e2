"""Intervals and estimators: pure functions of counts and scores."""

from evaltap.evaluator.analysis.stats.intervals import (
    Interval,
    pass_at_k,
    pass_hat_k,
    pass_hat_k_unbiased,
    percentile,
    runs_passed,
    wilson,
)

__all__ = [
    "Interval",
    "pass_at_k",
    "pass_hat_k",
    "pass_hat_k_unbiased",
    "percentile",
    "runs_passed",
    "wilson",
]
