"""`llm_rubric_response`: a judge answers rubrics about the final response, by majority vote."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evaltap.evaluator import rubric_prompt
from evaltap.evaluator.aggregation import average, majority, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
    Vote,
)
from evaltap.evaluator.errors import JudgeError, JudgeInvalid, JudgeNotConfigured, MetricError
from evaltap.evaluator.judge import DEFAULT_GENERATION, Judge, JudgeReply
from evaltap.evaluator.registry import require
from evaltap.evaluator.rubric_answer import mean_score, read_rubric_answer
from evaltap.evaluator.sampling import run_all, samples_of, workers_of
from evaltap.schemas.case import Rubric
from evaltap.schemas.metric import EvalMetric

_COMPARED = ("userContent", "finalResponse")


class RubricResponse:
    """Ask the judge N times for each turn; each rubric is met or not, and the majority stands.

    Raises MetricError when `criterion.llmJudge` is missing, a rubric id is blank or doubled, or a
    number of samples or threads makes no sense.
    """

    name = "llm_rubric_response"
    version = f"1.{rubric_prompt.VERSION}"

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.llm_judge if metric.criterion else None
        criterion = require(metric, part, "llmJudge")
        self._samples = samples_of(criterion)
        self._workers = workers_of(criterion)
        self._model = criterion.judge_model
        generation = self._model.generation_config if self._model else None
        self._generation = DEFAULT_GENERATION if generation is None else generation
        self._threshold = metric.threshold
        _check(criterion.rubrics)

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the share of rubrics met in each turn, and the mean over turns.

        Without a configured judge nothing is evaluated; a turn that the judge gave no verdict on is
        in error and has no score.
        """
        part = context.metric.criterion.llm_judge if context.metric.criterion else None
        rubrics = [rubric for rubric in (part.rubrics if part else []) if rubric.content]
        if not rubrics:
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
        return average(self._score_turns(context.actual, rubrics, judge), self._threshold)

    def _score_turns(
        self, turns: Sequence[Turn], rubrics: list[Rubric], judge: Judge
    ) -> tuple[TurnScore, ...]:
        lacking = [_lacking(turn) for turn in turns]
        asked = [turn for turn, reason in zip(turns, lacking, strict=True) if reason is None]
        questions = [
            _Question(turn, sample) for turn in asked for sample in range(self._samples)
        ]

        down: list[str] = []

        def ask(question: _Question) -> Vote:
            if down:  # the metric has no score any more, so nobody should wait or pay for the rest
                return Vote(question.sample, Status.ERROR, None, f"not asked, as {down[0]}")
            try:
                return self._vote(question, rubrics, judge)
            except JudgeError as error:
                down.append(f"{type(error).__name__}: {error}")
                return Vote(question.sample, Status.ERROR, None, down[-1])

        votes = iter(run_all(ask, questions, self._workers))
        return tuple(
            self._turn_score(tuple(next(votes) for _ in range(self._samples)))
            if reason is None
            else TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {reason}")
            for reason in lacking
        )

    def _vote(self, question: "_Question", rubrics: list[Rubric], judge: Judge) -> Vote:
        """Return a vote, with or without a verdict; raise when the judge is out of reach."""
        turn = question.turn
        request = rubric_prompt.rubric_request(
            turn.user_text, turn.final_text, rubrics, self._generation
        )
        reply = JudgeReply("")
        try:
            reply = judge.answer(request)
            verdicts = read_rubric_answer(reply.text, [rubric.id for rubric in rubrics])
        except JudgeInvalid as error:
            reason = f"{type(error).__name__}: {error}"
            status, score, verdicts = Status.ERROR, None, ()
        else:
            score = mean_score(verdicts)
            status = status_of(score, self._threshold)
            reason = "\n".join(verdict.reason for verdict in verdicts)
        return Vote(
            question.sample,
            status,
            score,
            reason,
            verdicts,
            reply.model,
            reply.input_tokens,
            reply.output_tokens,
            reply.latency,
        )

    def _turn_score(self, votes: tuple[Vote, ...]) -> TurnScore:
        for vote in votes:
            # One sample without a verdict could have turned the majority, so there is none.
            if vote.status is Status.ERROR:
                return TurnScore(Status.ERROR, reason=vote.reason, votes=votes)
        chosen = majority(votes, self._threshold)
        return TurnScore(
            chosen.status, chosen.score, chosen.reason, chosen.score, chosen.rubric_scores, votes
        )


@dataclass(frozen=True, slots=True)
class _Question:
    turn: Turn
    sample: int


def _lacking(turn: Turn) -> str | None:
    return next((reason for field in _COMPARED if (reason := turn.lacks(field))), None)


def _check(rubrics: Sequence[Rubric]) -> None:
    ids = Counter(rubric.id.strip() for rubric in rubrics if rubric.content)
    if "" in ids:
        raise MetricError("a rubric has a blank id; give each rubric an id of its own")
    doubled = [name for name, count in ids.items() if count > 1]
    if doubled:
        raise MetricError(f"two rubrics have the id {doubled[0]}; give each an id of its own")
