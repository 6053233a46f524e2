"""`evaltap run` on production's cases: the recording answers the agent's tool calls, and no tool runs."""

import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.store.database import Store
from evaltap.experiments.plan import read_set
from evaltap.recorder.privacy.pseudonyms import derived_key
from evaltap.recorder.privacy.redactor import PatternRedactor
from support.builders.cases import RESPONSE
from support.builders.commands import Evaltap
from support.worlds.recorded_shop import call, order, recorded, write_shop


@pytest.fixture
def evaltap(evaltap: Evaltap, tmp_path: Path) -> Evaltap:
    write_shop(tmp_path)
    return evaltap


def run(evaltap: Evaltap, agent: str, *more: str) -> tuple[int, Any, str]:
    arguments = ("run", "shop.evalset.json", "--agent", agent, "--metrics", "metrics.json",
                 "--db", "x.duckdb", "--json", *more)  # fmt: skip
    code, out, said = evaltap(*arguments)
    return code, json.loads(out) if out.strip() else None, said


def real_calls() -> int:
    return len(Path("real.txt").read_text()) if Path("real.txt").exists() else 0


@pytest.mark.slow
def test_the_recorded_agent_gets_every_recorded_result_and_passes_every_metric(
    evaltap: Evaltap,
) -> None:
    code, found, said = run(evaltap, "shop:answer", "--runs", "3")

    assert code == 0, said
    assert "answered by the recording (get_order, refund)" in said
    assert (found["mocks"]["hits"], found["mocks"]["misses"], found["mocks"]["unused"]) == (9, 0, 0)
    assert [one["pass_rate"] for one in found["metrics"]] == [1.0, 1.0]
    assert real_calls() == 0
    with Store("x.duckdb") as store:
        rows = store.rows(
            "SELECT DISTINCT tool_name, result::VARCHAR, error_type FROM latest_tool_calls ORDER BY ALL"
        )
        said_ = store.column("SELECT DISTINCT arguments->>'mail' FROM latest_tool_calls ORDER BY 1")
    assert rows == [
        ("get_order", '{"status":"lost"}', None),
        ("get_order", '{"status":"shipped"}', None),
        ("refund", None, "TimeoutError"),
    ]
    assert said_ == ["<email:5345e9>", None], "invented values are pseudonyms again"


@pytest.mark.slow
def test_an_address_that_an_agent_has_of_its_own_matches_its_pseudonym(
    evaltap: Evaltap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_REDACTION_KEY", key := "a key of production")
    own = PatternRedactor(derived_key(key)).value("shop@example.org")
    sent = call("send", {"sender": own, "to": "<email:5345e9>", "cc": "raw@example.org"}, "sent")
    cases = [recorded("s-1", ("I am <email:5345e9>", [sent], "Sent."))]
    (tmp_path / "own.evalset.json").write_text(json.dumps({"evalSetId": "o", "evalCases": cases}))
    (tmp_path / "mailing.py").write_text(
        "def answer(messages, turn):\n"
        "    to = messages[-1]['content'].split()[-1].title()\n"
        "    given = {'sender': 'Shop@example.org', 'to': to, 'cc': 'raw@example.org'}\n"
        "    return turn.run_tool('send', given, None).title() + '.'\n"
    )

    code, out, _ = evaltap("run", "own.evalset.json", "--agent", "mailing:answer", "--metrics",
                           "metrics.json", "--db", "x.duckdb", "--json")  # fmt: skip

    assert (code, json.loads(out)["mocks"]["hits"]) == (0, 1)


@pytest.mark.slow
def test_a_call_without_a_recorded_result_is_an_invalid_run_with_its_reason(
    evaltap: Evaltap,
) -> None:
    code, found, _ = run(evaltap, "shop:renamed")

    assert code == 3
    assert found["units"]["invalid"] == 2
    assert all("mock miss: fetch_order" in one["reasons"][0] for one in found["cases"])
    assert [one["pass_rate"] for one in found["metrics"]] == [None, None]
    assert real_calls() == 0


@pytest.mark.slow
def test_a_case_of_a_later_turn_gives_the_agent_what_was_said_before(evaltap: Evaltap) -> None:
    said = [
        {"role": "user", "content": "where is A-1"},
        {"role": "assistant", "content": "It is lost."},
    ]
    instructions = {"role": "system", "content": "You are a shop."}
    later = recorded("s-1#2", ("and now?", [], "It is lost."))
    later["actualConversation"][0]["contextMessages"] = [instructions, *said]
    user = {"role": "user", "content": "and now?"}
    turn = {"userContent": user, "contextMessages": [instructions, *said]}
    given = {"evalId": "row", "conversation": [turn], "sessionInput": {}}
    data = {"evalSetId": "shop", "evalCases": [later, given]}
    Path("shop.evalset.json").write_text(json.dumps(data))
    Path("metrics.json").write_text(json.dumps([{"metricName": "run_succeeded", "threshold": 1}]))
    Path("echo.py").write_text(
        "def answer(messages):\n    return ' | '.join(one['role'] for one in messages)\n"
    )

    assert run(evaltap, "echo:answer")[0] == 0

    with Store("x.duckdb") as store:
        answers = store.rows("SELECT eval_id, final_text FROM latest_turns ORDER BY 1")
    assert answers == [
        ("row", "system | user | assistant | user"),
        ("s-1#2", "user | assistant | user"),
    ]


@pytest.mark.parametrize(
    ("conversations", "said_before"),
    [
        (["ex1 ex2 q1", "ex1 ex2 q2"], ["", ""]),
        (["ex1 ex2 q1", "ex1 ex2 q2 a2 q3"], ["", "q2 a2"]),
        (["q1 a1 q2", "q1 a1 q2 a2 q3"], ["q1 a1", "q1 a1 q2 a2"]),
        (["q1 a1 q2", "q1 a1 q2"], ["q1 a1", "q1 a1"]),
        (["q1 a1 q2", "q3"], ["q1 a1", ""]),
    ],
    ids=[
        "examples",
        "examples and a history",
        "parts of a talk",
        "copies",
        "a talk and a first turn",
    ],
)
def test_what_all_recorded_cases_of_a_set_begin_with_are_examples_in_the_agents_prompt(
    tmp_path: Path, conversations: list[str], said_before: list[str]
) -> None:
    cases = []
    for number, conversation in enumerate(conversations):
        *before, question = conversation.split()
        case = recorded(f"s-{number}", (question, [], "Yes."))
        roles = zip(("user", "assistant") * 9, before, strict=False)
        case["actualConversation"][0]["contextMessages"] = [
            {"role": "system", "content": "Be kind."},
            *({"role": role, "content": text} for role, text in roles),
        ]
        cases.append(case)
    path = tmp_path / "set.evalset.json"
    path.write_text(json.dumps({"evalSetId": "s", "evalCases": cases}))

    found = read_set(path)

    assert [" ".join(one["content"] for one in case.context) for case in found.cases] == said_before


@pytest.mark.slow
def test_a_mended_agent_passes_cases_that_expect_different_things(evaltap: Evaltap) -> None:
    right = call("get_order", {"id": "A-1", "mail": "<email:5345e9>"}, {"status": "shipped"})
    wrong = call("fetch_order", {"id": "A-1"}, {"status": "lost"})
    answer = {"role": "assistant", "content": "It is shipped."}
    said = "I am <email:5345e9>, where is A-1"
    cases: dict[str, dict[str, Any]] = {
        "calls": {"tools": [right], "capture": {"finalResponse": "missing"}},
        "answer": {"finalResponse": answer, "capture": {"tools": "missing"}},
        "nothing": {"capture": {"finalResponse": "missing", "tools": "missing"}},
    }
    made = {name: recorded(name, (said, [wrong], "It is lost.")) for name in cases}
    for name, expected in cases.items():
        user = made[name]["actualConversation"][0]["userContent"]
        made[name]["conversation"] = [{"userContent": user, **expected}]
    made["answer"]["actualConversation"][0]["tools"] = [right]
    data = {"evalSetId": "shop", "evalCases": [*made.values()]}
    Path("shop.evalset.json").write_text(json.dumps(data))
    metrics = [{"metricName": "trajectory_exact", "threshold": 1}, RESPONSE]
    Path("metrics.json").write_text(json.dumps(metrics))

    code, found, told = run(evaltap, "shop:answer", "--case", "calls", "--case", "answer")

    assert code == 0, told
    counted = ("passed", "not_evaluated", "not_applicable")
    assert [[one[name] for name in counted] for one in found["metrics"]] == [[1, 0, 1], [1, 0, 1]]
    assert evaltap("report", "x.duckdb")[0] == 0
    assert run(evaltap, "shop:renamed", "--case", "calls")[0] == 1
    assert run(evaltap, "shop:answer", "--case", "nothing")[0] == 3, "nothing was judged"


def run_two_versions(evaltap: Evaltap) -> None:
    """Run version 1, and version 2, in which the case `lost` is invalid."""
    run(evaltap, "shop:answer", "--version", "1")
    Path("partly.py").write_text(
        "import shop\n\n"
        "def answer(messages, turn):\n"
        "    is_lost = messages[-1]['content'].endswith('A-2')\n"
        "    return (shop.renamed if is_lost else shop.answer)(messages, turn)\n"
    )
    run(evaltap, "partly:answer", "--version", "2")


@pytest.mark.slow
def test_scoring_the_store_of_an_experiment_leaves_its_verdicts_and_no_invalid_run_gets_one(
    evaltap: Evaltap,
) -> None:
    run_two_versions(evaltap)
    with Store("x.duckdb") as store:
        before = store.rows("FROM latest_scores ORDER BY ALL")

    score = ("score", "x.duckdb", "--metrics", "metrics.json")
    code, out, said = evaltap(*score)
    _, _, said_of_one = evaltap(*score, "--filter", "shipped")

    assert (code, len(before)) == (0, 6)
    with Store("x.duckdb") as store:
        assert store.rows("FROM latest_scores ORDER BY ALL") == before
    assert "left out: 1 invalid run (no evidence, in no rate), e.g. mock miss: fetch_order" in said
    assert "trajectory_exact: 3 runs of experiments keep the scores" in said
    assert "0 cases scored now" in out
    assert [line.split()[:2] for line in out.splitlines() if line.startswith("trajectory")] == [
        ["trajectory_exact", "3"]
    ]
    assert "invalid" not in said_of_one
    assert "trajectory_exact: 2 runs" in said_of_one

    evaltap(*score, "--references", "shop.evalset.json")

    with Store("x.duckdb") as store:
        again = store.column(
            "SELECT status FROM latest_scores WHERE metric_name = 'trajectory_exact'"
        )
        assert again == ["passed"] * 3
        assert len(store.rows("FROM scores")) == len(before) + 3


@pytest.mark.slow
def test_a_comparison_says_which_runs_are_invalid(evaltap: Evaltap) -> None:
    run_two_versions(evaltap)
    run(evaltap, "shop:renamed", "--version", "3")

    _, out, _ = evaltap("compare", "x.duckdb@version=1", "x.duckdb@version=2")
    code, _, said = evaltap("compare", "x.duckdb@version=1", "x.duckdb@version=3")

    assert "note: x.duckdb@version=2: 1 of 2 runs are invalid" in out
    assert code == 2
    assert (
        "x.duckdb@version=3: 2 of 2 runs are invalid (no evidence, in no rate), e.g. mock miss"
        in said
    )


@pytest.mark.slow
def test_the_runs_of_a_version_are_exported_and_compared_with_others(evaltap: Evaltap) -> None:
    run_two_versions(evaltap)

    code, _, said = evaltap("runs", "export", "x.duckdb@version=1", "--out", "1.json")
    _, out, _ = evaltap("compare", "1.json", "x.duckdb@version=1")
    _, lacks, _ = evaltap("compare", "1.json", "x.duckdb@version=2")
    refused, _, why = evaltap("runs", "export", "x.duckdb@app=shop", "--out", "2.json")

    assert (code, said) == (0, "evaltap runs: 2 cases written to 1.json\n")
    assert "2 cases, 2 and 2 trials" in out
    assert "note: x.duckdb@version=2: 1 of 2 runs are invalid" in lacks
    assert refused == 2
    assert "x.duckdb@app=shop: no runs of `evaltap run`" in why


@pytest.mark.slow
def test_an_agent_that_swallows_the_miss_is_invalid_all_the_same(evaltap: Evaltap) -> None:
    code, found, _ = run(evaltap, "shop:swallows")

    assert (code, found["units"]["invalid"], real_calls()) == (3, 2, 0)


@pytest.mark.slow
def test_a_tool_that_a_thread_of_the_agent_calls_is_answered_or_does_not_run(
    evaltap: Evaltap,
) -> None:
    _, found, _ = run(evaltap, "shop:in_threads")
    assert (found["units"]["scored"], found["mocks"]["hits"]) == (2, 2)

    code, found, _ = run(evaltap, "shop:strays")
    assert (code, found["units"]["invalid"]) == (3, 2)
    assert "was called outside of a run" in found["cases"][0]["reasons"][0]
    assert real_calls() == 0

    run(evaltap, "shop:strays", "--read-only", "get_order")
    assert real_calls() == 2


@pytest.mark.slow
def test_a_renamed_tool_is_suggested_and_can_be_mapped(evaltap: Evaltap) -> None:
    evaltap("run", "shop.evalset.json", "--agent", "shop:renamed", "--metrics", "metrics.json",
            "--db", "y.duckdb")  # fmt: skip
    _, out, _ = evaltap("run", "shop.evalset.json", "--agent", "shop:renamed", "--metrics",
                        "metrics.json", "--db", "z.duckdb")  # fmt: skip
    assert "--rename-tool fetch_order=get_order" in out

    code, found, _ = run(
        evaltap, "shop:renamed", "--rename-tool", "fetch_order=get_order",
        "--ignore-argument", "fetch_order.mail",
    )  # fmt: skip

    assert (code, found["units"]["scored"], found["mocks"]["hits"]) == (1, 2, 2)
    assert found["mocks"]["by_tool"]["refund"]["unused"] == 1


@pytest.mark.slow
def test_only_tools_named_read_only_run_where_nothing_was_recorded(evaltap: Evaltap) -> None:
    code, found, said = run(evaltap, "shop:renamed", "--read-only", "fetch_order")

    assert (code, found["units"]["scored"]) == (1, 2)
    assert "tools that may run for real: fetch_order (not recorded)" in said
    assert real_calls() == 2
    assert found["mocks"]["real"] == 2


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        (("--mocks", "off"), "comes from production"),
        (("--rename-tool", "a=get_ordr"), "did you mean 'get_order'"),
        (("--ignore-argument", "get_ordr.mail"), "did you mean 'get_order'"),
        (("--on-miss", "get_ordr=closest"), "did you mean 'get_order'"),
        (("--on-miss", "get_order=real"), "name it in --read-only"),
        (("--on-miss", "refund=llm"), "invented results of tools: judge not configured: no model"),
        (("--on-miss", "get_order=maybe"), "expected fail, real, llm, closest"),
        (("--ignore-argument", "get_order"), "expected TOOL.ARGUMENT"),
    ],
)
def test_what_is_wrong_about_tools_is_said_before_the_first_call(
    evaltap: Evaltap, more: tuple[str, ...], problem: str
) -> None:
    code, _, said = run(evaltap, "shop:answer", *more)

    assert code == 2
    assert problem in said
    assert real_calls() == 0


@pytest.mark.slow
def test_tools_run_for_real_where_that_is_allowed(evaltap: Evaltap) -> None:
    code, _, said = run(evaltap, "shop:answer", "--mocks", "off", "--allow-real-tools")

    assert code == 0, "the same calls, which is all that trajectory_exact compares"
    assert "run for real" in said
    assert real_calls() == 2


@pytest.mark.slow
def test_a_set_of_inputs_only_says_that_it_holds_no_results(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    said = {"userContent": {"role": "user", "content": "where is A-1"}}
    bare = {"evalId": "a", "conversation": [said], "source": {"curation": {}}}
    write_shop(tmp_path, [bare])

    code, _, problem = run(evaltap, "shop:answer")

    assert code == 2
    assert "hold no recorded results: a" in problem


@pytest.mark.slow
def test_a_result_that_was_not_recorded_makes_the_unit_invalid_and_says_so(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    lost = {**order("A-1", "shipped"), "capture": {"result": "truncated"}}
    write_shop(tmp_path, [recorded("cut", ("where is A-1", [lost], "It is shipped."))])

    _, found, _ = run(evaltap, "shop:answer")

    assert found["cases"][0]["reasons"] == [
        'mock miss: get_order({"id":"A-1","mail":"<email:5345e9>"}) result of get_order was cut'
    ]


@pytest.mark.slow
def test_declared_mocks_of_trpc_agent_go_answer_before_tools(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    mocks = [
        {"name": "get_order", "arguments": {"expected": {"id": "B"}, "onlyTree": {"id": True}},
         "result": {"status": "other"}},
        {"name": "get_order", "arguments": {"ignore": True}, "result": {"status": "mocked"}},
    ]  # fmt: skip
    turn = {
        "userContent": {"role": "user", "content": "where is A-1"},
        "finalResponse": {"role": "assistant", "content": "It is mocked."},
        "toolMock": {"actual": mocks},
    }
    write_shop(tmp_path, [{"evalId": "a", "conversation": [turn]}])

    _, found, said = run(evaltap, "shop:answer")

    assert "declared mocks" in said
    assert (found["mocks"]["hits"], real_calls()) == (1, 0)


@pytest.mark.slow
def test_wrong_declared_mocks_are_listed(evaltap: Evaltap, tmp_path: Path) -> None:
    turn = {
        "userContent": {"role": "user", "content": "hello"},
        "toolMock": {"actual": [{"name": "a"}, {"name": "b", "arguments": {}, "result": 1}]},
    }
    write_shop(tmp_path, [{"evalId": "a", "conversation": [turn]}])

    code, _, said = run(evaltap, "shop:answer")

    assert code == 2
    assert "toolMock.actual 1: needs either a result or an llmGenerator" in said
    assert "toolMock.actual 2: has arguments without expected" in said


NODE = """
const lines = require("readline").createInterface({ input: process.stdin });
const ask = async (method, params) => {
  const reply = await fetch(process.env.EVALTAP_MOCKS_URL + "/mcp", {
    method: "POST", headers: { "content-type": "application/json" },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method, params }),
  });
  return reply.json();
};
lines.on("line", async (line) => {
  const id = JSON.parse(line).messages.at(-1).content.split(" ").at(-1);
  const tools = (await ask("tools/list", {})).result.tools.map((tool) => tool.name);
  const args = { id, mail: "user-5345e9@example.com" };
  const order = (await ask("tools/call", { name: tools[0], arguments: args })).result.structuredContent;
  let answer = `It is ${order.status}.`;
  if (order.status === "lost") {
    const refund = await ask("tools/call", { name: "refund", arguments: { id } });
    if (refund.result.isError) answer = "The refund timed out.";
  }
  console.log(JSON.stringify({ answer }));
});
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
def test_an_agent_in_javascript_takes_its_tools_from_the_recording(
    evaltap: Evaltap, tmp_path: Path
) -> None:
    (tmp_path / "agent.cjs").write_text(NODE)

    code, _, said = run(evaltap, "command:node agent.cjs")
    assert code == 2
    assert "EVALTAP_MOCKS_URL" in said

    code, found, said = run(evaltap, "command:node agent.cjs", "--mocks", "recorded")

    assert code == 0, said
    assert (found["mocks"]["hits"], found["units"]["scored"]) == (3, 2)


@pytest.mark.slow
@pytest.mark.parametrize("option", [("--read-only", "get_order"), ("--allow-real-tools",)])
def test_a_served_tool_cannot_run_so_that_a_call_without_a_recorded_result_is_a_miss(
    evaltap: Evaltap, tmp_path: Path, option: tuple[str, ...]
) -> None:
    (tmp_path / "agent.py").write_text(
        "import json, os, sys, urllib.error, urllib.request\n"
        "url = os.environ['EVALTAP_MOCKS_URL'] + '/tools/get_order'\n"
        "for line in sys.stdin:\n"
        "    try: urllib.request.urlopen(url, b'{}').read()\n"
        "    except urllib.error.HTTPError: pass\n"
        "    print(json.dumps({'answer': 'It is lost.'}), flush=True)\n"
    )
    agent = shlex.join(["command:" + sys.executable, "agent.py"])

    code, out, said = evaltap(
        "run", "shop.evalset.json", "--agent", agent, "--metrics", "metrics.json",
        "--db", "x.duckdb", "--mocks", "recorded", *option,
    )  # fmt: skip

    assert code == 3
    assert "tools that may run for real: none of those that are served" in said
    assert "2 without a recorded result" in out
    assert "for real" not in out
    assert "--on-miss get_order=closest" in out
    assert "--read-only" not in out


@pytest.mark.slow
def test_a_gate_runs_the_agent_on_the_cases_first(evaltap: Evaltap) -> None:
    metrics = json.loads(Path("metrics.json").read_text())[1:]
    gate = {"dimensions": [{"name": "runs", "threshold": 1, "metrics": metrics}]}
    Path("gate.json").write_text(json.dumps(gate))
    arguments = ("gate", "shop.evalset.json", "--gate", "gate.json", "--json", "--agent")

    code, out, said = evaltap(*arguments, "shop:answer", "--runs", "2")
    assert code == 0, said
    assert len(json.loads(out)["cases"]) == 4

    code, _, said = evaltap(*arguments, "shop:renamed")
    assert code == 2
    assert "no case could be checked" in said
    assert "mock miss: fetch_order" in said

    code, _, _ = evaltap(*arguments, "shop:broken")
    assert (code, real_calls()) == (1, 0)


@pytest.mark.slow
def test_an_agent_is_answered_in_time_for_a_gate_that_limits_latency(evaltap: Evaltap) -> None:
    slow = call("get_order", {"id": "A-1", "mail": "user-5345e9@example.com"},
                {"status": "shipped"}, durationMs=400.0)  # fmt: skip
    cases = [recorded("slow", ("Where is A-1", [slow], "It is shipped."))]
    Path("slow.evalset.json").write_text(json.dumps({"evalSetId": "slow", "evalCases": cases}))
    limit = {"metricName": "completed_within", "threshold": 1,
             "criterion": {"operations": {"maxSeconds": 0.3}}}  # fmt: skip
    suite = {
        "metricName": "metric_suite",
        "threshold": 1,
        "criterion": {"suite": {"metrics": [limit]}},
    }
    gate = {"dimensions": [{"name": "is quick", "threshold": 1, "metrics": [suite]}]}
    Path("gate.json").write_text(json.dumps(gate))

    code, out, _ = evaltap(
        "gate", "slow.evalset.json", "--gate", "gate.json", "--agent", "shop:answer"
    )

    assert (code, "is quick" in out) == (1, True), out


@pytest.mark.slow
def test_a_gate_counts_the_runs_that_are_no_evidence(evaltap: Evaltap) -> None:
    cases = [recorded("ok", ("Hi", [], "Hello.")), recorded("misses", ("Find A-1", [], "Found."))]
    Path("some.evalset.json").write_text(json.dumps({"evalSetId": "some", "evalCases": cases}))
    Path("finder.py").write_text(
        "def answer(messages, turn):\n"
        "    if 'Find' in messages[-1]['content']:\n"
        "        turn.run_tool('find', {'id': 1}, None)\n"
        "    return 'Hello.'\n"
    )
    metrics = [{"metricName": "run_succeeded", "threshold": 1}]
    gate = {"dimensions": [{"name": "runs", "threshold": 1, "metrics": metrics}]}
    Path("gate.json").write_text(json.dumps(gate))
    given = ("gate", "some.evalset.json", "--gate", "gate.json", "--agent", "finder:answer")

    code, out, _ = evaltap(*given)
    assert code == 3
    assert "1 of 1 case passed the gate; 1 run could not be checked" in out

    code, out, _ = evaltap(*given, "--json", "--fail-on", "never")
    found = json.loads(out)
    assert (code, found["passed"], found["exit_code"]) == (0, False, 0)
    assert found["not_checked"][0].startswith("misses: mock miss: find(")


@pytest.mark.slow
def test_what_is_advised_for_a_tool_that_was_never_recorded_is_accepted(evaltap: Evaltap) -> None:
    given = ("run", "shop.evalset.json", "--metrics", "metrics.json", "--db", "x.duckdb")

    _, out, _ = evaltap(*given, "--agent", "shop:renamed")

    advice = "if the calls are right: --on-miss fetch_order=llm, or --read-only fetch_order to let"
    assert advice in out


@pytest.mark.slow
def test_from_python_and_pytest_tools_are_answered_as_well(
    evaltap: Evaltap, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from evaltap.experiments import MockChoice, evaluate, run_case
    from evaltap.schemas.errors import InputError

    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shop", raising=False)  # another test's
    found = evaluate("shop.evalset.json", "metrics.json", agent="shop:answer")
    assert found.outcome.mocks["hits"] == 3

    case = json.loads(Path("shop.evalset.json").read_text())["evalCases"][0]
    assert run_case("shop:answer", case)["actualConversation"][0]["tools"][0]["result"] == {
        "status": "shipped"
    }
    with pytest.raises(InputError, match="shipped: mock miss: fetch_order"):
        run_case("shop:renamed", case)
    assert real_calls() == 0
    run_case("shop:renamed", case, tools=MockChoice(allow_real=True))
    assert real_calls() == 1
