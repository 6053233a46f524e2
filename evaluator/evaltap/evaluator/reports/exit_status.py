"""Rules for the exit code in addition to the scores: strictness, and a bound on the latency."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

PASSED: Final = 0
BELOW_THE_BAR: Final = 1
INCOMPLETE: Final = 3


class FailOn(StrEnum):
    """The outcomes that make the exit code non-zero; each value includes the previous ones."""

    NEVER = "never"
    FAILED = "failed"
    ERROR = "error"
    NOT_EVALUATED = "not_evaluated"


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """The result of a guard: it holds, does not hold, or is unknown (`None`)."""

    holds: bool | None
    message: str


def latency_guard(
    latencies_ms: Sequence[float | None], limit_ms: float, weights: Sequence[float] | None = None
) -> GuardFinding:
    """Return whether at least 95 of 100 turns stayed within the limit; infinity means that the run failed.

    `weights` are the numbers of turns of the traffic that each turn represents; by default 1.  Turns without
    a recorded latency make the result unknown, unless it is the same for any latency.
    """
    name = f"95 % of turns within {limit_ms:g} ms"
    if not latencies_ms:
        return GuardFinding(None, f"{name}: unknown, because no turns are available")
    weights = weights or [1.0] * len(latencies_ms)
    missing = within = 0.0
    for latency, weight in zip(latencies_ms, weights, strict=True):
        missing += weight * (latency is None)
        within += weight * (latency is not None and latency <= limit_ms)
    total = sum(weights)
    counts = _counts(latencies_ms, limit_ms)
    if total != len(latencies_ms):
        counts = f"{within / total:.1%} of all traffic; of the recorded turns {counts}"
    needed = 0.95 * total
    # Sums of weights have rounding errors: a share of exactly 95 of 100 suffices.
    if within >= needed * (1 - 1e-12):
        return GuardFinding(True, f"{name}: yes, {counts}")
    if within + missing < needed * (1 - 1e-12):
        return GuardFinding(False, f"{name}: no, {counts}")
    return GuardFinding(None, f"{name}: unknown, {counts}")


def _counts(latencies_ms: Sequence[float | None], limit_ms: float) -> str:
    missing = sum(latency is None for latency in latencies_ms)
    within = sum(latency is not None and latency <= limit_ms for latency in latencies_ms)
    crashed = sum(latency == inf for latency in latencies_ms)
    counts = f"{within:,} of {len(latencies_ms):,}"
    if crashed:
        counts += f", {crashed:,} crashed"
    return f"{counts}, {missing:,} have no latency recorded" if missing else counts
