"""`llm_final_response`: a judge compares the final response with the expected one."""

from evaltap.evaluator import reference_prompt
from evaltap.evaluator.evaluators.judged import Judged, NoQuestion, Question, TurnView, lacking
from evaltap.evaluator.judge_answers import read_validity
from evaltap.schemas.metric import EvalMetric


def final_response(metric: EvalMetric) -> Judged:
    """`llm_final_response`: 1 when the judge finds the response valid by the reference."""

    def build(view: TurnView) -> Question | NoQuestion:
        turn, reference = view.turn, view.wanted.final_text
        reason = lacking(turn, "userContent", "finalResponse")
        reason = reason or lacking(view.wanted, "finalResponse", expected=True)
        if reason is not None or reference is None:
            return NoQuestion(reason or "expected finalResponse is absent")
        return Question(
            lambda: reference_prompt.validity_request(
                turn.user_text, turn.final_text, reference, view.generation
            ),
            read_validity,
        )

    return Judged("llm_final_response", f"1.{reference_prompt.VERSION}", metric, build)
