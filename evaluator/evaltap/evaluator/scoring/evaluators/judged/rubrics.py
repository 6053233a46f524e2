"""The judged evaluators of rubrics: one factory for each kind of evidence.

`llm_rubric_response`, `llm_rubric_knowledge_recall`, `llm_rubric_critic` and `llm_rubric_reference_critic`.
"""

from collections.abc import Callable
from functools import partial
from typing import Final, Unpack

import orjson

from evaltap.evaluator.cases.turn import absent_state
from evaltap.evaluator.scoring.contract.turn_evaluator import MissingEvidence
from evaltap.evaluator.scoring.criteria.calls.attempts import lacking as calls_lack
from evaltap.evaluator.scoring.evaluators.judged import rubric_prompt
from evaltap.evaluator.scoring.evaluators.judged.answers import Verdict, read_rubrics
from evaltap.evaluator.scoring.evaluators.judged.evaluator import (
    Judged,
    JudgedOperators,
    Question,
    Sections,
    TurnView,
    answer_sections,
    lacking,
)
from evaltap.evaluator.scoring.evaluators.judged.quotes import check_quotes
from evaltap.evaluator.scoring.evaluators.judged.rubric_prompt import stated_message
from evaltap.schemas.formats.metric import EvalMetric

KNOWLEDGE_TOOLS: Final = frozenset({"knowledge_search", "knowledge_search_with_agentic_filter"})
"""The retrieval tools of tRPC-Agent-Go, used if the criterion names none."""

_VERSION: Final = f"1.{rubric_prompt.VERSION}"
_NOTHING_FOUND: Final = "(no knowledge was retrieved)"
_with_reference = partial(answer_sections, reference="reference answer")


def response(metric: EvalMetric, **own: Unpack[JudgedOperators]) -> Judged:
    """`llm_rubric_response`: rubrics about the final response alone."""
    task = rubric_prompt.RESPONSE_TASK
    return _judged("llm_rubric_response", metric, task, answer_sections, own)


def knowledge_recall(metric: EvalMetric, **own: Unpack[JudgedOperators]) -> Judged:
    """`llm_rubric_knowledge_recall`: rubrics about the results of retrieval tools."""
    judge = metric.criterion.llm_judge if metric.criterion else None
    names = frozenset(judge.retrieval_tools if judge else ()) or KNOWLEDGE_TOOLS

    def sections(view: TurnView) -> Sections | MissingEvidence:
        turn = view.turn
        reason = lacking(turn, "userContent") or calls_lack(turn, ("name",))
        found = [call for call in turn.tools if call and call.get("name") in names]
        hidden = [*filter(None, (absent_state(call, "result") for call in found))]
        if reason is None and hidden:
            reason = f"result of a knowledge tool is {hidden[0]}"
        if reason is None and turn.tools and not found:
            known = ", ".join(sorted(names))
            reason = f"no call of a retrieval tool ({known}); llmJudge.retrievalTools names others"
        if reason is not None:
            return MissingEvidence(reason)
        lines = [orjson.dumps(call.get("result")).decode() for call in found]
        return [
            ("user message", stated_message(turn.user_text)),
            ("retrieved knowledge", "\n".join(lines) or _NOTHING_FOUND),
        ]

    return _judged(
        "llm_rubric_knowledge_recall", metric, rubric_prompt.KNOWLEDGE_TASK, sections, own
    )


def critic(metric: EvalMetric, **own: Unpack[JudgedOperators]) -> Judged:
    """`llm_rubric_critic`: rubrics about the final response, given a correct reference."""
    return _judged("llm_rubric_critic", metric, rubric_prompt.CRITIC_TASK, _with_reference, own)


def reference_critic(metric: EvalMetric, **own: Unpack[JudgedOperators]) -> Judged:
    """`llm_rubric_reference_critic`: the same, given a reference that shows the desired quality."""
    task = rubric_prompt.REFERENCE_CRITIC_TASK
    return _judged("llm_rubric_reference_critic", metric, task, _with_reference, own)


def _judged(
    name: str,
    metric: EvalMetric,
    task: str,
    sections: Callable[[TurnView], Sections | MissingEvidence],
    own: JudgedOperators,
) -> Judged:
    def build(view: TurnView) -> Question | MissingEvidence:
        found = sections(view)
        if isinstance(found, MissingEvidence):
            return found
        return Question(
            lambda: rubric_prompt.rubric_question(
                task, found, view.rubrics, view.generation, view.extras
            ),
            _reader(view, found),
        )

    return Judged(name, _VERSION, metric, build, needs_rubrics=True, **own)


def _reader(view: TurnView, sections: Sections) -> Callable[[str], Verdict]:
    ids = [rubric.id for rubric in view.rubrics]
    if not (evidence := view.extras.evidence):
        return lambda text: read_rubrics(text, ids)
    material = [text for _, text in sections]
    required = evidence == "require"
    return lambda text: check_quotes(read_rubrics(text, ids), material, required=required)
