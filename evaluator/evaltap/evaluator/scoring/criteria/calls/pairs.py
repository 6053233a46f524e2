"""Pairs of actual and expected tool calls, and their similarity.

The similarity of two calls is 0 if their names differ, otherwise that of their arguments.  Calls therefore
fall into one block per tool, and nothing is computed across blocks.
"""

from collections.abc import Sequence
from functools import cached_property

from evaltap.evaluator.cases.turn import ToolCall
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Rows, Value
from evaltap.schemas.formats.criteria import ValueCriterion


class CallSimilarity:
    """The similarity of two tool calls; compiled once, usable from any thread."""

    def __init__(
        self,
        arguments: ValueCriterion | None = None,
        by_tool: dict[str, ValueCriterion] | None = None,
    ) -> None:
        self._default = Similarity(arguments)
        self._by_tool = {name: Similarity(part) for name, part in (by_tool or {}).items()}

    def of(self, name: str) -> Similarity:
        """Return the comparison of arguments for calls to one tool."""
        return self._by_tool.get(name, self._default)

    def weight(self, reference: ToolCall, actual: ToolCall) -> float:
        """Return the similarity of two calls; a call without a name is similar to none."""
        name = reference.get("name")
        if not name or name != actual.get("name"):
            return 0.0
        return self.of(name).pair(reference.get("arguments"), actual.get("arguments"))

    def changes(self, reference: ToolCall, actual: ToolCall) -> list[tuple[str, Value, Value]]:
        """Return the argument paths in which two calls to one tool differ."""
        name = reference.get("name") or ""
        return self.of(name).changes(reference.get("arguments"), actual.get("arguments"))


class CallPairs:
    """The calls of a reference against the actual calls; each result is computed at most once, on demand."""

    def __init__(
        self, reference: Sequence[ToolCall], actual: Sequence[ToolCall], similarity: CallSimilarity
    ) -> None:
        self.reference = reference
        self.actual = actual
        self.similarity = similarity

    @cached_property
    def weights(self) -> Rows:
        """The similarity of each reference call (a row) with each actual call."""
        rows = [[0.0] * len(self.actual) for _ in self.reference]
        for wanted, found, block in self._blocks:
            for one, scores in zip(wanted, block, strict=True):
                row = rows[one]
                for other, score in zip(found, scores, strict=True):
                    row[other] = score
        return rows

    @cached_property
    def assigned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in any order.

        Calls to one tool are paired even if their arguments have nothing in common.
        """
        chosen = [-1] * len(self.reference)
        for wanted, found, block in self._blocks:
            for one, column in enumerate(assign(block)):
                if column >= 0:
                    chosen[wanted[one]] = found[column]
        return chosen

    @cached_property
    def aligned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in order."""
        return align(self.weights, len(self.actual))

    def steps(self, substitute: float) -> Rows:
        """Return the cost of replacing each reference call with each actual call.

        It is 1 minus the similarity for calls to the same tool, and `substitute` for others.
        """
        rows = [[substitute] * len(self.actual) for _ in self.reference]
        for wanted, found, block in self._blocks:
            for one, scores in zip(wanted, block, strict=True):
                row = rows[one]
                for other, score in zip(found, scores, strict=True):
                    row[other] = 1.0 - score
        return rows

    def total(self, chosen: Sequence[int]) -> float:
        """Return the total similarity of the chosen pairs."""
        weights = self.weights
        return sum(weights[one][other] for one, other in enumerate(chosen) if other >= 0)

    def covers(self) -> bool:
        """Return whether each reference call equals a different actual call."""
        for wanted, found, block in self._blocks:
            edges = [[place for place, score in enumerate(row) if score == 1] for row in block]
            if match_left(len(wanted), len(found), edges.__getitem__).uncovered_left:
                return False
        return sum(len(wanted) for wanted, _, _ in self._blocks) == len(self.reference)

    def covered(self) -> bool:
        """Return whether each actual call equals a different reference call."""
        for wanted, found, block in self._blocks:
            edges = [
                [one for one, row in enumerate(block) if row[place] == 1]
                for place in range(len(found))
            ]
            if match_left(len(found), len(wanted), edges.__getitem__).uncovered_left:
                return False
        return sum(len(found) for _, found, _ in self._blocks) == len(self.actual)

    def follows(self) -> bool:
        """Return whether the reference is a subsequence of the actual calls."""
        weight, left = self.similarity.weight, iter(self.actual)
        return all(any(weight(call, other) == 1 for other in left) for call in self.reference)

    def equals(self) -> bool:
        """Return whether both sides are the same calls in the same order."""
        weight = self.similarity.weight
        return len(self.reference) == len(self.actual) and all(
            weight(call, other) == 1
            for call, other in zip(self.reference, self.actual, strict=True)
        )

    @cached_property
    def _blocks(self) -> list[tuple[list[int], list[int], Rows]]:
        """For each tool that both sides call: the indexes of its calls, and their similarity."""
        wanted, found = _places(self.reference), _places(self.actual)
        blocks = []
        for name, ones in wanted.items():
            others = found.get(name)
            if others:
                left = [self.reference[one].get("arguments") for one in ones]
                right = [self.actual[other].get("arguments") for other in others]
                blocks.append((ones, others, self.similarity.of(name).matrix(left, right)))
        return blocks


def _places(calls: Sequence[ToolCall]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, call in enumerate(calls):
        name = call.get("name")
        if name:
            places.setdefault(name, []).append(place)
    return places
