"""The trajectory suite against references: `trajectory_exact`, `trajectory_f1` and their kin.

Each public function here is the factory of one evaluator; they differ in the measure only.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from evaltap.evaluator.criteria import trajectory_scores
from evaltap.evaluator.criteria.alignment import Costs
from evaltap.evaluator.criteria.call_pairs import CallPairs
from evaltap.evaluator.criteria.likeness import Likeness
from evaltap.evaluator.criteria.partial_order import (
    MAX_STATES,
    match_partial_order,
    read_nodes,
    share_matched,
)
from evaltap.evaluator.criteria.trajectory_scores import Finding
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.evaluators.against_references import (
    AgainstReferences,
    criterion_of,
    positive,
)
from evaltap.schemas.metric import EvalMetric
from evaltap.schemas.trajectory import EditCosts, ValueCriterion

_MATCHED: Final = ("name", "arguments")


def exact(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_exact`: 1 when both are the same calls in the same order."""
    return _whole("trajectory_exact", metric, CallPairs.equals)


def in_order(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_in_order`: 1 when the reference is a subsequence of the actual calls."""
    return _whole("trajectory_in_order", metric, CallPairs.follows)


def any_order(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_any_order`: 1 when each expected call has an actual call of its own."""
    return _whole("trajectory_any_order", metric, CallPairs.covers)


def strict(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_strict`: another name of exact."""
    return _whole("trajectory_strict", metric, CallPairs.equals)


def unordered(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_unordered`: 1 when the calls can be paired one to one with none left over."""

    def holds(pairs: CallPairs) -> bool:
        return len(pairs.actual) == len(pairs.reference) and pairs.covers()

    return _whole("trajectory_unordered", metric, holds)


def subset(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_subset`: 1 when each actual call has an expected call of its own."""
    return _whole("trajectory_subset", metric, CallPairs.covered)


def superset(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_superset`: 1 when each expected call has an actual call of its own."""
    return _whole("trajectory_superset", metric, CallPairs.covers)


def precision(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_precision`: total likeness of the best pairs over the number of actual calls."""
    return _share("trajectory_precision", metric, lambda shares: shares.precision)


def recall(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_recall`: total likeness of the best pairs over the number of expected calls."""
    return _share("trajectory_recall", metric, lambda shares: shares.recall)


def f1(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_f1`: the harmonic mean of precision and recall."""
    return _share("trajectory_f1", metric, lambda shares: shares.f1)


def edit_similarity(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_edit_similarity`: 1 - cost of the cheapest edit script / longer length."""
    given = criterion_of(metric).costs or EditCosts()
    costs = Costs(_cost(given.insert), _cost(given.delete), given.swap and _cost(given.swap))
    substitute = _cost(given.substitute)

    def measure(pairs: CallPairs) -> Finding:
        score, script = trajectory_scores.edit_similarity(pairs, costs, substitute)
        return score, trajectory_scores.describe_script(script, pairs), ()

    return AgainstReferences("trajectory_edit_similarity", metric, measure, fields=_MATCHED)


def partial_order(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_partial_order`: share of required calls made after all that they must follow."""
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
        return share_matched(nodes, pairs.weights, match.chosen), cut, ()

    return AgainstReferences("trajectory_partial_order", metric, measure, fields=_MATCHED)


def args_score(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_args_score`: mean likeness of the arguments of paired calls, also by tool."""
    return AgainstReferences(
        "trajectory_args_score", metric, trajectory_scores.argument_score, fields=_MATCHED
    )


def result_match(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_result_match`: mean likeness of the results of paired calls."""
    criterion = criterion_of(metric)
    results, ordered = Likeness(criterion.results or ValueCriterion()), criterion.ordered

    def measure(pairs: CallPairs) -> Finding:
        return trajectory_scores.result_score(pairs, results, ordered=ordered)

    return AgainstReferences(
        "trajectory_result_match", metric, measure, fields=(*_MATCHED, "result")
    )


def step_efficiency(metric: EvalMetric) -> AgainstReferences:
    """`trajectory_step_efficiency`: min(1, expected calls / actual calls); failed calls count."""

    def measure(pairs: CallPairs) -> Finding:
        wanted, made = len(pairs.reference), len(pairs.actual)
        if not wanted or not made:
            return float(wanted == made), f"{made} calls, {wanted} expected", ()
        return min(1.0, wanted / made), f"{made} calls, {wanted} expected", ()

    optimal = criterion_of(metric).optimal_steps
    steps = None if optimal is None else positive(optimal, 1, "optimalSteps")
    references: Sequence[list[dict[str, Any]]] = () if steps is None else ([{}] * steps,)
    return AgainstReferences(
        "trajectory_step_efficiency", metric, measure, attempts="all", instead=references,
        with_diff=False,
    )  # fmt: skip


def _whole(name: str, metric: EvalMetric, holds: Callable[[CallPairs], bool]) -> AgainstReferences:
    def measure(pairs: CallPairs) -> Finding:
        return float(holds(pairs)), "", ()

    return AgainstReferences(name, metric, measure, fields=_MATCHED, all_or_nothing=True)


def _share(
    name: str, metric: EvalMetric, choose: Callable[[trajectory_scores.Shares], float]
) -> AgainstReferences:
    ordered = criterion_of(metric).ordered

    def measure(pairs: CallPairs) -> Finding:
        found = trajectory_scores.shares(pairs, ordered=ordered)
        told = f"precision {found.precision:.3g}, recall {found.recall:.3g}, f1 {found.f1:.3g}"
        return choose(found), told, ()

    return AgainstReferences(name, metric, measure, fields=_MATCHED)


def _cost(given: float | None) -> float:
    if given is None:
        return 1.0
    if not 0 <= given < float("inf"):
        raise MetricError(f"trajectory.costs has {given}; expected costs of 0 or more")
    return given
