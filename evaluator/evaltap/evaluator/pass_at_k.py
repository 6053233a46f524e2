"""pass@k and pass^k: what n runs with c successes say about k tries.

pass@k is the chance that one of k tries succeeds at least, pass^k that all of them do.  For pass^k
there are two estimates: without replacement it is unbiased; the power (c/n)^k, which tRPC-Agent-Go
uses, is too high on average.
"""

import math
from collections.abc import Mapping
from typing import Any


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return 1 - C(n-c, k) / C(n, k), the unbiased estimate; raise ValueError unless 1 <= k <= n."""
    _check(n, c, k)
    if k > n:
        raise ValueError(f"k is {k} with {n} runs; expected at most as many tries as runs")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return (c/n)^k, the estimate of tRPC-Agent-Go; raise ValueError for n or k below 1."""
    _check(n, c, k)
    if n < 1:
        raise ValueError(f"n is {n}; expected at least one run")
    return (c / n) ** k


def pass_hat_k_unbiased(n: int, c: int, k: int) -> float:
    """Return C(c, k) / C(n, k); NaN with fewer runs than tries, which then say nothing."""
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k) if k <= n else math.nan


def runs_passed(summary: Mapping[str, Any]) -> tuple[int, int]:
    """Return how many runs a result's `summary` counts, and how many of them passed as a whole."""
    counts = summary.get("runStatusCounts") or {}
    return int(summary.get("numRuns") or 0), int(counts.get("passed") or 0)


def _check(n: int, c: int, k: int) -> None:
    if n < 0 or not 0 <= c <= n:
        raise ValueError(f"c is {c} of n = {n} runs; expected 0 <= c <= n")
    if k < 1:
        raise ValueError(f"k is {k}; expected 1 or more")
