"""`llm_hallucinations`: the share of an answer's sentences that rest on what the agent was given."""

from evaltap.evaluator import grounding_prompt
from evaltap.evaluator.criteria.call_attempts import lacking as calls_lack
from evaltap.evaluator.errors import JudgeInvalid
from evaltap.evaluator.evaluators.judged import Judged, NoQuestion, Question, TurnView, lacking
from evaltap.evaluator.judge_answers import Verdict, read_sentence_labels
from evaltap.schemas.metric import EvalMetric


def hallucinations(metric: EvalMetric) -> Judged:
    """`llm_hallucinations`: the judge splits each answer once, and labels its sentences N times."""
    return Judged(
        "llm_hallucinations", f"1.{grounding_prompt.VERSION}", metric, _build, asks_beforehand=True
    )


def _build(view: TurnView) -> Question | NoQuestion:
    reason = lacking(view.turn, "finalResponse")
    for turn in view.actual:
        reason = reason or lacking(turn, "userContent") or calls_lack(turn, ("arguments", "result"))
    answer = view.turn.final_text
    if reason is not None or answer is None or not answer.strip():
        return NoQuestion(reason or "finalResponse is absent")
    reply = view.judge.answer(grounding_prompt.split_request(answer, view.generation))
    sentences = grounding_prompt.read_sentences(reply.text, answer)

    def read(text: str) -> Verdict:
        verdict = read_sentence_labels(text)
        if len(verdict.rubric_scores) != len(sentences):
            raise JudgeInvalid(
                f"{len(verdict.rubric_scores)} sentences are labelled, expected {len(sentences)}"
            )
        return verdict

    return Question(
        lambda: grounding_prompt.label_request(view.actual, sentences, view.generation), read
    )
