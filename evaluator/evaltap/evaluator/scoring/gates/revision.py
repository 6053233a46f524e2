"""`revise`: let an agent try again with a gate's feedback, and keep every attempt."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from evaltap.evaluator.scoring.gates.gate import Attempt, Gate
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import case_data
from evaltap.schemas.formats.case import EvalCase, Invocation

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store

_FIELDS: Final = frozenset(field.alias for field in Invocation.model_fields.values())
Answer = str | Invocation | EvalCase | Mapping[str, Json]
"""The result of an agent: a text, a turn, or a whole eval case (the latter two also as data)."""
Agent = Callable[[str | None], Answer]
"""Called with None first, then with the feedback on the previous attempt; its exceptions propagate."""
AsyncAgent = Callable[[str | None], Awaitable[Answer]]
Record = Callable[["Attempt"], None]
"""Called with each attempt as soon as it is judged."""


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

    A text or a turn is inserted into `case`, whose single expected turn provides the question and the
    reference; a recorded case without one provides the question.  The loop also stops if nothing failed but
    something could not be checked, because a revision would not change that.

    >>> from evaltap.evaluator import Gate
    >>> words = {"rules": [{"id": "polite", "type": "contains", "values": ["please"]}]}
    >>> metric = {"metricName": "rule_avg_score", "threshold": 1, "criterion": {"rules": words}}
    >>> gate = Gate({"dimensions": [{"name": "tone", "threshold": 1, "metrics": [metric]}]})
    >>> found = revise(lambda feedback: "Here you are, please." if feedback else "Here.", gate)
    >>> found.passed, len(found.attempts)
    (True, 2)
    """
    attempts: list[Attempt] = []
    feedback: str | None = None
    _check(max_attempts)
    loop, base = begin(case)
    while True:
        answer = agent(feedback)
        attempt = judged(answer, gate, len(attempts) + 1, feedback, base, loop)
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
    """Like `revise`, for an asynchronous agent; the gate runs in a worker thread."""
    attempts: list[Attempt] = []
    feedback: str | None = None
    _check(max_attempts)
    loop, base = begin(case)
    while True:
        answer = await agent(feedback)
        number = len(attempts) + 1
        attempt = await asyncio.to_thread(judged, answer, gate, number, feedback, base, loop)
        attempts.append(attempt)
        if record is not None:
            record(attempt)
        if _is_over(attempt, max_attempts):
            return Revision(tuple(attempts))
        feedback = attempt.result.feedback


@contextmanager
def attempts_into(store: "Store", gate: Gate, source: str = "revise") -> Iterator[Record]:
    """Yield a `record` that stores each attempt: its verdict, its feedback and the case.

    Reports count the last attempt of a loop, and of several loops over one case the last.
    """
    from evaltap.evaluator.scoring.gates.recording import GateWriter  # loads DuckDB

    with GateWriter(store, gate, source) as writer:

        def record(attempt: Attempt) -> None:
            writer.add([attempt])
            writer.write()

        yield record


def _check(max_attempts: int) -> None:
    if max_attempts < 1:
        raise InputError(f"max_attempts is {max_attempts}; expected 1 or more")


def begin(
    case: EvalCase | Mapping[str, Json] | None, loop: str = ""
) -> tuple[str, dict[str, Json]]:
    """Return a name for a loop, if it has none, and the case into which its answers are inserted."""
    loop = loop or uuid4().hex
    data = case.model_dump(by_alias=True) if isinstance(case, EvalCase) else dict(case or {})
    defaults = {"evalId": f"revision-{loop}", "sessionInput": {"appName": "", "userId": ""}}
    return loop, defaults | data


def _is_over(attempt: Attempt, max_attempts: int) -> bool:
    return attempt.result.status != "failed" or attempt.number >= max_attempts


def judged(
    answer: Answer,
    gate: Gate,
    number: int,
    feedback: str | None,
    base: Mapping[str, Json],
    loop: str,
) -> Attempt:
    """Return the attempt that an answer is, with the gate's verdict."""
    case = _case_of(answer, number, base)
    return Attempt(number, feedback, case, gate.evaluate(case), loop)


def _case_of(answer: Answer, number: int, base: Mapping[str, Json]) -> CaseData:
    """Return the eval case of an answer; raise InputError if it contains none."""
    if isinstance(answer, EvalCase):
        return case_data(answer.model_dump(by_alias=True))
    if isinstance(answer, Mapping) and "evalId" in answer:
        return case_data(dict(answer))
    asked = base.get("conversation") or base.get("actualConversation") or []
    if len(asked) > 1:
        raise InputError(
            f"the case has {len(asked)} turns; an answer that is a text or a turn counts as one; let the"
            " agent return a whole case"
        )
    turn: dict[str, Json] = {"invocationId": f"attempt-{number}"}
    turn["userContent"] = (asked[0] or {}).get("userContent") if asked else None
    if isinstance(answer, str):
        turn["finalResponse"] = {"role": "assistant", "content": answer}
    elif isinstance(answer, Invocation):
        turn |= answer.model_dump(by_alias=True)
    elif isinstance(answer, Mapping) and answer.keys() & _FIELDS:
        turn |= answer
    else:
        found = (
            f"a mapping with the keys {[*answer]}"
            if isinstance(answer, Mapping)
            else type(answer).__name__
        )
        raise InputError(
            f"the agent returned {found}; expected a text, a turn (with finalResponse) or an eval case"
        )
    if turn["userContent"] is None:
        turn["userContent"] = {"role": "user", "content": ""}
    return case_data({**base, "evalMode": "trace", "actualConversation": [turn]})
