"""Readable reasons; scores and result files retain tRPC-Agent-Go's wording."""

import json
import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.reports.wording import RubricReason, readable, with_rubrics
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from support.builders.cases import (
    RESPONSE,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
    write_log,
)
from support.builders.command_files import write, write_lines
from support.builders.commands import Evaltap

MISMATCH = "tool trajectory mismatch: match tools: "


def unmatched(*calls: str) -> str:
    lines = ["cannot match all left vertices", *calls]
    return f"{MISMATCH}{len(lines)} errors occurred:\n\t* " + "\n\t* ".join(lines) + "\n\n"


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            unmatched("tool id  with name refund mismatch: arguments: compare amount: number mismatch:"
                      " actual(100) != expected(10)"),
            "refund: amount 100, expected 10",
        ),
        (
            unmatched("tool id c1 with name find mismatch",
                      "tool id c2 with name pay mismatch: result: compare items: compare [1]: value"
                      " mismatch: actual('a') != expected('b')"),
            "find: expected, not called; pay: result.items[1] 'a', expected 'b'",
        ),
        (
            f"{MISMATCH}tool id c with name pay mismatch: arguments: key note is missing in expected",
            "pay: note not expected",
        ),
        (
            f"{MISMATCH}tool id c with name pay mismatch: arguments: compare to: key iban is missing in"
            " actual",
            "pay: to.iban missing",
        ),
        (
            f"{MISMATCH}tool id c with name pay mismatch: arguments: compare n: actual is a string,"
            " expected is a number",
            "pay: n is a string, expected a number",
        ),
        (
            f"{MISMATCH}tool id c with name pay mismatch: result: array length mismatch: actual(1) !="
            " expected(3)",
            "pay: result has 1 item, expected 3",
        ),
        (
            "tool trajectory mismatch: validate tool counts: number of tool calls mismatch: actual(1) !="
            " expected(2)",
            "1 tool call, expected 2",
        ),
        (
            "tool trajectory mismatch: validate tool counts: number of tool calls mismatch: actual(0) <"
            " expected(2)",
            "0 tool calls, expected at least 2",
        ),
        (
            "text mismatch: source 'No.' and target 'Yes.' do not match",
            "answer 'No.', expected 'Yes.'",
        ),
        (
            "turn 1: text mismatch: source 'a' does not contain target 'b'; turn 2: "
            f"{MISMATCH}tool id c with name pay mismatch",
            "turn 1: answer 'a' does not contain 'b'; turn 2: pay: expected, not called",
        ),
        (
            f"turn 1: {unmatched('tool id  with name find mismatch')};"
            f" turn 2: {unmatched('tool id  with name pay mismatch')}",
            "turn 1: find: expected, not called; turn 2: pay: expected, not called",
        ),
        ("helpful enough", "helpful enough"),
        ("a mismatch of our own", "a mismatch of our own"),
    ],
)  # fmt: skip
def test_comparisons_are_said_in_words(reason: str, words: str) -> None:
    assert readable(reason) == words


def test_reasons_of_rubrics_have_their_ids() -> None:
    said = [
        RubricReason(("t-1", 0), "helpful", 0.0, "invents a refund"),
        RubricReason(("t-1", 0), "grounded", 1.0, "all in the result"),
        RubricReason(("t-2", 0), "helpful", 1.0, "fine"),
        RubricReason(("t-3", 0), "", None, "JudgeInvalid: no JSON"),
    ]

    words = with_rubrics(
        "turn 1: invents a refund\nall in the result; turn 2: fine; turn 3: JudgeInvalid: no JSON",
        said,
    )

    assert words == (
        "turn 1: helpful 0: invents a refund · grounded 1; turn 2: helpful 1;"
        " turn 3: JudgeInvalid: no JSON"
    )


@pytest.mark.slow
def test_reports_use_words_where_scores_and_result_files_keep_the_peers_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def refunded(amount: int) -> dict[str, Any]:
        return make_turn(tools=[make_tool(name="refund", arguments={"amount": amount})])

    cases = tmp_path / "cases.jsonl"
    cases.write_text(json.dumps(make_case("a", [refunded(100)], conversation=[refunded(10)])))
    metrics = tmp_path / "metrics.json"
    metrics.write_text(json.dumps([TRAJECTORY]))
    db, result = tmp_path / "x.duckdb", tmp_path / "r.evalset_result.json"
    report = [f"--report={tmp_path / name}" for name in ("r.html", "r.xml", "r.md", "r.json")]

    code = main(["score", str(cases), "--metrics", str(metrics), "--db", str(db),
                 "--result", str(result), *report])  # fmt: skip

    words = "refund: amount 100, expected 10"
    assert code == 1
    assert words in " ".join(capsys.readouterr().out.split())
    for name in ("r.html", "r.xml", "r.md", "r.json"):
        assert words in (tmp_path / name).read_text(), name
    assert "number mismatch: actual(100) != expected(10)" in result.read_text()
    with Store(db) as store:
        ((reason,),) = store.rows("SELECT reason FROM scores")
    assert "number mismatch: actual(100) != expected(10)" in reason
    assert main(["report", str(db), "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["worst"][0]["reason"] == words
    gate = tmp_path / "gate.json"
    gate.write_text(
        json.dumps({"dimensions": [{"name": "calls", "threshold": 1, "metrics": [TRAJECTORY]}]})
    )
    assert main(["gate", str(cases), "--gate", str(gate)]) == 1
    assert words in " ".join(capsys.readouterr().out.split())


def test_show_reads_the_turns_of_a_case_from_the_file_that_was_scored(evaltap: Evaltap) -> None:
    made, wanted = ([make_turn("", answer) for answer in pair] for pair in (("a", "b"), ("a", "c")))
    write_lines("cases.jsonl", make_case("s", made, conversation=wanted))
    evaltap("score", "cases.jsonl", "--metrics", write("m.json", [RESPONSE]), "--db", "x.duckdb")

    _, out, _ = evaltap("show", "x.duckdb", "s")

    first, second = (" ".join(one.split()) for one in out.split("turn 1\n")[1].split("turn 2\n"))
    assert re.search("answer a expected .* answer a score .* passed 1", first)
    assert re.search("answer b expected .* answer c score .* failed 0", second)
    write_lines("cases.jsonl", make_case("s", [make_turn("", "other")]))
    os.utime("cases.jsonl", (2e9, 2e9))
    _, out, _ = evaltap("show", "x.duckdb", "s")
    assert "changed since" in out
    assert "other" not in out


def test_show_has_scores_feedback_and_figures_under_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    with closing(Recorder("log.db", app_name="desk")) as recorder:
        for name, text in (("t-1", "Refund A-7"), ("t-2", "And A-8?")):
            with recorder.turn(session_id="s-14", user=text, invocation_id=name) as turn:
                turn.tool("refund", {"amount": 100}, result="done")
                turn.respond("Done.")
        recorder.feedback("s-14", turn="t-2", positive=False, comment="too much")
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    expected = make_turn(tools=[make_tool(name="refund", arguments={"amount": 10})])
    Path("r.jsonl").write_text(json.dumps({"evalId": "s-14", "conversation": [expected, expected]}))
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--references",
          "r.jsonl", "--until-idle"])  # fmt: skip
    capsys.readouterr()

    assert main(["show", "x.duckdb", "s-14"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "s-14"
    second = next(n for n, line in enumerate(lines) if line.startswith("turn 2"))
    assert " ok" in lines[second]
    assert "ms" in lines[second]
    first_scores = [line for line in lines[:second] if line.lstrip().startswith("score")]
    assert len(first_scores) == 1
    assert "refund: amount 100, expected 10" in first_scores[0]
    assert any(
        "feedback" in line and "negative" in line and "too much" in line for line in lines[second:]
    )


def test_show_asks_for_the_application_where_two_have_the_case(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    cases = [make_case("a", sessionInput={"appName": app}) for app in ("desk", "shop")]
    write_log(Path("log.db"), make_records(cases))
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"])
    capsys.readouterr()

    assert main(["show", "x.duckdb", "a"]) == 2
    assert "2 applications have a case 'a'; give --app: desk, shop" in capsys.readouterr().err
    assert main(["show", "x.duckdb", "a", "--app", "shop"]) == 0
    assert "shop" in capsys.readouterr().out


def test_the_summary_fits_80_columns_and_cuts_no_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    name = "order-desk/2026-11-23/a-very-long-session-id-that-nobody-may-cut-0123456789"
    case = make_case(name, [make_turn(tools=[make_tool(name="a"), make_tool(name="b")])],
                     conversation=[make_turn(tools=[make_tool(name="c")])])  # fmt: skip
    Path("c.jsonl").write_text(json.dumps(case))
    Path("m.json").write_text(json.dumps([TRAJECTORY, RESPONSE]))

    main(["score", "c.jsonl", "--metrics", "m.json", "--db", "x.duckdb"])

    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:1] == ["tool_trajectory_avg_score"] for line in lines)
    assert any(name in line for line in lines)
    assert max(len(line) for line in lines if name not in line and "next:" not in line) <= 80
    assert not any("not evaluated" in line for line in lines), (
        "columns without a count are left out"
    )
    assert lines[-2:] == [
        f"next: evaltap show x.duckdb {name}",
        "      evaltap report x.duckdb --out report.html",
    ]
    assert main(["runs", "x.duckdb"]) == 0
    runs = capsys.readouterr().out
    with Store(Path("x.duckdb")) as store:
        ((run_id,),) = store.rows("SELECT run_id FROM runs")
    assert run_id in runs
    assert max(map(len, runs.splitlines())) <= 80
