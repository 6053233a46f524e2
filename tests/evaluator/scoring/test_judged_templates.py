"""Judges with templates, and prompts of your own."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest

from evaltap.evaluator import (
    JudgeRequest,
    MetricError,
    MetricScore,
    MissingEvidence,
    Registry,
    ScriptedJudge,
    TurnScore,
    TurnView,
)
from evaltap.evaluator.scoring.contract.aggregation import mean_vote
from evaltap.evaluator.scoring.contract.context import RubricVerdict, Status, Vote
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid, JudgeUnavailable
from evaltap.evaluator.scoring.evaluators.judged.answers import (
    Verdict,
    read_boolean,
    read_category,
    read_rubrics,
    read_sentence_labels,
    read_single_score,
    read_validity,
)
from evaltap.evaluator.scoring.evaluators.judged.evaluator import JudgedOperators
from evaltap.evaluator.scoring.evaluators.judged.graded import criteria
from evaltap.evaluator.scoring.evaluators.judged.hallucinations import hallucinations
from evaltap.evaluator.scoring.evaluators.judged.judge_template import JudgeTemplate, render
from evaltap.evaluator.scoring.evaluators.judged.operators import BuiltInScorer, Operators
from evaltap.evaluator.scoring.evaluators.judged.reference_answer import final_response
from evaltap.evaluator.scoring.evaluators.judged.rubrics import (
    critic,
    knowledge_recall,
    reference_critic,
    response,
)
from evaltap.schemas import Criterion, EvalMetric
from support.builders.cases import make_turn
from support.builders.judged_set import RUBRICS, grades, metric, score


def test_a_judge_that_is_down_while_splitting_is_not_asked_again() -> None:
    judge = ScriptedJudge([JudgeUnavailable("down")])

    outcome = score(judge, metric("llm_hallucinations"), turns=[make_turn("t-1"), make_turn("t-2")])

    assert outcome.status is Status.ERROR
    assert outcome.turns[1].reason == "judge not called: JudgeUnavailable: down"
    assert len(judge.requests) == 1


def binding(variable: str, scope: str, field: str, **more: Any) -> dict[str, Any]:
    return {"templateVariable": variable, "source": {"scope": scope, "field": field, **more}}


def template(
    scorer: str = "single_score", *bindings: dict[str, Any], **given: Any
) -> dict[str, Any]:
    bound = bindings or (binding("answer", "actual", "finalResponse"),)
    prompt = " ".join(f"{{{{ {one['templateVariable']} }}}}" for one in bound)
    return {
        "prompt": f"Grade this: {prompt}",
        "responseScorerName": scorer,
        "variableBindings": [*bound],
        **given,
    }


CATEGORIES = {
    "responseScorerOptions": {
        "categories": [{"label": "good", "score": 1}, {"label": "so-so", "score": 0.5}]
    }
}


TOO_MUCH = {"responseScorerOptions": {"categories": [{"label": "a", "score": 2}]}}


@pytest.mark.parametrize(
    ("scorer", "more", "reply", "value", "typed"),
    [
        ("single_score", {}, '{"score": 0.5, "reason": "r"}', 0.5, 0.5),
        ("boolean", {}, '{"passed": true, "reason": "r"}', 1, True),
        ("categorical", CATEGORIES, '{"category": "so-so", "reason": "r"}', 0.5, "so-so"),
        ("categorical", CATEGORIES, '{"category": "odd", "reason": "r"}', 0, "odd"),
        ("categorical", CATEGORIES, '{"category": " so-so", "reason": "r"}', 0, " so-so"),
        ("categorical", CATEGORIES, '{"category": "", "reason": "r"}', 0, ""),
        ("rubric_scores", {}, grades(1), 1, 1),
    ],
)  # fmt: skip
def test_scorers_of_templates(
    scorer: str, more: dict[str, Any], reply: str, value: float, typed: object
) -> None:
    judge = ScriptedJudge([reply])
    one = metric("llm_judge_template", template=template(scorer, **more), rubrics=RUBRICS)

    outcome = score(judge, one)

    assert outcome.score == value
    turn = outcome.turns[0]
    assert (turn.value, type(turn.value)) == (typed, type(turn.value))
    assert isinstance(turn.value, bool) == (scorer == "boolean")
    assert judge.requests[0].answer_name == scorer
    assert judge.requests[0].answer_schema is not None


def test_variables_come_from_their_sources() -> None:
    trace = {
        "Steps": [
            {"NodeID": "n", "Input": {"Text": "old input"}, "Output": None, "Tools": []},
            {
                "NodeID": "n",
                "Input": {"Text": "new input"},
                "Output": {"Text": '{"plan": ["one", {"two": 2}]}'},
                "Tools": [{"ID": "", "Name": "search", "Arguments": {"q": 1}, "Result": None}],
                "Skills": [{"Name": "skill"}],
            },
        ]
    }
    step = {"selector": {"nodeID": "n"}}
    bindings = [
        binding("user", "actual", "userContent"),
        binding("input", "actual", "traceStepInput", **step),
        binding("plan", "actual", "traceStepOutput", path="$.plan[1]", **step),
        binding("tools", "actual", "traceStepTools", **step),
        binding("query", "actual", "traceStepTools", path="[0].arguments.q", **step),
        binding("skills", "actual", "traceStepSkills", **step),
        binding("reference", "expected", "finalResponse"),
        binding("rubrics", "metric", "rubrics"),
        binding("first", "metric", "rubrics", path="$[0].content.text"),
    ]
    judge = ScriptedJudge(['{"score": 1, "reason": ""}'])
    one = metric(
        "llm_judge_template", template=template("single_score", *bindings), rubrics=RUBRICS
    )

    assert score(judge, one, turns=[make_turn(executionTrace=trace)]).score == 1
    prompt = judge.requests[0].prompt
    for text in (
        "begin user>>>\nWhere is order A-100?\n",
        "begin input>>>\nnew input\n",
        'begin plan>>>\n{"two":2}\n',
        'begin tools>>>\n[{"name":"search","arguments":{"q":1}}]\n',
        "begin query>>>\n1\n",
        'begin skills>>>\n[{"name":"skill"}]\n',
        "begin reference>>>\nDelivered on Monday.\n",
        'begin rubrics>>>\n[{"id":"1","content":{"text":"It names the day."}}]\n',
        "begin first>>>\nIt names the day.\n",
    ):
        assert text in prompt


@pytest.mark.parametrize(
    ("source", "told"),
    [
        (binding("x", "actual", "traceStepInput", selector={"nodeID": "n"}), "no step of node 'n'"),
        (
            binding("x", "actual", "finalResponse", path="$.a"),
            "variable 'x' at $.a: parse source json",
        ),
        (binding("x", "metric", "rubrics"), "the metric has no rubrics"),
    ],
)
def test_a_variable_without_evidence_is_not_judged(source: dict[str, Any], told: str) -> None:
    judge = ScriptedJudge([])
    one = metric("llm_judge_template", template=template("single_score", source))

    outcome = score(judge, one)

    assert outcome.status is Status.NOT_EVALUATED
    assert told in outcome.reason


def test_a_text_that_looks_like_a_placeholder_is_not_filled() -> None:
    prompt = render("{{a}} and {{b}}", {"a": "{{b}}", "b": "secret"}, nonce="N")

    assert "begin a>>>\n{{b}}\n" in prompt
    assert prompt.count("secret") == 1
    assert render("{{a}}", {"a": "N"}, nonce="N").count("<<<N begin") == 0


def test_samples_are_averaged_when_the_template_says_so() -> None:
    replies = ['{"score": 1, "reason": "a"}', '{"score": 0.5, "reason": "b"}']
    averaged = template(sampleAggregatorName="average", invocationAggregatorName="average")

    by_mean = score(ScriptedJudge(replies), metric("llm_judge_template", 2, template=averaged))
    by_votes = score(ScriptedJudge(replies), metric("llm_judge_template", 2, template=template()))

    assert (by_mean.score, by_mean.reason) == (0.75, "a\nb")
    assert (by_votes.score, by_votes.reason) == (0.5, "b")


def test_a_template_and_its_judge_may_not_name_different_aggregators() -> None:
    one = metric(
        "llm_judge_template",
        sampleAggregatorName="average",
        template=template(sampleAggregatorName="majority_vote"),
    )

    with pytest.raises(
        MetricError, match="'average' in llmJudge and 'majority_vote' in its template"
    ):
        Registry().build(one)


def test_a_program_gives_operators_of_its_own() -> None:
    stars = BuiltInScorer(lambda _: None, lambda text, _: Verdict(text.count("*") / 5, text))

    def best(votes: Sequence[Vote], threshold: float) -> Vote:
        return max(votes, key=lambda vote: vote.score or 0)

    operators = Operators(scorers={"stars": stars}, sample_aggregators={"best": best})
    registry = Registry({"llm_judge_template": lambda one: JudgeTemplate(one, operators)})
    one = metric("llm_judge_template", 2, template=template("stars", sampleAggregatorName="best"))

    assert score(ScriptedJudge(["**", "****"]), one, registry=registry).score == 0.8


@pytest.mark.parametrize(
    ("bounds", "answer", "wanted"),
    [
        ({"max": 10}, 8, 0.8),
        ({"min": 1, "max": 5}, 4, 0.75),
        ({"min": -1}, 0, 0.5),
    ],
)
def test_a_prompt_of_your_own_answers_on_the_scale_that_it_declares(
    bounds: dict[str, float], answer: float, wanted: float
) -> None:
    one = metric("llm_judge_template", template=template(responseScorerOptions=bounds))
    judge = ScriptedJudge([f'{{"score": {answer}, "reason": "r"}}'])

    outcome = score(judge, one)

    assert (outcome.score, outcome.turns[0].value) == (wanted, answer)
    schema = judge.requests[0].answer_schema or {}
    low, high = bounds.get("min", 0), bounds.get("max", 1)
    assert schema["properties"]["score"] == {"type": "number", "minimum": low, "maximum": high}
    off = score(ScriptedJudge(['{"score": 11, "reason": "r"}']), one)
    assert off.reason == f"JudgeInvalid: score is 11; expected a number from {low} to {high}"


def least(votes: Sequence[Vote], threshold: float) -> Vote:
    return min(votes, key=lambda vote: vote.score or 0)


def best_turn(turns: tuple[TurnScore, ...], threshold: float) -> MetricScore:
    best = max(turns, key=lambda turn: turn.score or 0)
    return MetricScore(best.status, best.score, "the best turn counts", turns)


def ask_in_one_line(view: TurnView) -> str:
    return f"Grade: {view.turn.final_text}"


def read_mark(text: str, metric: EvalMetric) -> Verdict:
    return Verdict(int(text) / 10, metric.metric_name)


JUDGED = {
    "llm_criteria": criteria,
    "llm_final_response": final_response,
    "llm_hallucinations": hallucinations,
    "llm_judge_template": JudgeTemplate,
    "llm_rubric_critic": critic,
    "llm_rubric_knowledge_recall": knowledge_recall,
    "llm_rubric_reference_critic": reference_critic,
    "llm_rubric_response": response,
}


GRADING = {"grading": {"criteria": [{"id": "a", "text": "Good?"}]}}


def judged(name: str, samples: int = 1, **judge: Any) -> EvalMetric:
    parts = template() if name == "llm_judge_template" else None
    one = metric(name, samples, rubrics=RUBRICS, template=parts, **judge)
    assert one.criterion
    if name != "llm_criteria":
        return one
    extra = Criterion.model_validate(GRADING).grading
    return one.model_copy(update={"criterion": one.criterion.model_copy(update={"grading": extra})})


@pytest.mark.parametrize("name", JUDGED)
def test_every_judged_evaluator_takes_operators_of_a_program(name: str) -> None:
    own = JudgedOperators(messages=ask_in_one_line, score=read_mark, samples=least, turns=best_turn)
    factory = JUDGED[name]
    registry = Registry({name: lambda one: factory(one, **own)})
    judge = ScriptedJudge(["9", "7", "2", "4"])
    turns = [make_turn("t-1", answer="yes"), make_turn("t-2", answer="no")]

    outcome = score(judge, judged(name, 2), turns=turns, registry=registry)

    assert [request.prompt for request in judge.requests] == ["Grade: yes"] * 2 + ["Grade: no"] * 2
    assert [turn.score for turn in outcome.turns] == [0.7, 0.2]
    assert (outcome.score, outcome.reason) == (0.7, "the best turn counts")
    assert registry.build(judged(name)).version != Registry().build(judged(name)).version


@pytest.mark.parametrize("name", [one for one in JUDGED if one != "llm_judge_template"])
def test_every_judged_metric_names_how_its_samples_are_combined(name: str) -> None:
    own = JudgedOperators(messages=ask_in_one_line, score=read_mark)
    factory = JUDGED[name]
    registry = Registry({name: lambda one: factory(one, **own)})
    judge = ScriptedJudge(["9", "7"])

    outcome = score(judge, judged(name, 2, sampleAggregatorName="average"), registry=registry)

    assert outcome.score == pytest.approx(0.8)
    with pytest.raises(
        MetricError, match="sampleAggregatorName is 'averge'; did you mean 'average'"
    ):
        Registry().build(judged(name, sampleAggregatorName="averge"))


def test_the_version_covers_operators_that_a_metric_names() -> None:
    operators = Operators(
        {
            "stars": BuiltInScorer(
                lambda _: None, lambda text, _: Verdict(text.count("*") / 5, text)
            ),
            "marks": BuiltInScorer(lambda _: None, lambda text, _: Verdict(int(text) / 10, text)),
        },
        {"least": least},
        {"best": best_turn},
    )
    named = [
        {},
        {"responseScorerName": "stars"},
        {"responseScorerName": "marks"},
        {"sampleAggregatorName": "least"},
        {"invocationAggregatorName": "best"},
    ]

    metrics = [metric("llm_judge_template", template={**template(), **given}) for given in named]
    versions = [JudgeTemplate(one, operators).version for one in metrics]

    assert versions[0] == JudgeTemplate.version
    assert len({*versions}) == 5


def test_an_own_question_may_be_read_as_before_and_an_own_reader_read_the_usual_question() -> None:
    judge = ScriptedJudge(["reasoning: r\nis_the_agent_response_valid: valid", "5"])
    name = "llm_final_response"

    asking = Registry({name: partial(final_response, messages=ask_in_one_line)})
    reading = Registry({name: partial(final_response, score=read_mark)})

    assert score(judge, metric(name), registry=asking).score == 1
    assert score(judge, metric(name), registry=reading).score == 0.5
    assert judge.requests[0].prompt == "Grade: done"
    assert "is_the_agent_response_valid" in judge.requests[1].prompt


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("eight", "JudgeInvalid: ValueError: invalid literal"),
        ("80", "JudgeInvalid: score 8.0 is out of range; expected 0 to 1"),
    ],
)
def test_an_own_reader_that_fails_gives_no_verdict(answer: str, said: str) -> None:
    registry = Registry({"llm_final_response": partial(final_response, score=read_mark)})

    outcome = score(ScriptedJudge([answer]), metric("llm_final_response"), registry=registry)

    assert outcome.score is None
    assert outcome.reason.startswith(said)


def test_own_messages_may_find_that_evidence_is_missing() -> None:
    def nothing(_: TurnView) -> MissingEvidence:
        return MissingEvidence("the order is unknown")

    registry = Registry({"llm_final_response": partial(final_response, messages=nothing)})

    outcome = score(ScriptedJudge([]), metric("llm_final_response"), registry=registry)

    assert (outcome.status, outcome.reason) == (
        Status.NOT_EVALUATED, "evidence missing: the order is unknown",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (template(responseScorerOptions={"min": 2, "max": 1}), "min is 2 and max is 1; expected min < max"),
        (template("boolean", responseScorerOptions={"max": 10}), "are for the scorer single_score"),
        (template(prompt=""), "template.prompt is empty"),
        (template(prompt="{{other}}"), "placeholder '{{other}}' is not bound; bound: answer"),
        (template(prompt="{{ final-response }}"), "placeholder '{{final-response}}' is not bound"),
        (template(prompt="{{actual.answer}}"), "placeholder '{{actual.answer}}' is not bound"),
        (template(prompt="{{回答}}"), "placeholder '{{回答}}' is not bound"),
        (template("single_score", *[binding("a", "actual", "userContent")] * 2), "'a' is bound twice"),
        (template("single_score", binding("a", "actual", "thoughts")), "comes from 'actual.thoughts'"),
        (template("single_score", binding("a", "actual", "traceStepInput")), "needs selector.nodeID"),
        (template("single_score", binding("a", "actual", "userContent", path="a.")), "missing key"),
        (template("vibes"), "responseScorerName is 'vibes'; known: boolean, categorical"),
        (template(structuredOutputName="vibes"), "'vibes'; known:"),
        (template(sampleAggregatorName="x"), "sampleAggregatorName is 'x'; known: average, majority"),
        (template(invocationAggregatorName="x"), "invocationAggregatorName is 'x'; known: average"),
        (template("categorical"), "needs responseScorerOptions.categories"),
        (template("categorical", **TOO_MUCH), "scores 2"),
        (template("single_score", {"templateVariable": "a"}), "has no source"),
        (None, "llmJudge.template not configured"),
    ],
)  # fmt: skip
def test_a_template_that_makes_no_sense_is_refused(given: Any, told: str) -> None:
    with pytest.raises(MetricError, match=told):
        Registry().build(metric("llm_judge_template", template=given))


def test_the_mean_of_samples_is_that_of_their_rows_too() -> None:
    def vote(sample: int, value: float | None) -> Vote:
        status = Status.NOT_EVALUATED if value is None else Status.PASSED
        rows = () if value is None else (RubricVerdict("1", value, "r"),)
        return Vote(sample, status, value, f"s{sample}", rows)

    mean = mean_vote([vote(0, None), vote(1, 1.0), vote(2, 0.5)], 0.8)

    assert (mean.score, mean.status, mean.rubric_scores[0].score) == (0.75, Status.FAILED, 0.75)
    assert mean_vote([vote(0, None)], 0.5).score is None
    with pytest.raises(ValueError, match="no votes"):
        mean_vote([], 0.5)


READERS: dict[str, Callable[[str], Verdict]] = {
    "validity": read_validity,
    "rubrics": lambda text: read_rubrics(text, ["1", "2"]),
    "single": read_single_score,
    "boolean": read_boolean,
    "category": lambda text: read_category(text, {"good": 1.0}),
    "sentences": read_sentence_labels,
}


PIECES = (
    "reasoning:", "is_the_agent_response_valid:", "valid", "\n", " ", "{", "}", "[", "]", '"', ":", ",",
    '"score"', '"passed"', '"category"', '"reason"', '"rubricScores"', '"id"', '"1"', "1", "0.5", "-1",
    "1e999", "NaN", "true", "null", "ID:", "Reason:", "Label:", "Verdict:", "supported", "yes", "```json",
    "```", "\ud800", "\x00", "é", '{"score": 1, "reason": "x"}', '{"passed": true, "reason": "x"}',
)  # fmt: skip


@pytest.mark.parametrize("kind", READERS)
def test_garbage_is_an_error_or_a_score_within_bounds(kind: str) -> None:
    rng = random.Random(kind)
    verdicts = 0
    for _ in range(4000):
        text = "".join(rng.choices(PIECES, k=rng.randint(0, 30)))
        try:
            verdict = READERS[kind](text)
        except JudgeInvalid:
            continue
        verdicts += 1
        assert 0 <= verdict.score <= 1
    assert verdicts < 4000


@pytest.mark.parametrize("kind", READERS)
@pytest.mark.parametrize(
    "piece", ["reasoning:", "ID:\n", "ID: 1\nReason: r\n", "[", '{"a":', "```"]
)
def test_a_long_answer_of_nothing_is_read_in_no_time(kind: str, piece: str) -> None:
    with pytest.raises(JudgeInvalid):
        READERS[kind](piece * 100_000)


def test_a_question_stands_after_the_material() -> None:
    asked: list[JudgeRequest] = []

    def answer(request: JudgeRequest) -> str:
        asked.append(request)
        return grades(1)

    score(ScriptedJudge(answer), metric("llm_rubric_critic", rubrics=RUBRICS))

    prompt = asked[0].prompt
    assert prompt.rindex("end reference answer>>>") < prompt.index("Grade these rubrics")
