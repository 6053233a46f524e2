"""The common part of evaluators that use a judge: samples, votes, aggregation, failures.

An evaluator defines the question about a turn and how to read the answer (`Question`).  `panel` decides which
judges are asked and how often.  This module sends the requests, and handles answers without a verdict.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypedDict, Unpack, cast

from msgspec import structs

from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.aggregation import average, status_of
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    RubricVerdict,
    Services,
    Status,
    TurnScore,
    Vote,
)
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.judge import (
    DEFAULT_GENERATION,
    BudgetSpentError,
    Judge,
    JudgeError,
    JudgeInvalid,
    JudgeReply,
    JudgeRequest,
    ask,
)
from evaltap.evaluator.scoring.contract.named import source_digest
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    NOTHING_EXPECTED,
    CaseResult,
    MissingEvidence,
    TurnEvaluator,
    turn_score,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.evaluators.judged.answers import Verdict
from evaltap.evaluator.scoring.evaluators.judged.delimiters import fenced, fresh_nonce
from evaltap.evaluator.scoring.evaluators.judged.operators import Operators, TurnAggregator, digests
from evaltap.evaluator.scoring.evaluators.judged.panel import (
    PREPARATORY,
    Juror,
    Panel,
    PanelSamples,
    SampleAggregator,
    SampleRequest,
)
from evaltap.evaluator.scoring.evaluators.judged.rubric_prompt import (
    NO_EXTRAS,
    RubricExtras,
    stated_answer,
    stated_message,
)
from evaltap.evaluator.scoring.judges.settings import judge_models
from evaltap.evaluator.scoring.waiting import map_together
from evaltap.schemas.data import Json
from evaltap.schemas.files.adk_older import rubric_of
from evaltap.schemas.formats.case import Rubric
from evaltap.schemas.formats.metric import (
    EvalMetric,
    GenerationConfig,
    JudgeModel,
    LlmJudgeCriterion,
)


def jurors_of(
    criterion: LlmJudgeCriterion, models: Sequence[JudgeModel | None]
) -> tuple[tuple[Juror, ...], Juror | None]:
    """Return the jurors that are always asked, and the one for uncertain verdicts, if any."""
    jurors: list[Juror] = []
    first = 0
    for place, model in enumerate(models):
        samples = samples_of(model)
        generation = model.generation_config if model else None
        name = "judge" if place == 0 else f"panel-{place}"
        jurors.append(Juror(place, name, first, samples, generation or DEFAULT_GENERATION))
        first += samples
    if criterion.cascade is None:
        return tuple(jurors), None
    return tuple(jurors[:-1]), jurors[-1]._replace(name="second")


def extras_of(criterion: LlmJudgeCriterion, *, rubrics: bool) -> RubricExtras:
    """Return what answers must contain; raises MetricError for settings that need `rubrics`."""
    evidence = criterion.evidence
    if evidence not in ("", "flag", "require"):
        raise MetricError(f"llmJudge.evidence is '{evidence}'; expected flag or require")
    confidence = criterion.cascade is not None and criterion.cascade.min_confidence > 0
    if (evidence or confidence) and not rubrics:
        raise MetricError("evidence and minConfidence are for the evaluators that ask rubrics")
    return RubricExtras(evidence, confidence)


def check_rubrics(rubrics: Sequence[Rubric]) -> None:
    """Raise MetricError when a rubric's id is blank or given twice."""
    ids = Counter(rubric.id.strip() for rubric in rubrics if rubric.content)
    if "" in ids:
        raise MetricError("a rubric has a blank id; give each rubric its own id")
    if doubled := [name for name, count in ids.items() if count > 1]:
        raise MetricError(f"two rubrics have the id {doubled[0]}; give each rubric its own id")


_NO_REPLY: Final = JudgeReply("")


class TurnView(NamedTuple):
    """The turn that a question is about, the conversation up to it, and what else the question may use."""

    actual: Sequence[Turn]
    """The actual turns up to and including this one."""
    expected: Sequence[Turn]
    rubrics: Sequence[Rubric]
    generation: GenerationConfig
    judge: Judge
    extras: RubricExtras = NO_EXTRAS

    @property
    def turn(self) -> Turn:
        """The judged turn."""
        return self.actual[-1]

    @property
    def wanted(self) -> Turn:
        """The expected turn, possibly a placeholder."""
        return self.expected[-1]


class Question(NamedTuple):
    """A question about a turn, built anew for each sample, and the function that reads the answer."""

    request: Callable[[], JudgeRequest]
    read: Callable[[str], Verdict]
    """Raises JudgeInvalid for an answer that is not a verdict."""


MessageBuilder = Callable[[TurnView], Question | MissingEvidence]


class JudgedOperators(TypedDict, total=False):
    """The parts of a judged evaluator that a program may replace."""

    messages: Callable[[TurnView], JudgeRequest | str | MissingEvidence]
    """Asks about a turn; the answer must have the form that the evaluator reads, or be read by `score`."""
    score: Callable[[str, EvalMetric], Verdict]
    """Reads the judge's answer; raises JudgeInvalid if it is not a verdict."""
    samples: SampleAggregator
    """Combines the samples of a turn instead of the aggregator that the metric names."""
    turns: TurnAggregator
    """Combines the turns of a case instead of their mean."""


_NO_RUBRIC: Final = TurnScore(Status.NOT_EVALUATED, reason="no rubric for this turn")


class Judged(TurnEvaluator):
    """Sends a question about each turn to the metric's judges and combines their votes.

    Raises MetricError if `criterion.llmJudge` is missing or contradictory, a rubric id is empty or repeated,
    or a number of samples or threads is invalid.
    """

    takes_known = True
    shares_thread = True

    def __init__(
        self,
        name: str,
        version: str,
        metric: EvalMetric,
        build: MessageBuilder,
        *,
        needs_rubrics: bool = False,
        has_preparation: bool = False,
        named: tuple[SampleAggregator, TurnAggregator] | None = None,
        **own: Unpack[JudgedOperators],
    ) -> None:
        self.name = name
        super().__init__(metric)
        criterion = require(metric, lambda given: given.llm_judge, "llmJudge")
        self._build = _with_operators(build, metric, own)
        self._needs_rubrics = needs_rubrics
        self._workers = workers_of(criterion)
        # Building a question does not justify a thread, unless it calls the judge itself.
        self._builders = self._workers if has_preparation else 1
        self._models = judge_models(criterion)
        samples, turns = named or (
            Operators().sample_aggregator(criterion.sample_aggregator_name),
            average,
        )
        self.version = ".".join([version, *_digests(own), *digests(samples, turns)])
        samples = own.get("samples") or samples
        self._panel = Panel(
            criterion, metric.threshold, samples, *jurors_of(criterion, self._models)
        )
        self._found: tuple[Services, Sequence[Judge]] | None = None
        self._turn_aggregator = own.get("turns") or turns
        self._extras = extras_of(criterion, rubrics=needs_rubrics)
        check_rubrics(criterion.rubrics)

    def score_turns(self, context: EvaluationContext) -> CaseResult:
        """Return a score for each turn with a verdict of the judge.

        Without a configured judge, nothing is evaluated.  A turn without a verdict is an error and has no
        score.  If the budget is exhausted within a case, the metric of the case is not evaluated.
        """
        known = list(context.known or [None] * len(context.actual))
        own = self._rubrics_of(context)
        if self._needs_rubrics and not any(own):
            return EvaluatorFailure(
                "no rubric with content; add criterion.llmJudge.rubrics or rubrics of the case",
                "MetricError",
            )
        for place, given in enumerate(own if self._needs_rubrics else ()):
            if not given:
                known[place] = known[place] or _NO_RUBRIC
        places = [place for place, score in enumerate(known) if score is None]
        judges = self._judges_of(context.services)
        session = _Session(judges, self.version, self.threshold)
        views = [
            TurnView(
                context.actual[: place + 1], context.expected[: place + 1], own[place],
                self._panel.jurors[0].generation, judges[0], self._extras
            )
            for place in places
        ]  # fmt: skip
        for place, score in zip(places, self._score_turns(views, session), strict=True):
            known[place] = score
        turns = tuple(score for score in known if score is not None)
        if session.spent:
            # A mean over only the turns that were paid for would be mistaken for the score of the
            # case.
            return MetricScore(Status.NOT_EVALUATED, None, session.spent, turns)
        return turns

    def _rubrics_of(self, context: EvaluationContext) -> list[list[Rubric]]:
        """Return the rubrics for each turn: the metric's, and its own ones in an ADK eval set.

        Raises MetricError if they have blank or equal ids.
        """
        criterion = require(context.metric, lambda given: given.llm_judge, "llmJudge")
        rubrics = [rubric for rubric in criterion.rubrics if rubric.content]
        found = []
        for turn in context.expected:
            given = turn.data.get("rubrics") if self._needs_rubrics else None
            own = [Rubric.model_validate(rubric_of(one)) for one in given or ()]
            if own := [rubric for rubric in own if rubric.content and rubric.content.text]:
                check_rubrics([*rubrics, *own])
            found.append([*rubrics, *own])
        return found

    def _judges_of(self, services: Services) -> Sequence[Judge]:
        """Return the metric's judges; a repeated lookup would take a tenth of the time for a case."""
        found = self._found
        if found is None or found[0] is not services:
            judges = [services.judge(model) for model in self._models]
            found = self._found = (services, judges)
        return found[1]

    def sum_up(self, turns: tuple[TurnScore, ...]) -> MetricScore:
        """Return the scores of the turns, combined by the metric's aggregator."""
        return self._turn_aggregator(turns, self.threshold)

    def _score_turns(self, views: Sequence[TurnView], session: "_Session") -> list[TurnScore]:
        built = map_together(lambda view: session.build(self._build, view), views, self._builders)
        rounds = {
            place: _Round(question, self._panel.samples())
            for place, (question, _) in enumerate(built)
            if isinstance(question, Question)
        }
        open_rounds = list(rounds.values())
        while open_rounds:
            asked = [(round_.question, one) for round_ in open_rounds for one in round_.due]
            votes = iter(map_together(lambda one: session.vote(*one), asked, self._workers))
            for round_ in open_rounds:
                round_.take([next(votes) for _ in round_.due])
            open_rounds = [round_ for round_ in open_rounds if round_.due]
        scores: list[TurnScore] = []
        for place, (question, beforehand) in enumerate(built):
            score = rounds[place].score if isinstance(question, Question) else question
            scores.append(structs.replace(score, beforehand=beforehand) if beforehand else score)
        return scores


_UNASKED: Final = Question(lambda: JudgeRequest(""), lambda text: Verdict(0.0, text))


def _with_operators(
    build: MessageBuilder, metric: EvalMetric, own: JudgedOperators
) -> MessageBuilder:
    """Return the builder of questions with the program's own messages and reader."""
    messages, score = own.get("messages"), own.get("score")
    if messages is None and score is None:
        return build

    def built(view: TurnView) -> Question | MissingEvidence:
        # Whoever asks and reads needs nothing of the evaluator's own question.
        question = build(view) if messages is None or score is None else _UNASKED
        if isinstance(question, MissingEvidence):
            return question
        if messages is not None:
            asked = messages(view)
            if isinstance(asked, MissingEvidence):
                return asked
            if isinstance(asked, str):
                asked = JudgeRequest(asked, generation=view.generation)
            request: JudgeRequest = asked
            question = question._replace(request=lambda: request)
        if score is not None:
            question = question._replace(read=partial(_read, score, metric))
        return question

    return built


def _read(score: Callable[[str, EvalMetric], Verdict], metric: EvalMetric, text: str) -> Verdict:
    try:
        found = score(text, metric)
    except JudgeError:
        raise
    except (Exception, SystemExit) as error:  # user code: an answer without a verdict
        raise JudgeInvalid(f"{type(error).__name__}: {error}") from error
    if not 0 <= found.score <= 1:
        raise JudgeInvalid(f"score {found.score} is out of range; expected 0 to 1")
    return found


def _digests(own: JudgedOperators) -> list[str]:
    # A TypedDict's values are not known by key.
    return [source_digest(cast(Callable[..., object], part)) for _, part in sorted(own.items())]


class _Round:
    """The voting on one turn: which samples are due next, and finally the score."""

    def __init__(self, question: Question, ballot: PanelSamples) -> None:
        self.question = question
        self.score = TurnScore(Status.NOT_EVALUATED)
        self._ballot = ballot
        self.due = next(ballot)

    def take(self, votes: Sequence[Vote]) -> None:
        """Pass on the votes that were due."""
        try:
            self.due = self._ballot.send(votes)
        except StopIteration as end:
            self.due, self.score = [], end.value


class _Session:
    """The calls to the judges for one case; a judge that is unavailable is not called again."""

    def __init__(self, judges: Sequence[Judge], version: str, threshold: float) -> None:
        self._judges = judges
        self._version = version
        self._threshold = threshold
        self._unavailable: dict[int, str] = {}
        self.spent = ""
        """Why the budget did not suffice for the whole case; empty if it did."""

    def build(
        self, build: MessageBuilder, view: TurnView
    ) -> tuple[Question | TurnScore, tuple[Vote, ...]]:
        """Return a turn's question, or its score if there is none, and the preparatory calls as votes."""
        if 0 in self._unavailable:
            return TurnScore(*self._skipped(0)), ()
        recording = _RecordingJudge(view.judge, self._version)
        try:
            question = build(view._replace(judge=recording))
        except JudgeError as error:
            status, reason = self._record_error(error, 0)
            return TurnScore(status, reason=reason), recording.votes(error)
        if isinstance(question, MissingEvidence):
            return turn_score(question, self._threshold), recording.votes()
        return question, recording.votes()

    def vote(self, question: Question, sample: SampleRequest) -> Vote:
        """Request one sample; return its verdict, or why there is none."""
        juror, number = sample
        if juror.place in self._unavailable:
            status, _, reason = self._skipped(juror.place)
            return Vote(number, status, None, reason, judge=juror.name)
        reply, reader = _NO_REPLY, _Reader(question.read)
        try:
            request = replace(
                question.request(),
                generation=juror.generation,
                sample=number,
                version=self._version,
                check=reader,
            )
            reply = ask(self._judges[juror.place], request)
            score, reason, rows, value = storable(reader(reply.text))
        except JudgeError as error:
            status, reason = self._record_error(error, juror.place)
            reply = error.reply or reply
            return vote_of(reply, number, status, None, reason, judge=juror.name)
        status = status_of(score, self._threshold)
        return vote_of(reply, number, status, score, reason, rows, value, juror.name)

    def _skipped(self, place: int) -> tuple[Status, None, str]:
        status = Status.NOT_EVALUATED if self.spent else Status.ERROR
        return status, None, f"judge not called: {self._unavailable[place]}"

    def _record_error(self, error: JudgeError, place: int) -> tuple[Status, str]:
        if isinstance(error, BudgetSpentError):
            self.spent = self._unavailable[place] = str(error)
            return Status.NOT_EVALUATED, self.spent
        text = _storable(f"{type(error).__name__}: {error}")
        if not isinstance(error, JudgeInvalid):
            self._unavailable.setdefault(place, text)
        return Status.ERROR, text


class _Reader:
    """Reads answers, each only once in a row: the cache reads an answer before the evaluator does."""

    def __init__(self, read: Callable[[str], Verdict]) -> None:
        self._read = read
        self._last: tuple[str, Verdict] | None = None

    def __call__(self, text: str) -> Verdict:
        if self._last is None or self._last[0] is not text:
            self._last = (text, self._read(text))
        return self._last[1]


class _RecordingJudge:
    """A judge for building questions; it records the replies."""

    def __init__(self, judge: Judge, version: str) -> None:
        self._judge = judge
        self._version = version
        self._replies: list[JudgeReply] = []

    def answer(self, request: JudgeRequest) -> JudgeReply:
        reply = ask(self._judge, replace(request, version=self._version))
        self._replies.append(reply)
        return reply

    def votes(self, error: JudgeError | None = None) -> tuple[Vote, ...]:
        """Return the recorded calls as votes without a verdict."""
        last = error.reply if error else None
        replies = [*self._replies, last] if last else self._replies
        status, reason = (Status.ERROR, str(error)) if error else (Status.NOT_EVALUATED, "")
        return tuple(vote_of(reply, PREPARATORY, status, None, reason) for reply in replies)


def lacking(turn: Turn, *fields: str, expected: bool = False) -> str | None:
    """Return the first of the fields without evidence, and the reason; None if all have evidence."""
    side = "expected " if expected else ""
    return next((f"{side}{reason}" for field in fields if (reason := turn.lacks(field))), None)


def reference_text(wanted: Turn) -> str | MissingEvidence:
    """Return the answer to compare with: the expected one, or all equivalent ones, numbered."""
    if not wanted.referenced:
        return NOTHING_EXPECTED
    turns = (wanted, *wanted.references)
    texts = [one.final_text for one in turns if not lacking(one, "finalResponse")]
    given = [text for text in texts if text is not None]
    if not given:
        reason = lacking(wanted, "finalResponse", expected=True)
        return MissingEvidence(reason or "expected finalResponse is absent")
    if len(given) == 1:
        return given[0]
    listed = "\n".join(f"{number}. {text}" for number, text in enumerate(given, start=1))
    return f"Any one of these {len(given)} is right:\n{listed}"


Sections = list[tuple[str, str]]
"""Titles and texts that a judge sees."""


def answer_sections(
    view: TurnView, *, title: str = "final answer", reference: str = ""
) -> Sections | MissingEvidence:
    """Return the user's message, the answer and the expected one if it has a title, or what is missing."""
    turn, reason = view.turn, lacking(view.turn, "userContent", "finalResponse")
    if reason is not None:
        return MissingEvidence(reason)
    found = [
        ("user message", stated_message(turn.user_text)),
        (title, stated_answer(turn.final_text)),
    ]
    if reference:
        wanted = reference_text(view.wanted)
        if isinstance(wanted, MissingEvidence):
            return wanted
        found.append((reference, wanted))
    return found


def asking(
    sections_of: Callable[[TurnView], Sections | MissingEvidence],
    task: str,
    closing: Callable[[TurnView], str],
    read: Callable[[str], Verdict],
    *,
    answer_name: str = "",
    answer_schema: Mapping[str, Json] | None = None,
    tokens: bool = False,
) -> MessageBuilder:
    """Return the builder of a question: a task, sections of a turn between fences, and a closing."""

    def build(view: TurnView) -> Question | MissingEvidence:
        sections = sections_of(view)
        if isinstance(sections, MissingEvidence):
            return sections

        def request() -> JudgeRequest:
            nonce = fresh_nonce(text for _, text in sections)
            prompt = fenced(task, sections, closing(view), nonce)
            return JudgeRequest(
                prompt, answer_name, answer_schema, view.generation, nonce, tokens=tokens
            )

        return Question(request, read)

    return build


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
        reply.latency, value, judge, reply.cost_usd, reply.cached, reply.saved_usd
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


def samples_of(model: JudgeModel | None) -> int:
    """Return the number of samples for each turn; raise MetricError if it is below 1."""
    given = model.num_samples if model else None
    if given is not None and given <= 0:
        raise MetricError(f"judgeModel.numSamples is {given}; expected 1 or more")
    return given or 1


def workers_of(criterion: LlmJudgeCriterion) -> int:
    """Return the number of concurrent requests; raise MetricError if it is negative."""
    given = criterion.sample_parallelism
    if given is not None and given < 0:
        raise MetricError(f"sampleParallelism is {given}; expected 0 (one for each CPU) or more")
    return (given or os.cpu_count() or 1) if criterion.sample_parallelism_enabled else 1
