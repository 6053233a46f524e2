"""What all evaluators that ask a judge have in common: samples, votes, aggregation, failures.

An evaluator says what to ask about a turn and how to read the answer (`Question`); this says when,
how often, and what becomes of answers that are none.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from evaltap.evaluator.aggregation import average, majority, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    RubricVerdict,
    Status,
    Turn,
    TurnScore,
    Vote,
)
from evaltap.evaluator.errors import JudgeError, JudgeInvalid, JudgeNotConfigured, MetricError
from evaltap.evaluator.judge import DEFAULT_GENERATION, Judge, JudgeReply, JudgeRequest
from evaltap.evaluator.judge_answers import Verdict
from evaltap.evaluator.registry import require
from evaltap.evaluator.sampling import run_all, samples_of, workers_of
from evaltap.schemas.case import Rubric
from evaltap.schemas.metric import EvalMetric, GenerationConfig


class TurnView(NamedTuple):
    """One turn as a question is made from it: the conversation up to it, and what may be used."""

    actual: Sequence[Turn]
    """The actual turns up to and with this one."""
    expected: Sequence[Turn]
    rubrics: Sequence[Rubric]
    generation: GenerationConfig
    judge: Judge

    @property
    def turn(self) -> Turn:
        """The turn that is judged."""
        return self.actual[-1]

    @property
    def wanted(self) -> Turn:
        """The expected turn, perhaps a placeholder."""
        return self.expected[-1]


class Question(NamedTuple):
    """What to ask about a turn, made anew for each sample, and how the answer is read."""

    request: Callable[[], JudgeRequest]
    read: Callable[[str], Verdict]
    """Raises JudgeInvalid for an answer that is no verdict."""


class NoQuestion(NamedTuple):
    """Why a turn is not judged: the evidence that is not there."""

    reason: str


MessageBuilder = Callable[[TurnView], Question | NoQuestion]
SampleAggregator = Callable[[Sequence[Vote], float], Vote]
"""Choose or make the vote that stands for all samples of a turn, by the threshold."""
TurnAggregator = Callable[[tuple[TurnScore, ...], float], MetricScore]


class Judged:
    """Asks the judge N times for each turn and puts the votes together.

    Raises MetricError when `criterion.llmJudge` is missing, a rubric id is blank or doubled, or a
    number of samples or threads makes no sense.
    """

    def __init__(
        self,
        name: str,
        version: str,
        metric: EvalMetric,
        build: MessageBuilder,
        *,
        needs_rubrics: bool = False,
        asks_beforehand: bool = False,
        samples: SampleAggregator = majority,
        turns: TurnAggregator = average,
    ) -> None:
        part = metric.criterion.llm_judge if metric.criterion else None
        criterion = require(metric, part, "llmJudge")
        self.name = name
        self.version = version
        self._build = build
        self._needs_rubrics = needs_rubrics
        self._samples = samples_of(criterion)
        self._workers = workers_of(criterion)
        # Making a question is no work worth a thread, unless it asks the judge itself.
        self._builders = self._workers if asks_beforehand else 1
        self._model = criterion.judge_model
        generation = self._model.generation_config if self._model else None
        self._generation = DEFAULT_GENERATION if generation is None else generation
        self._threshold = metric.threshold
        self._choose = samples
        self._sum_up = turns
        check_rubrics(criterion.rubrics)

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn that the judge gave a verdict on, and their aggregate.

        Without a configured judge nothing is evaluated; a turn without a verdict is in error and has
        no score.
        """
        part = context.metric.criterion.llm_judge if context.metric.criterion else None
        rubrics = [rubric for rubric in (part.rubrics if part else []) if rubric.content]
        known = list(context.known or [None] * len(context.actual))
        asked = [place for place, score in enumerate(known) if score is None]
        if self._needs_rubrics and not rubrics:
            return EvaluatorFailure(
                "no rubric with content; add criterion.llmJudge.rubrics or rubrics of the case",
                "MetricError",
            )
        try:
            judge = context.services.judge(self._model)
        except JudgeNotConfigured as error:
            skipped = TurnScore(Status.NOT_EVALUATED, reason=str(error))
            turns = (skipped,) * len(context.actual)
            return MetricScore(Status.NOT_EVALUATED, None, str(error), turns)
        except JudgeError as error:
            return EvaluatorFailure(str(error), type(error).__name__)
        views = [
            TurnView(
                context.actual[: place + 1], context.expected[: place + 1], rubrics,
                self._generation, judge,
            )
            for place in asked
        ]  # fmt: skip
        for place, score in zip(asked, self._score_turns(views, judge), strict=True):
            known[place] = score
        return self._sum_up(tuple(score for score in known if score is not None), self._threshold)

    def _score_turns(self, views: Sequence[TurnView], judge: Judge) -> tuple[TurnScore, ...]:
        line = _Line()
        built = run_all(lambda view: line.build(self._build, view), views, self._builders)
        asked = [
            _Sample(question, sample)
            for question in built
            if isinstance(question, Question)
            for sample in range(self._samples)
        ]
        votes = iter(
            run_all(lambda one: line.vote(one, judge, self._threshold), asked, self._workers)
        )
        return tuple(
            self._turn_score(tuple(next(votes) for _ in range(self._samples)))
            if isinstance(question, Question)
            else question
            for question in built
        )

    def _turn_score(self, votes: tuple[Vote, ...]) -> TurnScore:
        for vote in votes:
            # One sample without a verdict could have turned the result, so there is none.
            if vote.status is Status.ERROR:
                return TurnScore(Status.ERROR, reason=vote.reason, votes=votes)
        chosen = self._choose(votes, self._threshold)
        return TurnScore(
            chosen.status, chosen.score, chosen.reason, chosen.value, chosen.rubric_scores, votes
        )


@dataclass(frozen=True, slots=True)
class _Sample:
    question: Question
    number: int


class _Line:
    """The line to a judge during one case: once it is down, nobody waits or pays for the rest."""

    def __init__(self) -> None:
        self._down: list[str] = []

    def build(self, build: MessageBuilder, view: TurnView) -> Question | TurnScore:
        if self._down:
            return TurnScore(Status.ERROR, reason=f"not asked, as {self._down[0]}")
        try:
            question = build(view)
        except JudgeError as error:
            return TurnScore(Status.ERROR, reason=self._note(error))
        if isinstance(question, NoQuestion):
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {question.reason}")
        return question

    def vote(self, sample: _Sample, judge: Judge, threshold: float) -> Vote:
        number = sample.number
        if self._down:
            return Vote(number, Status.ERROR, None, f"not asked, as {self._down[0]}")
        reply = JudgeReply("")
        rows: tuple[RubricVerdict, ...] = ()
        try:
            reply = judge.answer(sample.question.request())
            verdict = sample.question.read(reply.text)
        except JudgeError as error:
            status, score, value = Status.ERROR, None, None
            reason = self._note(error)
        else:
            score, reason, rows, value = verdict
            status = status_of(score, threshold)
        return Vote(
            number, status, score, reason, rows,
            reply.model, reply.input_tokens, reply.output_tokens, reply.latency, value,
        )  # fmt: skip

    def _note(self, error: JudgeError) -> str:
        text = f"{type(error).__name__}: {error}"
        if not isinstance(error, JudgeInvalid):
            self._down.append(text)
        return text


def check_rubrics(rubrics: Sequence[Rubric]) -> None:
    """Raise MetricError when a rubric's id is blank or given twice."""
    ids = Counter(rubric.id.strip() for rubric in rubrics if rubric.content)
    if "" in ids:
        raise MetricError("a rubric has a blank id; give each rubric an id of its own")
    doubled = [name for name, count in ids.items() if count > 1]
    if doubled:
        raise MetricError(f"two rubrics have the id {doubled[0]}; give each an id of its own")


def lacking(turn: Turn, *fields: str, expected: bool = False) -> str | None:
    """Return the first of the fields that is no evidence, and why; None when all are."""
    side = "expected " if expected else ""
    return next((f"{side}{reason}" for field in fields if (reason := turn.lacks(field))), None)
