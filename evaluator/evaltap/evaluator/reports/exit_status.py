"""What decides the exit code beyond the scores: how strict to be, and a bound on the latency."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import inf
from typing import Final

PASSED: Final = 0
BELOW_THE_BAR: Final = 1
INCOMPLETE: Final = 3


class FailOn(StrEnum):
    """What makes the exit code other than 0; each one includes those before it."""

    NEVER = "never"
    FAILED = "failed"
    ERROR = "error"
    NOT_EVALUATED = "not_evaluated"


@dataclass(frozen=True, slots=True)
class GuardFinding:
    """What a guard found: it holds, it does not, or (`None`) that is unknown."""

    holds: bool | None
    message: str


def latency_guard(
    latencies_ms: Sequence[float | None], limit_ms: float, weights: Sequence[float] | None = None
) -> GuardFinding:
    """Return whether at least 95 of 100 turns took no longer than the limit; infinity: the run failed.

    `weights` say how many turns of the traffic each stands for; by default one.  Turns whose latency was
    not recorded leave it open, unless it comes out the same whatever they took.
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
    # Sums of weights are rounded: a share of exactly 95 of 100 is enough.
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
