"""Trajectory evaluators with references: `trajectory_exact`, `trajectory_f1` and others.

Each public name here is the factory of one evaluator; they only differ in their measure.
"""

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Final

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.evaluator import comparing_calls
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding
from evaltap.evaluator.scoring.criteria.calls import scores as trajectory_scores
from evaltap.evaluator.scoring.criteria.calls.alignment import Costs
from evaltap.evaluator.scoring.criteria.calls.pairs import CallPairs
from evaltap.evaluator.scoring.criteria.calls.partial_order import (
    MAX_STATES,
    match_partial_order,
    read_nodes,
    share_matched,
)
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.evaluator.scoring.evaluators.against_references import (
    MISSED,
    PERFECT,
    AgainstReferences,
    criterion_of,
    positive,
)
from evaltap.schemas.formats.criteria import EditCosts, ValueCriterion
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import counted

_MATCHED: Final = ("name", "arguments")

Factory = Callable[[EvalMetric], AgainstReferences]


def _whole(name: str, holds: Callable[[CallPairs], bool]) -> Factory:
    """Return the factory of an evaluator that scores a turn 1 if `holds`, otherwise 0."""

    def measure(pairs: CallPairs) -> Finding:
        return PERFECT if holds(pairs) else MISSED

    return comparing_calls(
        lambda metric: AgainstReferences(
            name, metric, measure, fields=_MATCHED, all_or_nothing=True, same_is_perfect=True
        )
    )


def _same_calls(pairs: CallPairs) -> bool:
    return len(pairs.actual) == len(pairs.reference) and pairs.covers


exact = _whole("trajectory_exact", attrgetter("equals"))
"""1 if both sides have the same calls in the same order."""
strict = _whole("trajectory_strict", attrgetter("equals"))
"""Another name for exact."""
in_order = _whole("trajectory_in_order", attrgetter("follows"))
"""1 if the reference is a subsequence of the actual calls."""
any_order = _whole("trajectory_any_order", attrgetter("covers"))
"""1 if each expected call matches a different actual call."""
superset = _whole("trajectory_superset", attrgetter("covers"))
"""1 if each expected call matches a different actual call."""
subset = _whole("trajectory_subset", attrgetter("covered"))
"""1 if each actual call matches a different expected call."""
unordered = _whole("trajectory_unordered", _same_calls)
"""1 if the calls can be paired one to one without remainder."""


def _share(name: str, choose: Callable[[trajectory_scores.Shares], Finding]) -> Factory:
    """Return the factory of an evaluator that scores a turn by its best pairs of calls."""

    def make(metric: EvalMetric) -> AgainstReferences:
        ordered = criterion_of(metric).ordered

        def measure(pairs: CallPairs) -> Finding:
            return choose(trajectory_scores.shares(pairs, ordered=ordered))

        return AgainstReferences(name, metric, measure, fields=_MATCHED, same_is_perfect=True)

    return comparing_calls(make)


precision = _share("trajectory_precision", attrgetter("precision"))
"""Total similarity of the best pairs over the number of actual calls."""
recall = _share("trajectory_recall", attrgetter("recall"))
"""Total similarity of the best pairs over the number of expected calls."""
f1 = _share("trajectory_f1", attrgetter("f1"))
"""The harmonic mean of precision and recall."""


@comparing_calls
def edit_similarity(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_edit_similarity`: 1 - cost of the cheapest edit script / longer length."""
    given = criterion_of(metric).costs or EditCosts()
    costs = Costs(_cost(given.insert), _cost(given.delete), given.swap and _cost(given.swap))
    substitute = _cost(given.substitute)

    def measure(pairs: CallPairs) -> Finding:
        return trajectory_scores.edit_similarity(pairs, costs, substitute)

    return AgainstReferences(
        "trajectory_edit_similarity", metric, measure, fields=_MATCHED, same_is_perfect=True
    )


@comparing_calls
def partial_order(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_partial_order`: share of required calls made after all their predecessors."""
    criterion = criterion_of(metric)
    if criterion.agents == "per_agent":
        raise MetricError("a partial order spans all agents; leave trajectory.agents out")
    max_states = positive(criterion.max_states, MAX_STATES, "maxStates")

    def measure(pairs: CallPairs) -> Finding:
        nodes = read_nodes(pairs.reference)
        match = match_partial_order(nodes, pairs.weights, len(pairs.actual), max_states=max_states)
        cut = (
            ""
            if match.exact
            else f"search cut off at {max_states} ways for a call, the score may be low"
        )
        return Finding(share_matched(nodes, pairs.weights, match.chosen), cut)

    return AgainstReferences("trajectory_partial_order", metric, measure, fields=_MATCHED)


@comparing_calls
def args_score(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_args_score`: mean similarity of the arguments of paired calls, also by tool."""
    return AgainstReferences(
        "trajectory_args_score", metric, trajectory_scores.argument_score, fields=_MATCHED
    )


@comparing_calls
def result_match(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_result_match`: mean similarity of the results of paired calls."""
    criterion = criterion_of(metric)
    results, ordered = Similarity(criterion.results or ValueCriterion()), criterion.ordered

    def measure(pairs: CallPairs) -> Finding:
        return trajectory_scores.result_score(pairs, results, ordered=ordered)

    return AgainstReferences(
        "trajectory_result_match", metric, measure, fields=(*_MATCHED, "result")
    )


@comparing_calls
def step_efficiency(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_step_efficiency`: min(1, expected calls / actual calls); failed calls count."""

    def measure(pairs: CallPairs) -> Finding:
        wanted, made = len(pairs.reference), len(pairs.actual)
        score = min(1.0, wanted / made) if made else float(not wanted)
        return Finding(score, f"{counted(made, 'call')}, {wanted} expected")

    optimal = criterion_of(metric).optimal_steps
    steps = None if optimal is None else positive(optimal, 1, "optimalSteps")
    references: Sequence[list[AnyCall]] = () if steps is None else ([{}] * steps,)
    return AgainstReferences(
        "trajectory_step_efficiency",
        metric,
        measure,
        attempts="all",
        instead=references,
        with_diff=False,
    )


def _cost(given: float | None) -> float:
    if given is None:
        return 1.0
    if not 0 <= given < float("inf"):
        raise MetricError(f"trajectory.costs has {given}; expected costs of 0 or more")
    return given
