"""`evaltap compare` and `gate` of versions that `evaltap run` ran: which cases are the same."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.api import evaluate
from evaltap.evaluator.page.request import PageRequest
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.page.views import compare
from evaltap.evaluator.store.database import Store
from support.builders.commands import Evaltap

pytestmark = pytest.mark.slow

AGENTS = '''
def clerk(messages):
    return "booked"

def careless(messages):
    return "done" if "seat" in messages[0]["content"] else "booked"

def curious(messages):
    """A simulated user whose second text depends on the first answer."""
    heard = [one["content"] for one in messages if one["role"] == "user"]
    said = [one["content"] for one in messages if one["role"] == "assistant"]
    return ["seat", f"why {heard[-1]}?", "###STOP###"][len(said)]
'''
BOOKS = {
    "metricName": "books",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "b", "type": "contains", "values": ["booked"]}]}},
}


def asked(eval_id: str, text: str, app: str = "hall") -> dict[str, Any]:
    turn = {"userContent": {"role": "user", "content": text}}
    return {"evalId": eval_id, "conversation": [turn], "sessionInput": {"appName": app}}


def write(name: str, *cases: dict[str, Any]) -> None:
    Path("hall.py").write_text(AGENTS)
    Path("metrics.json").write_text(json.dumps([BOOKS]))
    Path(f"{name}.evalset.json").write_text(json.dumps({"evalSetId": name, "evalCases": cases}))


def run(evaltap: Evaltap, name: str, version: str, agent: str = "clerk", *more: str) -> None:
    _, out, said = evaltap("run", f"{name}.evalset.json", "--agent", f"hall:{agent}", "--metrics",
                           "metrics.json", "--db", "x.duckdb", "--version", version, *more)  # fmt: skip
    assert out, said


def compared(evaltap: Evaltap, *more: str, base: str = "x.duckdb@version=1") -> tuple[int, Any]:
    code, out, said = evaltap("compare", base, "x.duckdb@version=2", *more, "--json")
    assert out, said
    return code, json.loads(out)


def test_what_a_simulated_user_said_is_no_input_that_changed(evaltap: Evaltap) -> None:
    plan = {"conversationPlan": "Book a seat.", "stopSignal": "###STOP###"}
    write("hall", *({"evalId": f"s-{n}", "conversationScenario": plan} for n in range(8)))
    user = ("--user", "hall:curious", "--result")
    run(evaltap, "hall", "1", "clerk", *user, "1.evalset_result.json")
    run(evaltap, "hall", "2", "careless", *user, "2.evalset_result.json")
    evaltap("runs", "export", "x.duckdb@version=1", "--out", "1.json")

    code, out, _ = evaltap("compare", "1.evalset_result.json", "2.evalset_result.json", "--json")
    assert (code, json.loads(out)["changed"]) == (1, [])
    for base in ("x.duckdb@version=1", "1.json"):
        code, found = compared(evaltap, base=base)
        assert (code, found["verdict"], found["changed"]) == (1, "regression", [])
        assert found["head"]["trials"] == 8


def test_in_python_too_the_answers_to_a_simulated_user_are_shown(evaltap: Evaltap) -> None:
    plan = {"conversationPlan": "Book a seat.", "maxAllowedInvocations": 1}
    write("hall", *({"evalId": f"s-{n}", "conversationScenario": plan} for n in range(8)))

    def user(messages: list[dict[str, Any]]) -> str:
        return "seat"

    def clerk(messages: list[dict[str, Any]]) -> str:
        return "booked"

    def careless(messages: list[dict[str, Any]]) -> str:
        return "done"

    base, head = (
        evaluate("hall.evalset.json", "metrics.json", agent=one, user=user, version=one.__name__)
        for one in (clerk, careless)
    )

    assert "+ answer: done" in repr(head.compare(base))


def test_versions_that_ran_several_sets_are_paired_by_set_and_app(evaltap: Evaltap) -> None:
    for name, app, text in (("a", "hall", "a place"), ("b", "bar", "a seat")):
        write(name, *(asked(f"c-{n}", text, app) for n in range(8)))
        run(evaltap, name, "1")
        run(evaltap, name, "2", "careless")

    code, found = compared(evaltap)

    assert (code, found["base"]["cases"], found["drop"]) == (1, 16, 0.5)
    broken = [case for case in found["cases"] if case["outcome"] == "newly_failing"]
    assert {case["eval_set_id"] for case in broken} == {"b"}
    assert found["differences"][0]["lines"] == [
        "- base, + head", "- answer of base: booked", "+ answer: done"
    ]  # fmt: skip


def test_a_case_that_was_edited_between_the_runs_of_a_version_is_not_compared(
    evaltap: Evaltap,
) -> None:
    write("hall", *(asked(f"c-{n}", "a place") for n in range(8)))
    for version in ("1", "2"):
        run(evaltap, "hall", version, "clerk", "--runs", "3")
    write("hall", *(asked(f"c-{n}", "a seat" if n < 2 else "a place") for n in range(8)))
    run(evaltap, "hall", "2", "careless", "--runs", "3")

    code, found = compared(evaltap)
    with Store("x.duckdb") as store:
        sides = {"a": "version:1", "b": "version:2"}
        page = compare.read(store, PageRequest(sides, Person("ann", "viewer"), Path("x.duckdb")))

    assert (code, found["verdict"], found["changed"]) == (0, "pass", ["c-0", "c-1"])
    assert found["head"]["trials"] == 36
    assert page.left_out == (("different input or reference, not compared", ("c-0", "c-1")),)


def test_what_a_simulated_user_said_to_a_gate_is_no_input_that_changed(evaltap: Evaltap) -> None:
    plan = {"conversationPlan": "Book a seat.", "stopSignal": "###STOP###"}
    write("hall", *({"evalId": f"s-{n}", "conversationScenario": plan} for n in range(8)))
    dimension = {"name": "quality", "threshold": 1, "metrics": [BOOKS]}
    Path("gate.json").write_text(json.dumps({"dimensions": [dimension]}))
    gate = ("gate", "hall.evalset.json", "--gate", "gate.json", "--json")
    user = ("--user", "hall:curious")
    code, _, said = evaltap(*gate, "--agent", "hall:clerk", *user, "--write-baseline", "1.json")
    assert code == 0, said

    code, out, said = evaltap(*gate, "--agent", "hall:careless", *user, "--baseline", "1.json")

    found = json.loads(out)["comparison"]
    assert (code, found["changed"], found["head"]["trials"]) == (1, [], 8), said
    code, _, said = evaltap(*gate, *user)
    assert code == 2
    assert "add --agent" in said


@pytest.mark.parametrize("base", ["1.json", "x.duckdb@version=1"])
def test_a_gate_is_compared_with_the_runs_of_a_version(evaltap: Evaltap, base: str) -> None:
    cases = [asked(f"c-{n}", "a seat") for n in range(8)]
    cases[0]["conversation"][0]["finalResponse"] = {"role": "assistant", "content": "booked"}
    write("hall", *cases)
    run(evaltap, "hall", "1")
    evaltap("runs", "export", "x.duckdb@version=1", "--out", "1.json")
    dimension = {"name": "quality", "threshold": 1, "metrics": [BOOKS]}
    Path("gate.json").write_text(json.dumps({"dimensions": [dimension]}))

    code, out, said = evaltap("gate", "hall.evalset.json", "--agent", "hall:careless", "--gate", "gate.json",
                              "--baseline", base, "--fail-on", "regressed", "--json")  # fmt: skip

    assert code == 1, said
    assert json.loads(out)["comparison"]["changed"] == []


def test_a_version_that_never_ran_is_told_from_traffic(evaltap: Evaltap) -> None:
    write("hall", asked("c-1", "a seat"))
    run(evaltap, "hall", "1")

    code, _, said = evaltap("compare", "x.duckdb@version=8", "x.duckdb@version=9")
    assert (code, "evaltap estimate x.duckdb --by version" in said) == (2, True)

    code, _, said = evaltap("compare", "x.duckdb@version=9", "x.duckdb")
    assert (code, "no runs of `evaltap run` or `replay` are this version" in said) == (2, True)


def test_a_run_of_some_cases_is_compared_with_one_of_all_under_metrics_with_references(
    evaltap: Evaltap,
) -> None:
    cases = [asked(f"c-{n}", "a seat") for n in range(4)]
    for case in cases:
        case["conversation"][0]["finalResponse"] = {"role": "assistant", "content": "booked"}
    write("hall", *cases)
    text = {"finalResponse": {"text": {"matchStrategy": "exact"}}}
    same = {"metricName": "final_response_avg_score", "threshold": 1, "criterion": text}
    Path("metrics.json").write_text(json.dumps([same]))
    run(evaltap, "hall", "1", "clerk", "--runs", "5")
    run(evaltap, "hall", "2", "careless", "--runs", "5", "--case", "c-1")
    run(evaltap, "hall", "2", "careless", "--runs", "5", "--filter", "c-[23]")

    code, found = compared(evaltap, "--subset")

    assert (code, found["removed"], found["head"]["trials"]) == (1, ["c-0"], 15)
