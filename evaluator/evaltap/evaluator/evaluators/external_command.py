"""`external_command`: a program in any language that scores cases, JSON in and JSON out."""

import hashlib
import os
import shutil
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Final

import orjson
from msgspec import structs

from evaltap.evaluator.aggregation import average
from evaltap.evaluator.command import CommandError, Limits, run_command
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Turn,
    TurnScore,
)
from evaltap.evaluator.cost import CostClass
from evaltap.evaluator.criteria.json_text import parse
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.func import turn_score
from evaltap.evaluator.registry import known_keys, require
from evaltap.schemas.metric import EvalMetric

DEFAULT_SECONDS: Final = 30.0
DEFAULT_MEMORY_MB: Final = 1024
PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ")
_HASHED_AT_MOST: Final = 1 << 24


class ExternalCommand:
    """Run the command once for each case; what it writes are the scores of the turns.

    Raises MetricError when `criterion.command` is missing, its program is not there, or a limit makes
    no sense.
    """

    name = "external_command"

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.command if metric.criterion else None
        criterion = require(metric, part, "command")
        known_keys(criterion, "criterion.command")
        if os.name != "posix":
            raise MetricError("commands need a POSIX system (process groups, resource limits)")
        if not criterion.argv or not criterion.argv[0]:
            raise MetricError("command.argv is empty; give the program and its arguments")
        if shutil.which(criterion.argv[0]) is None:
            raise MetricError(
                f"command.argv names '{criterion.argv[0]}', which is no program on PATH; give its path"
            )
        seconds = criterion.timeout_seconds
        seconds = DEFAULT_SECONDS if seconds is None else seconds
        memory = DEFAULT_MEMORY_MB if criterion.memory_mb is None else criterion.memory_mb
        if not (isfinite(seconds) and 0 < seconds <= 86400) or memory < 0:
            raise MetricError(
                f"command.timeoutSeconds is {seconds:g} and memoryMb {memory}; expected seconds above 0, "
                "up to a day, and 0 or more megabytes"
            )
        known = [one.value for one in CostClass]
        if criterion.cost_class and criterion.cost_class not in known:
            raise MetricError(
                f"command.costClass is '{criterion.cost_class}'; expected of {', '.join(known)}"
            )
        self.cost_class = CostClass(criterion.cost_class or CostClass.FREE)
        self.version = f"1.{_digest(criterion.argv)}"
        self._argv = criterion.argv
        self._passed_on = (*PASSED_ON, *criterion.env)
        self._limits = Limits(seconds, memory << 20)
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the scores that the command wrote; an EvaluatorFailure when it wrote none."""
        environ = {name: os.environ[name] for name in self._passed_on if name in os.environ}
        try:
            output = run_command(self._argv, _question(context), self._limits, environ)
        except CommandError as error:
            return EvaluatorFailure(f"the command {error}", "CommandError")
        except OSError as error:
            return EvaluatorFailure(f"the command cannot be started: {error}", "CommandError")
        try:
            turns = _answer(output, len(context.actual), self._threshold)
        except ValueError as error:
            return EvaluatorFailure(f"the command's answer: {error}", "CommandError")
        return average(turns, self._threshold)


def _question(context: EvaluationContext) -> bytes:
    """Return what the command reads: the case, its turns in pairs, and the metric without its command."""
    metric = context.metric
    pairs = zip(context.actual, context.expected, strict=False)
    return orjson.dumps(
        {
            "evalId": context.case.get("evalId") or "",
            "metric": {
                "metricName": metric.metric_name,
                "threshold": metric.threshold,
                "extension": metric.extension,
            },
            "turns": [{"actual": _data(one), "expected": _data(other)} for one, other in pairs],
            "sessionInput": context.case.get("sessionInput"),
        }
    )


def _data(turn: Turn) -> dict[str, Any]:
    return dict(turn.data)


def _answer(output: bytes, count: int, threshold: float) -> tuple[TurnScore, ...]:
    """Return the scores of the turns; raise ValueError saying what is wrong with the answer."""
    text = output.decode("utf-8", "replace").strip()
    if not text:
        raise ValueError('nothing; expected JSON like {"turns": [{"score": 1, "reason": ""}]}')
    try:
        answer = parse(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error}); found {text[:200]!r}") from None
    if isinstance(answer, dict) and "turns" not in answer:
        answer = {"turns": [answer] * count}
    rows = answer.get("turns") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) != count:
        found = f"{len(rows)} rows" if isinstance(rows, list) else repr(answer)[:200]
        raise ValueError(f"found {found}; expected `turns` with {count}, one for each turn")
    return tuple(_row(row, place, threshold) for place, row in enumerate(rows))


def _row(row: Any, place: int, threshold: float) -> TurnScore:
    if not isinstance(row, Mapping) or "score" not in row:
        raise ValueError(f"turns[{place}] is {row!r:.200}; expected an object with `score`")
    reason = row.get("reason", "")
    if not isinstance(reason, str):
        raise ValueError(f"turns[{place}].reason is {reason!r:.200}; expected a text")
    if row["score"] is None:
        reason = reason or "the command gave no score"
        return structs.replace(turn_score(None, threshold), reason=reason)
    return turn_score((row["score"], reason), threshold)


def _digest(argv: Sequence[str]) -> str:
    """Return a digest of the command and of the files that it names, so that a changed script shows."""
    digest = hashlib.sha256()
    for argument in argv:
        digest.update(argument.encode() + b"\0")
        path = Path(argument)
        try:
            if path.is_file() and path.stat().st_size <= _HASHED_AT_MOST:
                digest.update(path.read_bytes())
        except OSError:
            pass  # too long for a name, or not readable: then it is no script of ours
    return digest.hexdigest()[:8]
