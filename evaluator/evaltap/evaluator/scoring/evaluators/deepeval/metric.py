"""`deepeval_metric`: any DeepEval metric as an evaltap metric."""

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from msgspec import structs

from evaltap.evaluator.cases.json_path import read_path
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.context import EvaluationContext, Status, TurnScore, Vote
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.evaluator import CostClass
from evaltap.evaluator.scoring.contract.judge import (
    DEFAULT_GENERATION,
    Judge,
    JudgeReply,
    ScriptedJudge,
)
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    CaseResult,
    MissingEvidence,
    TurnEvaluator,
    TurnResult,
    turn_score,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.evaluators.deepeval import bridge
from evaltap.schemas.formats.metric import EvalMetric


class DeepEvalMetric(TurnEvaluator):
    """Measures each turn, or the whole conversation, with a new DeepEval metric object.

    With `criterion.llmJudge` the metric uses evaltap's judge, otherwise the model that its parameters name.
    Raises MetricError if DeepEval is not installed, or rejects the class or its parameters.
    """

    name = "deepeval_metric"
    reads_answer = True

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.deepeval, "deepeval", closed=True)
        deepeval = bridge.load_deepeval()
        self.version = f"1.{deepeval.__version__}"
        self._class = bridge.metric_class(criterion.metric)
        self._conversational = bridge.is_conversational(self._class)
        self._retrieval_tools = criterion.retrieval_tools
        try:
            path = criterion.context_path
            self._context_path = read_path(path) if path else None
        except ValueError as error:
            raise MetricError(f"deepeval.contextPath: {error}") from None
        taken = inspect.signature(self._class.__init__).parameters
        self._parameters = bridge.parameters_of(self._class, criterion.parameters)
        # One thread measures one turn, so DeepEval's own event loop would only interfere.
        for key, value in (("async_mode", False), ("threshold", metric.threshold)):
            if key in taken:
                self._parameters.setdefault(key, value)
        self._llm_judge = metric.criterion.llm_judge if metric.criterion else None
        if self._llm_judge is not None and ("model" not in taken or "model" in self._parameters):
            raise MetricError(
                f"criterion.llmJudge: {criterion.metric} takes no model, or deepeval.parameters has one"
            )
        self.cost_class = CostClass.PAID_JUDGE if "model" in taken else CostClass.FREE
        self._shown = {
            key: False
            for key in ("_show_indicator", "_log_metric_to_confident")
            if key in inspect.signature(self._class.measure).parameters
        }
        # So that wrong parameters are reported now; nothing is asked.
        self._new_metric(None if self._llm_judge is None else ScriptedJudge([]))

    def score_turns(self, context: EvaluationContext) -> CaseResult:
        """Return DeepEval's score and reason for each turn; a conversation's result is repeated for each."""
        judge: Judge | None = None
        if self._llm_judge is not None:
            judge = context.services.judge(self._llm_judge.judge_model)
        if self._conversational:
            return [self._conversation(context, judge)] * len(context.actual)
        known = context.known or (None,) * len(context.actual)
        triples = zip(context.actual, context.expected, known, strict=True)
        # Known scores have been paid for and are reused.
        return [before or self._turn(one, other, context, judge) for one, other, before in triples]

    def _turn(
        self, turn: Turn, expected: Turn, context: EvaluationContext, judge: Judge | None
    ) -> TurnResult:
        fields = bridge.turn_fields(
            turn,
            expected,
            context.case,
            context_path=self._context_path,
            retrieval_tools=self._retrieval_tools,
        )
        if "input" not in fields:
            return MissingEvidence(turn.lacks("userContent") or "userContent is absent")
        return self._measured(partial(bridge.turn_test_case, fields), judge)

    def _conversation(self, context: EvaluationContext, judge: Judge | None) -> TurnResult:
        messages = bridge.conversation_fields(context.actual)
        if isinstance(messages, str):
            return MissingEvidence(messages)
        extra = (context.metric.extension or {}).get("conversation") or {}
        return self._measured(partial(bridge.conversation_test_case, messages, extra), judge)

    def _measured(self, test_case: Callable[[], object], judge: Judge | None) -> TurnResult:
        missing: type[Exception] = import_module("deepeval.errors").MissingTestCaseParamsError
        replies: list[JudgeReply] = []
        try:
            measure = self._new_metric(judge, replies)
            measure.measure(test_case(), **self._shown)
        except missing as error:
            return MissingEvidence(str(error))
        except Exception as error:  # arbitrary code: fails this turn, not the run
            return TurnScore(Status.ERROR, reason=f"{type(error).__name__}: {error}")
        score, reason = measure.score, str(measure.reason or "")
        found = turn_score((score, reason), self.threshold)
        if found.status is Status.ERROR:
            return found
        own = measure.is_successful()
        if own is not None and own != (found.status is Status.PASSED):
            # The metric prefers lower scores, or has its own threshold.
            reason = f"score {score:g} {'passes' if own else 'fails'} by DeepEval's own verdict, but not here"
            return TurnScore(Status.ERROR, reason=reason)
        vote = _vote(measure, found.status, float(score), reason, replies)
        return structs.replace(found, value=float(score), votes=(vote,))

    def _new_metric(
        self, judge: Judge | None = None, replies: list[JudgeReply] | None = None
    ) -> Any:
        """Return a new metric object: they store their measurements, so each turn needs its own."""
        parameters = dict(self._parameters)
        if judge is not None:
            model = self._llm_judge.judge_model if self._llm_judge else None
            generation = model.generation_config if model else None
            kept = [] if replies is None else replies
            from evaltap.evaluator.scoring.evaluators.deepeval.judged_model import JudgedModel

            generation = generation or DEFAULT_GENERATION
            parameters["model"] = JudgedModel(judge, generation, kept, self.version)
        try:
            return self._class(**parameters)
        except Exception as error:  # any exception means a wrong configuration
            raise MetricError(
                f"deepeval.metric {self._class.__name__} rejects its parameters: {error}"
            ) from error


def _vote(
    measure: Any, status: Status, score: float, reason: str, replies: list[JudgeReply]
) -> Vote:
    """Return a vote with the judge's model and cost, from evaltap's replies, else DeepEval's counts."""
    model = replies[-1].model if replies else str(measure.evaluation_model or "")
    given = [reply.input_tokens for reply in replies if reply.input_tokens is not None]
    taken = [reply.output_tokens for reply in replies if reply.output_tokens is not None]
    input_tokens = sum(given) if given else getattr(measure, "input_tokens", None)
    output_tokens = sum(taken) if taken else getattr(measure, "output_tokens", None)
    return Vote(0, status, score, reason, (), model, input_tokens, output_tokens)
