"""`Func`: a Python function of a turn as an evaluator."""

from collections.abc import Callable
from inspect import iscoroutinefunction

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.context import Status, TurnScore
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.evaluator import CostClass
from evaltap.evaluator.scoring.contract.named import load_function, source_digest
from evaltap.evaluator.scoring.contract.turn_evaluator import TurnEvaluator, TurnResult
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.schemas.formats.metric import EvalMetric

TurnFunction = Callable[[Turn, Turn], TurnResult]
"""Called with the actual turn and the expected turn (possibly a placeholder), from several threads.

It returns true or false, a score from 0 to 1, a pair of either with a reason, a `TurnScore`, or None if the
turn contains nothing to score.  Any other value, and any exception, becomes an error of the turn.
"""


class Func(TurnEvaluator):
    """Scores each turn with a function, and the case with the mean.

    The version is a digest of the function's source, so a changed function makes old scores stale.  Pass your
    own version if the source does not reflect every change.

    >>> from evaltap.evaluator import Suite
    >>> def says_when(turn, expected):
    ...     return "Monday" in turn.final_text, "looked for a day"
    >>> case = {
    ...     "evalId": "s-1", "evalMode": "trace", "sessionInput": {}, "actualConversation": [
    ...         {"invocationId": "t-1", "userContent": {"role": "user", "content": "When?"},
    ...          "finalResponse": {"role": "assistant", "content": "On Monday."}}]}
    >>> Suite([Func(says_when)]).run(case).score
    1.0
    """

    def __init__(
        self,
        function: TurnFunction,
        *,
        name: str = "",
        threshold: float = 1.0,
        version: str = "",
        cost_class: CostClass = CostClass.FREE,
    ) -> None:
        own_name = getattr(function, "__name__", type(function).__name__)
        if iscoroutinefunction(function):
            raise MetricError(f"{own_name}: an async function; expected one that returns its score")
        name = name or own_name
        super().__init__(EvalMetric(metric_name=name, threshold=threshold))
        self.version = version or source_digest(function)
        self.cost_class = cost_class
        self._function = function

    def score(self, turn: Turn, expected: Turn, case: Case) -> TurnResult:
        """Return the function's result for a turn; an exception becomes an error of the turn."""
        try:
            return self._function(turn, expected)
        except (Exception, SystemExit) as error:  # user code: fails this turn, not the run
            return TurnScore(Status.ERROR, reason=f"{type(error).__name__}: {error}")


def python_function(metric: EvalMetric) -> Func:
    """`python_function`: the function at `criterion.function.path`."""
    criterion = require(metric, lambda given: given.function, "function", closed=True)
    function = load_function(criterion.path, "function.path")
    return Func(function, name="python_function", threshold=metric.threshold)
