"""Score actual tool calls against a reference.

If both sides are empty, every score is 1; if only one side is empty, precision, recall and similarity are 0.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from math import fsum
from statistics import fmean
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding
from evaltap.evaluator.scoring.criteria.calls.alignment import Costs, EditKind, edit_script
from evaltap.evaluator.scoring.criteria.calls.pairs import NO_NAME, CallPairs
from evaltap.evaluator.scoring.criteria.calls.shape import OTHER_TOOL, Name, Shape
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.schemas.text import counted

_NO_RESULT: Final = (b"", b"null")


class Shares(NamedTuple):
    """Precision (expected among actual calls), recall (made among expected calls), and their harmonic
    mean, each with all three as the reason."""

    precision: Finding
    recall: Finding
    f1: Finding


def shares(pairs: CallPairs, *, ordered: bool) -> Shares:
    """Return precision, recall and their harmonic mean, of the best pairs in order or in any order."""
    n, m = len(pairs.actual), len(pairs.reference)
    if not n or not m:
        return _shares(float(n == m), 1, 1)
    return _shares(pairs.aligned_total if ordered else pairs.assigned_total, n, m)


@lru_cache(maxsize=4096)
def _shares(total: float, n: int, m: int) -> Shares:
    """Return the shares of a total similarity of `n` actual calls with `m` expected ones."""
    precision, recall, f1 = total / n, total / m, 2 * total / (n + m)
    reason = f"precision {precision:.3g}, recall {recall:.3g}, f1 {f1:.3g}"
    return Shares(Finding(precision, reason), Finding(recall, reason), Finding(f1, reason))


def edit_similarity(pairs: CallPairs, costs: Costs, substitute: float) -> Finding:
    """Return 1 - cost / longer length, not below 0, with the cheapest edit script as the reason."""
    if pairs.equals:
        return Finding(1.0)
    score, script = pairs.shape.recall(_edited, costs, substitute)
    return Finding(score, _described(script, pairs))


_Step: TypeAlias = tuple[EditKind, int, int, str]
"""An edit with its cost as text."""


def _edited(shape: Shape, costs: Costs, substitute: float) -> tuple[float, Sequence[_Step]]:
    """Return the similarity, and the edits other than `keep`."""
    longer = max(shape.width, len(shape.table))
    steps = [
        [substitute if score == OTHER_TOOL else 1.0 - score for score in row] for row in shape.table
    ]
    script = edit_script(steps, shape.width, costs)
    cost = fsum(edit.cost for edit in script)
    score = max(0.0, (longer - cost) / longer) if longer else 1.0
    return score, [(*edit[:3], f"{edit.cost:.3g}") for edit in script if edit.kind != "keep"]


def _described(script: Sequence[_Step], pairs: CallPairs) -> str:
    """Return an edit script as one line."""
    wanted, found = pairs.wanted_names, pairs.found_names
    steps = []
    for kind, one, other, cost in script:
        if kind == "delete":
            steps.append(f"delete {wanted[one] or NO_NAME}")
        elif kind == "insert":
            steps.append(f"insert {found[other] or NO_NAME}")
        else:
            joint = "and" if kind == "swap" else "by"
            pair = f"{wanted[one] or NO_NAME} {joint} {found[other] or NO_NAME}"
            steps.append(f"{kind} {pair} ({cost})")
    return "edit script: " + ", ".join(steps) if steps else ""


def argument_score(pairs: CallPairs) -> Finding:
    """Return the mean similarity of the arguments of paired calls, with a row for each tool.

    A call that was never made has no arguments to score; recall accounts for missing calls.
    """
    if pairs.same:
        return _scores_by_tool((name, 1.0) for name in pairs.wanted_names)
    chosen = pairs.assigned
    paired = zip(pairs.wanted_names, chosen, pairs.shape.scores(chosen), strict=True)
    return _scores_by_tool((name, score) for name, other, score in paired if other >= 0)


def _scores_by_tool(scores: Iterable[tuple[Name, float]]) -> Finding:
    by_tool: dict[str, list[float]] = {}
    for name, score in scores:
        by_tool.setdefault(name or "", []).append(score)
    if not by_tool:
        return Finding(None, "no expected tool was called")
    rows = [
        RubricVerdict(name, fmean(tool), counted(len(tool), "call"))
        for name, tool in sorted(by_tool.items())
    ]
    every = [score for tool in by_tool.values() for score in tool]
    return Finding(fmean(every), "", tuple(rows))


def result_score(pairs: CallPairs, results: Similarity, *, ordered: bool) -> Finding:
    """Return the mean similarity of results over the reference calls that specify one.

    The result of a call that was not made counts as 0.
    """
    chosen = pairs.aligned if ordered else pairs.assigned
    bytes_suffice = results.same_bytes_are_alike
    scores: list[float] = []
    differing: list[str] = []
    for one, call in enumerate(pairs.reference):
        other = chosen[one]
        if bytes_suffice and other >= 0 and _same_results(call, pairs.actual[other]):
            scores.append(1.0)
            continue
        wanted, score = call.get("result"), 0.0
        if wanted is None:
            continue
        if other >= 0:
            score = results.pair(wanted, pairs.actual[other].get("result"))
        scores.append(score)
        if score < 1:
            found = f"{score:.3g}" if other >= 0 else "not called"
            differing.append(f"{call.get('name') or ''} {found}")
    if not scores:
        return Finding(None, "the expected calls state no results")
    reason = "results differ: " + ", ".join(differing) if differing else ""
    return Finding(fmean(scores), reason)


def _same_results(one: AnyCall, other: AnyCall) -> bool:
    """Return whether equal bytes prove that two calls, not decoded yet, have the same result."""
    if isinstance(one, dict) or isinstance(other, dict):
        return False
    return one.result == other.result and bytes(one.result) not in _NO_RESULT
