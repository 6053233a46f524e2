"""`Func`: a Python function of a turn as an evaluator."""

import hashlib
import inspect
from collections.abc import Callable
from importlib import import_module
from math import isfinite
from typing import Any

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.cost import CostClass
from evaltap.evaluator.errors import MetricError

TurnFunction = Callable[[Turn, Turn], Any]
"""Called with the actual and the expected turn (perhaps a placeholder); may be called from several threads.

It returns true or false, a score from 0 to 1, either of them with a reason as a pair, a `TurnScore`, or
None when the turn holds nothing to be scored.  Anything else, and an exception, is an error of the turn.
"""


class Func:
    """Scores each turn by a function, and the case by the mean.

    The version is taken from the function's source, so that a changed function makes old scores stale;
    give one of your own where the source says too little.
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
        self.name = name or getattr(function, "__name__", type(function).__name__)
        self.version = version or _version(function)
        self.cost_class = cost_class
        self.threshold = threshold
        self._function = function

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return what the function says of each turn, and the mean."""
        if len(context.actual) != len(context.expected):
            return EvaluatorFailure("turn counts differ", "TurnCountMismatch")
        pairs = zip(context.actual, context.expected, strict=True)
        return average(tuple(self._turn(*pair) for pair in pairs), self.threshold)

    def _turn(self, turn: Turn, expected: Turn) -> TurnScore:
        try:
            found = self._function(turn, expected)
        except Exception as error:  # anyone's function: its fault is this turn's, not the run's
            return TurnScore(Status.ERROR, reason=f"{type(error).__name__}: {error}")
        return turn_score(found, self.threshold)


def turn_score(found: Any, threshold: float) -> TurnScore:  # whatever a function returns
    """Return the score that a value stands for; an error for a value that is none."""
    if isinstance(found, TurnScore):
        return found
    if found is None:
        return TurnScore(Status.NOT_EVALUATED, reason="the function found nothing to score")
    score, reason = found if isinstance(found, tuple) and len(found) == 2 else (found, "")
    if not isinstance(score, bool | int | float) or not isinstance(reason, str):
        told = f"the function returned {found!r:.200}; expected a score, or a score and a reason"
        return TurnScore(Status.ERROR, reason=told)
    if not isfinite(score) or not 0 <= score <= 1:
        return TurnScore(Status.ERROR, reason=f"score {score} is out of range; expected 0 to 1")
    return TurnScore(status_of(score, threshold), float(score), reason, score)


def load_function(path: str) -> TurnFunction:
    """Return the function at `package.module:function`; raise MetricError when there is none."""
    found = load_object(path, "function.path")
    if not callable(found):
        raise MetricError(f"function.path '{path}' is {type(found).__name__}, not a function")
    function: TurnFunction = found
    return function


def load_object(path: str, key: str) -> Any:
    """Return the object at `package.module:name`; `key` is where the path stands, for the MetricError."""
    module, colon, name = path.partition(":")
    if not colon or not module or not name:
        raise MetricError(f"{key} is '{path}'; expected package.module:name")
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except ImportError as error:
        raise MetricError(
            f"{key} '{path}' cannot be imported: {error}; install the package, or put its folder on "
            "PYTHONPATH"
        ) from error
    except (AttributeError, ValueError) as error:
        raise MetricError(f"{key} '{path}': {error}") from error
    return found


def _version(function: TurnFunction) -> str:
    try:
        source = inspect.getsource(inspect.unwrap(function))
    except (OSError, TypeError):
        source = repr(getattr(function, "__qualname__", type(function).__qualname__))
    return hashlib.sha256(source.encode()).hexdigest()[:8]
