"""`evaltap run`: real agents in real processes, recorded, landed and scored like any other traffic."""

import json
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views.compare import read as shown
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.readers import Readers
from evaltap.experiments.pseudonyms import Inventions
from evaltap.schemas.files.documents import read_result
from support.builders.command_files import write
from support.builders.commands import Evaltap
from support.worlds.running_agents import ANSWER, case, write_set

EXAMPLES = Path(__file__).parents[1] / "data/trpc-examples"


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path) -> Evaltap:
    write_set(tmp_path, [case("sum", "add 2 3"), case("product", "mul 6 7")])
    return evaltap


def run(evaltap: Evaltap, agent: str = "agents:answer", *more: str) -> tuple[int, Any, str]:
    """Run the set with `--json`; return the exit code, the data and what was said besides."""
    arguments = ("run", "math.evalset.json", "--agent", agent, "--metrics", "metrics.json",
                 "--db", "x.duckdb", "--json", *more)  # fmt: skip
    code, out, said = evaltap(*arguments)
    return code, json.loads(out) if out.strip() else None, said


def calls() -> int:
    """Return how often the agent was called."""
    return len(Path("calls.txt").read_text().splitlines()) if Path("calls.txt").exists() else 0


def statuses() -> list[str]:
    """Return what the store says of each case and metric."""
    with Store("x.duckdb") as store:
        return store.column("SELECT status FROM latest_scores ORDER BY 1")


@pytest.mark.slow
def test_each_case_runs_as_often_as_asked_and_lands_like_any_traffic(evaltap: Evaltap) -> None:
    code, found, said = run(evaltap, "agents:answer", "--runs", "3", "--version", "1.4")

    assert code == 0
    assert found["units"] == {"planned": 6, "scored": 6, "crashed": 0, "invalid": 0, "skipped": 0}
    assert (found["agent_calls"], calls()) == (6, 6)
    assert [one["eval_id"] for one in found["cases"]] == ["sum", "product"], "in the set's order"
    trajectory = found["metrics"][0]
    assert (trajectory["n"], trajectory["passed"], trajectory["pass_rate"]) == (6, 6, 1.0)
    assert trajectory["pass_hat"]["3"] == 1.0
    assert "6/6" in said
    with Store("x.duckdb") as store:
        rows = store.rows(
            "SELECT DISTINCT app_name, regexp_replace(eval_set_id, 'x[0-9a-f]+', 'X'), eval_id, version,"
            " environment FROM latest_turns ORDER BY ALL"
        )
        calls_ = store.rows("SELECT count(*), count(result) FROM latest_tool_calls")
    assert rows == [
        ("math", f"math@1.4@X.{trial}", eval_id, "1.4", "experiment")
        for trial in (1, 2, 3)
        for eval_id in ("product", "sum")
    ]
    assert calls_ == [(6, 6)]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["answers_later", "make", "Made", "forks"])
def test_agents_may_be_async_made_by_a_factory_or_fork(evaltap: Evaltap, agent: str) -> None:
    code, found, _ = run(evaltap, f"agents:{agent}")

    assert code == 0
    assert found["units"]["scored"] == 2
    if agent == "Made":
        assert Path("closed.txt").read_text() == "xxx", "each is closed; one was made to look at"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("half_says_nothing", "returned nothing"),
        ("half_returns_garbage", "returned dict"),
        ("half_raises", "LookupError: no such order"),
        ("half_exits", "raised SystemExit: enough"),
        ("half_hangs", "did not answer within 1 s"),
        ("half_kills_its_process", "was killed by SIGKILL"),
        ("half_ends_within_a_message", "was killed by SIGKILL"),
        ("half_blocks", "blocked the event loop"),
        ("half_gives_up", "GivesUp: for good"),
        ("half_cancels", "the agent raised CancelledError"),
    ],
)
def test_what_an_agent_does_wrong_is_one_crashed_run_with_its_reason(
    evaltap: Evaltap, agent: str, reason: str
) -> None:
    code, found, _ = run(evaltap, f"agents:{agent}", "--turn-seconds", "1")

    assert code == 1
    assert found["units"]["crashed"] == 1
    by_id = {one["eval_id"]: one for one in found["cases"]}
    assert reason in by_id["sum"]["reasons"][0]
    assert (by_id["sum"]["passed"], by_id["product"]["passed"]) == (0, 1)
    assert [one["pass_rate"] for one in found["metrics"]] == [0.5, 0.5], "a crash has not passed"
    assert statuses() == ["crashed"] * 2 + ["passed"] * 2, "nor for `report` and `compare`"


@pytest.mark.slow
def test_the_cases_that_fail_most_are_shown_with_the_reason(evaltap: Evaltap) -> None:
    cases = [case(f"c-{n}", f"add {n} 1") for n in range(12)]
    for one in cases[1:]:
        one["conversation"][0]["finalResponse"]["content"] = "result: 99"
    write_set(Path.cwd(), cases)

    code, out, _ = evaltap("run", "math.evalset.json", "--agent", "agents:answer", "--metrics",
                           "metrics.json", "--db", "x.duckdb")  # fmt: skip

    why = "final_response_avg_score: answer 'result: 2', expected 'result: 99'"
    assert code == 1
    assert f"  c-1: 0/1 passed: {why}\n" in out
    assert "c-0" not in out
    assert "  c-10: 0/1" in out
    assert "c-11" not in out
    assert "  and 1 more case, which --json lists\n" in out


@pytest.mark.slow
@pytest.mark.parametrize("when", ["start", "end"])
def test_an_agent_that_does_not_start_or_end_holds_up_nobody(evaltap: Evaltap, when: str) -> None:
    code, found, _ = run(
        evaltap, f"agents:WillNot{when.title()}", "--turn-seconds", "1", "--result", "r.json"
    )

    assert code == 1
    assert found["units"]["crashed"] == 2
    assert f"did not {when} within 1 s" in found["cases"][0]["reasons"][0]
    assert statuses() == ["crashed"] * 4
    written = read_result(Path("r.json"))
    assert [one.final_eval_status for one in written.eval_case_results] == ["failed"] * 2


INTERRUPTS = """
import contextlib, os, signal

def answer(messages):
    if messages[-1]["content"].startswith("mul"):
        os.kill(os.getppid(), signal.SIGINT)
    return "result: 5"

class Loses:
    made = 0

    def __enter__(self):
        Loses.made += 1
        return lambda messages: "result: 5"

    def __exit__(self, *_):
        if Loses.made > 1:
            raise OSError("could not be kept")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "code", "said"),
    [("answer", 3, " runs (interrupted)"), ("Loses", 1, "OSError: could not be kept")],
)
def test_a_gate_does_not_pass_an_agent_that_did_not_run_to_its_end(
    evaltap: Evaltap, agent: str, code: int, said: str
) -> None:
    cases = [case("first", "mul 1 5"), *(case(f"c{number}", "add 2 3") for number in range(12))]
    for one in cases:
        del one["sessionInput"]  # of which `run` needs none either
    write_set(Path(), cases)
    Path("interrupts.py").write_text(INTERRUPTS)
    dimension = {"name": "right", "threshold": 1, "metrics": [ANSWER]}
    Path("gate.json").write_text(json.dumps({"dimensions": [dimension]}))

    ended, out, told = evaltap("gate", "math.evalset.json", "--gate", "gate.json",
                               "--concurrency", "1", "--agent", f"interrupts:{agent}")  # fmt: skip

    assert ended == code
    assert said in out + told


@pytest.mark.slow
def test_two_answers_are_none(evaltap: Evaltap) -> None:
    _, found, _ = run(evaltap, "agents:answers_twice")

    assert found["units"]["crashed"] == 2
    assert "answered twice" in found["cases"][0]["reasons"][0]


@pytest.mark.slow
def test_an_agent_that_will_not_be_cancelled_is_abandoned(evaltap: Evaltap) -> None:
    began = time.monotonic()
    _, found, _ = run(evaltap, "agents:will_not_be_cancelled", "--turn-seconds", "0.5")

    assert found["units"]["crashed"] == 2
    assert "was abandoned" in found["cases"][0]["reasons"][0]
    assert time.monotonic() - began < 60, "nobody waits for it"


@pytest.mark.slow
def test_an_answer_that_nobody_asked_for_is_a_crash_also_at_the_end(evaltap: Evaltap) -> None:
    Path("late.py").write_text(
        'import sys\nfor _ in sys.stdin:\n    print(\'{"answer": "5"}\', flush=True)\n'
        'print(\'{"answer": "6"}\', flush=True)\n'
    )

    code, found, _ = run(evaltap, f"command:{sys.executable} late.py")

    assert (code, found["units"]["crashed"]) == (1, 2)
    assert "answered twice" in found["cases"][0]["reasons"][0]


@pytest.mark.slow
def test_an_agent_meets_the_conversation_so_far_and_the_context(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    context = [{"role": "system", "content": "be brief"}]
    write_set(tmp_path, [case("c", "add 1 2", "add 3 4", contextMessages=context)])

    run(evaltap, "agents:echo")

    with Store("x.duckdb") as store:
        answers = store.rows("SELECT final_text FROM latest_turns ORDER BY started_at")
    first = "system: be brief | user: add 1 2"
    assert answers == [(first,), (f"{first} | assistant: {first} | user: add 3 4",)]


@pytest.mark.slow
def test_everything_that_is_wrong_is_listed_before_the_first_call(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    judged = {
        "metricName": "llm_rubric_response", "threshold": 1,
        "criterion": {"llmJudge": {"rubrics": [{"id": "1", "content": {"text": "It answers."}}]}},
    }  # fmt: skip
    write_set(tmp_path, [case("bare", "add 1 2", expected=False)])
    metrics = json.loads(Path("metrics.json").read_text())
    Path("metrics.json").write_text(json.dumps([*metrics, judged]))

    code, _, said = run(evaltap, "agents:nowhere")

    assert code == 2
    assert "agents has no 'nowhere'" in said
    assert (
        "tool_trajectory_avg_score compares with expected turns, which 1 case of the set lacks"
        in said
    )
    assert "judge not configured" in said
    assert calls() == 0


@pytest.mark.slow
def test_a_case_that_says_nothing_is_expected_runs_beside_one_that_does(evaltap: Evaltap) -> None:
    drafted = case("loop", "add 1 2", expected=False)
    for turn in drafted["conversation"]:
        turn["capture"] = {"finalResponse": "missing", "tools": "missing"}
    write_set(Path(), [case("sum", "add 2 3"), drafted])

    code, found, _ = run(evaltap, "agents:answer")

    assert code == 3
    by_id = {one["eval_id"]: one for one in found["cases"]}
    assert (by_id["sum"]["passed"], by_id["loop"]["not_evaluated"] > 0) == (1, True)


@pytest.mark.slow
def test_what_is_wrong_with_set_metrics_and_agent_is_listed_at_once(evaltap: Evaltap) -> None:
    metrics = json.loads(Path("metrics.json").read_text())
    Path("metrics.json").write_text(json.dumps([{**metrics[0], "evaluatorName": "nobody"}]))

    code, _, said = run(evaltap, "agents:nowhere", "--case", "summ")

    assert code == 2
    for part in ("no such case", "nobody", "agents has no 'nowhere'"):
        assert part in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "says"),
    [
        ("agents", "expected package.module:name"),
        ("nowhere:x", "nowhere cannot be imported"),
        ("agents:not_an_agent", "found int"),
        ("agents:anser", "did you mean 'answer'"),
    ],
)
def test_an_agent_that_is_none_is_refused(evaltap: Evaltap, agent: str, says: str) -> None:
    code, _, said = run(evaltap, agent)

    assert code == 2
    assert says in said


@pytest.mark.slow
def test_inputs_that_cannot_be_said_again_are_named(evaltap: Evaltap, tmp_path: Path) -> None:
    picture = case("picture", "add 1 2")
    picture["conversation"][0]["userContent"]["content_parts"] = [{"type": "image", "sha256": "ab"}]
    cut = case("cut", "add 1 2")
    cut["conversation"][0]["capture"] = {"userContent": "truncated"}
    empty = case("empty", "add 1 2")
    del empty["conversation"][0]["userContent"]
    dropped = case("dropped", "[REDACTED:content]", expected=False)
    dropped["conversation"][0]["capture"] = {"userContent": "redacted"}
    hashed = case("hashed", "<hash:3da4fa4f3f53>", expected=False)
    write_set(tmp_path, [picture, cut, empty, dropped, hashed, {"evalId": "none"}])

    code, _, said = run(evaltap)

    assert code == 2
    for part in (
        "picture: turn 1 has an image",
        "cut: turn 1",
        "empty: turn 1",
        "dropped: turn 1 has a user message that was recorded as redacted",
        "hashed: turn 1 has a user message that was recorded as a hash",
        "none: has no turns",
    ):
        assert part in said


@pytest.mark.slow
def test_a_higher_number_of_runs_buys_only_the_difference(evaltap: Evaltap) -> None:
    run(evaltap, "agents:answer", "--runs", "2")
    code, found, _ = run(evaltap, "agents:answer", "--runs", "5", "--resume")

    assert code == 0
    assert (found["agent_calls"], calls()) == (6, 10)
    assert found["units"] == {"planned": 10, "scored": 10, "crashed": 0, "invalid": 0, "skipped": 4}


@pytest.mark.slow
def test_pass_hat_k_says_how_many_cases_have_k_runs(evaltap: Evaltap) -> None:
    Path("costly.py").write_text(
        "def answer(message, turn):\n    turn.model('m', cost_usd=0.1)\n    return '5'\n"
    )
    command = ("run", "math.evalset.json", "--agent", "costly:answer", "--db", "x.duckdb", "--metrics",
               write("m.json", [{"metricName": "run_succeeded", "threshold": 1}]), "--runs", "2",
               "--budget-usd", "0.25", "--concurrency", "1")  # fmt: skip

    _, out, _ = evaltap(*command)

    assert "pass^2 100.0% (1 of 2 cases with 2 runs)" in out


@pytest.mark.slow
def test_an_experiment_does_not_go_on_with_something_else(evaltap: Evaltap, tmp_path: Path) -> None:
    run(evaltap)
    other = run(evaltap, "agents:wrong", "--resume")
    Path("metrics.json").write_text(
        Path("metrics.json").read_text().replace('"threshold": 1', '"threshold": 0.5', 1)
    )
    stricter = run(evaltap, "agents:answer", "--resume")
    write_set(tmp_path, [case("sum", "add 2 4")])
    changed = run(evaltap, "agents:answer", "--resume")

    assert [one[0] for one in (other, stricter, changed)] == [2, 2, 2]
    assert "agent was 'agents:answer', is 'agents:wrong'" in other[2]
    assert "metric tool_trajectory_avg_score has changed" in stricter[2]
    assert "set has changed" in changed[2]
    assert "metric" not in changed[2], "of which only the references differ"
    assert calls() == 2


@pytest.mark.slow
def test_chosen_cases_only(evaltap: Evaltap) -> None:
    _, one, _ = run(evaltap, "agents:answer", "--case", "sum")
    _, other, _ = run(evaltap, "agents:answer", "--filter", "prod*")
    unknown = run(evaltap, "agents:answer", "--case", "summ")

    assert [row["eval_id"] for row in one["cases"]] == ["sum"]
    assert [row["eval_id"] for row in other["cases"]] == ["product"]
    assert unknown[0] == 2
    assert "did you mean 'sum'" in unknown[2]


@pytest.mark.slow
def test_a_dry_run_says_what_would_be_done_and_calls_nothing(evaltap: Evaltap) -> None:
    code, found, _ = run(evaltap, "agents:answer", "--runs", "4", "--dry-run")

    assert code == 0
    assert (found["units"], found["agent_calls"], calls()) == (8, 8, 0)
    assert found["smallest_drop"]["independent"] < found["smallest_drop"]["alike"]


@pytest.mark.slow
def test_two_versions_in_one_store_are_compared_case_by_case(evaltap: Evaltap) -> None:
    run(evaltap, "agents:answer", "--runs", "5", "--version", "1")
    code, found, _ = run(evaltap, "agents:wrong", "--runs", "5", "--version", "2")
    compared = evaltap("compare", "x.duckdb@version=1", "x.duckdb@version=2")
    traffic = evaltap("compare", "x.duckdb@version=1", "x.duckdb@environment=experiment")
    with Store("x.duckdb") as store, Readers(store).reading(seconds=60) as reader:
        page = shown(
            reader,
            PageRequest(
                {"a": "version:1", "b": "version:2"}, Person("ann", "admin"), Path("x.duckdb")
            ),
        )

    assert code == 1
    assert found["metrics"][0]["pass_rate"] == 0.0
    assert compared[0] == 1
    assert "-100.0 points" in compared[1]
    assert re.search(r"^newly failing \(2\)$", compared[1], re.MULTILINE)
    assert re.search(r"^  sum\s+5/5 -> 0/5", compared[1], re.MULTILINE)
    assert "sessions" in traffic[1], "other slices are traffic, of which nothing is paired"
    assert (page.paired, page.verdict) == (2, "regression")


@pytest.mark.slow
def test_the_target_ends_the_experiment_as_soon_as_it_is_certain(evaltap: Evaltap) -> None:
    code, found, _ = run(evaltap, "agents:answer", "--runs", "60", "--until", "pass_rate>=0.7@95%")
    missed = run(evaltap, "agents:wrong", "--runs", "60", "--until", "pass_rate>=0.7@95%")

    assert (code, found["until"], found["stopped_by"]) == (0, "reached", "until")
    assert found["units"]["scored"] < 60
    assert (missed[0], missed[1]["until"]) == (1, "missed")


@pytest.mark.slow
def test_one_result_file_holds_all_runs(evaltap: Evaltap) -> None:
    run(evaltap, "agents:answer", "--runs", "3", "--result", "r.evalset_result.json")

    result = read_result(Path("r.evalset_result.json"))
    assert result.summary is not None
    assert result.summary.num_runs == 3
    assert [(one.eval_id, one.run_id) for one in result.eval_case_results if one] == [
        (eval_id, trial) for trial in (1, 2, 3) for eval_id in ("sum", "product")
    ]
    assert {one.final_eval_status for one in result.eval_case_results if one} == {"passed"}
    assert all(one.eval_metric_result_per_invocation for one in result.eval_case_results if one)


@pytest.mark.slow
def test_pseudonyms_reach_the_agent_as_values_and_the_record_as_pseudonyms(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    said = "write to <email:5345e9> or call <phone:00aa11bb>"
    turn = {
        "userContent": {"role": "user", "content": said},
        "finalResponse": {"role": "assistant", "content": f"user: {said}"},
    }
    write_set(tmp_path, [{"evalId": "p", "conversation": [turn], "sessionInput": {}}])
    Path("agents.py").write_text(
        "def echo(messages):\n"
        "    text = messages[-1]['content']\n"
        "    open('seen.txt', 'w').write(text)\n"
        "    return 'user: ' + text\n"
    )

    _, found, _ = run(evaltap, "agents:echo")

    seen = Path("seen.txt").read_text()
    assert "user-5345e9@example.com" in seen
    assert "<" not in seen
    with Store("x.duckdb") as store:
        recorded = store.rows("SELECT user_text, final_text FROM latest_turns")
    assert recorded == [(said, f"user: {said}")]
    assert found["metrics"][1]["pass_rate"] == 1.0


@pytest.mark.slow
def test_a_message_that_no_text_can_hold_is_kept_readable(evaltap: Evaltap) -> None:
    Path("agents.py").write_text("def odd(messages):\n    raise ValueError('a\\ud800b')\n")

    code, found, _ = run(evaltap, "agents:odd")

    assert code == 1
    assert found["cases"][0]["reasons"] == ["ValueError: a?b"]


@pytest.mark.parametrize(
    "write",
    [
        str.upper,
        lambda value: value.replace(" ", ""),
        lambda value: value.replace("+", "00"),
        lambda value: value.replace("+44 ", "0").replace(" ", "-"),
        lambda value: value if "@" in value else " ".join(re.findall(".{1,4}", value)),
    ],
)
def test_an_invented_value_is_known_however_an_agent_writes_it(write: Callable[[str], str]) -> None:
    said = "<email:5345e9>,<phone:00aa11bb>,<card:00aa11bb>,<iban:00aa11bb>"
    inventions = Inventions()
    given = [write(one) for one in inventions.fill(said).split(",")]

    assert ",".join(inventions.restore(given)) == said


@pytest.mark.slow
def test_more_telephone_numbers_than_there_are_for_drama_are_invented_or_left() -> None:
    inventions = Inventions()
    said = [f"<phone:{number * 7919:012x}>" for number in range(3_000)]

    given = [inventions.fill(one) for one in said]

    assert len(set(given)) == len(said)
    assert not any("<" in one for one in given)
    assert inventions.restore(given) == said
    assert given == [inventions.fill(one) for one in said]


@pytest.mark.slow
def test_the_peers_quick_start_runs_as_printed(evaltap: Evaltap, tmp_path: Path) -> None:
    Path("calc.py").write_text(
        "def agent(messages, turn):\n"
        "    _, operation, a, b = messages[-1]['content'].split()\n"
        "    a, b = int(a), int(b)\n"
        "    def calculator(operation, a, b):\n"
        "        result = a + b if operation == 'add' else a * b\n"
        "        return {'a': a, 'b': b, 'operation': operation, 'result': result}\n"
        "    found = turn.run_tool('calculator', {'operation': operation, 'a': a, 'b': b}, calculator)\n"
        "    return f\"calc result: {found['result']}\"\n"
    )
    code, out, _ = evaltap(
        "run", str(EXAMPLES / "local/math-basic.evalset.json"), "--agent", "calc:agent",
        "--metrics", str(EXAMPLES / "local/math-basic.metrics.json"), "--db", "x.duckdb", "--json",
    )  # fmt: skip

    assert code == 0
    assert json.loads(out)["metrics"][0]["pass_rate"] == 1.0


@pytest.mark.slow
def test_metrics_that_read_no_reference_are_compared_with_those_of_production(
    evaltap: Evaltap,
) -> None:
    metrics = [{"metricName": "run_succeeded", "threshold": 1}]
    Path("free.json").write_text(json.dumps(metrics))
    recorded = case("sum", "add 2 3")
    recorded["actualConversation"] = recorded["conversation"]
    Path("traffic.jsonl").write_text(json.dumps({**recorded, "evalMode": "trace"}))
    evaltap("score", "traffic.jsonl", "--metrics", "free.json", "--db", "cases.duckdb")
    evaltap("run", "math.evalset.json", "--agent", "agents:answer", "--metrics", "free.json",
            "--db", "x.duckdb")  # fmt: skip

    digests = []
    for path in ("cases.duckdb", "x.duckdb"):
        with Store(path) as store:
            digests += store.column("SELECT DISTINCT metric_digest FROM scores")

    assert digests[0] == digests[1]
