"""The judge of a gate: one call for all dimensions, a verdict of its own, and nodes of a graph."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langgraph.graph import END, START, StateGraph

from evaltap.cli.main import main
from evaltap.evaluator import Attempt, Gate, MetricError, ScriptedJudge, Services
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.gates.langgraph import GateStep, after_eval, eval_node, revision_node
from evaltap.evaluator.scoring.gates.revision import attempts_into
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_case, make_turn
from support.servers.judge_server import Answer, judge_server

NAMES_ORDER = {
    "metricName": "names order",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "1", "type": "contains", "values": ["A-100"]}]}},
}
RULES = {"name": "facts", "threshold": 1.0, "metrics": [NAMES_ORDER]}
GATE = {"preset": "traceflow", "dimensions": [RULES]}
GRADES = {"correctness": 0.9, "code_quality": 0.1, "safety": 0.8, "change_safety": 0.2}
CASE = make_case(turns=[make_turn(answer="A-100 is shipped")])


def verdict(passed: bool = True, feedback: str = "", **grades: float) -> str:
    return json.dumps({**GRADES, **grades, "passed": passed, "feedback": feedback})


def gate(*answers: str, spec: dict[str, Any] | None = None) -> tuple[Gate, ScriptedJudge]:
    judge = ScriptedJudge(answers)
    return Gate(spec or GATE, services=Services(judge=lambda _: judge)), judge


def test_one_call_grades_all_dimensions_of_the_preset() -> None:
    made, judge = gate(verdict())

    result = made.evaluate(CASE)

    assert result.passed
    assert [(one.name, one.verdict, one.score) for one in result.dimensions] == [
        ("correctness", "passed", 0.9),
        ("code_quality", "informs", 0.1),
        ("safety", "passed", 0.8),
        ("change_safety", "informs", 0.2),
        ("facts", "passed", 1.0),
        ("judge", "passed", 1.0),
    ]
    (request,) = judge.requests
    schema = request.answer_schema or {}
    assert schema["required"] == [*GRADES, "passed", "feedback"]
    assert schema["properties"]["safety"] == {"type": "number", "minimum": 0, "maximum": 1}
    assert "correctness: The answer solves the problem" in request.prompt


@pytest.mark.parametrize(
    ("answer", "failed", "feedback"),
    [
        (verdict(False, "Name the day."), ["judge"], "- judge: Name the day."),
        (verdict(False), ["judge"], "- judge: does not accept it"),
        (
            verdict(True, "Too bold.", safety=0.79),
            ["safety"],
            "- safety: 0.79, needed 0.80.\n- judge: Too bold.",
        ),
        (
            verdict(False, "No.", correctness=0),
            ["correctness", "judge"],
            "- correctness: 0.00, needed 0.70.\n- judge: No.",
        ),
    ],
)
def test_every_threshold_and_the_judge_itself_must_agree(
    answer: str, failed: list[str], feedback: str
) -> None:
    made, _ = gate(answer)

    result = made.evaluate(CASE)

    assert result.status == "failed"
    assert [one.name for one in result.dimensions if one.status is Status.FAILED] == failed
    assert result.feedback == f"The answer was not accepted.\n{feedback}"


def test_the_judge_is_only_asked_about_what_passes_the_rules() -> None:
    made, judge = gate(verdict())

    result = made.evaluate(make_case(turns=[make_turn(answer="soon")]))

    assert (result.status, judge.requests) == ("failed", [])
    safety = next(one for one in result.dimensions if one.name == "safety")
    assert (safety.status, safety.reason) == (
        Status.NOT_EVALUATED, "not judged, as facts did not pass",
    )  # fmt: skip
    assert "- facts: 0.00, needed 1.00." in result.feedback


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ("fine", "unmarshal response json"),
        (json.dumps({**GRADES, "passed": True}), "expected correctness, code_quality, safety"),
        (verdict(safety=7), "safety is 7; expected a number from 0 to 1"),
        (verdict(passed="yes"), "expected passed as true or false"),  # type: ignore[arg-type]  # as judges do
    ],
)
def test_an_answer_of_another_form_leaves_the_gate_undecided(answer: str, said: str) -> None:
    made, _ = gate(answer)

    result = made.evaluate(CASE)

    assert result.status == "incomplete"
    assert said in next(one.reason for one in result.dimensions if one.name == "judge")


def test_several_turns_pass_if_each_of_them_does() -> None:
    made, _ = gate(verdict(correctness=1.0), verdict(False, "Rude.", correctness=0.8))
    turns = [make_turn("t-1", answer="A-100 left"), make_turn("t-2", answer="A-100 is late")]

    result = made.evaluate(make_case(turns=turns))

    scores = {one.name: one.score for one in result.dimensions}
    assert scores["correctness"] == pytest.approx(0.9)
    assert scores["judge"] == 0.5
    assert result.feedback.endswith("- judge: Rude.")


def test_a_turn_that_the_judge_could_not_see_keeps_the_gate_open() -> None:
    made, _ = gate(verdict(), spec={"preset": "traceflow"})
    hidden = make_turn("t-2", capture={"finalResponse": "redacted"})

    result = made.evaluate(make_case(turns=[make_turn("t-1"), hidden]))

    assert (result.status, {one.status for one in result.dimensions}) == (
        "incomplete", {"not_evaluated"},
    )  # fmt: skip


def test_a_crashed_run_is_not_judged() -> None:
    made, judge = gate(verdict(), spec={"preset": "traceflow"})

    result = made.evaluate(make_case(turns=[make_turn(telemetry={"status": "error"})]))

    assert (result.status, judge.requests) == ("failed", [])


def test_a_dimension_of_the_file_replaces_that_of_the_preset() -> None:
    own = {"name": "safety", "threshold": 0.2, "text": "Nobody is hurt."}
    made, judge = gate(verdict(safety=0.3), spec={"preset": "traceflow", "dimensions": [own]})

    assert made.evaluate(CASE).passed
    assert "safety: Nobody is hurt." in judge.requests[0].prompt


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"preset": "tracefow"}, "preset is 'tracefow'; did you mean 'traceflow'?"),
        ({"dimensions": [{"name": "passed", "threshold": 1, "text": "x"}]}, "named 'passed'"),
        ({"dimensions": [{"name": "judge", "threshold": 1, "text": "x"}]}, "named 'judge'"),
        ({"dimensions": [{**RULES, "text": "x"}]}, "has a text and metrics or criteria"),
    ],
)
def test_a_gate_that_makes_no_sense_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(MetricError, match=said):
        Gate(spec)


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A judge at an address, and a gate with the preset on disk."""
    monkeypatch.chdir(tmp_path)
    Path("c.jsonl").write_text(json.dumps(CASE) + "\n")
    Path("g.json").write_text(json.dumps(GATE))
    with judge_server(lambda _: Answer(verdict(False, "Name the day."))) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("EVALTAP_JUDGE_MODEL", "m")
        monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", "k")
        monkeypatch.setenv("EVALTAP_JUDGE_CACHE", "off")
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("asked")
def test_the_command_stores_the_judges_verdict_and_each_dimension(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["gate", "c.jsonl", "--gate", "g.json", "--db", "x.duckdb", "--json"]) == 1

    (found,) = json.loads(capsys.readouterr().out)["cases"]
    assert found["feedback"] == "The answer was not accepted.\n- judge: Name the day."
    with Store("x.duckdb") as store:
        rows = store.rows("SELECT name, status FROM gate_dimensions ORDER BY dimension_index")
        calls = store.rows("SELECT metric_name, count(*) FROM judge_calls GROUP BY ALL")
    assert rows == [
        ("correctness", "passed"),
        ("code_quality", "informs"),
        ("safety", "passed"),
        ("change_safety", "informs"),
        ("facts", "passed"),
        ("judge", "failed"),
    ]
    assert calls == [("judge", 1)]
    assert main(["why", "x.duckdb", "s-1"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "correctness: passed",
        "facts: passed",
        "judge: failed: Name the day.",
        "safety: passed",
    ]
    again = ["gate", "c.jsonl", "--gate", "g.json", "--baseline", "x.duckdb"]
    assert main([*again, "--fail-on", "regressed"]) == 3, "a single trial proves nothing"
    out = capsys.readouterr().out
    assert "still failing (1)\n  Name the day. (1 case)\n  s-1 " in out
    assert "0/1 -> 0/1 (judge)" in out


class State(TypedDict, total=False):
    answer: str
    gate: GateStep


def test_a_graph_revises_its_answer_until_the_gate_accepts_it(tmp_path: Path) -> None:
    heard: list[str | None] = []
    attempts: list[Attempt] = []

    def agent(feedback: str | None) -> str:
        heard.append(feedback)
        return f"A-100, draft {len(heard)}"

    made, _ = gate(verdict(False, "Again."), verdict())
    with Store(tmp_path / "x.duckdb") as store, attempts_into(store, made) as record:

        def keep(attempt: Attempt) -> None:
            attempts.append(attempt)
            record(attempt)

        graph = StateGraph(State)
        graph.add_node("revise", revision_node(agent))
        graph.add_node("evaluate", eval_node(made, record=keep))
        graph.add_edge(START, "revise")
        graph.add_edge("revise", "evaluate")
        graph.add_conditional_edges("evaluate", after_eval(3), {"revise": "revise", "done": END})
        final = graph.compile().invoke({})
        stored = store.rows("SELECT attempt, passed FROM gate_results ORDER BY attempt")

    assert (final["answer"], final["gate"]["passed"], final["gate"]["attempt"]) == (
        "A-100, draft 2", True, 2,
    )  # fmt: skip
    assert heard == [None, "The answer was not accepted.\n- judge: Again."]
    assert len({attempt.loop for attempt in attempts}) == 1
    assert stored == [(1, False), (2, True)]


def test_the_next_question_of_a_conversation_begins_another_loop() -> None:
    heard: list[str | None] = []

    def agent(feedback: str | None) -> str:
        heard.append(feedback)
        return "A-100"

    made, _ = gate(verdict(False, "Again."), verdict(), verdict(False, "Once more."), verdict())
    state: dict[str, Any] = {}
    steps = []
    for _ in range(4):
        state |= revision_node(agent)(state)
        state |= eval_node(made)(state)
        steps.append((state["gate"]["attempt"], state["gate"]["passed"], state["gate"]["loop"]))

    assert [step[:2] for step in steps] == [(1, False), (2, True), (1, False), (2, True)]
    assert [one and one.rpartition("judge: ")[2] for one in heard] == [
        None, "Again.", None, "Once more.",
    ]  # fmt: skip
    assert steps[0][2] == steps[1][2] != steps[2][2] == steps[3][2]


@pytest.mark.parametrize(
    ("status", "attempt", "then"),
    [
        ("failed", 1, "revise"),
        ("failed", 3, "done"),
        ("passed", 1, "done"),
        ("incomplete", 1, "done"),
    ],
)
def test_only_a_failed_answer_is_revised(status: str, attempt: int, then: str) -> None:
    step = GateStep(status=status, passed=False, feedback="", attempt=attempt, loop="l")

    assert after_eval(3)({"gate": step}) == then
