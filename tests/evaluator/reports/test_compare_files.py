"""Comparisons of stores, baselines, result files and lines of scores."""

import json
import os
import re
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import xmlschema

from evaltap.evaluator.reports.compare.traffic import selection_of
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_turn
from support.builders.commands import Evaltap
from support.builders.compared_runs import (
    BROKEN,
    STEADY,
    compared,
    recorded_case,
    score_line,
    two_agents,
    two_weeks,
    write_lines,
    write_runs,
)

DATA = Path(__file__).parents[2] / "data"


@pytest.fixture
def stores(evaltap: Evaltap, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """The DuckDB files of two agents, with all that they were made of."""
    two_agents(Path.cwd())
    capsys.readouterr()
    return "base.duckdb", "head.duckdb"


@pytest.mark.slow
def test_stores_baselines_result_files_and_score_lines_agree(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    base, head = stores
    for name in ("baseline.json", "base.scores.jsonl"):
        assert evaltap("runs", "export", base, "--out", name)[0] == 0
    (run,) = json.loads(evaltap("runs", base, "--json")[1])

    def figures(one: str) -> tuple[object, ...]:
        code, found = compared(evaltap, one, head)
        changes = [(case["eval_id"], case["metric"], case["outcome"]) for case in found["cases"]]
        return code, found["verdict"], found["p_value"], found["drop"], sorted(changes)

    expected = figures(base)

    assert expected[:2] == (1, "regression")
    for side in (
        f"{base}#{run['run_id']}",
        "baseline.json",
        "base.scores.jsonl",
        "base.evalset_result.json",
    ):
        assert figures(side) == expected, side


@pytest.mark.slow
def test_the_difference_of_calls_and_answers_is_shown_with_cost_and_latency(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    code, out, _ = evaltap("compare", *stores)

    assert code == 1
    assert "newly failing" in out
    assert '- get_order({"order_id":"A-100"})' in out
    assert "amount: expected 12, found 21" in out
    assert "+ answer: no" in out
    assert "latency, 12 cases" in out
    assert "1,000 -> 1,165 ms, x 1.17" in out
    assert max(map(len, out.splitlines())) <= 80
    assert evaltap("compare", *stores, "--fail-on-metrics", "final_response_avg_score",
                   "--margin", "1", "--max-latency-ratio", "1.01")[0] == 1  # fmt: skip


@pytest.mark.slow
def test_one_recording_scored_twice_is_one_trial(evaltap: Evaltap, stores: tuple[str, str]) -> None:
    base, head = stores
    Path("m2.json").write_text(json.dumps([TRAJECTORY, RESPONSE | {"threshold": 0.5}]))
    evaltap("score", base, "--metrics", "m2.json")

    _, found = compared(evaltap, base, head)

    trajectory = next(one for one in found["metrics"] if one["metric"].startswith("tool"))
    assert found["base"]["runs"] == 2
    assert trajectory["base"]["trials"] == 12


@pytest.mark.slow
def test_runs_over_files_are_a_trial_each(evaltap: Evaltap, stores: tuple[str, str]) -> None:
    for _ in range(3):
        evaltap("score", "base.jsonl", "--metrics", "m.json", "--db", "trials.duckdb")

    _, found = compared(evaltap, "trials.duckdb", stores[1])

    assert (found["base"]["runs"], found["base"]["trials"]) == (3, 36)


@pytest.mark.slow
def test_a_case_whose_question_or_expectation_changed_is_not_compared(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    other = recorded_case("s-1", False)
    other["actualConversation"][0]["userContent"]["content"] = "Where is order B-200?"
    write_lines("other.jsonl", [recorded_case(f"s-{n}", False) for n in range(2, 12)] + [other])
    evaltap("score", "other.jsonl", "--metrics", "m.json", "--result", "other.evalset_result.json")

    code, found = compared(evaltap, stores[0], "other.evalset_result.json", "--subset")

    assert code == 0
    assert (found["changed"], found["removed"]) == (["s-1"], ["s-0"])
    shown = evaltap("compare", stores[0], "other.evalset_result.json", "--subset")[1].splitlines()
    assert " ".join(" ".join(shown[1:3]).split()).endswith("; 1 case not compared")
    assert "s-1" not in {case["eval_id"] for case in found["cases"]}


@pytest.mark.slow
@pytest.mark.parametrize("base", ["base.duckdb", "baseline.json", "base.evalset_result.json"])
def test_sessions_in_which_only_the_new_version_crashed_are_compared(
    evaltap: Evaltap, base: str
) -> None:
    Path("m.json").write_text(json.dumps([RESPONSE]))
    for side in ("base", "head"):
        write_lines(f"{side}.jsonl", [two_turns(n, crashes=side == "head") for n in range(12)])
        evaltap("record", "cases", f"{side}.jsonl", "--log", f"{side}.log.db")
        evaltap("consume", "--log", f"{side}.log.db", "--db", f"{side}.duckdb", "--metrics", "m.json",
                "--until-idle")  # fmt: skip
        evaltap("score", f"{side}.jsonl", "--metrics", "m.json", "--result",
                f"{side}.evalset_result.json")  # fmt: skip
    evaltap("runs", "export", "base.duckdb", "--out", "baseline.json")
    head = base.replace("base", "head").replace("headline.json", "head.duckdb")

    code, found = compared(evaltap, base, head)
    _, mended = compared(evaltap, head, base)

    assert (code, found["verdict"], found["changed"]) == (1, "regression", [])
    assert mended["changed"] == []
    assert {case["outcome"] for case in mended["cases"]} == {"newly_passing"}


def test_results_of_adk_are_compared_run_by_run(evaltap: Evaltap) -> None:
    """As `adk eval --num_runs 2` writes them; 1 is passed, 2 failed."""
    for name, status in (("base", 1), ("head", 2)):
        metric = {
            "metric_name": "m",
            "threshold": 1.0,
            "score": 2.0 - status,
            "eval_status": status,
        }
        results = [
            {"eval_set_id": "s", "eval_id": f"c{n}", "overall_eval_metric_results": [metric]}
            for n in range(20)
            for _ in range(2)
        ]
        Path(f"{name}.evalset_result.json").write_text(json.dumps({"eval_case_results": results}))

    code, found = compared(evaltap, "base.evalset_result.json", "head.evalset_result.json")

    assert (code, found["verdict"], len(found["cases"])) == (1, "regression", 20)
    assert (found["base"]["runs"], found["head"]["runs"]) == (2, 2)


def two_turns(number: int, *, crashes: bool, first: int = 0) -> dict[str, Any]:
    """A session; one that crashes does so in its first turn, and one that begins later lacks the others."""
    asked = [{"role": "user", "content": f"Question {place}"} for place in (0, 1)][first:]
    turns = [make_turn(f"t-{number}-{n}", userContent=one) for n, one in enumerate(asked)]
    expected = [make_turn(f"e-{n}", userContent=one) for n, one in enumerate(asked)]
    if crashes:
        error = {"status": "error", "error": {"type": "RuntimeError"}}
        turns, expected = [turns[0] | {"telemetry": error}], expected[:1]
    return make_case(f"s-{number}", turns, conversation=expected, evalSetId="golden")


@pytest.mark.slow
def test_a_turn_that_was_taken_out_of_a_case_is_a_change_though_the_run_failed(
    evaltap: Evaltap,
) -> None:
    Path("m.json").write_text(json.dumps([RESPONSE]))
    for side, first in (("base", 0), ("head", 1)):
        crashes = side == "head"
        cases = [recorded_case("s-0", False), two_turns(1, crashes=crashes, first=first)]
        write_lines(f"{side}.jsonl", cases)
        evaltap("score", f"{side}.jsonl", "--metrics", "m.json", "--result",
                f"{side}.evalset_result.json")  # fmt: skip

    _, found = compared(evaltap, "base.evalset_result.json", "head.evalset_result.json")

    assert found["changed"] == ["s-1"]


@pytest.mark.slow
def test_a_baseline_is_small_readable_and_the_same_each_time(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    evaltap("runs", "export", stores[0], "--out", "a.json")
    evaltap("runs", "export", stores[0], "--out", "b.json")
    text = Path("a.json").read_text()

    assert text == Path("b.json").read_text()
    assert json.loads(text)["format"] == "evaltap.baseline/2"
    assert sum('"evalId"' in line for line in text.splitlines()) == 12
    assert '"final_response_avg_score":"1/1"' in text
    assert not re.search(r"20\d\d-\d\d", text)


@pytest.mark.slow
def test_a_baseline_of_a_fast_and_cheap_agent_differs_in_nothing_from_its_store(
    evaltap: Evaltap,
) -> None:
    cases = [recorded_case(f"s-{n}", False) for n in range(12)]
    for number, case in enumerate(cases):
        telemetry = {"latencyMs": 3.4 + number / 1000, "costUsd": 0.0000314159265}
        case["actualConversation"][0]["telemetry"] = telemetry
    write_lines("fast.jsonl", cases)
    Path("m.json").write_text(json.dumps([RESPONSE]))
    evaltap("record", "cases", "fast.jsonl", "--log", "fast.log.db")
    evaltap("consume", "--log", "fast.log.db", "--db", "fast.duckdb", "--metrics", "m.json",
            "--until-idle")  # fmt: skip
    evaltap("runs", "export", "fast.duckdb", "--out", "fast.json")

    _, found = compared(evaltap, "fast.json", "fast.duckdb")

    assert [(one["name"], one["ratio"], one["p_value"]) for one in found["usage"]] == [
        ("latency", 1.0, 1.0),
        ("cost", 1.0, 1.0),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other/1"}, "`format` is 'other/1'"),
        ({"cases": [{"evalId": "s", "passed": {"m": "6/5"}}]}, "expected `passes/trials`"),
        ({"cases": [{"evalId": "s", "passed": {"n": "1/1"}}]}, "is not listed in `metrics`"),
        ({"cases": [{"evalId": "s"}, {"evalId": "s"}]}, "occurs twice"),
        ({"cases": 3}, "cases: found the number 3; expected a list"),
    ],
)
def test_a_baseline_that_was_edited_wrong_is_refused(
    evaltap: Evaltap, change: Mapping[str, Any], message: str
) -> None:
    good = {
        "format": "evaltap.baseline/2",
        "runs": 1,
        "metrics": [{"metricName": "m"}],
        "cases": [],
    }
    Path("b.json").write_text(json.dumps({**good, **change}))
    head = write_lines("h.jsonl", [score_line("s", 1)])

    code, _, error = evaltap("compare", "b.json", head)

    assert code == 2
    assert message in error


@pytest.mark.parametrize(
    "arguments",
    [("runs", "export"), ("runs", "export", "x.duckdb"), ("runs", "x.duckdb", "--out", "y.json"),
     ("runs", "export", "b.jsonl", "--out", "y.txt"),
     ("runs", "export", "baseline.json", "--out", "y.jsonl")],
)  # fmt: skip
def test_an_export_without_what_it_needs_is_refused(
    evaltap: Evaltap, arguments: tuple[str, ...]
) -> None:
    write_lines("b.jsonl", [score_line("s-1", 1)])
    evaltap("runs", "export", "b.jsonl", "--out", "baseline.json")

    code, _, error = evaltap(*arguments)

    assert code == 2
    assert error


@pytest.fixture
def traffic(evaltap: Evaltap, capsys: pytest.CaptureFixture[str]) -> str:
    """A DuckDB file with two weeks of traffic."""
    two_weeks(Path.cwd())
    capsys.readouterr()
    return "t.duckdb"


FIRST, SECOND = "@2026-11-01/2026-11-08", "@2026-11-08T00:00:00Z/2026-11-15"


@pytest.mark.slow
def test_two_weeks_of_traffic_are_compared_by_their_estimated_rates(
    evaltap: Evaltap, traffic: str
) -> None:
    code, found = compared(evaltap, traffic + FIRST, traffic + SECOND)

    assert (code, found["verdict"], found["metrics"][0]["unit"]) == (1, "regression", "session")
    assert (found["base"]["cases"], found["base"]["rate"]) == (80, pytest.approx(0.9))
    assert found["drop"] == pytest.approx(0.4)
    assert compared(evaltap, traffic + SECOND, traffic + FIRST)[1]["verdict"] == "improvement"
    assert compared(evaltap, traffic + FIRST, traffic + FIRST)[1]["verdict"] == "pass"
    assert "80 and 80 sessions" in evaltap("compare", traffic + FIRST, traffic + SECOND)[1]
    (estimated,) = json.loads(
        evaltap("estimate", traffic, "--until", "2026-11-08T00:00:00Z", "--json")[1]
    )
    assert found["base"]["low"] == estimated["low"]


@pytest.mark.slow
def test_a_slice_of_traffic_is_a_side(evaltap: Evaltap, traffic: str) -> None:
    shop = compared(evaltap, f"{traffic}{FIRST},app=shop", f"{traffic}{SECOND},app=shop")[1]

    assert (shop["base"]["cases"], shop["head"]["cases"]) == (60, 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("side", "message"),
    [
        ("@2026-13-01/", "is not a time"),
        ("@2026-11-02/2026-11-01", "ends before it begins"),
        ("@ap=shop", "did you mean 'app'?"),
        ("@shop", "is neither a period nor a slice"),
        ("@2020-01-01/2020-02-01", "no scored turn"),
        ("", "traffic can only be compared"),
    ],
)
def test_traffic_that_is_not_there_is_refused(
    evaltap: Evaltap, traffic: str, side: str, message: str
) -> None:
    code, _, error = evaltap("compare", traffic + FIRST, traffic + side)

    assert code == 2
    assert message in error


@pytest.mark.parametrize(
    ("side", "version", "where"),
    [
        ("@version=2@main,rc", "2@main,rc", "version = '2@main,rc'"),
        ("@version=2,app=a@b", "", "version = '2' AND app = 'a@b'"),
        ("@version=2,2026-11-01/", "", "version = '2'"),
    ],
)
def test_values_of_a_side_may_have_commas_and_at_signs(
    tmp_path: Path, side: str, version: str, where: str
) -> None:
    store = tmp_path / "a@b.duckdb"
    store.touch()

    found = selection_of(f"{store}{side}")

    assert found is not None
    assert (found.path, found.version, found.scope.where) == (store, version, where)


@pytest.mark.slow
def test_few_sessions_of_traffic_decide_nothing(evaltap: Evaltap, traffic: str) -> None:
    code, found = compared(evaltap, f"{traffic}@2026-11-01T00:00:00Z/2026-11-01T09:00:00Z",
                           traffic + SECOND)  # fmt: skip

    assert (code, found["verdict"]) == (3, "inconclusive")


@pytest.mark.slow
def test_markdown_fits_into_a_comment_and_keeps_recorded_text_from_being_markup(
    evaltap: Evaltap,
) -> None:
    rates = {f"<img src=x> @you {n:04} {'x' * 60}": (5, 0) for n in range(1500)}
    base, head = write_runs(rates)

    evaltap("compare", base, head, "--report", "pr.md")

    text = Path("pr.md").read_text()
    assert len(text.encode()) <= 60_000
    assert text.startswith("## ❌ worse: helpful")
    assert "<img" not in text
    assert "@you" not in text
    assert "more" in text


def test_junit_fails_what_regressed_and_skips_what_is_flaky(evaltap: Evaltap) -> None:
    evaltap("compare", *write_runs(BROKEN), "--report", "junit.xml")

    text = Path("junit.xml").read_text()
    xmlschema.XMLSchema(DATA / "junit.xsd").validate(text)
    tests = {one.get("name"): one for one in ElementTree.fromstring(text).iter("testcase")}
    assert tests["s-00"].find("failure") is not None
    assert tests["all cases"].find("failure") is not None
    skipped = tests["flaky"].find("skipped")
    assert skipped is not None
    assert "3/5 -> 2/5" in (skipped.get("message") or "")
    assert len(tests["known"]) == len(tests["s-01"]) == 0


ENTRY = (
    "Where is order A-100?",
    "1 tool call, expected 2",  # the reason
    '- get_order({"order_id":"A-100"})',
    "amount: expected 12, found 21",
    "- expected answer: done",
    "+ answer: no",
)


@pytest.mark.slow
@pytest.mark.parametrize("side", ["duckdb", "evalset_result.json", "files.duckdb"])
def test_a_case_that_got_worse_is_one_entry_with_question_reason_calls_and_answer(
    evaltap: Evaltap, stores: tuple[str, str], side: str
) -> None:
    for name in ("base", "head"):
        evaltap("score", f"{name}.jsonl", "--metrics", "m.json", "--db", f"{name}.files.duckdb")

    evaltap("compare", f"base.{side}", f"head.{side}",
            "--report", "c.md", "--report", "c.xml", "--report", "c.html")  # fmt: skip

    for name in ("c.md", "c.html"):
        text = unescape(Path(name).read_text())
        assert len(re.findall(r"<summary[ >]", text)) == 7, name
        assert "7 cases" in text, name
        assert [one for one in ENTRY if text.count(one) < 7] == [], name
    tests = list(ElementTree.parse("c.xml").iter("testcase"))
    worse = {one.get("name"): one.findtext("failure") for one in tests if len(one)}
    assert worse.keys() == {f"s-{n}" for n in range(3, 10)} | {"all cases"}
    assert [one for one in ENTRY if one not in (worse["s-3"] or "")] == []
    assert "s-9" in (worse["all cases"] or "")


@pytest.mark.slow
def test_lines_that_are_no_cases_hide_no_others(evaltap: Evaltap) -> None:
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    for side in ("base", "head"):
        write_lines(f"{side}.jsonl", [recorded_case("s", side == "head"), {"evalId": 7}])
        evaltap("score", f"{side}.jsonl", "--metrics", "m.json", "--db", f"{side}.duckdb")

    assert compared(evaltap, "base.duckdb", "head.duckdb")[1]["differences"][0]["lines"]


@pytest.mark.slow
def test_case_files_that_changed_since_they_were_scored_are_no_evidence(evaltap: Evaltap) -> None:
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    for side in ("base", "head"):
        write_lines(f"{side}.jsonl", [recorded_case(f"s-{n}", side == "head") for n in range(8)])
        evaltap("score", f"{side}.jsonl", "--metrics", "m.json", "--db", f"{side}.duckdb")
    os.utime("head.jsonl", (2e9, 2e9))

    _, found = compared(evaltap, "base.duckdb", "head.duckdb")

    assert {tuple(one["lines"]) for one in found["differences"]} == {()}
    assert "1 tool call" in found["differences"][0]["findings"][0]["reason"]


@pytest.mark.slow
def test_a_crash_is_said_once_and_metrics_that_got_worse_come_first(evaltap: Evaltap) -> None:
    Path("m.json").write_text(json.dumps([TRAJECTORY, RESPONSE]))
    for side in ("base", "head"):
        cases = [recorded_case(f"s-{n}", False) for n in range(12)]
        if side == "head":
            for case in cases[:8]:
                turn = case["actualConversation"][0]
                turn["telemetry"] = {
                    "status": "error",
                    "error": {"type": "Timeout", "message": "m"},
                }
                del turn["finalResponse"]
        write_lines(f"{side}.jsonl", cases)
        evaltap("score", f"{side}.jsonl", "--metrics", "m.json", "--db", f"{side}.duckdb")

    _, found = compared(evaltap, "base.duckdb", "head.duckdb")
    evaltap("compare", "base.duckdb", "head.duckdb", "--report", "c.md")

    drops = [one["drop"] for one in found["metrics"]]
    assert drops == sorted(drops, reverse=True)
    assert found["differences"][0]["crash"].startswith("the run failed (Timeout: m)")
    assert len(found["differences"]) == 8
    assert unescape(Path("c.md").read_text()).count("crashed: the run failed (Timeout: m)") == 8


@pytest.mark.slow
def test_reports_of_a_comparison_are_redacted_unless_asked_not_to(evaltap: Evaltap) -> None:
    Path("m.json").write_text(json.dumps([TRAJECTORY]))
    for side in ("base", "head"):
        cases = [recorded_case(f"s-{n}", side == "head") for n in range(8)]
        for case in cases:
            case["actualConversation"][0]["userContent"]["content"] = "I am ann@example.com"
        write_lines(f"{side}.jsonl", cases)
        evaltap("score", f"{side}.jsonl", "--metrics", "m.json", "--db", f"{side}.duckdb")

    evaltap("compare", "base.duckdb", "head.duckdb", "--report", "c.json")
    evaltap("compare", "base.duckdb", "head.duckdb", "--report", "plain.json", "--no-redact")

    assert "ann@example.com" not in Path("c.json").read_text()
    assert "ann@example.com" in Path("plain.json").read_text()
    evaltap("report", "head.duckdb", "--baseline", "base.duckdb", "--out", "r.html")
    assert "Compared with base" in Path("r.html").read_text()
    assert "ann@example.com" not in Path("r.html").read_text()


def test_the_page_needs_nothing_from_outside_and_shows_names_as_text(evaltap: Evaltap) -> None:
    base, head = write_runs(STEADY | {"<script>alert(1)</script>": (5, 0)})

    evaltap("compare", base, head, "--report", "c.html", "--report", "c.json")

    text = Path("c.html").read_text()
    assert "<script" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=[\"']?http", text)
    assert json.loads(Path("c.json").read_text())["verdict"] == "regression"


@pytest.mark.slow
def test_the_html_report_has_a_section_with_what_changed(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    base, head = stores
    evaltap("report", head, "--baseline", base, "--out", "r.html")

    text = Path("r.html").read_text()
    assert "Compared with base: worse" in text
    assert "newly failing" in text
    assert "get_order" in text
    code, _, error = evaltap("report", head, "--baseline", base, "--out", "r.md")
    assert code == 2
    assert "evaltap compare --report" in error


def test_names_are_never_cut_on_the_console(evaltap: Evaltap) -> None:
    name = "a-very-long-name-of-a-case-" * 6
    base, head = write_runs(STEADY | {name: (5, 0)})

    _, out, _ = evaltap("compare", base, head)

    assert name in out


@pytest.mark.slow
def test_slices_of_the_cases_are_compared_for_information_by_holm(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    code, plain = compared(evaltap, *stores)
    again, found = compared(evaltap, *stores, "--by", "tool,tool_path,language,eval_set")

    assert (again, found["verdict"], found["p_value"]) == (code, plain["verdict"], plain["p_value"])
    assert plain["strata"] == []
    trajectory = [one for one in found["strata"] if one["metric"].startswith("tool")]
    slices = {(one["by"], one["value"]): one for one in trajectory}
    assert {value for by, value in slices if by == "tool"} == {"get_order", "refund"}
    assert slices["eval_set", "golden"]["drop"] == found["metrics"][0]["drop"]
    assert slices["tool_path", "get_order > refund"]["base"]["cases"] == 12
    assert slices["tool_path", "refund"]["base"]["cases"] == 7
    assert slices["tool_path", "refund"]["drop"] == 1.0
    assert all(one["adjusted_p"] >= one["p_value"] and not one["decides"] for one in trajectory)
    assert found["strata"] == sorted(found["strata"], key=lambda one: one["adjusted_p"])


@pytest.mark.slow
def test_slices_are_in_every_report_of_a_comparison(
    evaltap: Evaltap, stores: tuple[str, str]
) -> None:
    reports = ("x.md", "x.html", "x.json", "x.xml")
    asked = [word for name in reports for word in ("--report", name)]
    out = evaltap("compare", *stores, "--by", "tool_path", *asked)[1]

    assert "tool_path get_order > refund" in out
    assert max(map(len, out.splitlines())) <= 80
    assert "tool_path refund" in Path("x.html").read_text()
    assert "tool\\_path refund" in Path("x.md").read_text().replace("tool_path", "tool\\_path")
    assert json.loads(Path("x.json").read_text())["strata"]


@pytest.mark.slow
def test_slices_of_traffic_are_compared_by_their_rates(evaltap: Evaltap, traffic: str) -> None:
    _, found = compared(evaltap, traffic + FIRST, traffic + SECOND, "--by", "app,language")

    slices = {(one["by"], one["value"]): one for one in found["strata"]}
    assert set(slices) == {("app", "shop"), ("app", "desk"), ("language", "und")}
    assert slices["app", "shop"]["base"]["cases"] == 60
    assert slices["language", "und"]["drop"] == pytest.approx(found["drop"])


@pytest.mark.parametrize(
    ("by", "message"),
    [
        ("tol", "did you mean 'tool'?"),
        ("day", "expected one of app, eval_set"),
        ("tool", "has recorded turns"),
    ],
)
def test_a_slice_that_cannot_be_compared_says_why(evaltap: Evaltap, by: str, message: str) -> None:
    code, _, error = evaltap("compare", *write_runs(BROKEN), "--by", by)

    assert code == 2
    assert message in error
