"""`evaltap run` with simulated users, and with an agent that gives the expected turns."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.reports.html.beside import sessions_beside
from evaltap.evaluator.store.database import Store
from evaltap.experiments import evaluate, run_case
from evaltap.recorder import Recorder
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import read_result
from support.builders.commands import Evaltap
from support.servers.judge_server import Answer, judge_server

AGENTS = '''
import time

def clerk(messages, turn):
    """Books what the user asks for, in one tool call a turn."""
    asked = messages[-1]["content"]
    booked = turn.run_tool("book", {"what": asked}, lambda what: {"ok": True})
    return f"booked {asked}"

def slow_clerk(messages, turn):
    time.sleep(0.05)
    with open("calls.txt", "a") as file:
        file.write("x")
    return clerk(messages, turn)

def careless(messages, turn):
    return "done"

def breaks_down(messages):
    if len(messages) > 2:
        raise LookupError("no seats")
    return "booked"

def guest(messages):
    """Asks for two things, then ends: a scripted user."""
    plan = messages[0]["content"]
    assert "two seats" in plan, plan
    said = [one["content"] for one in messages if one["role"] == "assistant"]
    return ["seat 1", "seat 2", "###STOP###"][len(said)]

def chatters(messages):
    return "and another one"

def mute(messages):
    return " "
'''
PLAN = {"conversationPlan": "Book two seats.", "stopSignal": "###STOP###"}
SAME = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
}
CALLS = {
    "metricName": "tool_trajectory_avg_score",
    "threshold": 1,
    "criterion": {"toolTrajectory": {}},
}
RAN = {"metricName": "run_succeeded", "threshold": 1}


def scenario(eval_id: str = "seats", plan: Any = PLAN, **more: Any) -> dict[str, Any]:
    session = {"appName": "hall", "userId": "u"}
    return {"evalId": eval_id, "conversationScenario": plan, "sessionInput": session, **more}


def write(*cases: dict[str, Any], metrics: Any = (RAN,)) -> None:
    Path("hall.py").write_text(AGENTS)
    Path("metrics.json").write_text(json.dumps([*metrics]))
    data = {"evalSetId": "hall", "evalCases": cases}
    Path("hall.evalset.json").write_text(json.dumps(data))


def run(evaltap: Evaltap, *more: str, agent: str = "hall:clerk") -> tuple[int, Any, str]:
    code, out, said = evaltap("run", "hall.evalset.json", "--agent", agent, "--metrics",
                              "metrics.json", "--db", "x.duckdb", "--json", *more)  # fmt: skip
    return code, json.loads(out) if out.strip() else None, said


def turns() -> list[tuple[str, str]]:
    with Store("x.duckdb") as store:
        return store.rows("SELECT user_text, final_text FROM latest_turns ORDER BY started_at")


@pytest.mark.slow
def test_a_simulated_user_talks_to_the_agent_until_it_says_the_stop_signal(
    evaltap: Evaltap,
) -> None:
    write(scenario())

    code, found, _ = run(evaltap, "--user", "hall:guest")

    assert code == 0
    assert turns() == [("seat 1", "booked seat 1"), ("seat 2", "booked seat 2")]
    assert found["ended_by"] == {"stop_signal": 1}
    assert found["agent_calls"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "user", "limit", "ended_by", "units"),
    [
        ("clerk", "chatters", 3, "limit", {"scored": 1}),
        ("breaks_down", "guest", 0, "agent_error", {"crashed": 1}),
        ("clerk", "mute", 0, "simulator_error", {"invalid": 1}),
    ],
)
def test_why_a_conversation_ended_is_stored_and_the_users_faults_are_not_the_agents(
    evaltap: Evaltap, agent: str, user: str, limit: int, ended_by: str, units: dict[str, int]
) -> None:
    write(scenario(plan={**PLAN, "maxAllowedInvocations": limit}))

    _, found, _ = run(evaltap, "--user", f"hall:{user}", agent=f"hall:{agent}")

    assert {name: found["units"][name] for name in units} == units
    assert found["cases"][0]["ended_by"] == {ended_by: 1}
    with Store("x.duckdb") as store:
        assert store.column("SELECT ended_by FROM latest_units") == [ended_by]
        (shown,) = sessions_beside(store, found["run_id"], ["seats"])
    ended = f"conversation ended by {ended_by}"
    assert (shown.runs[0].reason == ended) == ("scored" in units), "otherwise the reason says more"


@pytest.mark.slow
def test_the_starting_prompt_comes_first_without_asking_the_user(evaltap: Evaltap) -> None:
    write(scenario(plan={**PLAN, "startingPrompt": "Hello", "maxAllowedInvocations": 2}))

    run(evaltap, "--user", "hall:guest")

    assert [said for said, _ in turns()] == ["Hello", "seat 1"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "driver", "passes"),
    [("clerk", "actual", True), ("careless", "actual", False), ("careless", "expected", False),
     ("clerk", "expected", True)],
)  # fmt: skip
def test_another_agent_gives_the_expected_turns_of_what_the_user_said(
    evaltap: Evaltap, agent: str, driver: str, passes: bool
) -> None:
    plan = {**PLAN, "driver": driver}
    write(scenario(plan=plan, expectedRunnerEnabled=True), metrics=(SAME, CALLS))

    code, found, _ = run(evaltap, "--user", "hall:guest", "--expected-agent", "hall:clerk",
                         "--result", "out.evalset_result.json", agent=f"hall:{agent}")  # fmt: skip

    assert code == (0 if passes else 1)
    assert [one["passed"] for one in found["metrics"]] == [int(passes)] * 2
    with Store("x.duckdb") as store:
        expected = [
            json.loads(text)["finalResponse"]["content"]
            for text in store.column("SELECT expected_json FROM latest_turns ORDER BY started_at")
        ]
    assert expected == ["booked seat 1", "booked seat 2"]
    result = read_result(Path("out.evalset_result.json"))
    rows = result.eval_case_results[0].eval_metric_result_per_invocation
    assert rows[0].expected_invocation is not None
    assert rows[0].expected_invocation.final_response is not None
    assert rows[0].expected_invocation.final_response.content == "booked seat 1"


@pytest.mark.slow
def test_an_expected_agent_answers_the_turns_of_a_conversation_with_its_own_mocks(
    evaltap: Evaltap,
) -> None:
    said = {"userContent": {"role": "user", "content": "seat 9"}}
    mocks = {"expected": [{"name": "book", "result": {"ok": "mocked"}}]}
    case = scenario(plan=None, expectedRunnerEnabled=True)
    write({**case, "conversation": [{**said, "toolMock": mocks}]}, metrics=(SAME,))

    code, _, _ = run(evaltap, "--expected-agent", "hall:clerk")

    assert code == 0
    with Store("x.duckdb") as store:
        (text,) = store.column("SELECT expected_json FROM latest_turns")
    assert json.loads(text)["tools"][0]["result"] == {"ok": "mocked"}


@pytest.mark.slow
def test_mocks_of_the_case_answer_the_tools_of_both_agents_in_every_turn(
    evaltap: Evaltap,
) -> None:
    def book(what: str, result: str) -> dict[str, Any]:
        return {"name": "book", "arguments": {"expected": {"what": what}}, "result": {"ok": result}}

    mocks = {
        "actual": [book("seat 1", "one"), book("seat 2", "two")],
        "expected": [{"name": "book", "result": {"ok": "any"}}],
    }
    write(scenario(toolMock=mocks, expectedRunnerEnabled=True))

    code, _, said = run(evaltap, "--user", "hall:guest", "--expected-agent", "hall:clerk")

    assert code == 0
    assert "answered by declared mocks" in said
    with Store("x.duckdb") as store:
        results = store.column("SELECT result->>'ok' FROM latest_tool_calls ORDER BY arguments")
        expected = store.column("SELECT expected_json FROM latest_turns")
    assert results == ["one", "two"]
    assert {json.loads(one)["tools"][0]["result"]["ok"] for one in expected} == {"any"}


@pytest.mark.slow
def test_everything_that_is_missing_is_listed_before_the_first_call(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("EVALTAP_JUDGE_MODEL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    write(scenario(expectedRunnerEnabled=True), metrics=(SAME,))

    code, _, said = run(evaltap, agent="hall:nobody")

    assert code == 2
    for part in ("--user", "--expected-agent", "hall has no 'nobody'"):
        assert part in said

    code, _, said = run(evaltap, "--user", "hall:gest", "--expected-agent", "hall:clark")

    assert code == 2
    assert "--user hall:gest: hall has no 'gest'; did you mean 'guest'" in said
    assert "--expected-agent hall:clark: hall has no 'clark'" in said


@pytest.mark.slow
def test_an_expected_agent_that_cannot_be_given_the_state_is_refused(evaltap: Evaltap) -> None:
    state = {"appName": "hall", "userId": "u", "state": {"tier": "gold"}}
    write(scenario(expectedRunnerEnabled=True, sessionInput=state), metrics=(SAME,))

    code, _, said = run(evaltap, "--user", "hall:guest", "--expected-agent", "hall:clerk")

    assert code == 2
    assert "--expected-agent: the agent takes no session state, which a case has" in said


@pytest.mark.slow
def test_the_key_of_a_users_model_is_stored_nowhere(evaltap: Evaltap, tmp_path: Path) -> None:
    write(scenario(plan={**PLAN, "maxAllowedInvocations": 1}))
    with judge_server(lambda _: Answer("seat 1")) as server:
        model = {"modelName": "m", "baseURL": server.url, "apiKey": "sk-very-secret-key"}
        Path("user.json").write_text(json.dumps(model))
        code, _, said = run(evaltap, "--user", "user.json", "--judge-cache", "off")
        _, _, refused = run(evaltap, "--user", "user.json", "--user-seed", "3", "--resume")

    assert code == 0
    assert server.requests[0][0]["authorization"] == "Bearer sk-very-secret-key"
    assert "simulated user was 'm at 127.0.0.1" in refused
    with Store("x.duckdb") as store:
        (configuration,) = store.column("SELECT configuration FROM experiments")
    assert "very-secret" not in said + refused + configuration


@pytest.mark.slow
def test_every_scenario_that_cannot_be_played_is_named(evaltap: Evaltap) -> None:
    wrong = {
        "the conversationPlan is blank": scenario(
            plan={"conversationPlan": " ", "stopSignal": "#"}
        ),
        "nothing ends the conversation": scenario(plan={"conversationPlan": "x"}),
        "unknown driver 'both'": scenario(plan={**PLAN, "driver": "both"}),
        "maxAllowedInvocations is -1": scenario(plan={**PLAN, "maxAllowedInvocations": -1}),
        "turns and a conversationScenario": scenario(
            conversation=[{"userContent": {"content": "x"}}]
        ),
    }
    write(*({**case, "evalId": f"c-{place}"} for place, case in enumerate(wrong.values())))

    code, _, said = run(evaltap, "--user", "hall:guest")

    assert code == 2
    assert [says for says in wrong if says not in said] == []


@pytest.mark.slow
def test_a_model_plays_the_user_with_seeds_a_budget_and_cached_replies(
    evaltap: Evaltap, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(scenario())
    for name in ("EVALTAP_JUDGE_MODEL", "EVALTAP_JUDGE_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)

    def says(body: dict[str, Any]) -> Answer:
        prompt = body["messages"][0]["content"]
        return Answer("###STOP###" if "booked seat 1" in prompt else "seat 1")

    with judge_server(says) as server:
        model = {
            "modelName": "m", "baseURL": server.url, "apiKey": "k",
            "prices": {"inputPerMillion": 1e4, "outputPerMillion": 1e4},
        }  # fmt: skip
        Path("user.json").write_text(json.dumps(model))
        options = ("--user", "user.json", "--user-seed", "7", "--judge-cache", "cache.db")
        code, found, said = run(evaltap, *options, "--runs", "2")

        assert code == 0, said
        assert found["cost_usd"] == pytest.approx(4 * 0.18), "two replies a run, 18 tokens each"
        assert sorted(body["seed"] for _, body in server.requests) == [7, 7, 8, 8]

        _, again, _ = run(evaltap, *options, "--runs", "2")
        assert len(server.requests) == 4, "all replies were cached"
        assert again["cost_usd"] is None

        code, found, _ = run(evaltap, "--user", "user.json", "--judge-cache", "off", "--runs", "9",
                             "--concurrency", "1", "--budget-usd", "0.3")  # fmt: skip
        assert code == 3
        assert found["stopped_by"] == "budget"

        del model["prices"]
        Path("user.json").write_text(json.dumps(model))
        code, _, said = run(evaltap, "--user", "user.json", "--budget-usd", "1")
        assert (code, "the prices of m are unknown (the simulated user)" in said) == (2, True)

    code, _, said = run(evaltap, "--user", "user.json", "--judge-cache", "off")
    assert (code, "cannot be reached" in said) == (2, True)


@pytest.mark.slow
def test_a_user_file_with_a_wrong_key_is_refused(evaltap: Evaltap) -> None:
    write(scenario())
    Path("user.json").write_text('{"modelNam": "m"}')

    code, _, said = run(evaltap, "--user", "user.json")

    assert code == 2
    assert "no key 'modelNam' of a judgeModel; did you mean 'modelName'" in said


@pytest.mark.slow
def test_an_experiment_goes_on_with_the_same_user_and_reference_only(evaltap: Evaltap) -> None:
    write(scenario(expectedRunnerEnabled=True), metrics=(SAME,))
    options = ("--user", "hall:guest", "--expected-agent", "hall:clerk")
    run(evaltap, *options)

    code, found, _ = run(evaltap, *options, "--runs", "3", "--resume")
    assert (code, found["agent_calls"]) == (0, 4), "the first run is not repeated"

    code, _, said = run(evaltap, "--user", "hall:chatters", "--expected-agent", "hall:careless",
                        "--resume")  # fmt: skip
    assert code == 2
    assert "simulated user was 'hall:guest', is 'hall:chatters'" in said
    assert "expected agent was 'hall:clerk', is 'hall:careless'" in said


@pytest.mark.slow
def test_killed_and_resumed_each_conversation_is_whole_with_what_was_expected(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    write(scenario(expectedRunnerEnabled=True), metrics=(SAME,))
    program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    command = [
        sys.executable, "-c", program, "run", "hall.evalset.json", "--agent", "hall:slow_clerk",
        "--user", "hall:guest", "--expected-agent", "hall:clerk", "--metrics", "metrics.json",
        "--db", "x.duckdb", "--runs", "20", "--concurrency", "2", "--json",
    ]  # fmt: skip
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.DEVNULL)
    calls = tmp_path / "calls.txt"
    while not calls.exists() or len(calls.read_text()) < 8:
        time.sleep(0.01)
        assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()

    done = subprocess.run([*command, "--resume"], cwd=tmp_path, capture_output=True, timeout=120)

    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["units"]["scored"], found["ended_by"]) == (20, {"stop_signal": 20})
    with Store("x.duckdb") as store:
        assert store.rows("SELECT count(*), count(expected_json) FROM latest_turns") == [(40, 40)]


@pytest.mark.slow
def test_a_dry_run_counts_the_turns_that_a_user_may_have(evaltap: Evaltap) -> None:
    write(scenario(plan={**PLAN, "maxAllowedInvocations": 4}))

    _, out, _ = evaltap("run", "hall.evalset.json", "--agent", "hall:clerk", "--user", "hall:guest",
                        "--metrics", "metrics.json", "--db", "x.duckdb", "--dry-run")  # fmt: skip

    assert "1 run to make, at most 4 calls of the agent" in out


def test_python_takes_users_and_references_as_objects(evaltap: Evaltap) -> None:
    case = scenario(expectedRunnerEnabled=True)
    write(case, metrics=(SAME,))

    def clerk(messages: list[dict[str, Any]]) -> str:
        return f"booked {messages[-1]['content']}"

    def guest(messages: list[dict[str, Any]]) -> str:
        return "seat 1" if len(messages) < 3 else "###STOP###"

    found = evaluate(
        "hall.evalset.json", "metrics.json", agent=clerk, user=guest, expected_agent=clerk
    )
    alone = run_case(clerk, case, user=guest, expected_agent=clerk)

    assert found.outcome.ended_by == {"stop_signal": 1}
    assert found.outcome.metrics[0].passed == 1
    assert len(alone["actualConversation"]) == len(alone["conversation"]) == 1
    assert "conversationScenario" not in alone
    with pytest.raises(InputError, match="give expected_agent"):
        run_case(clerk, case, user=guest)


VERDICTS = ("plan", "leak", "facts", "end")


def judging(failed: str = "") -> Any:
    """Return what answers a judge's question about the rubrics; the rubric `failed` is not met."""

    def says(body: dict[str, Any]) -> Answer:
        asked = json.dumps(body)
        scores = [
            {"id": one, "score": int(one != failed), "reason": f"about {one}"}
            for one in VERDICTS
            if f"{one}" != "end" or "plan's goal was reached" in asked
        ]
        return Answer(json.dumps({"rubricScores": scores}))

    return says


@pytest.mark.slow
@pytest.mark.parametrize(
    ("user", "failed", "state", "reason"),
    [
        ("guest", "", "scored", None),
        ("guest", "facts", "invalid", "the check of the simulated user: facts: about facts"),
        ("blurts", "", "invalid", "said the stop signal within message 1"),
        ("loops", "", "invalid", "said the same in 3 messages, up to message 3"),
    ],
)
def test_a_user_that_did_not_play_its_plan_makes_the_run_invalid(
    evaltap: Evaltap,
    monkeypatch: pytest.MonkeyPatch,
    user: str,
    failed: str,
    state: str,
    reason: str,
) -> None:
    write(scenario(plan={**PLAN, "maxAllowedInvocations": 4}))
    with Path("hall.py").open("a") as file:
        file.write(
            "\ndef counts(messages): return str(len(messages))\n"
            "def blurts(messages): return 'I say ###STOP### now'\n"
            "def loops(messages): return 'a seat'\n"
        )
    with judge_server(judging(failed)) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_MODEL", "m")
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        _, found, said = run(evaltap, "--user", f"hall:{user}", "--check-user", "--judge-cache", "off",
                             agent="hall:counts")  # fmt: skip

    assert found["units"][state] == 1, said
    assert len(server.requests) == (user == "guest"), "an obvious fault needs no judge"
    with Store("x.duckdb") as store:
        ((why, ended_by),) = store.rows("SELECT reason, ended_by FROM latest_units")
    assert reason in why if reason else why is None
    assert ended_by == ("stop_signal" if state == "scored" else "simulator_error")


def recorded(eval_id: str = "old") -> dict[str, Any]:
    """A recorded case: three turns with a call each."""
    turns = [
        {
            "invocationId": f"i{number}",
            "userContent": {"role": "user", "content": f"seat {number}"},
            "finalResponse": {"role": "assistant", "content": f"booked seat {number}"},
            "tools": [
                {"id": "1", "name": "book", "arguments": {"what": f"seat {number}"},
                 "result": {"ok": "recorded"}}
            ],
        }
        for number in (1, 2, 3)
    ]  # fmt: skip
    return {
        "evalId": eval_id, "evalMode": "trace", "actualConversation": turns,
        "sessionInput": {"appName": "hall", "userId": "u"}, "source": {"service": "production"},
    }  # fmt: skip


@pytest.mark.slow
def test_a_recorded_conversation_is_continued_by_a_simulated_user_with_the_recorded_results(
    evaltap: Evaltap,
) -> None:
    write(recorded())
    with Path("hall.py").open("a") as file:
        file.write(
            "\ndef goes_on(messages):\n"
            "    assert '- seat 1' in messages[0]['content'], messages\n"
            "    said = [one['content'] for one in messages if one['role'] == 'assistant']\n"
            "    return ['seat 3', 'seat 2', '###STOP###'][len(said)]\n"
        )

    code, found, said = run(evaltap, "--user", "hall:goes_on", "--continue-from", "1")

    assert code == 0, said
    assert [one for one, _ in turns()] == ["seat 1", "seat 3", "seat 2"], "in another order"
    with Store("x.duckdb") as store:
        assert store.column("SELECT result FROM latest_tool_calls") == ['{"ok":"recorded"}'] * 3
    assert found["mocks"]["hits"] == 3

    code, _, said = run(evaltap, "--user", "hall:goes_on", "--continue-from", "3")
    assert (code, "no case has more than 3 turns" in said) == (2, True)


@pytest.mark.slow
def test_a_plan_is_drafted_from_production_and_can_be_run(evaltap: Evaltap) -> None:
    write()
    with Recorder("agent.log.db") as recorder:
        for number in (1, 2, 3):
            with recorder.turn(session_id="s-1", user=f"seat {number}") as turn:
                turn.respond("booked")
    evaltap("consume", "--log", "agent.log.db", "--db", "cases.duckdb", "--until-idle")
    evaltap("curate", "cases.duckdb", "--as", "scenario", "--out", "hall.evalset.json", "--all")

    (case,) = json.loads(Path("hall.evalset.json").read_text())["evalCases"]
    plan = case["conversationScenario"]
    assert plan["startingPrompt"] == "seat 1"
    assert "- seat 2\n- seat 3" in plan["conversationPlan"]
    assert (plan["stopSignal"], plan["maxAllowedInvocations"]) == ("###STOP###", 8)

    code, _, said = run(evaltap, "--user", "hall:chatters")
    assert (code, "--allow-real-tools" in said) == (2, True), "no tool runs by accident"
    _, found, _ = run(evaltap, "--user", "hall:chatters", "--allow-real-tools")
    assert found["ended_by"] == {"limit": 1}
