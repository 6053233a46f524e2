"""The part of a variance that is due to the draws: the variation between samples of the same traffic."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from evaltap.evaluator.analysis.stats.sample import Cell


def drawn_variance(
    sessions: Iterable[tuple[int, Iterable[Cell]]], residuals: Callable[[Cell], tuple[float, float]]
) -> float:
    """Return Σ_s Σ_ij (1 - π_i π_j / π_ij) w_i e_i w_j e_j over the turns i, j of each session.

    `sessions` are numbers of sessions with the cells of one of them; `residuals` returns Σe and Σe² of a
    cell. π_ij, the chance that both turns are scored, is that of the less likely one if they share a draw,
    and the product if they do not.  The sum is computed by cells, never by pairs of turns.
    """
    total = 0.0
    for count, cells in sessions:
        weighted = own = 0.0
        shared: list[tuple[float, float, float]] = []
        for cell in cells:
            residual, squares = residuals(cell)
            weighted += residual / cell.probability
            if cell.by_turn:
                shared.append((cell.recorded, 1.0, residual / cell.scored))
                own += squares / cell.probability * (1 - 1 / cell.scored)
            else:
                shared.append((cell.recorded, cell.scored, residual))
        total += count * (weighted * weighted - _over_both(shared) - own)
    return max(0.0, total)


def _over_both(cells: Sequence[tuple[float, float, float]]) -> float:
    """Return Σ e e' / (min(p, p')·min(q, q')) over all pairs of (p, q, e), including each with itself.

    Computed by layers of 1/q: a pair contributes to the layers above the smaller of its q.
    """
    levels = sorted({scored for _, scored, _ in cells})
    whole = _over_first([(recorded, residual) for recorded, _, residual in cells])
    total = whole / levels[-1]
    for lower, upper in pairwise(levels):
        above = _over_first([(p, residual) for p, q, residual in cells if q >= upper])
        total += (1 / lower - 1 / upper) * (whole - above)
    return total


def _over_first(cells: Sequence[tuple[float, float]]) -> float:
    """Return Σ e e' / min(p, p') over all pairs of (p, e)."""
    later, total = sum(residual for _, residual in cells), 0.0
    for probability, residual in sorted(cells):
        later -= residual
        total += residual * (residual + 2 * later) / probability
    return total
