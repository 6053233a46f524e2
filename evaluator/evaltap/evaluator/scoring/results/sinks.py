"""Score sinks: where the scores of cases go besides the store, as they are found.

`jsonl:PATH` appends a line for each case to a file.  A package provides others through entry points in the
group `evaltap.score_sinks`: a name, and a factory that takes what stands behind the colon.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast

import orjson

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.scorer import CaseScore, MetricOutcome
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean_one_of

Result = TypeVar("Result")
SINK_GROUP: Final = "evaltap.score_sinks"


class ScoredCase(NamedTuple):
    """A case, its name, and its scores under the metrics that were due."""

    identity: CaseIdentity
    case: CaseData
    score: CaseScore


class ScoreSink(Protocol):
    """Takes scored cases, one after the other, from the thread that stores scores.

    An exception ends the run with an error; scores that are stored already stay.
    """

    def write(self, scored: ScoredCase) -> None:
        """Take a case; called once for each case that was scored."""

    def close(self) -> None:
        """Called once, after the last case, also if the run failed."""


class JsonLinesSink:
    """Appends one JSON object for each case to a file, which only its owner may read if it is new."""

    def __init__(self, path: Path) -> None:
        private = partial(os.open, mode=0o600)
        self._file = open(path, "ab", buffering=0, opener=private)  # noqa: SIM115  # until `close`

    def write(self, scored: ScoredCase) -> None:
        self._file.write(orjson.dumps(line_of(scored), default=str) + b"\n")

    def close(self) -> None:
        self._file.close()


def line_of(scored: ScoredCase) -> dict[str, Json]:
    """Return a scored case in the form of AgentDock's aggregated results."""
    identity, case, score = scored
    session = case.get("sessionInput") or {}
    turns = case.get("actualConversation") or case.get("conversation") or ()
    shown = [Turn(turn) for turn in turns]
    criteria = [one.name for one in score.metrics]
    return {
        "overallScore": score.overall,
        "results": [_result(one) for one in score.metrics],
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "agentId": identity.app_name,
        "sessionId": session.get("sessionId") or identity.eval_id,
        "inputSnapshot": [{"prompt": one.user_text, "response": one.final_text} for one in shown],
        "evaluationConfigSnapshot": {
            "evaluatorTypes": sorted({_evaluator(one) for one in score.metrics}),
            "criteriaNames": criteria,
            "storageProviderType": "jsonl",
            "metadataKeys": ["evalSetId", "evalId", "status"],
        },
        "metadata": {
            "evalSetId": identity.eval_set_id,
            "evalId": identity.eval_id,
            "status": score.status.value,
        },
        **({"error": score.error_message} if score.error_message else {}),
    }


def _result(one: MetricOutcome) -> dict[str, Json]:
    failed = one.status is Status.ERROR
    return {
        "criterionName": one.name,
        "score": one.score,
        "reasoning": "" if failed else one.reason,
        "evaluatorType": _evaluator(one),
        **({"error": one.reason} if failed else {}),
        "metadata": {"status": one.status.value, "threshold": one.threshold},
    }


def _evaluator(one: MetricOutcome) -> str:
    return one.metric.evaluator_name or one.metric.metric_name


@contextmanager
def score_sinks(named: Sequence[str]) -> Iterator[Callable[[ScoredCase], None] | None]:
    """Yield what hands scored cases to all sinks, None without any; raise InputError for an unknown one."""
    with ExitStack() as stack:
        sinks = []
        for name in named:
            sink = _guarded(name, open_sink, name)
            stack.callback(_guarded, name, sink.close)
            sinks.append((name, sink))

        def write(scored: ScoredCase) -> None:
            for name, sink in sinks:
                _guarded(name, sink.write, scored)

        yield write if sinks else None


def open_sink(named: str) -> ScoreSink:
    """Return the sink `NAME:ARGUMENT`; raise InputError for an unknown name."""
    name, _, argument = named.partition(":")
    if name == "jsonl":
        if not argument:
            raise InputError(f"--sink {named}: names no file; expected jsonl:PATH")
        return JsonLinesSink(Path(argument))
    installed = {point.name: point for point in entry_points(group=SINK_GROUP)}
    if name not in installed:
        hint = did_you_mean_one_of(name, ["jsonl", *sorted(installed)])
        raise InputError(f"--sink {named}: unknown; {hint}")
    factory = cast(Callable[[str], ScoreSink], installed[name].load())
    return factory(argument)


def _guarded(named: str, act: Callable[..., Result], *args: Any) -> Result:
    try:
        return act(*args)
    except InputError:
        raise
    except Exception as error:  # a disk, or somebody's code: the sink is named with what is wrong
        detail = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"--sink {named}: {type(error).__name__}: {detail}") from error
