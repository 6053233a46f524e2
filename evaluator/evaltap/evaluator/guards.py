"""What decides the exit code beyond the scores: how strict to be, and a bound on the latency."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from evaltap.evaluator.report import Summary

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
    """What a guard found: it holds, it does not, or (`None`) nobody can tell."""

    holds: bool | None
    message: str


def exit_code(
    summary: "Summary",
    fail_on: FailOn = FailOn.NOT_EVALUATED,
    findings: Iterable[GuardFinding] = (),
) -> int:
    """Return 1 for what failed, 3 for what is not known, 0 when all is as it should be.

    Errors count from FailOn.ERROR on, what was not evaluated with FailOn.NOT_EVALUATED only.  No
    score at all is incomplete, and nothing is anything else than 0 with FailOn.NEVER.
    """
    if fail_on is FailOn.NEVER:
        return PASSED
    metrics, found = summary.metrics, list(findings)
    if any(metric.failed for metric in metrics) or any(one.holds is False for one in found):
        return BELOW_THE_BAR
    errors = any(metric.errors for metric in metrics)
    gaps = any(metric.not_evaluated for metric in metrics)
    known = any(metric.passed for metric in metrics)
    incomplete = not metrics or any(one.holds is None for one in found)
    if fail_on is not FailOn.FAILED:
        incomplete = incomplete or errors
    if fail_on is FailOn.NOT_EVALUATED:
        incomplete = incomplete or gaps or not known
    return INCOMPLETE if incomplete else PASSED


def latency_guard(latencies_ms: Sequence[float | None], limit_ms: float) -> GuardFinding:
    """Tell whether at least 95 of 100 turns took no longer than the limit.

    Turns whose latency was not recorded leave it open, unless it comes out the same whatever they
    took.
    """
    total = len(latencies_ms)
    name = f"95 of 100 turns within {limit_ms:g} ms"
    if not total:
        return GuardFinding(None, f"{name}: cannot be told, no turns are at hand")
    missing = sum(latency is None for latency in latencies_ms)
    within = sum(latency is not None and latency <= limit_ms for latency in latencies_ms)
    told = f"{within:,} of {total:,} were"
    if missing:
        told += f", {missing:,} have no latency recorded"
    needed = 0.95 * total
    if within >= needed:
        return GuardFinding(True, f"{name}: {told}")
    if within + missing < needed:
        return GuardFinding(False, f"{name}: only {told}")
    return GuardFinding(None, f"{name}: cannot be told, {told}")
