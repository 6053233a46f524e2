"""Prove the adapter with the real DeepEval, in a separate environment.

Not a pytest module: `./run wheel` calls it with the wheel and `evaltap[deepeval]` installed.  DeepEval
installs pytest plugins and restricts the versions of other packages, so it is not in the development
environment.
"""

import json
import os
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from evaltap.evaluator import (
    CaseScorer,
    CostClass,
    JudgeInvalid,
    MetricError,
    MetricOutcome,
    ScriptedJudge,
    Services,
)
from evaltap.schemas import EvalMetric

ASKED: list[str] = []


def no_network(*_: Any, **__: Any) -> Any:
    raise AssertionError("something wants the network")


def metric(name: str, threshold: float = 0.5, judge: bool = False, **deepeval: Any) -> EvalMetric:
    criterion: dict[str, Any] = {"deepeval": {"metric": name, **deepeval}}
    if judge:
        criterion["llmJudge"] = {"judgeModel": {"modelName": "m"}}
    return EvalMetric.model_validate(
        {"metricName": "deepeval_metric", "threshold": threshold, "criterion": criterion}
    )


def turn(answer: str | None = "In Bern.", **given: Any) -> dict[str, Any]:
    made: dict[str, Any] = {
        "invocationId": "t-1",
        "userContent": {"role": "user", "content": "Where is the parcel?"},
        "tools": [{"name": "track", "arguments": {"id": "A-1"}, "result": "Bern"}],
    }
    if answer is not None:
        made["finalResponse"] = {"role": "assistant", "content": answer}
    return made | given


def case(*turns: dict[str, Any], **given: Any) -> dict[str, Any]:
    return {
        "evalId": "c-1",
        "evalMode": "trace",
        "actualConversation": list(turns) or [turn()],
        "sessionInput": {"appName": "shop", "userId": "u"},
    } | given


def score(
    one: EvalMetric, data: dict[str, Any], judge: ScriptedJudge | None = None
) -> MetricOutcome:
    services = Services() if judge is None else Services(judge=lambda _: judge)
    return CaseScorer([one], services=services).score(data).metrics[0]


def refused(one: EvalMetric) -> str:
    try:
        CaseScorer([one])
    except MetricError as error:
        return str(error)
    raise AssertionError("it was not refused")


def metrics_without_a_model() -> None:
    same = case(turn(), turn("in Bern."), conversation=[turn(), turn()])
    found = score(metric("ExactMatchMetric"), same)
    assert [one.score for one in found.turns] == [1, 0], found
    assert "exact" in found.turns[0].reason.lower(), found
    assert CaseScorer([metric("ExactMatchMetric")]).cost_classes() == [CostClass.FREE]
    # Evidence that is not there is not a zero.
    blind = score(metric("ExactMatchMetric"), case())
    assert (blind.status, blind.score) == ("not_evaluated", None), blind
    assert "expected_output" in blind.reason, blind
    tools = metric(
        "ToolCorrectnessMetric",
        1.0,
        judge=True,
        parameters={"evaluation_params": ["input_parameters"]},
    )
    asked = case(turn(), conversation=[turn(tools=[{"name": "track", "arguments": {"id": "A-2"}}])])
    found = score(tools, asked, ScriptedJudge([]))
    assert found.score == 0, found


def a_metric_with_a_model_of_deepeval() -> None:
    scripted = {"$python": "deepeval_proof:ScriptedModel"}
    relevancy = metric("AnswerRelevancyMetric", 0.7, parameters={"model": scripted})
    found = score(relevancy, case())
    assert (found.score, found.status) == (0.5, "failed"), found
    assert found.reason == "half of it is to the point", found
    assert found.turns[0].votes[0].model == "scripted", found
    assert any("In Bern." in prompt for prompt in ASKED)
    assert CaseScorer([relevancy]).cost_classes() == [CostClass.PAID_JUDGE]


def a_metric_with_the_judge_of_evaltap() -> None:
    def answer(request: Any) -> str:
        properties = (request.answer_schema or {}).get("properties", {})
        if "steps" in properties:
            return json.dumps({"steps": ["look at it"]})
        return json.dumps({"score": 8, "reason": "it names the place"})

    one = metric(
        "GEval",
        0.7,
        judge=True,
        parameters={
            "name": "Place",
            "criteria": "Does it name a place?",
            "evaluation_params": ["input", "actual_output"],
        },
    )
    judge = ScriptedJudge(answer)
    found = score(one, case(), judge)
    assert (found.score, found.status, found.reason) == (0.8, "passed", "it names the place"), found
    assert judge.requests[0].answer_schema, judge.requests
    assert judge.requests[0].version.startswith("1."), judge.requests
    assert judge.requests[0].check is not None
    judge.requests[0].check('{"steps": []}')
    try:
        judge.requests[0].check("nonsense")
    except JudgeInvalid:
        pass
    else:
        raise AssertionError("nonsense would be kept")
    assert score(one, case()).status == "not_evaluated"
    garbage = score(one, case(), ScriptedJudge(["nonsense"] * 9))
    assert (garbage.status, garbage.score) == ("error", None), garbage
    assert garbage.reason, garbage


def retrieval_and_conversations() -> None:
    def answer(request: Any) -> str:
        properties = (request.answer_schema or {}).get("properties", {})
        if "truths" in properties:
            assert "Bern" in request.prompt
            return json.dumps({"truths": ["it is in Bern"]})
        if "claims" in properties:
            return json.dumps({"claims": ["it is in Bern"]})
        if "verdicts" in properties:
            return json.dumps({"verdicts": [{"verdict": "yes", "reason": "said"}]})
        return json.dumps({"reason": "grounded", "verdict": "yes"})

    faithful = metric("FaithfulnessMetric", judge=True, retrievalTools=["track"])
    found = score(faithful, case(), ScriptedJudge(answer))
    assert (found.score, found.status) == (1, "passed"), found
    hidden = case(turn(tools=[{"name": "track", "capture": {"result": "redacted"}}]))
    assert score(faithful, hidden, ScriptedJudge(answer)).status == "not_evaluated"
    whole = metric("TurnRelevancyMetric", judge=True)
    found = score(whole, case(turn(), turn()), ScriptedJudge(answer))
    assert [one.score for one in found.turns] == [1, 1], found
    assert score(whole, case(turn(None)), ScriptedJudge(answer)).status == "not_evaluated"


def what_is_known_is_not_paid_for_again() -> None:
    one = metric(
        "AnswerRelevancyMetric",
        0.7,
        parameters={"model": {"$python": "deepeval_proof:ScriptedModel"}},
    )
    before = CaseScorer([one]).score(case(turn(), turn("In Chur.")))
    asked = len(ASKED)
    after = CaseScorer([one]).score(case(turn(), turn("In Chur.")), {0: before.metrics[0].turns})
    assert (len(ASKED), after.metrics[0].score) == (asked, 0.5)


def mistakes() -> None:
    assert "expected module:Class or of" in refused(metric("NoSuchMetric"))
    assert "rejects its parameters" in refused(metric("ExactMatchMetric", parameters={"x": 1}))
    assert "rejects its parameters" in refused(metric("GEval", judge=True)), "no name"
    assert "takes no model" in refused(metric("ExactMatchMetric", judge=True))
    named = {"name": "n", "criteria": "c", "evaluation_params": ["colour"]}
    assert "'colour'; expected one of input" in refused(metric("GEval", parameters=named))
    broken = score(metric("deepeval_proof:Broken"), case())
    assert (broken.status, broken.reason) == ("error", "RuntimeError: out of order"), broken
    upside = score(metric("deepeval_proof:LessIsBetter"), case())
    assert upside.status == "error", upside
    assert "DeepEval's own verdict" in upside.reason, upside


def the_example_of_the_reference_page() -> None:
    page = (Path(__file__).parents[3] / "docs/reference/evaluators/your-own.md").read_text("utf-8")
    example = (
        page.partition("\n## deepeval_metric\n")[2].partition("```json\n")[2].partition("```")[0]
    )
    CaseScorer([EvalMetric.model_validate(json.loads(example))])


def main() -> int:
    socket.socket.connect = no_network  # type: ignore[method-assign]  # nothing here may call out
    for proof in (
        metrics_without_a_model,
        a_metric_with_a_model_of_deepeval,
        a_metric_with_the_judge_of_evaltap,
        retrieval_and_conversations,
        what_is_known_is_not_paid_for_again,
        mistakes,
        the_example_of_the_reference_page,
    ):
        proof()
    assert os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] == "1"
    assert "posthog" not in sys.modules, "telemetry was loaded"
    assert not Path(".deepeval").exists(), "telemetry made itself an identity"
    print("deepeval: 7 passed, 0 failed")
    return 0


if __name__ == "__main__":
    CaseScorer([metric("ExactMatchMetric")])  # loads DeepEval as a metric does, telemetry off

BaseMetric: Any = import_module("deepeval.metrics").BaseMetric
DeepEvalBaseLLM: Any = import_module("deepeval.models").DeepEvalBaseLLM


class ScriptedModel(DeepEvalBaseLLM):  # type: ignore[misc]  # not installed where types are checked
    """Answers AnswerRelevancy's three questions: one of two statements is to the point."""

    def load_model(self, *_: Any, **__: Any) -> Any:
        return self

    def generate(self, prompt: str, schema: Any = None) -> Any:
        ASKED.append(prompt)
        answers = {
            "statements": {"statements": ["it is in Bern", "nice day"]},
            "verdicts": {
                "verdicts": [{"verdict": "yes"}, {"verdict": "no", "reason": "the weather"}]
            },
            "reason": {"reason": "half of it is to the point"},
        }
        wanted = next(name for name in answers if name in schema.model_fields)
        return schema.model_validate(answers[wanted])

    async def a_generate(self, prompt: str, schema: Any = None) -> Any:
        return self.generate(prompt, schema)

    def get_model_name(self, *_: Any, **__: Any) -> str:
        return "scripted"


class Broken(BaseMetric):  # type: ignore[misc]  # not installed where types are checked
    """Raises instead of measuring."""

    def measure(self, test_case: Any, *_: Any, **__: Any) -> float:
        raise RuntimeError("out of order")

    async def a_measure(self, test_case: Any, *_: Any, **__: Any) -> float:
        return self.measure(test_case)


class LessIsBetter(Broken):
    """A metric whose low score is a success, as some of DeepEval's once were."""

    def measure(self, test_case: Any, *_: Any, **__: Any) -> float:
        self.score = 0.0
        return self.score

    def is_successful(self) -> bool:
        return True


if __name__ == "__main__":
    sys.modules["deepeval_proof"] = sys.modules["__main__"]
    raise SystemExit(main())
