"""The judged evaluators other than rubrics about the response: evidence, prompts, answers, operators."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pytest

from cases import make_case, make_tool, make_turn
from evaltap.evaluator import (
    CaseScorer,
    JudgeRequest,
    MetricError,
    MetricOutcome,
    Registry,
    ScriptedJudge,
    Services,
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
from evaltap.evaluator.scoring.evaluators.judged.judge_template import JudgeTemplate, render
from evaltap.evaluator.scoring.evaluators.judged.operators import BuiltInScorer, Operators
from evaltap.schemas import EvalMetric

RUBRICS = [{"id": "1", "content": {"text": "It names the day."}}]


def metric(name: str, samples: int = 1, **judge: Any) -> EvalMetric:
    return EvalMetric.model_validate(
        {
            "metricName": name,
            "threshold": 0.6,
            "criterion": {
                "llmJudge": {"judgeModel": {"modelName": "m", "numSamples": samples}, **judge}
            },
        }
    )


def score(
    judge: ScriptedJudge,
    one: EvalMetric,
    *,
    turns: list[dict[str, Any]] | None = None,
    expected: str | None = "Delivered on Monday.",
    registry: Registry | None = None,
) -> MetricOutcome:
    actual = turns or [make_turn()]
    case = make_case(turns=actual)
    if expected is not None:
        case["conversation"] = [make_turn(f"e-{place}", expected) for place in range(len(actual))]
    services = Services(judge=lambda _: judge)
    return CaseScorer([one], services=services, registry=registry).score(case).metrics[0]


def grades(*scores: float) -> str:
    rows = [{"id": str(n), "score": s, "reason": f"r{n}"} for n, s in enumerate(scores, start=1)]
    return orjson.dumps({"rubricScores": rows}).decode()


# -- a reference -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("label", "value"), [("valid", 1), ("  VALID ", 1), ("invalid", 0), ("perhaps", 0), ("", 0)]
)
def test_only_a_valid_response_scores(label: str, value: float) -> None:
    judge = ScriptedJudge(
        [f"reasoning: same day,\nsame place\nis_the_agent_response_valid: {label}"]
    )

    outcome = score(judge, metric("llm_final_response"))

    assert (outcome.score, outcome.reason) == (value, "same day,\nsame place")
    request = judge.requests[0]
    assert request.answer_schema is None
    for text in ("Where is order A-100?", "done", "Delivered on Monday."):
        assert text in request.prompt


@pytest.mark.parametrize(
    "name", ["llm_final_response", "llm_rubric_critic", "llm_rubric_reference_critic"]
)
def test_without_a_reference_nothing_is_asked(name: str) -> None:
    judge = ScriptedJudge([])

    outcome = score(judge, metric(name, rubrics=RUBRICS), expected=None)

    assert outcome.status is Status.NOT_EVALUATED
    assert outcome.reason == "evidence missing: expected finalResponse is absent"
    assert judge.requests == []


@pytest.mark.parametrize("name", ["llm_rubric_critic", "llm_rubric_reference_critic"])
def test_critics_see_the_reference(name: str) -> None:
    judge = ScriptedJudge([grades(1)])

    outcome = score(judge, metric(name, rubrics=RUBRICS))

    assert outcome.score == 1
    assert "begin reference answer>>>\nDelivered on Monday.\n" in judge.requests[0].prompt
    assert "1: It names the day." in judge.requests[0].prompt


# -- knowledge -------------------------------------------------------------------------------------


def test_recall_is_judged_by_what_the_knowledge_tools_returned() -> None:
    judge = ScriptedJudge([grades(1)])
    tools = [
        make_tool("knowledge_search", result={"documents": [{"text": "Monday"}]}),
        make_tool("get_order", result="secret of another tool"),
        make_tool("knowledge_search_with_agentic_filter", result="more"),
    ]
    one = metric("llm_rubric_knowledge_recall", rubrics=RUBRICS)

    assert score(judge, one, turns=[make_turn(tools=tools)]).score == 1
    prompt = judge.requests[0].prompt
    assert '{"documents":[{"text":"Monday"}]}\n"more"\n' in prompt
    assert "another tool" not in prompt
    assert "done" not in prompt


def test_recall_of_nothing_is_asked_and_hidden_knowledge_is_not() -> None:
    one = metric("llm_rubric_knowledge_recall", rubrics=RUBRICS)
    judge = ScriptedJudge([grades(0)])
    hidden = make_tool("knowledge_search", capture={"result": "redacted"})

    assert score(judge, one, turns=[make_turn(tools=[])]).score == 0
    assert "no knowledge was retrieved" in judge.requests[0].prompt
    outcome = score(ScriptedJudge([]), one, turns=[make_turn(tools=[hidden])])
    assert outcome.reason == "evidence missing: result of a knowledge tool is redacted"


def test_retrieval_tools_of_other_names_are_configured() -> None:
    tools = [make_tool("search_docs", result="Monday"), make_tool("get_order", result="secret")]
    named = metric("llm_rubric_knowledge_recall", rubrics=RUBRICS, retrievalTools=["search_docs"])
    judge = ScriptedJudge([grades(1)])

    assert score(judge, named, turns=[make_turn(tools=tools)]).score == 1
    assert '"Monday"' in judge.requests[0].prompt
    assert "secret" not in judge.requests[0].prompt

    bare = metric("llm_rubric_knowledge_recall", rubrics=RUBRICS)
    outcome = score(ScriptedJudge([]), bare, turns=[make_turn(tools=tools)])
    assert outcome.status is Status.NOT_EVALUATED
    assert "no call of a retrieval tool" in outcome.reason
    assert "llmJudge.retrievalTools" in outcome.reason


# -- hallucinations --------------------------------------------------------------------------------

ANSWER = "It comes on Monday. It is blue.\n- Ask again!"
SPLIT = "".join(
    f"<sentence>{one}</sentence>" for one in ("It comes on Monday.", "It is  blue.", "- Ask again!")
)


def labels(*given: str) -> str:
    return "\n\n".join(
        f"ID: {number}\nReason: because {number}\nLabel: {label}\nVerdict: no"
        for number, label in enumerate(given, start=1)
    )


def test_the_answer_is_split_once_and_labelled_by_each_sample() -> None:
    judge = ScriptedJudge(
        [SPLIT] + [labels("supported", "unsupported", "not_applicable")] * 2
        + [labels("supported", "contradictory", "disputed")]
    )  # fmt: skip

    outcome = score(judge, metric("llm_hallucinations", 3), turns=[make_turn(answer=ANSWER)])

    assert outcome.score == pytest.approx(2 / 3)
    assert outcome.reason.startswith("[supported] because 1\n[unsupported] because 2")
    assert [vote.score for vote in outcome.turns[0].votes] == pytest.approx([2 / 3, 2 / 3, 1 / 3])
    assert len(judge.requests) == 4


def test_the_grounds_are_all_turns_so_far() -> None:
    earlier = make_turn("t-1", "Earlier answer.", tools=[make_tool(result={"day": "Monday"})])
    later = make_turn("t-2", ANSWER, contextMessages=[{"role": "system", "content": "Be brief."}])
    replies = iter(
        [
            "<sentence>Earlier answer.</sentence>",
            SPLIT,
            labels("supported"),
            labels(*["supported"] * 3),
        ]
    )
    judge = ScriptedJudge(replies)

    assert score(judge, metric("llm_hallucinations"), turns=[earlier, later]).score == 1
    first, last = judge.requests[2].prompt, judge.requests[3].prompt
    assert 'tool result: {"day":"Monday"}' in first
    assert "assistant: Earlier answer." not in first
    for text in (
        'tool result: {"day":"Monday"}',
        "assistant: Earlier answer.",
        "system: Be brief.",
    ):
        assert text in last


@pytest.mark.parametrize(
    ("replies", "told"),
    [
        (["no tags"], "no sentences found"),
        (["<sentence>It never said this.</sentence>"], "is not in the answer"),
        ([SPLIT, labels("supported")], "1 sentences are labelled, expected 3"),
        ([SPLIT, labels("supported", "grand", "supported")], "label of sentence 2 is 'grand'"),
        ([SPLIT, "all fine"], "no sentence blocks found"),
    ],
)
def test_a_judge_that_lies_about_sentences_gives_no_score(replies: list[str], told: str) -> None:
    outcome = score(
        ScriptedJudge(replies), metric("llm_hallucinations"), turns=[make_turn(answer=ANSWER)]
    )

    assert (outcome.status, outcome.score) == (Status.ERROR, None)
    assert told in outcome.reason


def test_a_judge_that_is_down_while_splitting_is_not_asked_again() -> None:
    judge = ScriptedJudge([JudgeUnavailable("down")])

    outcome = score(judge, metric("llm_hallucinations"), turns=[make_turn("t-1"), make_turn("t-2")])

    assert outcome.status is Status.ERROR
    assert outcome.turns[1].reason == "judge not called: JudgeUnavailable: down"
    assert len(judge.requests) == 1


# -- templates -------------------------------------------------------------------------------------


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
                "Tools": [{"Name": "search"}],
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
        binding("skills", "actual", "traceStepSkills", **step),
        binding("reference", "expected", "finalResponse"),
        binding("rubrics", "metric", "rubrics"),
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
        'begin tools>>>\n[{"Name":"search"}]\n',
        'begin skills>>>\n[{"Name":"skill"}]\n',
        "begin reference>>>\nDelivered on Monday.\n",
        "begin rubrics>>>\n1: It names the day.\n",
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


def test_a_program_gives_operators_of_its_own() -> None:
    stars = BuiltInScorer(lambda _: None, lambda text, _: Verdict(text.count("*") / 5, text))

    def best(votes: Sequence[Vote], threshold: float) -> Vote:
        return max(votes, key=lambda vote: vote.score or 0)

    operators = Operators(scorers={"stars": stars}, sample_aggregators={"best": best})
    registry = Registry({"llm_judge_template": lambda one: JudgeTemplate(one, operators)})
    one = metric("llm_judge_template", 2, template=template("stars", sampleAggregatorName="best"))

    assert score(ScriptedJudge(["**", "****"]), one, registry=registry).score == 0.8


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (template(prompt=""), "template.prompt is empty"),
        (template(prompt="{{other}}"), "placeholder '{{other}}' is not bound; bound: answer"),
        (template("single_score", *[binding("a", "actual", "userContent")] * 2), "'a' is bound twice"),
        (template("single_score", binding("a", "actual", "thoughts")), "comes from 'actual.thoughts'"),
        (template("single_score", binding("a", "actual", "traceStepInput")), "needs selector.nodeID"),
        (template("single_score", binding("a", "actual", "userContent", path="a")), "must begin with"),
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


# -- aggregation and garbage -----------------------------------------------------------------------


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
