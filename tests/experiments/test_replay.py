"""`evaltap replay`: a changed agent meets recorded traffic, with the results that the tools gave then."""

import json
import os
import subprocess
import sys
import time
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from support.builders.commands import Evaltap
from support.worlds.once import made_once
from support.worlds.replayed_shop import METRICS

AGENTS = """
from evaltap.recorder import tool


@tool
def warm_up(id):
    return real(id=id)


def real(**arguments):
    with open("real.txt", "a") as file:
        file.write("x")
    number = int(arguments["id"][2:])
    if "amount" in arguments:
        if number % 4 == 1:
            raise TimeoutError("no answer")
        return {"ok": True}
    return {"status": "lost" if number % 3 == 1 else "shipped"}


def agent(amount=10, end=".", look="get_order", ask=True):
    def answer(messages, turn):
        user = messages[-1]["content"]
        if user == "thanks":
            return "You are welcome."
        if not ask:
            return "Ask later."
        number = user.split()[-1]
        order = turn.run_tool(look, {"id": number}, real)
        if order["status"] == "lost":
            try:
                turn.run_tool("refund", {"id": number, "amount": amount}, real)
            except TimeoutError:
                return "The refund timed out."
            return "Refunded" + end
        return f"It is {order['status']}."

    return answer


old = agent()
worse = agent(end="")
forks = agent(amount=11)
renamed = agent(look="fetch_order")
skips = agent(ask=False)


seen = set()


def rarely(messages, turn):
    said = old(messages, turn)
    return said.rstrip(".") if messages[-1]["content"] in ("where is A-4", "where is A-8") else said


def worse_at_last(messages, turn):
    asked = messages[-1]["content"]
    first = asked not in seen
    seen.add(asked)
    return (old if first else worse)(messages, turn)


def goes_on(messages, turn):
    said = [one["content"] for one in messages]
    return "On Monday, then." if said == ["To Rome.", "When?", "On Monday."] else "What?"


def crashes(messages, turn):
    raise LookupError("broken")


def calls_at_its_start():
    warm_up(id="A-1")
    return old


def does_not_start():
    raise LookupError("broken")
"""
SESSIONS = 60


def record(**settings: Any) -> None:
    """Record the old agent: a third of the sessions look up and refund, half of them say thanks."""
    found: dict[str, Any] = {}
    exec(AGENTS, found)
    recorder = Recorder(log="shop.log.db", app_name="shop", version="1", **settings)
    for number in range(SESSIONS):
        messages: list[dict[str, str]] = []
        for said in [f"where is A-{number}", "thanks"][: 1 + number % 2]:
            messages.append({"role": "user", "content": said})
            with recorder.turn(session_id=f"s{number}", user=said) as turn:
                turn.respond(found["old"](messages, turn))
    recorder.close()


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    Path("shop.py").write_text(AGENTS)
    Path("metrics.json").write_text(json.dumps(METRICS))
    return evaltap


def land(evaltap: Evaltap, metrics: str = "metrics.json") -> None:
    """Land and score what was recorded; afterwards no tool has run."""
    more = ["--metrics", metrics] if metrics else []
    evaltap("consume", "--log", "shop.log.db", "--db", "shop.duckdb", "--until-idle", *more)
    Path("real.txt").unlink(missing_ok=True)


@made_once
def landed(folder: Path) -> Path:
    """Record, land and score the old agent."""
    with chdir(folder), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
        Path("metrics.json").write_text(json.dumps(METRICS))
        record()
        main(["consume", "--log", "shop.log.db", "--db", "shop.duckdb", "--until-idle",
              "--metrics", "metrics.json"])  # fmt: skip
        Path("real.txt").unlink()
    return folder / "shop.duckdb"


def replay(evaltap: Evaltap, agent: str, *more: str) -> tuple[int, Any, str]:
    """Replay with `--json`; return the exit code, the data and what was said besides."""
    for before in Path().glob("shop.replay.*"):
        before.unlink()
    code, out, said = evaltap("replay", "shop.duckdb", "--agent", f"shop:{agent}",
                              "--metrics", "metrics.json", "--json", *more)  # fmt: skip
    assert not Path("real.txt").exists(), "a tool ran"
    return code, json.loads(out) if out.strip() else None, said


@pytest.mark.slow
def test_the_unchanged_agent_is_faithful_and_equal_in_every_verdict(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    code, found, said = replay(evaltap, "old", "--max-drop", "0.1")

    assert code == 0, said
    assert (found["sessions"], found["turns"]) == (SESSIONS, 90)
    assert found["faithful"]["share"] == 1.0
    assert (found["forks"], found["off_script"], found["invalid"]) == ([], 0, 0)
    for metric in found["metrics"].values():
        assert metric["difference"]["value"] == 0.0
        assert metric["old"]["rate"] == metric["new"]["rate"] == metric["estimate"]["rate"]
        assert (metric["newly_failing"], metric["newly_passing"]) == ([], [])
    assert found["drift"]["refund"]["misses"] == 0


@pytest.mark.slow
def test_what_the_changed_agent_does_worse_is_named_with_the_difference(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    code, found, _ = replay(evaltap, "worse")

    assert code == 1
    metric = found["metrics"]["ends_with_stop"]
    assert metric["verdict"] == "worse"
    assert metric["old"]["rate"] == 1.0
    assert metric["bounds"][0] == pytest.approx(metric["new"]["rate"]) == pytest.approx(75 / 90)
    assert len(metric["newly_failing"]) == 15
    assert found["metrics"]["run_succeeded"]["newly_failing"] == []
    lines = found["differences"][metric["newly_failing"][0]]
    assert "- answer: Refunded." in lines
    assert "+ answer: Refunded" in lines
    assert lines[-1].startswith("  latency: ")
    assert found["notes"] == []


@pytest.mark.slow
def test_so_few_changes_that_they_may_be_chance_decide_nothing(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    code, found, _ = replay(evaltap, "rarely", "--max-drop", "0")

    metric = found["metrics"]["ends_with_stop"]
    assert len(metric["newly_failing"]) == 2
    low, high = metric["difference"]["interval"]
    assert low < 0 < high, "two of sixty, of which a sign test says p = 0.5"
    assert code == 3


@pytest.mark.slow
def test_a_call_without_a_recorded_result_forks_and_the_bounds_do_not_guess(
    evaltap: Evaltap,
) -> None:
    landed(Path.cwd())

    code, found, _ = replay(evaltap, "forks")

    assert code == 3
    [fork] = found["forks"]
    assert (fork["tool"], fork["count"]) == ("refund", 20)
    assert fork["share"] == pytest.approx(20 / 60)
    assert fork["arguments"]["amount"] == 11
    assert found["off_script"] == 10, "the thanks after a fork"
    assert found["faithful"]["share"] == pytest.approx(60 / 90)
    metric = found["metrics"]["ends_with_stop"]
    assert metric["bounds"] == [pytest.approx(60 / 90), 1.0]
    assert metric["verdict"] == "not_enough"
    [change] = found["drift"]["refund"]["changed_arguments"]
    assert "amount" in change["difference"]
    with Store("shop.replay.duckdb") as store:
        states = store.rows("SELECT state, count(*) FROM latest_units GROUP BY ALL ORDER BY ALL")
        turns = store.rows("SELECT count(*), count(*) FILTER (status <> 'ok') FROM latest_turns")
    assert states == [("forked", 20), ("scored", 40)]
    assert turns == [(60, 0)], "a turn that was cut short is no evidence"


@pytest.mark.slow
def test_a_renamed_tool_is_mapped_or_leaves_no_estimate(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    code, found, _ = replay(evaltap, "renamed")
    assert code == 3
    assert found["metrics"]["run_succeeded"]["estimate"] is None
    assert "get_order" in found["metrics"]["run_succeeded"]["unsupported"]["tools"]
    assert "--rename-tool fetch_order=get_order" in found["notes"][0]

    _, found, _ = replay(evaltap, "renamed", "--rename-tool", "fetch_order=get_order")
    assert found["faithful"]["share"] == 1.0


@pytest.mark.slow
def test_after_other_calls_the_next_user_message_is_off_script(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    _, found, _ = replay(evaltap, "skips")
    assert (found["off_script"], found["forks"]) == (30, [])
    assert found["drift"]["get_order"]["unused"] == 60

    _, again, _ = replay(evaltap, "skips", "--after-fork", "script")
    with Store("shop.replay.duckdb") as store:
        [(turns,)] = store.rows("SELECT count(*) FROM latest_turns")
    assert turns == 90, "they are run, and scored"
    assert again["off_script"] == 30, "and are no part of the forecast"


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["crashes", "does_not_start"])
def test_a_crash_of_the_agent_is_a_failure_and_no_fork(evaltap: Evaltap, agent: str) -> None:
    landed(Path.cwd())

    code, found, _ = replay(evaltap, agent)

    assert code == 1
    metric = found["metrics"]["run_succeeded"]
    assert metric["bounds"][0] == 0.0
    assert metric["new"]["rate"] == 0.0
    assert len(metric["newly_failing"]) == SESSIONS
    assert found["off_script"] == 30
    assert found["forks"] == []


FRAGILE = """
def agent(*fails):
    def answer(messages, turn):
        if messages[-1]["content"] in fails:
            raise LookupError("broken")
        return "Here I am."

    return answer


old = agent("hello")
mended = agent()
broken = agent("hello", "are you there?")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "verdicts"),
    [("old", [False, True]), ("mended", [True, True]), ("broken", [False, False])],
)
def test_after_a_crash_that_was_recorded_the_user_goes_on_as_then(
    evaltap: Evaltap, agent: str, verdicts: list[bool]
) -> None:
    Path("shop.py").write_text(FRAGILE)
    Path("metrics.json").write_text('[{"metricName": "run_succeeded", "threshold": 1}]')
    found: dict[str, Any] = {}
    exec(FRAGILE, found)
    with Recorder(log="shop.log.db", app_name="shop") as recorder:
        for said in ("hello", "are you there?"):
            messages = [{"role": "user", "content": said}]
            with suppress(LookupError), recorder.turn(session_id="s", user=said) as turn:
                turn.respond(found["old"](messages, turn))
    land(evaltap)

    _, shown, _ = replay(evaltap, agent)

    assert (shown["faithful"]["share"], shown["off_script"]) == (1.0, 0)
    rate = sum(verdicts) / 2
    assert shown["metrics"]["run_succeeded"]["bounds"] == [rate, rate]


@pytest.mark.slow
def test_a_tool_that_an_agent_calls_at_its_start_is_not_answered_and_blames_nobody(
    evaltap: Evaltap,
) -> None:
    landed(Path.cwd())

    code, found, said = replay(evaltap, "calls_at_its_start")

    assert code == 3
    assert (found["faithful"]["share"], found["off_script"]) == (0.0, 90)
    assert "warm_up was called before the first turn" in said


@pytest.mark.slow
def test_the_run_that_fails_is_the_one_that_is_shown(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    _, found, _ = replay(evaltap, "worse_at_last", "--runs", "3", "--concurrency", "1")

    failing = found["metrics"]["ends_with_stop"]["newly_failing"]
    assert len(failing) == 15
    assert all("+ answer: Refunded" in found["differences"][one] for one in failing)


@pytest.mark.slow
def test_runs_that_are_no_evidence_are_counted_by_reason(evaltap: Evaltap) -> None:
    with Recorder(log="shop.log.db", app_name="shop") as recorder:
        for number in range(4):
            turn = recorder.turn(session_id=f"s{number}", user=f"where is A-{number}")
            with turn:
                turn.tool("get_order", {"id": f"A-{number}"}, result={"status": "x" * 10**6})
                turn.respond("It is x.")
    land(evaltap)

    _, found, said = replay(evaltap, "old")

    assert found is not None, said
    assert found["invalid"] == 4
    assert found["notes"] == ["invalid: 4 runs: result of get_order was cut"]
    assert "faithfully to their end" in found["metrics"]["ends_with_stop"]["advice"], "no fork"


@pytest.mark.slow
def test_a_metric_of_time_has_answers_take_theirs(evaltap: Evaltap) -> None:
    limit = {"metricName": "completed_within", "threshold": 1,
             "criterion": {"operations": {"maxSeconds": 0.3}}}  # fmt: skip
    Path("metrics.json").write_text(json.dumps([limit]))
    with Recorder(log="shop.log.db", app_name="shop") as recorder:
        for number in range(3):
            with recorder.turn(session_id=f"s{number}", user=f"where is A-{number}") as turn:
                given, result = {"id": f"A-{number}"}, {"status": "shipped"}
                turn.tool("get_order", given, result=result, duration_ms=350.0)
                time.sleep(0.35)
                turn.respond("It is shipped.")
    land(evaltap)

    _, found, said = replay(evaltap, "old")

    assert found is not None, said
    metric = found["metrics"]["completed_within"]
    assert (metric["old"]["rate"], metric["new"]["rate"]) == (0.0, 0.0), "the tools are as slow"
    assert found["drift"]["get_order"]["hits"] == 3


@pytest.mark.slow
def test_several_runs_of_a_session_are_one_cluster(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    _, once, _ = replay(evaltap, "old")
    _, found, _ = replay(evaltap, "old", "--runs", "3")

    assert (found["runs"], found["sessions"]) == (3, SESSIONS)
    assert found["effective_sessions"] == pytest.approx(once["effective_sessions"], rel=0.05)


@pytest.mark.slow
def test_a_sample_of_sampled_traffic_is_weighted_by_both_draws(evaltap: Evaltap) -> None:
    record(sample_rate=0.6)
    land(evaltap)

    _, found, _ = replay(evaltap, "old", "--sample", "12")

    with Store("shop.duckdb") as store:
        [(kept,)] = store.rows("SELECT count(DISTINCT eval_id) FROM latest_turns")
    assert kept < SESSIONS
    assert found["recorded_sessions"] == kept
    assert 4 <= found["sessions"] < kept
    assert found["metrics"]["run_succeeded"]["old"]["rate"] == 1.0


@pytest.mark.slow
def test_sessions_that_cannot_be_replayed_are_counted_by_reason(evaltap: Evaltap) -> None:
    with Recorder(log="shop.log.db", app_name="shop") as recorder:
        for number in range(6):
            parts = [
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
            ]
            with recorder.turn(
                session_id=f"s{number}", user="thanks", parts=parts if number else ()
            ) as turn:
                turn.respond("You are welcome.")
    land(evaltap)

    _, found, said = replay(evaltap, "old")

    assert found is not None, said
    (note,) = found["notes"]
    assert note.startswith("not replayed: 5 sessions: turn 1 has an image")
    assert found["metrics"]["ends_with_stop"]["new"]["rate"] == 1.0, "though it has no tool calls"


def record_stateless(evaltap: Evaltap, *conversations: list[str]) -> None:
    """Land sessions of one turn, as of a service that gets the whole conversation with each request."""
    lines = []
    for number, (*before, asked) in enumerate(conversations):
        said = [("system", "Sell."), *zip(("user", "assistant") * 9, before, strict=False)]
        turn = {
            "contextMessages": [{"role": role, "content": text} for role, text in said],
            "userContent": {"role": "user", "content": asked},
            "finalResponse": {"role": "assistant", "content": "On Monday, then."},
            "telemetry": {"status": "ok"},
        }
        case = {"evalMode": "trace", "sessionInput": {"appName": "shop"}}
        lines.append(json.dumps({"evalId": f"s{number}", **case, "actualConversation": [turn]}))
    Path("cases.jsonl").write_text("\n".join(lines))
    evaltap("record", "cases", "cases.jsonl", "--log", "shop.log.db")
    land(evaltap)


@pytest.mark.slow
def test_what_was_said_before_a_session_is_said_again_or_the_session_left_out(
    evaltap: Evaltap,
) -> None:
    record_stateless(evaltap, *[["To Rome.", "When?", "On Monday."]] * 3)

    _, found, said_besides = replay(evaltap, "goes_on")

    assert found is not None, said_besides
    assert found["metrics"]["ends_with_stop"]["new"]["rate"] == 1.0
    Path("request.json").write_text('{"text": "{{message}}"}')
    code, _, refused = evaltap(
        "replay", "shop.duckdb", "--agent", "http://127.0.0.1:9", "--agent-result", "$.text",
        "--agent-request", "request.json", "--metrics", "metrics.json",
    )  # fmt: skip
    assert code == 2
    assert "what was said before cannot be given to the agent" in refused


@pytest.mark.slow
def test_messages_that_all_sessions_begin_with_are_examples_in_the_agents_prompt(
    evaltap: Evaltap,
) -> None:
    examples = ["From where?", "Say a city."]
    record_stateless(evaltap, [*examples, "thanks"], [*examples, "To Rome.", "When?", "On Monday."])

    _, found, said_besides = replay(evaltap, "goes_on", "--filter", "id:s1")
    _, both, _ = replay(evaltap, "goes_on")

    assert found is not None, said_besides
    assert found["metrics"]["ends_with_stop"]["new"]["rate"] == 0.0, "one tells nothing of examples"
    assert both["metrics"]["ends_with_stop"]["new"]["rate"] == 0.5


@pytest.mark.slow
def test_sessions_chosen_by_how_they_ended_forecast_nothing(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    code, found, _ = replay(evaltap, "worse", "--filter", "status:passed")

    metric = found["metrics"]["ends_with_stop"]
    assert code == 3
    assert (metric["estimate"], metric["old"], metric["verdict"]) == (None, None, "not_enough")
    assert len(metric["newly_failing"]) == 15


def test_traffic_without_verdicts_says_how_to_score_it(evaltap: Evaltap) -> None:
    record()
    land(evaltap, "")

    code, _, said = replay(evaltap, "old")

    assert code == 2
    assert "evaltap score shop.duckdb --metrics" in said


@pytest.mark.slow
def test_a_metric_that_could_score_no_recorded_turn_is_refused_with_the_reason(
    evaltap: Evaltap,
) -> None:
    matcher = {"metricName": "tool_trajectory_avg_score", "threshold": 1}
    Path("metrics.json").write_text(json.dumps([*METRICS, matcher]))
    record()
    land(evaltap)

    code, _, said = replay(evaltap, "old")

    assert code == 2
    assert "tool_trajectory_avg_score: no recorded turn has a verdict" in said
    assert "not evaluated: no reference" in said
    assert "leave the metric out of --metrics" in said


@pytest.mark.slow
def test_a_filter_without_sessions_and_an_unknown_agent_are_refused(
    evaltap: Evaltap,
) -> None:
    landed(Path.cwd())

    code, _, said = replay(evaltap, "old", "--filter", "tool:nothing")
    assert code == 2
    assert "no recorded session matches tool:nothing" in said

    code, _, said = replay(evaltap, "nobody")
    assert code == 2
    assert "nobody" in said


@pytest.mark.slow
def test_a_replay_that_was_killed_goes_on_without_repeating_what_was_done(
    evaltap: Evaltap,
) -> None:
    landed(Path.cwd())
    Path("slow.py").write_text(
        "import time, shop\n"
        "def agent(messages, turn):\n"
        "    time.sleep(0.05)\n"
        "    with open('calls.txt', 'a') as file:\n"
        "        file.write('x')\n"
        "    return shop.old(messages, turn)\n"
    )
    arguments = ("replay", "shop.duckdb", "--agent", "slow:agent", "--metrics", "metrics.json",
                 "--json", "--concurrency", "4")  # fmt: skip
    main = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", main, *arguments], stderr=subprocess.PIPE, env=os.environ
    )
    assert process.stderr is not None
    for line in process.stderr:
        if b"20/60" in line:
            process.kill()
            break
    process.wait()
    process.stderr.close()
    before = len(Path("calls.txt").read_text())

    code, out, said = evaltap(*arguments, "--resume")

    assert code in (0, 3), said
    found = json.loads(out)
    assert found["faithful"]["share"] == 1.0
    repeated = len(Path("calls.txt").read_text()) - 90
    assert repeated <= before / 2, "only what was under way is done again"


@pytest.mark.slow
def test_the_forecast_is_written_for_a_pull_request(evaltap: Evaltap) -> None:
    landed(Path.cwd())

    code, out, _ = evaltap("replay", "shop.duckdb", "--agent", "shop:forks", "--metrics",
                           "metrics.json", "--markdown", "forecast.md")  # fmt: skip

    assert code == 3
    assert "NOT ENOUGH TO TELL" in out
    written = Path("forecast.md").read_text()
    assert "not enough to tell" in written
    assert "✅" not in written
    assert "refund" in written
