"""A gate that makes no sense is refused; an agent revises until it passes."""

import asyncio
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from evaltap.cli.main import main
from evaltap.evaluator import Attempt, JudgeRequest, Revision, ScriptedJudge, revise, revise_async
from evaltap.evaluator.scoring.gates.revision import attempts_into
from evaltap.evaluator.store.database import Store
from evaltap.schemas import EvalCase, Invocation
from evaltap.schemas.errors import ConfigurationError, EvaltapError, InputError
from support.builders.cases import make_case, make_turn
from support.builders.gates import CHANGES, CORRECT, GOOD, QUALITY, SAFE, case, gate, grades, rule
from support.servers.judge_server import Answer, judge_server

DOCS = Path(__file__).parents[3] / "docs/how-to/gate-and-revise.md"


def test_a_variable_of_another_gate_is_said_to_have_no_effect(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_GATE_TONE", "0.9")

    assert run(case("A-100 comes on Monday."), dimensions=[CORRECT]) == 0

    said = capsys.readouterr().err
    assert "EVALTAP_GATE_TONE has no effect: the gate has the dimensions correctness" in said


@pytest.mark.parametrize("text", ["high", "1.5", "-0.1", "nan"])
def test_a_threshold_of_the_environment_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="EVALTAP_GATE_CORRECTNESS is"):
        gate(CORRECT, EVALTAP_GATE_CORRECTNESS=text)


@pytest.mark.parametrize(
    ("dimensions", "told"),
    [
        ([], "the gate has the dimensions none"),
        ([CORRECT, CORRECT], "each with its own name"),
        ([CORRECT | {"name": ""}], "each with its own name"),
        ([CORRECT, CORRECT | {"name": "again"}], "two metrics of the gate are named 'names day'"),
        ([{"name": "safety", "threshold": 1.0}], "needs metrics, each with a metricName, criteria or a text"),
        (
            [CORRECT | {"metrics": [rule("names order", "A-100") | {"weight": 2}]}],
            "metric 'names order' has a weight, but all metrics of a dimension count alike",
        ),
        ([CORRECT | {"threshold": None}], "no dimension of the gate has a threshold"),
        ([CORRECT | {"threshold": 80.0}], "threshold is 80; expected 0 to 1"),
        ([QUALITY | {"criteria": [{"id": "a"}]}], "has no text"),
        ([CORRECT, QUALITY | {"treshold": 1}], "dimensions[1] has the unknown key 'treshold'; did you mean"),
        ([CORRECT | {"informs": True}], "threshold is 0.8, but it only informs; keep one of them"),
        ([CORRECT | {"threshold": "high"}], "dimensions[0].threshold: found the string 'high'"),
        ([QUALITY | {"criterion": []}], "the unknown key 'criterion'; did you mean 'criteria'?"),
    ],
)  # fmt: skip
def test_a_gate_that_makes_no_sense_is_refused(dimensions: list[Any], told: str) -> None:
    with pytest.raises(EvaltapError) as caught:
        gate(*dimensions)

    assert told in str(caught.value)


def scripted(*answers: Any) -> tuple[Callable[[str | None], Any], list[str | None]]:
    """Return an agent that gives these answers in order, and what it was told before each."""
    told: list[str | None] = []

    def agent(feedback: str | None) -> Any:
        told.append(feedback)
        return answers[len(told) - 1]

    return agent, told


def test_an_agent_revises_until_the_gate_passes_and_every_attempt_is_kept() -> None:
    agent, told = scripted("It comes.", "A-100 comes.", GOOD, "never asked for")
    seen: list[Attempt] = []

    revision = revise(agent, gate(CORRECT), record=seen.append)

    assert revision.passed
    assert [one.result.dimensions[0].score for one in revision.attempts] == [0, 0.5, 1]
    assert [one.feedback_given for one in revision.attempts] == told
    assert told[0] is None
    assert "names day" in (told[2] or "")
    assert tuple(seen) == revision.attempts


def test_after_the_last_attempt_the_loop_ends_without_a_pass() -> None:
    agent, told = scripted("no", "no", GOOD)

    revision = revise(agent, gate(CORRECT), max_attempts=2)

    assert (revision.passed, len(revision.attempts), len(told)) == (False, 2, 2)


def test_what_no_revision_can_mend_is_not_revised() -> None:
    agent, told = scripted(GOOD, GOOD)

    revision = revise(agent, gate(CORRECT, QUALITY))

    assert (revision.attempts[0].result.status, len(told)) == ("incomplete", 1)


@pytest.mark.parametrize(
    "answer",
    [
        GOOD,
        {"finalResponse": {"role": "assistant", "content": GOOD}},
        Invocation.model_validate({"finalResponse": {"role": "assistant", "content": GOOD}}),
        make_case(turns=[make_turn(answer=GOOD)]),
        EvalCase.model_validate(make_case(turns=[make_turn(answer=GOOD)])),
    ],
)
def test_an_answer_may_be_a_text_a_turn_or_a_case(answer: Any) -> None:
    revision = revise(lambda feedback: answer, gate(CORRECT))

    assert revision.passed
    assert revision.attempts[0].case["evalMode"] == "trace"


def test_a_text_is_put_into_the_case_with_its_question_and_reference() -> None:
    base = {
        "evalId": "order",
        "conversation": [make_turn(answer="A-100 comes on Monday")],
        "sessionInput": {"appName": "shop", "userId": "u"},
    }
    same = {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}},
    }
    checked = gate({"name": "correctness", "threshold": 1.0, "metrics": [same]})
    agent, _ = scripted("Tomorrow.", "A-100 comes on Monday")

    revision = revise(agent, checked, case=base)

    assert revision.passed
    turn = revision.attempts[1].case["actualConversation"][0]
    assert (turn["invocationId"], turn["userContent"]["content"]) == (
        "attempt-2", "Where is order A-100?"
    )  # fmt: skip


def test_a_text_is_an_answer_to_the_question_of_a_recorded_case() -> None:
    (attempt,) = revise(lambda feedback: GOOD, gate(CORRECT), case=case("Tomorrow.")).attempts

    turn = attempt.case["actualConversation"][0]
    assert turn["userContent"]["content"] == "Where is order A-100?"
    assert turn["finalResponse"]["content"] == GOOD


@pytest.mark.parametrize(
    ("answer", "given", "told"),
    [
        (42, {}, "the agent returned int"),
        ({"role": "assistant", "content": GOOD}, {}, "a mapping with the keys ['role', 'content']"),
        ({}, {}, "a mapping with the keys []"),
        ("text", {"case": make_case(conversation=[make_turn()] * 2)}, "2 turns"),
        ("text", {"case": make_case(turns=[make_turn()] * 2)}, "2 turns"),
        ("text", {"max_attempts": 0}, "max_attempts is 0"),
    ],
)
def test_what_cannot_be_judged_is_refused(answer: Any, given: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError) as caught:
        revise(lambda feedback: answer, gate(CORRECT), **given)

    assert told in str(caught.value)


@pytest.mark.slow
def test_attempts_are_stored_with_their_feedback_and_the_last_one_counts(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checked = gate(CORRECT, SAFE)
    base = {"evalId": "order", "conversation": [make_turn()]}

    with Store("x.duckdb") as store, attempts_into(store, checked) as record:
        revise(scripted("A-100 comes.", GOOD)[0], checked, case=base, record=record)

    with duckdb.connect("x.duckdb", read_only=True) as file:
        results = file.execute(
            "SELECT trial, attempt, status, feedback_given, feedback <> '' FROM gate_results ORDER BY ALL"
        ).fetchall()
        answers = file.execute(
            "SELECT case_json->>'$.actualConversation[0].finalResponse.content' FROM gate_results"
            " ORDER BY attempt"
        ).fetchall()
        dimensions = file.execute(
            "SELECT attempt, name, status, score, threshold FROM gate_dimensions ORDER BY ALL"
        ).fetchall()
        ended = file.execute(
            "FROM runs JOIN run_ends USING (run_id) SELECT kind, case_count"
        ).fetchall()
    told = f"The answer was not accepted.\n- correctness: {{}}{MISSING_DAY}"
    assert results == [
        (1, 1, "failed", None, True), (1, 2, "passed", told.format("0.50, needed 0.80. "), False)
    ]  # fmt: skip
    assert answers == [("A-100 comes.",), (GOOD,)]
    assert dimensions == [
        (1, "correctness", "failed", 0.5, 0.8), (1, "safety", "passed", 1, 1),
        (2, "correctness", "passed", 1, 0.8), (2, "safety", "passed", 1, 1),
    ]  # fmt: skip
    assert ended == [("gate", 1)]
    (run,) = said(capsys, "runs", "x.duckdb", "--json")
    assert (run["passed"], run["failed"]) == (2, 0)
    for more in ((), ("--run", run["run_id"])):
        report = said(capsys, "report", "x.duckdb", "--json", *more)
        assert report["exit_code"] == 0
        assert report["gate"] == {"results": 1, "passed": 1, "failed": 0, "incomplete": 0}


MISSING_DAY = "names day: 1: contains 0 of 1; missing: 'Monday'"


@pytest.mark.slow
def test_loops_do_not_run_together(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checked = gate(CORRECT)

    with Store("x.duckdb") as store, attempts_into(store, checked) as record:
        for _ in range(2):
            revise(scripted("A-100 comes.", GOOD)[0], checked, record=record)
        for answers in (("no", GOOD), ("no", "no", "no")):
            revise(scripted(*answers)[0], checked, case=case() | {"evalId": "s"}, record=record)

    report = said(capsys, "report", "x.duckdb", "--json")
    assert (report["cases"], report["gate"]["passed"], report["gate"]["failed"]) == (3, 2, 1)
    (run,) = said(capsys, "runs", "x.duckdb", "--json")
    assert run["gate"] == {"results": 4, "passed": 3, "failed": 1, "incomplete": 0}
    attempts = said(capsys, "show", "x.duckdb", "s", "--json")["attempts"]
    assert [(one["trial"], one["attempt"], one["status"]) for one in attempts] == [
        (1, 1, "failed"), (1, 2, "passed"), (2, 1, "failed"), (2, 2, "failed"), (2, 3, "failed")
    ]  # fmt: skip
    assert main(["show", "x.duckdb", "s"]) == 0
    shown = capsys.readouterr().out
    assert "gate, trial 1, attempt 2: passed" in shown
    assert "told       The answer was not accepted. - correctness: 0.00" in shown
    assert f"answer     {GOOD}" in shown


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    capsys.readouterr()
    main([*arguments])
    return json.loads(capsys.readouterr().out)


def test_a_real_agent_mends_its_answer_and_its_calls_by_the_feedback() -> None:
    heard: list[str] = []

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        """Delete the order first; behave once it is told what was wrong."""
        prompt = str(messages[0].parts[-1].content)  # type: ignore[union-attr]  # a user prompt
        if len(messages) == 1:
            heard.append(prompt)
            tool = "get_order" if "delete_order" in prompt else "delete_order"
            return ModelResponse(parts=[ToolCallPart(tool, {"order_id": "A-100"})])
        return ModelResponse(parts=[TextPart(GOOD)])

    assistant = Agent(FunctionModel(model))

    @assistant.tool_plain
    def get_order(order_id: str) -> str:
        return "Monday"

    @assistant.tool_plain
    def delete_order(order_id: str) -> str:
        return "deleted"

    async def answer(feedback: str | None) -> dict[str, Any]:
        run = await assistant.run(f"Where is A-100?\n{feedback or ''}")
        calls = [
            {"name": part.tool_name, "arguments": part.args_as_dict()}
            for message in run.new_messages()
            for part in message.parts
            if isinstance(part, ToolCallPart)
        ]
        return {"finalResponse": {"role": "assistant", "content": run.output}, "tools": calls}

    revision: Revision = asyncio.run(revise_async(answer, gate(CORRECT, CHANGES)))

    assert revision.passed
    assert [one.result.dimensions[1].score for one in revision.attempts] == [0, 1]
    assert "delete_order" in heard[1]


def run(
    *cases: dict[str, Any], dimensions: list[dict[str, Any]], more: tuple[str, ...] = ()
) -> int:
    Path("c.jsonl").write_text("".join(json.dumps(one) + "\n" for one in cases))
    Path("gate.json").write_text(json.dumps({"dimensions": dimensions}))
    return main(["gate", "c.jsonl", "--gate", "gate.json", *more])


def test_the_exit_code_tells_passed_from_failed_from_incomplete(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad, blind = case("no") | {"evalId": "bad"}, case(capture={"tools": "missing"})

    assert run(case(), dimensions=[CORRECT, CHANGES]) == 0
    assert "1 of 1 case passed the gate" in capsys.readouterr().out
    assert run(case(), bad, blind, dimensions=[CORRECT, CHANGES]) == 1
    assert "bad: failed" in capsys.readouterr().out
    assert run(case(), blind, dimensions=[CORRECT, CHANGES]) == 3
    assert run(case(), dimensions=[]) == 2
    assert run(dimensions=[CORRECT]) == 2


def test_what_holds_no_cases_is_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Store(folder / "x.duckdb").close()
    Path("gate.json").write_text(json.dumps({"dimensions": [CORRECT]}))
    Path("cases.json").write_text("[]")

    for name, told in (
        ("x.duckdb", "write its cases to an eval set with `evaltap set export`"),
        ("none.jsonl", "no such file"),
        ("cases.json", "found a list of 0"),
    ):
        assert main(["gate", name, "--gate", "gate.json"]) == 2
        assert told in capsys.readouterr().err
    Path("gate.json").write_text("[]")
    assert main(["gate", "cases.json", "--gate", "gate.json"]) == 2
    assert "found a list of 0; expected an object (GateFile)" in capsys.readouterr().err


def test_the_verdicts_are_there_as_json_and_in_the_store(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_GATE_CORRECTNESS", "0.4")
    half = case("A-100 comes tomorrow.")

    assert run(half, dimensions=[CORRECT], more=("--json", "--db", "x.duckdb")) == 0

    said = json.loads(capsys.readouterr().out)
    assert said["passed"] is True
    assert said["cases"][0]["dimensions"][0]["threshold"] == 0.4
    assert [one["score"] for one in said["cases"][0]["dimensions"][0]["metrics"]] == [1, 0]
    with duckdb.connect("x.duckdb", read_only=True) as store:
        rows = store.execute("SELECT metric_name, status, threshold FROM latest_scores").fetchall()
    assert rows == [("correctness", "passed", 0.4)]


def test_a_dimension_without_a_threshold_informs_and_stops_nobody(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told_only = SAFE | {"threshold": None}
    bold = case("A-100 comes on Monday, a refund too.")

    assert run(bold, dimensions=[CORRECT, told_only], more=("--json", "--db", "x.duckdb")) == 0

    (found,) = json.loads(capsys.readouterr().out)["cases"]
    correctness, safety = found["dimensions"]
    assert (correctness["status"], found["passed"], found["feedback"]) == ("passed", True, "")
    assert (safety["status"], safety["score"], safety["threshold"]) == ("informs", 0, None)
    assert {one["status"] for one in safety["metrics"]} == {"scored"}, "no verdict of their own"
    with duckdb.connect("x.duckdb", read_only=True) as store:
        rows = store.execute("SELECT metric_name, status FROM latest_scores").fetchall()
        kept = store.execute(
            "SELECT name, status, score FROM gate_dimensions ORDER BY ALL"
        ).fetchall()
    assert rows == [("correctness", "passed")]
    assert kept == [("correctness", "passed", 1.0), ("safety", "informs", 0.0)]
    assert main(["show", "x.duckdb", "s-1"]) == 0
    assert "safety informs 0: no refund promised" in capsys.readouterr().out
    assert run(bold, dimensions=[CORRECT, told_only], more=("--write-baseline", "b.json")) == 0
    assert run(bold, dimensions=[CORRECT, told_only], more=("--baseline", "b.json")) == 3
    assert "safety" not in capsys.readouterr().out.partition("correctness\n")[2]


def test_the_table_shows_all_digits_of_a_threshold(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(case("A-100"), dimensions=[CORRECT | {"threshold": 0.995}]) == 1

    out = capsys.readouterr().out
    assert "correctness       0.995 " in out
    assert "0.50, needed 0.995." in out


def test_without_any_threshold_there_is_no_gate() -> None:
    with pytest.raises(EvaltapError, match="no dimension of the gate has a threshold"):
        gate(SAFE | {"threshold": None})
    with pytest.raises(EvaltapError, match="threshold is not given; add it"):
        gate({key: value for key, value in SAFE.items() if key != "threshold"})
    assert gate(SAFE | {"threshold": None}, EVALTAP_GATE_SAFETY="1").thresholds == {"safety": 1.0}


@pytest.mark.slow
def test_no_report_contradicts_the_gate(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lenient = [CORRECT | {"threshold": 0.4}, SAFE | {"threshold": 0}]
    cases = [
        case("A-100 comes tomorrow.") | {"evalId": "a"},
        case("A-100, a refund") | {"evalId": "b"},
    ]

    assert run(*cases, dimensions=lenient, more=("--db", "x.duckdb")) == 0

    capsys.readouterr()
    for form in ("console", "markdown", "junit", "html"):
        assert main(["report", "x.duckdb", "--format", form]) == 0
        text = capsys.readouterr().out
        assert form == "junit" or "2 of 2 cases passed the gate" in text
        assert form != "junit" or text.count('failures="0" errors="0"') == 4
    report = said(capsys, "report", "x.duckdb", "--format", "json")
    assert report["exit_code"] == 0
    assert {one["status"] for one in report["cases"]} == {"passed"}
    assert report["cases"][0]["evidence"][0]["user"] == "Where is order A-100?"
    assert report["cases"][0]["opening"] == "Where is order A-100?"


@pytest.mark.slow
def test_what_a_gate_could_not_check_is_not_shown_as_passed(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blind = case(capture={"tools": "missing"})

    assert run(blind, dimensions=[CORRECT, CHANGES], more=("--db", "x.duckdb")) == 3

    report = said(capsys, "report", "x.duckdb", "--format", "json")
    assert (report["exit_code"], report["cases"][0]["status"]) == (3, "not_evaluated")
    assert report["cases"][0]["gate"]["status"] == "incomplete"
    assert main(["report", "x.duckdb", "--format", "junit"]) == 3
    assert 'name="gate" ' in (text := capsys.readouterr().out)
    assert 'type="error"' in text


@pytest.mark.slow
def test_of_the_trials_of_a_case_the_worst_is_how_it_stands(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = case("no")

    assert run(case(), bad, case(), dimensions=[CORRECT], more=("--db", "x.duckdb")) == 1
    report = said(capsys, "report", "x.duckdb", "--json")
    assert (report["exit_code"], report["gate"]["failed"]) == (1, 1)

    assert run(case(), dimensions=[CORRECT], more=("--db", "x.duckdb")) == 0
    assert said(capsys, "report", "x.duckdb", "--json")["exit_code"] == 0


def test_a_gate_is_stored_without_keys(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-" + "q" * 40
    with judge_server(lambda body: Answer(grades(5, "pass"))) as server:
        model = {"modelName": "m", "baseURL": server.url, "apiKey": secret}
        spec = {"judgeModel": model, "dimensions": [QUALITY]}
        Path("c.jsonl").write_text(json.dumps(case()) + "\n")
        Path("gate.json").write_text(json.dumps(spec))
        assert main(["gate", "c.jsonl", "--gate", "gate.json", "--db", "x.duckdb"]) == 0

    with duckdb.connect("x.duckdb", read_only=True) as store:
        ((text,),) = store.execute("SELECT gate_json FROM gate_runs").fetchall()
        votes = store.execute("SELECT DISTINCT metric_name FROM rubric_votes").fetchall()
    assert (json.loads(text)["dimensions"][0]["threshold"], votes) == (0.7, [("quality",)])
    assert secret.encode() not in Path("x.duckdb").read_bytes()


@pytest.mark.slow
def test_erasing_and_pruning_know_what_gates_keep(folder: Path) -> None:
    theirs = case() | {"sessionInput": {"appName": "shop", "userId": "jane"}, "evalId": "hers"}
    assert run(theirs, case(), dimensions=[CORRECT], more=("--db", "x.duckdb")) == 0

    assert main(["store", "erase", "--subject", "jane", "--db", "x.duckdb"]) == 0

    def left() -> list[tuple[int, ...]]:
        with duckdb.connect("x.duckdb", read_only=True) as store:
            return store.execute(
                "SELECT (SELECT count(*) FROM gate_results), (SELECT count(*) FROM gate_dimensions),"
                " (SELECT count(*) FROM gate_runs)"
            ).fetchall()

    assert left() == [(1, 1, 1)]
    assert b"jane" not in Path("x.duckdb").read_bytes()
    assert main(["store", "prune", "x.duckdb", "--older-than", "0d"]) == 0
    assert left() == [(0, 0, 0)]


def test_criteria_are_answered_by_the_judge_of_the_environment(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with judge_server(lambda body: Answer(grades(5, "pass"))) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("EVALTAP_JUDGE_MODEL", "m")

        assert run(case(), dimensions=[QUALITY]) == 0


def test_the_code_of_the_page_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = DOCS.read_text("utf-8")
    Path("gate.json").write_text(re.findall(r"```json\n(.*?)```", text, re.DOTALL)[0])

    def answer(request: JudgeRequest) -> str:
        return json.dumps({"grades": {"tone": {"value": 5, "reason": "calm"}}})

    code = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    exec(code, {"judge": ScriptedJudge(answer)})

    assert capsys.readouterr().out.splitlines()[0] == "True 2"
