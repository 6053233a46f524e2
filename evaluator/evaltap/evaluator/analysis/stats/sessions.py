"""Variances by leaving out one session at a time, and the effective number of sessions."""

from collections.abc import Callable, Iterable
from typing import Final

from evaltap.evaluator.analysis.stats.sample import Part, Sample, Stratum

_ROUNDING: Final = 1e-24


def stratum_variance(stratum: Stratum) -> float:
    """Return the variance of a stratum's mean."""
    mean = stratum.mean
    parts = ((n, part.total - mean * part.weight, part.weight) for n, part, _ in stratum.profiles)
    return _leaving_one_out(parts, stratum.all.weight)


def total_variance(sample: Sample, residual: Callable[[int, Part], float]) -> float:
    """Return the variance of Σwe/Σw; `residual` returns Σwe of a session's turns in an indexed stratum."""
    sums = (
        (
            profile.sessions,
            sum(residual(at, part) for at, part in parts.items()),
            sum(part.weight for part in parts.values()),
        )
        for profile, parts in sample.profiles
    )
    return _leaving_one_out(sums, sample.weight)


def effective_sessions(sample: Sample, design_effect: float | None) -> float:
    """Return (Σa)²/Σa²; a is a session's part of the variance if its turns correlate by r.

    a = (1-r)·Σw² + r·(Σw)²; r follows from the design effect.
    """
    sums: list[tuple[int, float, float]] = []
    for profile, parts in sample.profiles:
        weight = sum(part.weight for part in parts.values())
        sums.append((profile.sessions, weight, sum(part.squares for part in parts.values())))
    clustered = sum(n * weight * weight for n, weight, _ in sums)
    single = sum(n * squares for n, _, squares in sums)
    excess = clustered / single - 1
    if design_effect is None:
        correlation = 1.0
    elif excess > 1e-12:
        correlation = min(max((design_effect - 1) / excess, 0.0), 1.0)
    else:
        correlation = 0.0
    own = [(n, (1 - correlation) * q + correlation * m * m) for n, m, q in sums]
    return sum(n * a for n, a in own) ** 2 / sum(n * a * a for n, a in own)


def _leaving_one_out(sums: Iterable[tuple[int, float, float]], weight: float) -> float:
    """Return (C-1)/C · Σ_s (Σ_s we / (Σw - Σ_s w))² of C sessions, with `weight` = Σw.

    `sums` are numbers of sessions with Σ_s we and Σ_s w of one of them.
    """
    count, total = 0, 0.0
    for sessions, residual, part in sums:
        count += sessions
        rest = weight - part
        if rest > 0:
            total += sessions * (residual / rest) ** 2
    # The rounding error of sessions that are all alike is not variance.
    return (count - 1) / count * total if count > 1 and total > _ROUNDING else 0.0
