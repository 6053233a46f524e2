"""Intervals and estimators: pure functions of what was counted."""

from evaltap.evaluator.stats.intervals import (
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
