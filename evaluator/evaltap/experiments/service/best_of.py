"""Best of N: run an agent several times on each turn, and go on with the best attempt.

Only for agents whose runs change nothing outside: every attempt calls its tools.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from typing import Any, Literal, TypeAlias

from evaltap.evaluator.scoring.contract.context import Services, Status
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.experiments.service.capture import CapturedTurn
from evaltap.experiments.service.conversation import captured
from evaltap.experiments.service.runners import AgentCall, Runner, session_of
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.formats.metric import EvalMetric

Compare: TypeAlias = Literal["pointwise", "pairwise"]
"""pointwise: the highest mean score; pairwise: the most wins, by metrics for which 0.5 is a draw."""
EVEN = 0.5


class NoBestError(Exception):
    """Raised when no attempt can be chosen: all failed, none passed, or no metric had a score."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """The attempt that was taken, and how each was rated."""

    place: int
    """Among the attempts, from 0."""
    ratings: Sequence[tuple[float, ...] | None]
    """pointwise: mean score and whether it passed; pairwise: wins and the sum of margins; None: not rated."""


class BestOf:
    """A runner that runs another one several times on each turn.

        AgentEvaluator("my-app", BestOf(agent, [metric], attempts=3), stores=stores)

    Each attempt has a session of its own, in which the conversation so far is given as context messages.
    With `must_pass`, only attempts that pass all metrics can be the pointwise winner.  `report` is told each
    choice.  A turn for which no attempt can be chosen raises NoBestError.
    """

    def __init__(
        self,
        runner: Runner,
        metrics: Sequence[EvalMetric | Mapping[str, Any]],
        *,
        attempts: int = 2,
        compare: Compare = "pointwise",
        must_pass: bool = False,
        parallel: bool = False,
        services: Services | None = None,
        registry: Registry | None = None,
        report: Callable[[Chosen], None] = lambda _: None,
    ) -> None:
        if attempts < 1:
            raise ConfigurationError(f"attempts is {attempts}; expected 1 or more")
        if compare not in ("pointwise", "pairwise"):
            raise ConfigurationError(f"compare is {compare!r}; expected pointwise or pairwise")
        self._runner, self._attempts = runner, attempts
        self._compare, self._must_pass, self._parallel = compare, must_pass, parallel
        self._scorer = CaseScorer(metrics_of(metrics), services=services, registry=registry)
        self._report = report

    async def __call__(self, call: AgentCall) -> CaseData:
        """Run a single turn."""
        return await self._best(call)

    @asynccontextmanager
    async def session(self, call: AgentCall) -> AsyncIterator[Runner]:
        """Return what runs the turns of one case."""
        said: list[Mapping[str, Any]] = []

        async def turn(asked: AgentCall) -> CaseData:
            so_far = (*asked.context_messages, *said)
            best = await self._best(replace(asked, context_messages=so_far))
            answer = str((best.get("finalResponse") or {}).get("content") or "")
            said.extend([asked.message, {"role": "assistant", "content": answer}])
            return best

        yield turn

    async def _best(self, call: AgentCall) -> CaseData:
        calls = [
            replace(call, session_id=f"{call.session_id}-{number}")
            for number in range(1, self._attempts + 1)
        ]
        if self._parallel:
            made = await asyncio.gather(*(asyncio.create_task(self._attempt(one)) for one in calls))
        else:
            made = [await asyncio.create_task(self._attempt(one)) for one in calls]
        if all(one.error for one in made):
            raise NoBestError(f"all attempts failed: {made[0].error}")
        choose = (
            pairwise_best
            if self._compare == "pairwise"
            else partial(pointwise_best, must_pass=self._must_pass)
        )
        chosen = await asyncio.to_thread(choose, self._scorer, made)
        self._report(chosen)
        return made[chosen.place].turn

    async def _attempt(self, call: AgentCall) -> CapturedTurn:
        try:
            async with session_of(self._runner, call) as runner:
                return await captured(runner, call)
        except Exception as error:  # of the agent: this attempt has failed
            return CapturedTurn({}, f"{type(error).__name__}: {error}")


def pointwise_best(
    scorer: CaseScorer, made: Sequence[CapturedTurn], *, must_pass: bool = False
) -> Chosen:
    """Choose the attempt with the highest mean over the metrics that were evaluated.

    Of equal ones, take one that passed, then the first.  Raises NoBestError if none has a score, or with
    `must_pass`, if none passed.
    """
    ratings: list[tuple[float, ...] | None] = []
    for one in made:
        score = None if one.error else scorer.score(_case(one.turn))
        means = [] if score is None else [m.score for m in score.metrics if m.score is not None]
        has_passed = score is not None and score.status is Status.PASSED
        ratings.append((sum(means) / len(means), float(has_passed)) if means else None)
    if must_pass and any(ratings):
        passed = [one if one and one[1] else None for one in ratings]
        return Chosen(_highest(passed, "no attempt passed"), ratings)
    return Chosen(_highest(ratings, "no metric gave any attempt a score"), ratings)


def pairwise_best(scorer: CaseScorer, made: Sequence[CapturedTurn]) -> Chosen:
    """Choose the attempt that wins most comparisons, of equal ones that with the larger sum of margins.

    A failed attempt loses to any other without a question.  Raises NoBestError if nothing was compared.
    """
    wins, margins = [0.0] * len(made), [0.0] * len(made)
    compared = [False] * len(made)
    for one, other in combinations(range(len(made)), 2):
        if (margin := _margin(scorer, made[one], made[other])) is None:
            continue
        compared[one] = compared[other] = True
        margins[one] += margin
        margins[other] -= margin
        if margin:
            wins[one if margin > 0 else other] += 1
    if len(made) == 1:
        compared = [True]
    rated = zip(wins, margins, compared, strict=True)
    ratings = [(w, m) if c else None for w, m, c in rated]
    return Chosen(_highest(ratings, "no two attempts were compared"), ratings)


def _margin(scorer: CaseScorer, one: CapturedTurn, other: CapturedTurn) -> float | None:
    """Return by how much one attempt is better, from -0.5 to 0.5; None if that is unknown."""
    if one.error or other.error:
        return None if one.error and other.error else EVEN if other.error else -EVEN
    score = scorer.score(_case(one.turn, other.turn))
    found = [metric.score - EVEN for metric in score.metrics if metric.score is not None]
    return sum(found) / len(found) if found else None


def _highest(ratings: Sequence[tuple[float, ...] | None], otherwise: str) -> int:
    if not (rated := [place for place, rating in enumerate(ratings) if rating is not None]):
        raise NoBestError(otherwise)
    return max(rated, key=lambda place: (ratings[place], -place))


def _case(turn: CaseData, expected: CaseData | None = None) -> CaseData:
    case: CaseData = {
        "evalId": "attempt",
        "evalMode": "trace",
        "sessionInput": {},
        "actualConversation": [turn],
    }
    return case if expected is None else case | {"conversation": [expected]}
