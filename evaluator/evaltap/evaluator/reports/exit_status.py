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


def latency_guard(latencies_ms: Sequence[float | None], limit_ms: float) -> GuardFinding:
    """Tell whether at least 95 of 100 turns took no longer than the limit; infinity: the run failed.

    Turns whose latency was not recorded leave it open, unless it comes out the same whatever they
    took.
    """
    total = len(latencies_ms)
    name = f"95 of 100 turns within {limit_ms:g} ms"
    if not total:
        return GuardFinding(None, f"{name}: unknown, no turns are at hand")
    missing = sum(latency is None for latency in latencies_ms)
    within = sum(latency is not None and latency <= limit_ms for latency in latencies_ms)
    crashed = sum(latency == inf for latency in latencies_ms)
    counts = f"{within:,} of {total:,} were"
    if crashed:
        counts += f", {crashed:,} crashed"
    if missing:
        counts += f", {missing:,} have no latency recorded"
    needed = 0.95 * total
    if within >= needed:
        return GuardFinding(True, f"{name}: {counts}")
    if within + missing < needed:
        return GuardFinding(False, f"{name}: only {counts}")
    return GuardFinding(None, f"{name}: unknown, {counts}")
