"""`revise`: let an agent try again with a gate's feedback, and keep every attempt."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaltap.evaluator.gates.gate import Gate, GateResult
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import case_data
from evaltap.schemas.formats.case import CaseData, EvalCase, Invocation
from evaltap.schemas.formats.model import Json

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store

Answer = str | Invocation | EvalCase | Mapping[str, Json]
"""What an agent gives back: a text, a turn, or a whole eval case (the latter two also as data)."""
Agent = Callable[[str | None], Answer]
"""Called with None first, then with the feedback on the attempt before; its exceptions are yours."""
AsyncAgent = Callable[[str | None], Awaitable[Answer]]
Record = Callable[["Attempt"], None]
"""Called with each attempt as soon as it is judged."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One answer of the agent, and the verdict on it."""

    number: int
    """From 1."""
    feedback_given: str | None
    """What the agent was told before it made this attempt."""
    case: CaseData
    result: GateResult


@dataclass(frozen=True, slots=True)
class Revision:
    """All attempts in order; the last one is the one that passed, if any did."""

    attempts: tuple[Attempt, ...]

    @property
    def passed(self) -> bool:
        """Whether the last attempt passed the gate."""
        return self.attempts[-1].result.passed


def revise(
    agent: Agent,
    gate: Gate,
    *,
    max_attempts: int = 3,
    case: EvalCase | Mapping[str, Json] | None = None,
    record: Record | None = None,
) -> Revision:
    """Call the agent until its answer passes the gate, at most `max_attempts` times.

    A text or a turn is put into `case`, whose one expected turn gives the question and the reference.
    It also stops when nothing failed but something could not be checked: no revision mends that.
    """
    attempts: list[Attempt] = []
    feedback: str | None = None
    _check(max_attempts)
    while True:
        answer = agent(feedback)
        attempt = _judged(answer, gate, len(attempts) + 1, feedback, case)
        attempts.append(attempt)
        if record is not None:
            record(attempt)
        if _is_over(attempt, max_attempts):
            return Revision(tuple(attempts))
        feedback = attempt.result.feedback


async def revise_async(
    agent: AsyncAgent,
    gate: Gate,
    *,
    max_attempts: int = 3,
    case: EvalCase | Mapping[str, Json] | None = None,
    record: Record | None = None,
) -> Revision:
    """Do what `revise` does for an asynchronous agent; verdicts are reached in a worker thread."""
    attempts: list[Attempt] = []
    feedback: str | None = None
    _check(max_attempts)
    while True:
        answer = await agent(feedback)
        number = len(attempts) + 1
        attempt = await asyncio.to_thread(_judged, answer, gate, number, feedback, case)
        attempts.append(attempt)
        if record is not None:
            record(attempt)
        if _is_over(attempt, max_attempts):
            return Revision(tuple(attempts))
        feedback = attempt.result.feedback


@contextmanager
def attempts_into(store: "Store", gate: Gate, source: str = "revise") -> Iterator[Record]:
    """Yield a `record` that writes the scores of each attempt; its number is the case's revision."""
    from evaltap.evaluator.cases.identity import CaseIdentity, case_identity
    from evaltap.evaluator.results.rows import ScoreRows
    from evaltap.evaluator.results.runs import end_run, start_run
    from evaltap.evaluator.results.writer import ScoreWriter
    from evaltap.evaluator.scoring.batch import add_rows
    from evaltap.evaluator.scoring.run_metrics import run_metrics

    run = start_run(store, "gate", source, run_metrics(gate.scorer))
    writer = ScoreWriter(store, run)
    seen: set[CaseIdentity] = set()

    def record(attempt: Attempt) -> None:
        rows, case = ScoreRows(), attempt.case
        identity = case_identity(case, "")._replace(revision=attempt.number)
        add_rows(rows, identity, case, attempt.result.score, range(len(run.metrics)))
        writer.write([rows.packed()])
        seen.add(identity._replace(revision=1))

    yield record
    end_run(store, run, len(seen))


def _check(max_attempts: int) -> None:
    if max_attempts < 1:
        raise InputError(f"max_attempts is {max_attempts}; expected 1 or more")


def _is_over(attempt: Attempt, max_attempts: int) -> bool:
    return attempt.result.status != "failed" or attempt.number >= max_attempts


def _judged(
    answer: Answer,
    gate: Gate,
    number: int,
    feedback: str | None,
    base: EvalCase | Mapping[str, Json] | None,
) -> Attempt:
    case = _case_of(answer, number, base)
    return Attempt(number, feedback, case, gate.evaluate(case))


def _case_of(answer: Answer, number: int, base: EvalCase | Mapping[str, Json] | None) -> CaseData:
    """Return the eval case that an answer makes; raise InputError when it makes none."""
    if isinstance(answer, EvalCase):
        return case_data(answer.model_dump(by_alias=True))
    if isinstance(answer, Mapping) and "evalId" in answer:
        return case_data(dict(answer))
    data = base.model_dump(by_alias=True) if isinstance(base, EvalCase) else dict(base or {})
    expected = data.get("conversation") or []
    if len(expected) > 1:
        raise InputError(
            f"the case has {len(expected)} expected turns; an answer that is a text or a turn stands "
            "for one: let the agent return a whole case"
        )
    turn: dict[str, Json] = {"invocationId": f"attempt-{number}"}
    turn["userContent"] = (expected[0] or {}).get("userContent") if expected else None
    if isinstance(answer, str):
        turn["finalResponse"] = {"role": "assistant", "content": answer}
    elif isinstance(answer, Invocation):
        turn |= answer.model_dump(by_alias=True)
    elif isinstance(answer, Mapping):
        turn |= answer
    else:
        raise InputError(
            f"the agent returned {type(answer).__name__}; expected a text, a turn or an eval case"
        )
    if turn["userContent"] is None:
        turn["userContent"] = {"role": "user", "content": ""}
    defaults = {"evalId": "revision", "sessionInput": {"appName": "", "userId": ""}}
    return case_data({**defaults, **data, "evalMode": "trace", "actualConversation": [turn]})
