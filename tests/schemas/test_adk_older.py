"""Google ADK's files from before its eval sets, and the configuration next to them."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.recorder import Recorder
from evaltap.schemas.files.documents import iter_cases, read_eval_set, read_metrics
from support.builders.cases import make_case, make_tool, make_turn
from support.builders.commands import Evaltap

TURNS = [
    {"query": "Hi", "expected_tool_use": [], "reference": "Hello!"},
    {
        "query": "Roll a die",
        "expected_tool_use": [{"tool_name": "roll", "tool_input": {"sides": 8}}],
        "expected_intermediate_agent_responses": [{"author": "dice", "text": "Rolling"}],
        "reference": "A three",
    },
]
CONFIG = {"criteria": {"tool_trajectory_avg_score": 1.0, "response_match_score": 0.5}}


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    Path("dice.test.json").write_text(json.dumps(TURNS))
    Path("test_config.json").write_text(json.dumps(CONFIG))
    return evaltap


def told(case: dict[str, Any]) -> list[tuple[str, str, list[tuple[str, Any]]]]:
    return [
        (
            turn["userContent"]["content"],
            turn["finalResponse"]["content"],
            [(tool["name"], tool["arguments"]) for tool in turn.get("tools", [])],
        )
        for turn in case["conversation"]
    ]


def test_a_list_of_turns_is_one_conversation(evaltap: Evaltap) -> None:
    (case,) = iter_cases(Path("dice.test.json"))

    assert case["evalId"] == "dice"
    assert told(case) == [("Hi", "Hello!", []), ("Roll a die", "A three", [("roll", {"sides": 8})])]
    assert case["conversation"][1]["intermediateResponses"][0]["content"] == "Rolling"


def test_named_conversations_keep_name_and_session(tmp_path: Path) -> None:
    session = {"app_name": "dice", "user_id": "u", "state": {"rolls": []}}
    named = [
        {"name": "first", "data": TURNS, "initial_session": session},
        {"name": "second", "data": TURNS[:1]},
    ]
    path = tmp_path / "two.evalset.json"
    path.write_text(json.dumps(named))

    eval_set = read_eval_set(path)

    assert eval_set.eval_set_id == "two"
    assert [case.eval_id for case in eval_set.eval_cases] == ["first", "second"]
    first = eval_set.eval_cases[0].session_input
    assert first is not None
    assert (first.app_name, first.state) == ("dice", {"rolls": []})


def test_convert_makes_the_eval_set_and_fmt_says_so(evaltap: Evaltap) -> None:
    assert "converts it to an eval set" in evaltap("set", "fmt", "dice.test.json")[2]

    assert evaltap("convert", "dice.test.json", "--out", "dice.evalset.json")[0] == 0

    (case,) = json.loads(Path("dice.evalset.json").read_text())["evalCases"]
    assert [turn[0] for turn in told(case)] == ["Hi", "Roll a die"]


def test_a_recording_is_scored_against_them(evaltap: Evaltap) -> None:
    recorder = Recorder("log.db")
    with recorder.turn(session_id="s", user="Hi") as turn:
        turn.respond("Hello!")
    with recorder.turn(session_id="s", user="Roll a die") as turn:
        turn.tool("roll", {"sides": 8}, result={"found": "something else"})
        turn.respond("It shows a three")
    recorder.close()
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    scored = (
        "score",
        "x.duckdb",
        "--metrics",
        "test_config.json",
        "--references",
        "dice.test.json",
    )
    code, out, err = evaltap(*scored, "--json")

    assert "references: 1 of 1 cases joined" in err
    assert code == 0
    assert {m["metric_name"]: m["passed"] for m in json.loads(out)["metrics"]} == {
        "response_match_score": 1,
        "tool_trajectory_avg_score": 1,
    }


def test_a_configuration_names_the_metrics_of_adk(tmp_path: Path) -> None:
    path = tmp_path / "test_config.json"
    judge = {"judge_model": "gemini-2.5-flash", "num_samples": 3}
    rubric = {"rubric_id": "kind", "rubric_content": {"text_property": "The answer is kind."}}
    path.write_text(json.dumps({"criteria": {
        "tool_trajectory_avg_score": {"threshold": 0.5, "match_type": "IN_ORDER"},
        "final_response_match_v2": {"threshold": 0.8, "judge_model_options": judge},
        "rubric_based_final_response_quality_v1": {"threshold": 0.9, "rubrics": [rubric]},
    }}))  # fmt: skip

    order, match, quality = read_metrics(path)

    assert (order.evaluator_name, order.threshold) == ("trajectory_in_order", 0.5)
    assert match.evaluator_name == "llm_final_response"
    assert match.criterion is not None
    assert match.criterion.llm_judge is not None
    assert match.criterion.llm_judge.judge_model is not None
    assert match.criterion.llm_judge.judge_model.model_name == "gemini-2.5-flash"
    assert quality.criterion is not None
    assert quality.criterion.llm_judge is not None
    (found,) = quality.criterion.llm_judge.rubrics
    assert (found.id, found.content and found.content.text) == ("kind", "The answer is kind.")


def test_a_configuration_of_trpc_agent_python_names_metrics_as_their_file_does(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"match": "contains", "case_insensitive": True}
    trajectory = {
        "default": {"name": {"match": "exact"}, "arguments": {"ignore_tree": {"match": True}}},
        "overrides": {"match": {"result": {"ignore": True}}},
        "order_sensitive": True,
    }
    judge = {"rubrics": [{"id": "r", "content": {"text": "?"}}], "knowledge_tool_names": ["look"]}
    path = tmp_path / "test_config.json"
    path.write_text(
        json.dumps(
            {
                "metrics": [
                    {
                        "metric_name": "a",
                        "threshold": 0.8,
                        "criterion": {"tool_trajectory": trajectory},
                    },
                    {"metric_name": "b", "criterion": {"final_response": {"text": given}}},
                    {"metric_name": "c", "criterion": {"llm_judge": judge}},
                ],
                "num_runs": 5,
            }
        )
    )

    written = [one.model_dump(by_alias=True) for one in read_metrics(path)]

    assert [one["criterion"] for one in written] == [
        {
            "toolTrajectory": {
                "defaultStrategy": {
                    "name": {"matchStrategy": "exact"},
                    "arguments": {"ignoreTree": {"match": True}},
                },
                "toolStrategy": {"match": {"result": {"ignore": True}}},
                "orderSensitive": True,
            }
        },
        {"finalResponse": {"text": {"caseInsensitive": True, "matchStrategy": "contains"}}},
        {"llmJudge": {"rubrics": judge["rubrics"], "retrievalTools": ["look"]}},
    ]
    assert "--runs 5" in caplog.text


@pytest.mark.parametrize(
    ("criterion", "score"),
    [  # as Google ADK 2.13 scores them
        ({}, 0),
        ({"ignore_args": True}, 0),
        ({"match_type": "in-order"}, 0),
        ({"match_type": "IN_ORDER", "ignore_args": True}, 1),
        ({"matchType": 2, "ignoreArgs": True}, 1),
    ],
)
def test_calls_match_as_the_configuration_of_adk_says(
    evaltap: Evaltap, criterion: dict[str, Any], score: float
) -> None:
    calls = [make_tool(name="look"), make_tool(name="roll", arguments={"sides": 6})]
    wanted = make_turn(tools=[make_tool(name="roll", arguments={"sides": 8})])

    given = {"tool_trajectory_avg_score": {"threshold": 1.0, **criterion}}

    assert scores_of(evaltap, given, [make_turn(tools=calls)], [wanted]) == [score]


@pytest.mark.parametrize(
    ("arguments", "wanted", "score"),
    [  # as Google ADK 2.13 scores them
        ({"order": 2**53}, {"order": 2**53 + 1}, 0),
        ({"price": 1e-7}, {"price": 2e-7}, 0),
        ({"sides": 6}, {"sides": 6.0}, 1),
    ],
)
@pytest.mark.parametrize("match_type", ["EXACT", "IN_ORDER", "ANY_ORDER"])
def test_arguments_are_equal_by_value_as_in_adk(
    evaltap: Evaltap, match_type: str, arguments: dict[str, Any], wanted: dict[str, Any], score: int
) -> None:
    expected = make_turn(tools=[make_tool(arguments=wanted)])
    given = {"tool_trajectory_avg_score": {"threshold": 1.0, "match_type": match_type}}

    said = [make_turn(tools=[make_tool(arguments=arguments)])]
    assert scores_of(evaltap, given, said, [expected]) == [score]


@pytest.mark.parametrize("match_type", ["EXACT", "IN_ORDER", "ANY_ORDER"])
def test_calls_that_failed_are_calls_in_adk(evaltap: Evaltap, match_type: str) -> None:
    failed = make_tool(arguments={"order": 1}, error={"message": "timed out"})
    options = {"threshold": 1.0, "match_type": match_type, "ignore_args": True}
    said, wanted = [make_turn(tools=[failed])], [make_turn()]

    assert scores_of(evaltap, {"tool_trajectory_avg_score": options}, said, wanted) == [1]


@pytest.mark.parametrize(
    ("pairs", "score"),
    [  # of said and expected; as Google ADK 2.13 scores them
        ([("one two three nine", "one two three four")], 0.75),
        ([("one two three nine", "one two three four"), ("same", "same")], 0.875),
        ([("订单已经发货了", "订单已经发货")], 0.923077),
        ([("ที่นี่", "ที่นั่น")], 0.4),
        ([("It was shipped", "it was SHIPPING!")], 1),
    ],
)
def test_answers_match_as_response_match_score_of_adk_does(
    evaltap: Evaltap, pairs: list[tuple[str, str]], score: float
) -> None:
    said, wanted = (
        [make_turn(answer=text) for text in texts] for texts in zip(*pairs, strict=True)
    )

    found = scores_of(evaltap, {"response_match_score": 0.8}, said, wanted)

    assert found == [pytest.approx(score, abs=1e-6)]


def scores_of(
    evaltap: Evaltap, criteria: dict[str, Any], said: list[Any], wanted: list[Any]
) -> list[float]:
    case = make_case(turns=said, conversation=wanted)
    Path("cases.jsonl").write_text(json.dumps(case))
    Path("test_config.json").write_text(json.dumps({"criteria": criteria}))
    scored = ("score", "cases.jsonl", "--metrics", "test_config.json")
    _, out, _ = evaltap(*scored, "--json")
    return [metric["mean_score"] for metric in json.loads(out)["metrics"]]


@pytest.mark.parametrize(
    ("criteria", "says"),
    [
        ({"response_match": 0.5}, "criteria.response_match: no evaluator measures it"),
        ({"response_match": 0.5}, "did you mean 'response_match_score'?"),
        ({"response_match_score": "0.5"}, "criteria.response_match_score: found"),
        ({"response_match_score": {}}, "expected a threshold, or an object with one"),
        (
            {"tool_trajectory_avg_score": {"threshold": 1, "match_type": "INORDR"}},
            "criteria.tool_trajectory_avg_score.match_type: found 'INORDR'; expected EXACT, IN_ORDER",
        ),
        (
            {
                "final_response_match_v2": {
                    "threshold": 1,
                    "includeIntermediateResponsesInFinal": True,
                }
            },
            "include_intermediate_responses_in_final: found true, but only the final response",
        ),
        (
            {"hallucinations_v1": {"threshold": 1, "evaluate_intermediate_nl_responses": True}},
            "evaluate_intermediate_nl_responses: found true, but only the final response",
        ),
    ],
)
def test_a_mistake_in_a_configuration_is_named(
    evaltap: Evaltap, criteria: dict[str, Any], says: str
) -> None:
    Path("test_config.json").write_text(json.dumps({"criteria": criteria}))

    code, _, err = evaltap("score", "dice.test.json", "--metrics", "test_config.json")

    assert code == 2
    assert says in err


def test_the_final_state_of_a_case_is_expected_of_its_last_turn_and_written_back(
    tmp_path: Path, evaltap: Evaltap
) -> None:
    turn = {"user_content": {"parts": [{"text": "Roll"}], "role": "user"}}
    case = {"eval_id": "c", "conversation": [turn, turn], "final_session_state": {"rolls": [3]}}
    path = tmp_path / "n.evalset.json"
    path.write_text(json.dumps({"eval_set_id": "n", "eval_cases": [case]}))

    (read,) = iter_cases(path)
    evaltap("set", "fmt", str(path))

    assert [turn.get("state") for turn in read["conversation"]] == [None, {"rolls": [3]}]
    (written,) = json.loads(path.read_text())["eval_cases"]
    assert written["final_session_state"] == {"rolls": [3]}
    assert "state" not in written["conversation"][1]
