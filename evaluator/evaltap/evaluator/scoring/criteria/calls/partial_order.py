"""Match tool calls with a partially ordered reference, in which some calls must follow others.

A node of the reference may be optional, or one of several alternatives.  The result is the set of pairs with
the greatest total that respects the order.  The search processes the actual calls in order; its state is only
the set of nodes that are already used.
"""

from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final, NamedTuple

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Rows

MAX_STATES: Final = 5_000

_OPTIONAL_SHARE: Final = 1e-6  # an optional node is matched if that costs no required node


class Node(NamedTuple):
    """One call of the reference; `before` are the indexes of the nodes that must precede it."""

    before: frozenset[int]
    optional: bool
    group: str
    """Nodes of one group are alternatives: only one of them is needed, and at most one is matched."""


class OrderedMatch(NamedTuple):
    """The actual call of each node, or -1; `exact` is False if the search was cut short."""

    chosen: list[int]
    exact: bool


def _before_each(calls: Sequence[AnyCall]) -> Iterator[set[int]]:
    """Yield the places that `after` names for each call."""
    places: dict[str, set[int]] = {}
    for place, call in enumerate(calls):
        for name in (call.get("id"), call.get("alternative")):
            if name:
                places.setdefault(str(name), set()).add(place)
    for place, call in enumerate(calls):
        before: set[int] = set()
        for name in call.get("after") or ():
            if name not in places:
                raise MetricError(
                    f"reference call {place} is after '{name}'; "
                    f"known ids and alternatives: {', '.join(places) or 'none'}"
                )
            before |= places[name]
        yield before


def read_nodes(calls: Sequence[AnyCall]) -> list[Node]:
    """Return the nodes of a reference: calls with `after` (ids or groups), `optional`, `alternative`.

    Without any `after` the calls may be in any order.  Raises MetricError for an unknown id or a cycle.
    """
    closed = _closure([*_before_each(calls)])
    groups = [str(call.get("alternative") or "") for call in calls]
    # A group may be left out only if each of its calls may.
    needed = {
        one for one, call in zip(groups, calls, strict=True) if one and not call.get("optional")
    }
    return [
        Node(frozenset(before), bool(call.get("optional")) and group not in needed, group)
        for before, group, call in zip(closed, groups, calls, strict=True)
    ]


def match_partial_order(
    nodes: Sequence[Node], weights: Rows, width: int, *, max_states: int = MAX_STATES
) -> OrderedMatch:
    """Return the best pairs that respect the order; row i of `weights` belongs to node i.

    At most `max_states` states are pursued for each actual call.
    """
    if not nodes or not width:
        return OrderedMatch([-1] * len(nodes), True)
    worth = [
        [score * _OPTIONAL_SHARE for score in row] if node.optional else row
        for node, row in zip(nodes, weights, strict=True)
    ]
    if not any(node.group for node in nodes):
        free = _assigned(worth)
        if _keeps_order(nodes, free):
            return OrderedMatch(free, True)
        chain = sorted(range(len(nodes)), key=lambda place: len(nodes[place].before))
        if all(len(nodes[place].before) == rank for rank, place in enumerate(chain)):
            aligned = align([worth[place] for place in chain], width)
            by_node = dict(zip(chain, aligned, strict=True))
            return OrderedMatch([by_node[place] for place in range(len(nodes))], True)
    return _search(_twins_in_order(nodes, worth), worth, width, max_states)


def share_matched(nodes: Sequence[Node], weights: Rows, chosen: Sequence[int]) -> float:
    """Return the mean similarity of the required nodes; a group counts as one, an unmatched node as 0."""
    scores: dict[object, float] = {}
    for place, node in enumerate(nodes):
        if not node.optional:
            score = weights[place][chosen[place]] if chosen[place] >= 0 else 0.0
            slot = node.group or place
            scores[slot] = max(scores.get(slot, 0.0), score)
    return fmean(scores.values()) if scores else 1.0


def _closure(direct: list[set[int]]) -> list[set[int]]:
    """Return all direct and indirect predecessors of each node."""
    closed: list[set[int]] = []
    for place, before in enumerate(direct):
        seen: set[int] = set()
        queue = [*before]
        while queue:
            one = queue.pop()
            if one not in seen:
                seen.add(one)
                queue.extend(direct[one])
        if place in seen:
            raise MetricError(f"reference call {place} must come after itself; remove the cycle")
        closed.append(seen)
    return closed


def _assigned(worth: Rows) -> list[int]:
    chosen = assign(worth)
    return [
        column if column >= 0 and worth[one][column] > 0 else -1
        for one, column in enumerate(chosen)
    ]


def _keeps_order(nodes: Sequence[Node], chosen: Sequence[int]) -> bool:
    return all(
        chosen[place] < 0 or chosen[earlier] < chosen[place]
        for place, node in enumerate(nodes)
        for earlier in node.before
    )


def _twins_in_order(nodes: Sequence[Node], worth: Rows) -> list[frozenset[int]]:
    """Return the predecessors of each node, with a fixed order among interchangeable nodes.

    Which interchangeable node gets which call does not matter; the fixed order avoids trying all
    permutations.
    """
    after: list[set[int]] = [set() for _ in nodes]
    for place, node in enumerate(nodes):
        for earlier in node.before:
            after[earlier].add(place)
    seen: dict[object, list[int]] = {}
    before = []
    for place, node in enumerate(nodes):
        key = (node.before, frozenset(after[place]), node.optional, node.group, tuple(worth[place]))
        twins = seen.setdefault(key, [])
        before.append(node.before | {*twins} if not node.group else node.before)
        twins.append(place)
    groups: dict[str, set[int]] = {}
    for place, node in enumerate(nodes):
        if node.group:
            groups.setdefault(node.group, set()).add(place)
    # Alternatives exclude each other: a match of one closes the whole group.
    return [
        before[place] | (groups[node.group] if node.group else frozenset({place}))
        for place, node in enumerate(nodes)
    ]


def _search(
    closes: Sequence[frozenset[int]], worth: Rows, width: int, max_states: int
) -> OrderedMatch:
    masks = [sum(1 << place for place in closed) for closed in closes]
    # Maps each set of closed nodes to its greatest total and the path that reached it (a linked
    # list).
    states: dict[int, tuple[float, Any]] = {0: (0.0, None)}
    exact = True
    for column in range(width):
        useful = [place for place, row in enumerate(worth) if row[column] > 0]
        keep = max(1, max_states // max(1, len(useful)))
        if len(states) > keep:
            exact = False
            best = sorted(states.items(), key=lambda item: (-item[1][0], item[0].bit_count()))
            states = dict(best[:keep])
        reached = dict(states)
        for closed, (total, path) in states.items():
            for place in useful:
                if not closed >> place & 1:
                    after, more = closed | masks[place], total + worth[place][column]
                    known = reached.get(after)
                    if known is None or more > known[0]:
                        reached[after] = more, (place, column, path)
        states = reached
    _, path = max(states.values(), key=lambda state: state[0])
    chosen = [-1] * len(worth)
    while path is not None:
        place, column, path = path
        chosen[place] = column
    return OrderedMatch(chosen, exact)
