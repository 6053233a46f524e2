"""The judged evaluators other than rubrics about the response: evidence, prompts, answers, operators."""

import pytest

from evaltap.evaluator import ScriptedJudge
from evaltap.evaluator.scoring.contract.context import Status
from support.builders.cases import make_tool, make_turn
from support.builders.judged_set import RUBRICS, grades, metric, score


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


@pytest.mark.parametrize(("words", "value"), [("\n\n Valid\nBye", 1), ("\ninvalid", 0), ("\n", 0)])
def test_a_label_may_stand_on_the_next_line(words: str, value: float) -> None:
    judge = ScriptedJudge([f"reasoning: same day\nis_the_agent_response_valid:{words}"])

    assert score(judge, metric("llm_final_response")).score == value


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
    thoughts = "<think><sentence>It is  blue.</sentence> first?</think>"
    judge = ScriptedJudge(
        [thoughts + SPLIT] + [labels("supported", "unsupported", "not_applicable")] * 2
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
        (["<sentence>It comes on Monday.</sentence>"], "leave out 'Itisblue.-Askagain!'"),
        ([SPLIT + SPLIT], "out of order"),
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
