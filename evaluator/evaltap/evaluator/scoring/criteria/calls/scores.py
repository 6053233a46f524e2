"""Score actual tool calls against a reference.

If both sides are empty, every score is 1; if only one side is empty, precision, recall and similarity are 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding
from evaltap.evaluator.scoring.criteria.calls.alignment import Costs, Edit, edit_script
from evaltap.evaluator.scoring.criteria.calls.pairs import OTHER_TOOL, CallPairs
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.schemas.text import counted


class Shares(NamedTuple):
    """Precision (expected among actual calls), recall (made among expected calls), and their harmonic
    mean."""

    precision: float
    recall: float
    f1: float


def shares(pairs: CallPairs, *, ordered: bool) -> Shares:
    """Return precision, recall and their harmonic mean, of the best pairs in order or in any order."""
    n, m = len(pairs.actual), len(pairs.reference)
    if not n or not m:
        return Shares(1.0, 1.0, 1.0) if n == m else Shares(0.0, 0.0, 0.0)
    total = pairs.aligned_total if ordered else pairs.assigned_total
    return Shares(total / n, total / m, 2 * total / (n + m))


def edit_similarity(pairs: CallPairs, costs: Costs, substitute: float) -> tuple[float, list[Edit]]:
    """Return 1 - cost / longer length, not below 0, and the cheapest edit script."""
    if pairs.equals:
        return 1.0, []
    width = len(pairs.actual)
    longer = max(width, len(pairs.reference))
    steps = [
        [substitute if score == OTHER_TOOL else 1.0 - score for score in row] for row in pairs.table
    ]
    script = edit_script(steps, width, costs)
    cost = sum(edit.cost for edit in script)
    return (max(0.0, 1 - cost / longer) if longer else 1.0), script


def describe_script(script: Sequence[Edit], pairs: CallPairs) -> str:
    """Return an edit script as one line, without the unchanged calls."""

    def name(calls: Sequence[AnyCall], place: int) -> str:
        return str(calls[place].get("name") or "(no name)")

    steps = []
    for edit in script:
        if edit.kind == "delete":
            steps.append(f"delete {name(pairs.reference, edit.reference)}")
        elif edit.kind == "insert":
            steps.append(f"insert {name(pairs.actual, edit.actual)}")
        elif edit.kind != "keep":
            wanted, found = name(pairs.reference, edit.reference), name(pairs.actual, edit.actual)
            joint = "and" if edit.kind == "swap" else "by"
            steps.append(f"{edit.kind} {wanted} {joint} {found} ({edit.cost:.3g})")
    return "edit script: " + ", ".join(steps) if steps else ""


def argument_score(pairs: CallPairs) -> Finding:
    """Return the mean similarity of the arguments of paired calls, with a row for each tool.

    A call that was never made has no arguments to score; recall accounts for missing calls.
    """
    by_tool: dict[str, list[float]] = {}
    chosen = pairs.assigned
    for call, other, score in zip(pairs.reference, chosen, pairs.scores(chosen), strict=True):
        if other >= 0:
            by_tool.setdefault(call.get("name") or "", []).append(score)
    scores = [score for tool in by_tool.values() for score in tool]
    if not scores:
        return Finding(None, "no expected tool was called")
    rows = [
        RubricVerdict(name, sum(tool) / len(tool), counted(len(tool), "call"))
        for name, tool in sorted(by_tool.items())
    ]
    return Finding(sum(scores) / len(scores), "", tuple(rows))


def result_score(pairs: CallPairs, results: Similarity, *, ordered: bool) -> Finding:
    """Return the mean similarity of results over the reference calls that specify one.

    The result of a call that was not made counts as 0.
    """
    chosen = pairs.aligned if ordered else pairs.assigned
    scores, differing = [], []
    for one, call in enumerate(pairs.reference):
        wanted = call.get("result")
        if wanted is None:
            continue
        other, score = chosen[one], 0.0
        if other >= 0:
            score = results.pair(wanted, pairs.actual[other].get("result"))
        scores.append(score)
        if score < 1:
            found = f"{score:.3g}" if other >= 0 else "not called"
            differing.append(f"{call.get('name') or ''} {found}")
    if not scores:
        return Finding(None, "the expected calls state no results")
    reason = "results differ: " + ", ".join(differing) if differing else ""
    return Finding(sum(scores) / len(scores), reason)
