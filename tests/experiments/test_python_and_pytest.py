"""Experiments from Python and from pytest: agents that have no name to import them by."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeReply, JudgeUnavailable, ScriptedJudge
from evaltap.evaluator.store.database import Store
from evaltap.experiments import Finished, evaluate, run_case
from evaltap.recorder import Turn
from evaltap.schemas.errors import InputError
from support.servers.judge_server import Answer, judge_server
from support.worlds.running_agents import ANSWER, METRIC, case, write_set

pytest_plugins = ["pytester"]

RUBRIC = {
    "metricName": "llm_rubric_response",
    "threshold": 0.6,
    "criterion": {
        "llmJudge": {
            "rubrics": [{"id": "1", "content": {"text": "It answers."}}],
            "judgeModel": {
                "modelName": "m",
                "baseURL": "http://judge",
                "apiKey": "k",
                "numSamples": 1,
            },
        }
    },
}


def calculator(operation: str, a: int, b: int) -> int:
    return a + b if operation == "add" else a * b


def answer(messages: list[dict[str, Any]], turn: Turn) -> str:
    operation, a, b = messages[-1]["content"].split()
    given = {"operation": operation, "a": int(a), "b": int(b)}
    return f"result: {turn.run_tool('calculator', given, calculator)}"


def test_a_function_is_evaluated_where_it_stands(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3"), case("product", "mul 6 7")])

    found = evaluate(path, [METRIC, ANSWER], agent=answer, runs=3, db=tmp_path / "x.duckdb")

    assert [one.passed for one in found.outcome.metrics] == [6, 6]
    assert found.outcome.metrics[0].rate is not None
    assert found.outcome.metrics[0].rate.unit == "trials"
    with Store(tmp_path / "x.duckdb") as store:
        assert store.rows("SELECT count(*) FROM latest_turns") == [(6,)]


@pytest.mark.slow
def test_a_store_holds_what_was_run_into_it_whatever_its_log_holds(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3")])

    def versions(db: str, version: str) -> list[str]:
        evaluate(path, [ANSWER], agent=answer, db=tmp_path / db, version=version)
        with Store(tmp_path / db) as store:
            return store.column("SELECT version FROM latest_turns ORDER BY 1")

    assert versions("e.duckdb", "1") == ["1"]
    assert versions("e.db", "2") == ["2"], "its name differs in the suffix only"
    assert versions("e.duckdb", "3") == ["1", "3"]
    (tmp_path / "e.duckdb").unlink()
    assert versions("e.duckdb", "4") == ["4"], "the log outlives its store"
    (tmp_path / "e.db").rename(tmp_path / "e.duckdb")
    assert versions("e.duckdb", "5") == ["2", "5"]


def test_without_a_store_nothing_is_kept_and_a_closure_is_an_agent(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3")])

    found = evaluate(path, tmp_path / "metrics.json", agent=lambda messages: "result: 5")

    assert found.outcome.unpriced == 1
    assert found.data()["metrics"][1]["pass_rate"] == 1.0
    assert found.data()["metrics"][0]["pass_rate"] == 0.0
    assert not list(tmp_path.glob("*.duckdb*"))


def test_an_agent_that_hangs_in_this_process_is_abandoned(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3")])

    over = threading.Event()

    def hangs(messages: object) -> str:
        over.wait(30)
        return "late"

    found = evaluate(path, [ANSWER], agent=hangs, turn_seconds=0.2)
    over.set()

    assert found.outcome.crashed == 1


@pytest.mark.slow
def test_one_budget_is_for_the_agent_and_its_judges(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case(f"c{number}", f"add {number} 3") for number in range(20)])
    grade = '{"rubricScores": [{"id": "1", "score": 1, "reason": ""}]}'
    judge = ScriptedJudge(lambda _: JudgeReply(grade, model="m", cost_usd=0.3))

    def costs(messages: list[dict[str, Any]], turn: Turn) -> str:
        turn.model("m", cost_usd=0.2)
        return "result: 5"

    found = evaluate(
        path,
        [RUBRIC],
        agent=costs,
        concurrency=1,
        budget_usd=2.0,
        services=Services(judge=lambda _: judge),
    )

    assert found.progress.stopped_by == "budget"
    spent = found.progress.spent_usd
    assert spent == pytest.approx(0.5 * found.outcome.scored)
    assert spent == pytest.approx(2.0), "both count, and no more runs begin than can run at once"


def test_a_run_without_a_verdict_decides_nothing_and_is_judged_when_the_experiment_goes_on(
    tmp_path: Path,
) -> None:
    path = write_set(tmp_path, [case(f"c{number}", f"add {number} 3") for number in range(4)])
    grade = '{"rubricScores": [{"id": "1", "score": 1, "reason": ""}]}'
    down: list[JudgeReply | str | Exception] = [JudgeUnavailable("the judge is down")] * 4
    asked: list[object] = []

    def agent(messages: object) -> str:
        asked.append(messages)
        return "result: 5"

    def found(judge: ScriptedJudge, **more: Any) -> Finished:
        return evaluate(
            path,
            [RUBRIC],
            agent=agent,
            db=tmp_path / "x.duckdb",
            until="pass_rate>=0.99",
            services=Services(judge=lambda _: judge),
            **more,
        )

    first = found(ScriptedJudge(down))
    second = found(ScriptedJudge(lambda _: grade), resume=True)

    assert (first.progress.decision, first.outcome.not_evaluated) == ("open", 4)
    assert first.outcome.cases[0].runs == 0
    assert "the judge is down" in first.outcome.cases[0].reasons[0]
    assert second.outcome.not_evaluated == second.progress.skipped == 0
    assert (second.outcome.metrics[0].passed, len(asked)) == (4, 4), "the agent is not asked again"


def test_what_is_no_agent_is_refused(tmp_path: Path) -> None:
    path = write_set(tmp_path, [case("sum", "add 2 3")])

    with pytest.raises(InputError, match="found int"):
        evaluate(path, [ANSWER], agent=7)


def test_one_case_comes_back_with_what_the_agent_did() -> None:
    done = run_case(answer, case("sum", "add 2 3"))

    (turn,) = done["actualConversation"]
    assert turn["finalResponse"]["content"] == "result: 5"
    assert turn["tools"][0]["result"] == 5
    assert done["conversation"] == case("sum", "add 2 3")["conversation"]


@pytest.mark.parametrize("when", ["__enter__", "__exit__"])
def test_an_agent_that_fails_at_its_start_or_end_leaves_a_turn_that_failed(when: str) -> None:
    class Lost:
        def __enter__(self) -> Any:
            return answer

        def __exit__(self, *_: object) -> None:
            pass

    def fail(*_: object) -> None:
        raise OSError("no database")

    setattr(Lost, when, fail)

    *_, last = run_case(Lost, case("sum", "add 2 3"))["actualConversation"]

    assert last["telemetry"]["status"] == "error"
    assert last["telemetry"]["error"]["message"] == "OSError: no database"


TEST = """
import pytest

@pytest.mark.evaltap(cases="math.evalset.json", metrics="metrics.json")
def test_agent(evaltap_case):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize("by", ["option", "fixture"])
def test_each_case_of_the_marker_is_a_test_that_runs_the_agent(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    write_set(pytester.path, [case("sum", "add 2 3"), case("product", "mul 6 7")])
    conftest = (
        "import pytest, agents\n\n@pytest.fixture\ndef evaltap_agent():\n    return agents.wrong\n"
    )
    pytester.makepyfile(test_it=TEST, **({"conftest": conftest} if by == "fixture" else {}))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "evaltap.evaluator.pytest_plugin", "-p", "evaltap.experiments.pytest_plugin")
    named = ("--evaltap-agent", "agents:answer") if by == "option" else ()

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugins, *named)

    outcomes = {"passed": 2} if by == "option" else {"failed": 2}
    result.assert_outcomes(**outcomes)
    if by == "fixture":
        result.stdout.fnmatch_lines(["*tool_trajectory_avg_score*"])


@pytest.mark.slow
def test_a_scenario_is_a_test_with_a_simulated_user_and_expected_turns(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {"conversationPlan": "Add 2 and 3.", "stopSignal": "#", "startingPrompt": "add 2 3"}
    one = {"evalId": "sum", "conversationScenario": plan, "expectedRunnerEnabled": True}
    write_set(pytester.path, [one | {"sessionInput": {}}])
    pytester.makepyfile(test_it=TEST, users="def leaves(messages):\n    return '#'\n")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "evaltap.evaluator.pytest_plugin", "-p", "evaltap.experiments.pytest_plugin")
    parts = ("--evaltap-user", "users:leaves", "--evaltap-expected-agent", "agents:answer")

    outcomes = [
        pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", *plugins, *parts, "--evaltap-agent", f"agents:{agent}"
        ).parseoutcomes()
        for agent in ("answer", "wrong")
    ]

    assert outcomes == [{"passed": 1}, {"failed": 1}]


@pytest.mark.slow
@pytest.mark.parametrize(("said", "outcome"), [("#", "passed"), ("", "errors")])
def test_a_model_in_a_file_plays_the_user_and_what_fails_is_told_without_a_traceback(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, said: str, outcome: str
) -> None:
    plan = {"conversationPlan": "Add 2 and 3.", "stopSignal": "#", "startingPrompt": "add 2 3"}
    one = {"evalId": "sum", "conversationScenario": plan, "expectedRunnerEnabled": True}
    write_set(pytester.path, [one | {"sessionInput": {}}])
    pytester.makepyfile(test_it=TEST)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("EVALTAP_JUDGE_CACHE", "off")
    plugins = ("-p", "evaltap.evaluator.pytest_plugin", "-p", "evaltap.experiments.pytest_plugin")
    parts = ("--evaltap-user", "user.json", "--evaltap-expected-agent", "agents:answer")
    with judge_server(lambda _: Answer(said)) as server:
        (pytester.path / "user.json").write_text(
            json.dumps({"modelName": "m", "baseURL": server.url})
        )

        result = pytester.runpytest_subprocess(
            "-p", "no:cacheprovider", *plugins, *parts, "--evaltap-agent", "agents:answer"
        )

    result.assert_outcomes(**{outcome: 1})
    assert "CollectError" not in result.stdout.str()
    assert ("sum: the simulator said nothing" in result.stdout.str()) == (not said)


@pytest.mark.slow
def test_without_an_agent_the_cases_are_scored_as_they_are(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = run_case(answer, case("sum", "add 2 3"))
    write_set(pytester.path, [done])
    pytester.makepyfile(test_it=TEST)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    plugins = ("-p", "evaltap.evaluator.pytest_plugin", "-p", "evaltap.experiments.pytest_plugin")

    result = pytester.runpytest_subprocess("-p", "no:cacheprovider", *plugins)

    result.assert_outcomes(passed=1)
    assert json.loads((pytester.path / "math.evalset.json").read_text())["evalCases"]
