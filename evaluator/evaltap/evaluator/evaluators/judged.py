"""What all evaluators that ask a judge have in common: samples, votes, aggregation, failures.

An evaluator says what to ask about a turn and how to read the answer (`Question`); `ballot` says who
is asked and how often; this does it, and says what becomes of answers that are none.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from msgspec import structs

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
from evaltap.evaluator.errors import (
    BudgetSpent,
    JudgeError,
    JudgeInvalid,
    JudgeNotConfigured,
    MetricError,
)
from evaltap.evaluator.evaluators.ballot import Ask, Ballot, BallotRules, SampleAggregator, Seat
from evaltap.evaluator.judge import DEFAULT_GENERATION, Judge, JudgeReply, JudgeRequest
from evaltap.evaluator.judge_answers import Verdict
from evaltap.evaluator.judge_models import judge_models
from evaltap.evaluator.registry import require
from evaltap.evaluator.rubric_prompt import NOTHING_MORE, RubricAsks
from evaltap.evaluator.sampling import run_all, samples_of, workers_of
from evaltap.schemas.case import Rubric
from evaltap.schemas.metric import EvalMetric, GenerationConfig, JudgeModel, LlmJudgeCriterion

BEFOREHAND: Final = -1
"""The sample number of what was asked in order to make a question."""

_NO_REPLY: Final = JudgeReply("")


class TurnView(NamedTuple):
    """One turn as a question is made from it: the conversation up to it, and what may be used."""

    actual: Sequence[Turn]
    """The actual turns up to and with this one."""
    expected: Sequence[Turn]
    rubrics: Sequence[Rubric]
    generation: GenerationConfig
    judge: Judge
    asks: RubricAsks = NOTHING_MORE

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
TurnAggregator = Callable[[tuple[TurnScore, ...], float], MetricScore]


class Judged:
    """Asks the judges of a metric about each turn and puts their votes together.

    Raises MetricError when `criterion.llmJudge` is missing or contradicts itself, a rubric id is blank
    or doubled, or a number of samples or threads makes no sense.
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
        self._workers = workers_of(criterion)
        # Making a question is no work worth a thread, unless it asks the judge itself.
        self._builders = self._workers if asks_beforehand else 1
        self._models = judge_models(criterion)
        self._rules = BallotRules(
            criterion, metric.threshold, samples, *_seats(criterion, self._models)
        )
        self._threshold = metric.threshold
        self._sum_up = turns
        self._asks = _asks(criterion, rubrics=needs_rubrics)
        check_rubrics(criterion.rubrics)

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn that the judge gave a verdict on, and their aggregate.

        Without a configured judge nothing is evaluated; a turn without a verdict is in error and has
        no score.  When the budget ends within a case, its metric is not evaluated.
        """
        part = context.metric.criterion.llm_judge if context.metric.criterion else None
        rubrics = [rubric for rubric in (part.rubrics if part else []) if rubric.content]
        known = list(context.known or [None] * len(context.actual))
        places = [place for place, score in enumerate(known) if score is None]
        if self._needs_rubrics and not rubrics:
            return EvaluatorFailure(
                "no rubric with content; add criterion.llmJudge.rubrics or rubrics of the case",
                "MetricError",
            )
        try:
            judges = [context.services.judge(model) for model in self._models]
        except JudgeNotConfigured as error:
            skipped = TurnScore(Status.NOT_EVALUATED, reason=str(error))
            turns = (skipped,) * len(context.actual)
            return MetricScore(Status.NOT_EVALUATED, None, str(error), turns)
        except JudgeError as error:
            return EvaluatorFailure(str(error), type(error).__name__)
        line = _Line(judges, self.version, self._threshold)
        views = [
            TurnView(
                context.actual[: place + 1], context.expected[: place + 1], rubrics,
                self._rules.seats[0].generation, judges[0], self._asks,
            )
            for place in places
        ]  # fmt: skip
        for place, score in zip(places, self._score_turns(views, line), strict=True):
            known[place] = score
        turns = tuple(score for score in known if score is not None)
        if line.spent:
            # A mean over the turns that were paid for would pass for the score of the case.
            return MetricScore(Status.NOT_EVALUATED, None, line.spent, turns)
        return self._sum_up(turns, self._threshold)

    def _score_turns(self, views: Sequence[TurnView], line: "_Line") -> list[TurnScore]:
        built = run_all(lambda view: line.build(self._build, view), views, self._builders)
        polls = {
            place: _Poll(question, self._rules.ballot())
            for place, (question, _) in enumerate(built)
            if isinstance(question, Question)
        }
        open_polls = list(polls.values())
        while open_polls:
            asked = [(poll.question, ask) for poll in open_polls for ask in poll.due]
            votes = iter(run_all(lambda one: line.vote(*one), asked, self._workers))
            for poll in open_polls:
                poll.take([next(votes) for _ in poll.due])
            open_polls = [poll for poll in open_polls if poll.due]
        scores: list[TurnScore] = []
        for place, (question, beforehand) in enumerate(built):
            score = polls[place].score if isinstance(question, Question) else question
            scores.append(structs.replace(score, beforehand=beforehand) if beforehand else score)
        return scores


class _Poll:
    """The ballot of one turn under way: what is due next, and in the end its score."""

    def __init__(self, question: Question, ballot: Ballot) -> None:
        self.question = question
        self.score = TurnScore(Status.NOT_EVALUATED)
        self._ballot = ballot
        self.due = next(ballot)

    def take(self, votes: Sequence[Vote]) -> None:
        """Hand in the votes that were due."""
        try:
            self.due = self._ballot.send(votes)
        except StopIteration as end:
            self.due, self.score = [], end.value


class _Line:
    """The line to the judges of one case: once one is down, nobody waits or pays for the rest."""

    def __init__(self, judges: Sequence[Judge], version: str, threshold: float) -> None:
        self._judges = judges
        self._version = version
        self._threshold = threshold
        self._down: dict[int, str] = {}
        self.spent = ""
        """Why the budget did not suffice for all of the case."""

    def build(
        self, build: MessageBuilder, view: TurnView
    ) -> tuple[Question | TurnScore, tuple[Vote, ...]]:
        """Return a turn's question, or what it is without one, and what was asked to make it."""
        if 0 in self._down:
            return TurnScore(*self._not_asked(0)), ()
        listening = _Listening(view.judge, self._version)
        try:
            question = build(view._replace(judge=listening))
        except JudgeError as error:
            status, reason = self._note(error, 0)
            return TurnScore(status, reason=reason), listening.votes(error)
        if isinstance(question, NoQuestion):
            reason = f"evidence missing: {question.reason}"
            return TurnScore(Status.NOT_EVALUATED, reason=reason), listening.votes()
        return question, listening.votes()

    def vote(self, question: Question, ask: Ask) -> Vote:
        """Ask for one sample; return its verdict, or why there is none."""
        seat, number = ask
        if seat.place in self._down:
            status, _, reason = self._not_asked(seat.place)
            return Vote(number, status, None, reason, judge=seat.name)
        reply, reader = _NO_REPLY, _Reader(question.read)
        try:
            request = replace(
                question.request(),
                generation=seat.generation,
                sample=number,
                version=self._version,
                check=reader,
            )
            reply = self._judges[seat.place].answer(request)
            score, reason, rows, value = storable(reader(reply.text))
        except JudgeError as error:
            status, reason = self._note(error, seat.place)
            reply = getattr(error, "reply", None) or reply
            return vote_of(reply, number, status, None, reason, judge=seat.name)
        status = status_of(score, self._threshold)
        return vote_of(reply, number, status, score, reason, rows, value, seat.name)

    def _not_asked(self, place: int) -> tuple[Status, None, str]:
        status = Status.NOT_EVALUATED if self.spent else Status.ERROR
        return status, None, f"not asked, as {self._down[place]}"

    def _note(self, error: JudgeError, place: int) -> tuple[Status, str]:
        if isinstance(error, BudgetSpent):
            self.spent = self._down[place] = str(error)
            return Status.NOT_EVALUATED, self.spent
        text = _storable(f"{type(error).__name__}: {error}")
        if not isinstance(error, JudgeInvalid):
            self._down.setdefault(place, text)
        return Status.ERROR, text


class _Reader:
    """Reads answers, and the same one only once: the cache looks at it first."""

    def __init__(self, read: Callable[[str], Verdict]) -> None:
        self._read = read
        self._last: tuple[str, Verdict] | None = None

    def __call__(self, text: str) -> Verdict:
        if self._last is None or self._last[0] is not text:
            self._last = (text, self._read(text))
        return self._last[1]


class _Listening:
    """A judge that a question is made with; it remembers what it answered."""

    def __init__(self, judge: Judge, version: str) -> None:
        self._judge = judge
        self._version = version
        self._replies: list[JudgeReply] = []

    def answer(self, request: JudgeRequest) -> JudgeReply:
        reply = self._judge.answer(replace(request, version=self._version))
        self._replies.append(reply)
        return reply

    def votes(self, error: JudgeError | None = None) -> tuple[Vote, ...]:
        """Return what was asked, as rows without a verdict."""
        last = getattr(error, "reply", None)
        replies = [*self._replies, last] if last else self._replies
        status, reason = (Status.ERROR, str(error)) if error else (Status.NOT_EVALUATED, "")
        return tuple(vote_of(reply, BEFOREHAND, status, None, reason) for reply in replies)


def vote_of(
    reply: JudgeReply,
    number: int,
    status: Status,
    score: float | None,
    reason: str,
    rows: tuple[RubricVerdict, ...] = (),
    value: float | bool | str | None = None,
    judge: str = "judge",
) -> Vote:
    """Return a vote with what its answer cost."""
    return Vote(
        number, status, score, reason, rows, reply.model, reply.input_tokens, reply.output_tokens,
        reply.latency, value, judge, reply.cost_usd, reply.cached, reply.saved_usd,
    )  # fmt: skip


def storable(verdict: Verdict) -> Verdict:
    """Return a verdict whose texts any database takes: half characters (JSON's \\ud800) replaced."""
    score, reason, rows, value = verdict
    if all(row.id.isascii() and row.reason.isascii() for row in rows) and reason.isascii():
        return verdict
    rows = tuple(
        replace(
            row,
            id=_storable(row.id),
            reason=_storable(row.reason),
            evidence=_storable(row.evidence),
        )
        for row in rows
    )
    return Verdict(
        score, _storable(reason), rows, _storable(value) if isinstance(value, str) else value
    )


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


def _seats(
    criterion: LlmJudgeCriterion, models: Sequence[JudgeModel | None]
) -> tuple[tuple[Seat, ...], Seat | None]:
    seats: list[Seat] = []
    first = 0
    for place, model in enumerate(models):
        samples = samples_of(model)
        generation = model.generation_config if model else None
        name = "judge" if place == 0 else f"panel-{place}"
        seats.append(Seat(place, name, first, samples, generation or DEFAULT_GENERATION))
        first += samples
    if criterion.cascade is None:
        return tuple(seats), None
    return tuple(seats[:-1]), seats[-1]._replace(name="second")


def _asks(criterion: LlmJudgeCriterion, *, rubrics: bool) -> RubricAsks:
    evidence = criterion.evidence
    if evidence not in ("", "flag", "require"):
        raise MetricError(f"llmJudge.evidence is '{evidence}'; expected flag or require")
    confidence = criterion.cascade is not None and criterion.cascade.min_confidence > 0
    if (evidence or confidence) and not rubrics:
        raise MetricError("evidence and minConfidence are for the evaluators that ask rubrics")
    return RubricAsks(evidence, confidence)


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
