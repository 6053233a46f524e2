"""Decide during an experiment whether its pass rate reaches a target, valid whenever one looks.

After each whole round (every case once more), a mixture of likelihood ratios tests a pass rate m: with S
passes in n units, B(S + 1/2, n - S + 1/2) / B(1/2, 1/2) over m^S (1 - m)^(n - S).  Cases may have
different pass rates p_i with mean m: the moment generating function of the sum of a round is at most that
of a binomial with m, since log(1 - p + p e^t) is concave in p (Hoeffding 1956), so the ratio is a
supermartingale under every such set, and Ville's inequality bounds the chance that it ever reaches 1 /
alpha by alpha (Robbins 1970, Howard et al. 2021).
"""

import math
import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaltap.schemas.errors import InputError

Decision: TypeAlias = Literal["reached", "missed", "open"]
_FORM = re.compile(r"pass_rate\s*>=\s*(0?\.\d+|[01](?:\.0+)?)\s*(?:@\s*(\d{1,2}(?:\.\d+)?)\s*%)?")


@dataclass(frozen=True, slots=True)
class Until:
    """A target of the pass rate, and how sure one has to be."""

    target: float
    confidence: float

    def decide(self, passed: int, units: int) -> Decision:
        """Return whether the pass rate of whole rounds reaches the target, misses it, or neither is sure
        yet.
        """
        if not units:
            return "open"
        low, high = bounds(passed, units, 1 - self.confidence)
        if low >= self.target:
            return "reached"
        return "missed" if high < self.target else "open"


def parse_until(text: str) -> Until:
    """Parse `pass_rate>=0.9@95%`; the confidence is 95 % if it is left out."""
    found = _FORM.fullmatch(text.strip())
    target, confidence = (float(found[1]), float(found[2] or 95) / 100) if found else (0.0, 0.0)
    if not 0 < target < 1 or not 0.5 <= confidence < 1:
        raise InputError(
            f"--until {text}: expected a target between 0 and 1 and a confidence from 50 %, e.g."
            " 'pass_rate>=0.9@95%'"
        )
    return Until(target, confidence)


def bounds(passed: int, units: int, alpha: float) -> tuple[float, float]:
    """Return the two ends of the confidence sequence at level 1 - alpha, after whole rounds."""

    def excluded(rate: float) -> bool:
        return log_ratio(passed, units, rate) >= math.log(1 / alpha)

    share = passed / units
    low, high = 0.0, 1.0
    if passed and excluded(0.0):
        low = _edge(excluded, 0.0, share)
    if passed < units and excluded(1.0):
        high = _edge(excluded, 1.0, share)
    return low, high


def log_ratio(passed: int, units: int, rate: float) -> float:
    """Return the logarithm of the mixture's likelihood over that of a pass rate."""
    failed = units - passed
    if (rate <= 0 and passed) or (rate >= 1 and failed):
        return math.inf
    mixed = _log_beta(passed + 0.5, failed + 0.5) - _log_beta(0.5, 0.5)
    stated = (passed and passed * math.log(rate)) + (failed and failed * math.log1p(-rate))
    return mixed - stated


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _edge(excluded, outside: float, inside: float) -> float:  # type: ignore[no-untyped-def]
    """Return where exclusion ends between an excluded rate and one that is not, by bisection."""
    for _ in range(60):
        middle = (outside + inside) / 2
        if excluded(middle):
            outside = middle
        else:
            inside = middle
    return outside
