"""`external_command`: a program in any language that scores cases, with JSON input and output."""

import hashlib
import os
import shutil
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Final

import orjson

from evaltap.evaluator.cases.json_text import parse
from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.context import EvaluationContext, EvaluatorFailure
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.evaluator import CostClass
from evaltap.evaluator.scoring.contract.turn_evaluator import CaseResult, Finding, TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.evaluators.external.subprocess_runner import (
    CommandError,
    Limits,
    run_command,
)
from evaltap.schemas.data import Json
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import did_you_mean_one_of

DEFAULT_SECONDS: Final = 30.0
DEFAULT_MEMORY_MB: Final = 1024
PASSED_ON: Final = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ")
_HASHED_AT_MOST: Final = 1 << 24


class ExternalCommand(TurnEvaluator):
    """Runs the command once for each case; its output contains the scores of the turns.

    Raises MetricError if `criterion.command` is missing, its program does not exist, or a limit is invalid.
    """

    name = "external_command"
    limits_itself = True

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.command, "command", closed=True)
        if os.name != "posix":
            raise MetricError("commands need a POSIX system (process groups, resource limits)")
        if not criterion.argv or not criterion.argv[0]:
            raise MetricError("command.argv is empty; give the program and its arguments")
        if shutil.which(criterion.argv[0]) is None:
            raise MetricError(
                f"command.argv names '{criterion.argv[0]}', which is not a program on PATH; give its path"
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
                f"command.costClass is '{criterion.cost_class}';"
                f" {did_you_mean_one_of(criterion.cost_class, known)}"
            )
        self.cost_class = CostClass(criterion.cost_class or CostClass.FREE)
        self.version = f"1.{_digest(criterion.argv)}"
        self._argv = criterion.argv
        self._passed_on = (*PASSED_ON, *criterion.env)
        self._limits = Limits(seconds, memory << 20)

    def score_turns(self, context: EvaluationContext) -> CaseResult:
        """Return the scores that the command wrote, or an EvaluatorFailure if it wrote none."""
        environ = {name: os.environ[name] for name in self._passed_on if name in os.environ}
        try:
            output = run_command(self._argv, _question(context), self._limits, environ)
            return _answer(output, len(context.actual))
        except CommandError as error:
            reason = f"the command {error}"
        except OSError as error:
            reason = f"the command cannot be started: {error}"
        except ValueError as error:
            reason = f"the command's answer: {error}"
        return EvaluatorFailure(reason, "CommandError")


def _question(context: EvaluationContext) -> bytes:
    """Return the command's input: the case, its turns in pairs, and the metric without its command."""
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
            "turns": [
                {"actual": dict(one.data), "expected": dict(other.data)} for one, other in pairs
            ],
            "sessionInput": context.case.get("sessionInput"),
        }
    )


def _answer(output: bytes, count: int) -> list[Finding]:
    """Return the command's results for the turns; raise ValueError that describes an invalid answer."""
    if not (text := output.decode("utf-8", "replace").strip()):
        raise ValueError('nothing; expected JSON like {"turns": [{"score": 1, "reason": ""}]}')
    try:
        answer = parse(text)
    except ValueError as error:
        raise ValueError(f"not JSON ({error}); found {quoted(text)}") from None
    if isinstance(answer, dict) and "turns" not in answer:
        answer = {"turns": [answer] * count}
    rows = answer.get("turns") if isinstance(answer, dict) else None
    if not isinstance(rows, list) or len(rows) != count:
        found = f"{len(rows)} rows" if isinstance(rows, list) else repr(answer)[:200]
        raise ValueError(f"found {found}; expected `turns` with {count}, one for each turn")
    return [_row(row, place) for place, row in enumerate(rows)]


def _row(row: Json, place: int) -> Finding:
    row = {"score": None} if row is None else row
    if not isinstance(row, dict) or "score" not in row:
        raise ValueError(f"turns[{place}] is {row!r:.200}; expected an object with `score`")
    score, reason = row["score"], row.get("reason", "")
    if not isinstance(reason, str):
        raise ValueError(f"turns[{place}].reason is {reason!r:.200}; expected a text")
    if score is None:
        reason = reason or "the command gave no score"
    return Finding(score, reason)


def _digest(argv: Sequence[str]) -> str:
    """Return a digest of the command and of the files that it names, which shows changed scripts."""
    digest = hashlib.sha256()
    for argument in argv:
        digest.update(argument.encode() + b"\0")
        path = Path(argument)
        try:
            if path.is_file() and path.stat().st_size <= _HASHED_AT_MOST:
                digest.update(path.read_bytes())
        except OSError:
            pass  # too long for a file name, or unreadable: not a script to digest
    return digest.hexdigest()[:8]
