"""The content of a report: all scores once, the evidence behind them, and notes on missing evidence."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.reports.diff_lines import lines_of
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.markdown import markdown as markdown_report
from evaltap.evaluator.reports.model import Limits, Step, pattern, reason_groups, shared_words
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.reports.text import diff_lines
from evaltap.evaluator.store.database import Store
from evaltap.schemas import EvalMetric
from support.builders.cases import (
    RESPONSE,
    RUBRIC,
    TRAJECTORY,
    make_case,
    make_records,
    make_tool,
    make_turn,
)
from support.builders.reports import report_of, rubric_answer, score_into, write_cases
from support.worlds.shop import Asked, landed

F1 = {"metricName": "trajectory_f1", "threshold": 1, "criterion": {"trajectory": {}}}


def case(eval_id: str = "s-1", made: Any = (), wanted: Any = (), **given: Any) -> dict[str, Any]:
    """Return a case whose turn made some calls, and was expected to make others."""
    return make_case(
        eval_id,
        [make_turn(tools=list(made), **given)],
        conversation=[make_turn(tools=list(wanted))],
    )


def steps(case: dict[str, Any], *metrics: dict[str, Any]) -> list[tuple[str, str]]:
    """Return kind and name of each step of the only turn."""
    comparison = Comparison([EvalMetric.model_validate(metric) for metric in metrics])
    ((turn,), note) = evidence_of(case, comparison, Limits())
    assert note == ""
    return [(step.kind, name_of(step)) for step in turn.steps]


def name_of(step: Step) -> str:
    call = step.actual or step.expected
    assert call is not None
    return call.name


# -- scores ----------------------------------------------------------------------------------------


def test_every_case_stands_in_the_report_once_and_the_worst_come_first(tmp_path: Path) -> None:
    cases = [
        case("a", [make_tool()], [make_tool()]),
        case("b", [make_tool()], [make_tool("refund")]),
        case("c", [make_tool()], [make_tool()]),
    ]

    report = report_of(tmp_path, cases, [TRAJECTORY, RESPONSE])

    assert [(one.eval_id, one.status) for one in report.cases] == [
        ("b", "failed"),
        ("a", "passed"),
        ("c", "passed"),
    ]
    assert report.case_counts == {
        "crashed": 0,
        "failed": 1,
        "error": 0,
        "not_evaluated": 0,
        "passed": 2,
    }
    assert [(row.passed, row.failed) for row in report.summary.metrics] == [(2, 1), (3, 0)]
    assert all(len(one.cells) == 2 for one in report.cases)


def test_scores_are_counted_in_ten_bins_with_the_ends_included(tmp_path: Path) -> None:
    calls = [make_tool(f"t{number}") for number in range(10)]
    cases = [case(str(n), calls[:n], calls[:n] + calls[: 10 - n]) for n in (0, 3, 10)]

    report = report_of(tmp_path, cases, [F1])

    scores = [cell.score for one in report.cases for cell in one.cells]
    assert sorted(score for score in scores if score is not None) == [0, pytest.approx(6 / 13), 1]
    assert report.metrics[0].histogram == (1, 0, 0, 0, 1, 0, 0, 0, 0, 1)


def test_a_metric_without_evidence_leaves_a_case_not_evaluated_with_its_reason(
    tmp_path: Path,
) -> None:
    hidden = make_turn(capture={"tools": "redacted"})

    report = report_of(tmp_path, [make_case(turns=[hidden], conversation=[make_turn()])], [F1])

    (one,) = report.cases
    assert (one.status, one.cells[0].score) == ("not_evaluated", None)
    assert report.reasons[0].example == "evidence missing: tools is redacted"
    assert one.evidence[0].gaps == ("tools is redacted",)


def test_reasons_that_differ_in_numbers_and_quotes_are_one_group(tmp_path: Path) -> None:
    cases = [
        case(str(n), [make_tool(arguments={"order_id": f"A-{n}"})], [make_tool()]) for n in range(3)
    ]

    report = report_of(tmp_path, cases, [TRAJECTORY])

    (group,) = report.reasons
    assert (group.cases, group.eval_ids) == (3, ("0", "1", "2"))
    assert "A-0" in group.example
    (twice,) = reason_groups([*report.cases, *report.cases])
    assert (twice.cases, twice.eval_ids) == (6, ("0", "1", "2"))


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("", "no reason given"),
        ("f1 0.8: a: expected 'it\\'s', found \"9\"", "f1 N: a: expected '…', found '…'"),
        ("tool id call_9f3 with name a", "tool id N with name a"),
        ("one\n\ttwo", "one two"),
    ],
)
def test_the_pattern_of_a_reason_leaves_out_what_varies(reason: str, expected: str) -> None:
    assert pattern(reason) == expected


@pytest.mark.parametrize(
    ("reasons", "expected"),
    [
        (["recall 0.5: missing refund", "recall 0.25: missing refund"], "missing refund"),
        (["'a' is not 'b'", "'c' is not 'd'"], "is not"),
        (["12", "13"], ""),
        (["abcd", "efgh"], ""),
        ([], ""),
    ],
)
def test_reasons_of_one_pattern_share_words(reasons: list[str], expected: str) -> None:
    assert shared_words(reasons) == expected


@given(st.lists(st.text(), min_size=1, max_size=4), st.text())
def test_shared_words_are_in_each_reason_and_fit_a_filter(ends: list[str], middle: str) -> None:
    reasons = [f"{end}\n{middle}\n{end}" for end in ends]
    words = shared_words(reasons)

    assert all(words in reason for reason in reasons)
    assert '"' not in words


def test_votes_stand_under_their_metric_with_sample_score_and_reason(tmp_path: Path) -> None:
    answers = iter([rubric_answer(1, "names it"), rubric_answer(0, "does not")])
    twice: dict[str, Any] = copy.deepcopy(RUBRIC)
    twice["criterion"]["llmJudge"]["judgeModel"]["numSamples"] = 2

    report = report_of(tmp_path, [make_case()], [twice], answer=lambda: next(answers))

    (cell,) = report.cases[0].cells
    votes = [(vote.sample, vote.rubric_id, vote.score, vote.reason) for vote in cell.votes]
    assert votes == [(1, "1", 1, "names it"), (2, "1", 0, "does not")]
    assert report.judge is not None
    assert report.judge.count == len(cell.calls) == 2
    assert report.judge.cost_usd is None


# -- the evidence ----------------------------------------------------------------------------------


def test_without_the_file_the_report_says_that_turns_are_not_shown(tmp_path: Path) -> None:
    path = write_cases(tmp_path, [make_case()])
    with Store(":memory:") as store:
        score_into(store, path, [TRAJECTORY])
        report = read_report(store)

    (one,) = report.cases
    assert one.evidence == ()
    assert "was not given to this report" in one.evidence_note
    assert "1 case" in report.notes[0]
    assert "--cases" in report.notes[0]


def test_landed_turns_are_evidence_without_any_file(tmp_path: Path) -> None:
    recorded = case("a", [make_tool()], [make_tool("refund")])
    with Store(":memory:") as store:
        (record,) = make_records([recorded])
        records = (SourceRecord(Partition("log", 0), 0, record),)
        Lander(store).land(SourceBatch(records, {Partition("log", 0): 1}))
        path = write_cases(tmp_path, [recorded | {"evalSetId": "a"}])
        score_into(store, path, [TRAJECTORY])
        report = read_report(store)

    (one,) = report.cases
    assert [step.kind for step in one.evidence[0].steps] == ["extra", "missing"]
    assert one.evidence[0].answer == "done"


def test_a_line_that_is_no_case_is_counted_and_hides_no_other(tmp_path: Path) -> None:
    path = write_cases(tmp_path, [case("a", [make_tool()], [])])
    with Store(":memory:") as store:
        score_into(store, path, [TRAJECTORY])
        path.write_text("{]\n" + path.read_text())
        report = read_report(store, case_files=[path])

    assert len(report.cases[0].evidence) == 1
    assert report.notes == ("1 line of the case files skipped, because they are not eval cases.",)


def test_a_report_lists_cases_that_did_not_pass_first_and_counts_all(tmp_path: Path) -> None:
    good, bad = make_turn(telemetry={"latencyMs": 100}), make_turn(answer="wrong")
    cases = [
        make_case(f"c{number}", [bad if number == 3 else good], conversation=[good])
        for number in range(5)
    ]

    report = report_of(tmp_path, cases, [RESPONSE], limits=Limits(listed=2))

    assert [(case.eval_id, case.status) for case in report.cases] == [
        ("c3", "failed"),
        ("c0", "passed"),
    ]
    assert report.total == 5
    assert report.case_counts["passed"] == 4
    assert sum(report.metrics[0].histogram) == 5
    assert report.agent.count == 5
    assert report.notes[0].startswith("2 of 5 cases are listed")


def test_beyond_the_limit_cases_keep_their_scores_and_the_report_says_so(tmp_path: Path) -> None:
    cases = [case(str(n), [make_tool()], [make_tool()]) for n in range(4)]
    cases.append(case("bad", [], [make_tool()]))

    report = report_of(tmp_path, cases, [TRAJECTORY], limits=Limits(cases=2))

    assert [(one.eval_id, one.detailed) for one in report.cases] == [
        ("bad", True),
        ("0", True),
        ("1", False),
        ("2", False),
        ("3", False),
    ]
    assert all(one.cells[0].score is not None for one in report.cases)
    assert report.notes[0].startswith("Turns, differences and votes are shown for 2 of 5 cases")


def test_long_texts_calls_and_turns_are_cut_with_a_word(tmp_path: Path) -> None:
    turns = [make_turn(f"t{n}", answer="x" * 50, tools=[make_tool()] * 5) for n in range(3)]

    report = report_of(
        tmp_path, [make_case(turns=turns)], [TRAJECTORY], limits=Limits(turns=2, calls=3, text=10)
    )

    (one,) = report.cases
    assert len(one.evidence) == 2
    assert one.evidence_note == "1 more turn not shown"
    assert one.evidence[0].answer == "x" * 10 + "… (40 more characters)"
    assert len(one.evidence[0].steps) == 3
    assert one.evidence[0].omitted_calls == 2


@pytest.mark.slow
def test_a_call_that_differs_is_never_cut_and_equal_ones_are_folded(tmp_path: Path) -> None:
    right = [make_tool(arguments={"page": n}) for n in range(300)]
    made = [*right[:-1], make_tool(arguments={"page": -1})]

    report = report_of(
        tmp_path,
        [make_case(turns=[make_turn(tools=made)], conversation=[make_turn(tools=right)])],
        [TRAJECTORY],
        limits=Limits(calls=3),
    )

    (turn,) = report.cases[0].evidence
    assert [step.kind for step in turn.steps] == ["same", "same", "changed"]
    assert (turn.steps[-1].expected_place, turn.omitted_calls) == (300, 297)
    (tmp_path / "whole").mkdir()
    whole = report_of(
        tmp_path / "whole",
        [make_case(turns=[make_turn(tools=made)], conversation=[make_turn(tools=right)])],
        [TRAJECTORY],
    )
    (turn,) = whole.cases[0].evidence
    assert diff_lines(turn)[0] == "= 199 equal calls"
    assert "page: expected 299, found -1" in diff_lines(turn)[2]
    assert [line.folds for line in lines_of(turn.steps) if line.folds] == [199]


@pytest.mark.parametrize(
    ("made", "wanted", "expected"),
    [
        (["a", "b"], ["a", "b"], [("same", "a"), ("same", "b")]),
        (["a"], ["a", "b"], [("same", "a"), ("missing", "b")]),
        (["a", "b"], ["b"], [("extra", "a"), ("same", "b")]),
        (["b", "a"], ["a", "b"], [("same", "b"), ("moved", "a")]),
        ([], [], []),
    ],
)
def test_calls_are_set_against_the_expected_ones(
    made: list[str], wanted: list[str], expected: list[tuple[str, str]]
) -> None:
    found = steps(case("x", map(make_tool, made), map(make_tool, wanted)))

    assert found == expected


def test_without_a_reference_calls_are_only_listed() -> None:
    assert steps(make_case(turns=[make_turn(tools=[make_tool("a")])])) == [("made", "a")]


def test_failed_calls_are_left_out_where_the_metric_leaves_them_out() -> None:
    failed = make_tool("a", error={"type": "Timeout", "message": "too slow"})
    again = case("x", [failed, make_tool("a")], [make_tool("a")])

    assert steps(again, F1) == [("left_out", "a"), ("same", "a")]
    assert [kind for kind, _ in steps(again)].count("extra") == 1


def test_calls_of_which_nothing_is_expected_are_not_called_unexpected() -> None:
    answer_only = case("x", [make_tool("a")])
    answer_only["conversation"][0]["capture"] = {"tools": "missing"}

    assert steps(answer_only) == [("made", "a")]
    assert steps(case("x", [make_tool("a")])) == [("extra", "a")]


def test_calls_of_nested_agents_name_their_agent() -> None:
    nested = make_tool("a", agent="researcher")
    ((turn,), _) = evidence_of(case("x", [nested], [nested]), Comparison(), Limits())

    (step,) = turn.steps
    assert step.actual is not None
    assert step.actual.agent == "researcher"


def test_arguments_that_the_metric_ignores_are_no_difference() -> None:
    other = case("x", [make_tool(arguments={"order_id": "B"})], [make_tool()])
    by_name = TRAJECTORY | {"criterion": {"toolTrajectory": {"defaultStrategy": {"name": {}}}}}
    ignoring = F1 | {"criterion": {"trajectory": {"arguments": {"mode": "ignore"}}}}

    assert steps(other) == [("changed", "get_order")]
    assert steps(other, by_name) == steps(other, ignoring) == [("same", "get_order")]


def test_of_several_references_the_one_that_fits_best_is_shown() -> None:
    references = {"references": [{"tools": [make_tool("b")]}, {"tools": [make_tool("c")]}]}

    found = steps(
        case("x", [make_tool("c")], [make_tool("a")]),
        F1 | {"criterion": {"trajectory": references}},
    )

    assert found == [("same", "c")]


def test_a_case_that_cannot_be_laid_out_says_why(tmp_path: Path) -> None:
    broken = make_case(conversation=[make_turn(), make_turn()])

    report = report_of(tmp_path, [broken], [TRAJECTORY])

    (one,) = report.cases
    assert one.status == "error"
    assert "does not match conversation length" in one.evidence_note


# -- use -------------------------------------------------------------------------------------------


def test_what_nobody_recorded_is_unknown_and_not_zero(tmp_path: Path) -> None:
    known = make_turn("t-1", telemetry={"costUsd": 0.5, "latencyMs": 100, "inputTokens": 7})
    unknown = make_turn("t-2")

    report = report_of(
        tmp_path, [make_case("a", [known, unknown]), make_case("b", [unknown])], [TRAJECTORY]
    )

    agent = report.agent
    assert (agent.count, agent.cost_usd, agent.with_cost) == (3, 0.5, 1)
    assert (agent.input_tokens, agent.output_tokens, agent.with_tokens) == (7, None, 0)
    told = "0.5 USD (unknown for 2 turns); 7 tokens in, ? out (unknown for 3 turns)"
    assert told in markdown_report(report)
    traffic = replace(agent, estimated_turns=30.0)
    assert "(unknown for 2 recorded turns)" in markdown_report(replace(report, agent=traffic))
    assert (agent.latency_p95_ms, agent.with_latency) == (100, 1)
    spent = {one.eval_id: (one.cost_usd, one.latency_ms) for one in report.cases}
    assert spent == {"a": (0.5, 100), "b": (None, None)}


def test_a_live_run_is_reported_at_the_last_revision_of_each_case() -> None:
    with Store(":memory:") as store:
        store.append("runs", [("live-1", "live", "log", "1", "2026-11-21")])
        row = ("app", "set", "s", 1, "m", 0.0, "failed", 1.0, "", "m", "1", "d", 1, "2026-11-21")
        store.append("scores", [("i1", "live-1", *row)])
        store.append("scores", [("i2", "live-1", *row[:3], 2, "m", 1.0, "passed", *row[7:])])
        report = read_report(store, run_id="live-1")

    assert [(one.revision, one.status) for one in report.cases] == [(2, "passed")]
    assert [(m.passed, m.failed) for m in report.summary.metrics] == [(1, 0)]


def test_of_a_version_of_a_metric_scores_count_that_another_has_replaced() -> None:
    with Store(":memory:") as store:
        store.append("runs", [("one", "landed", "x", "1", "2026-11-21")])
        row = (
            "app",
            "set",
            "s",
            1,
            "m",
            0.5,
            "failed",
            0.9,
            "",
            "m",
            "1",
            "strict",
            1,
            "2026-11-21",
        )
        store.append("scores", [("i1", "one", *row)])
        lenient = ("passed", 0.4, *row[8:11], "lenient", 1, "2026-11-22")
        store.append("scores", [("i2", "one", *row[:6], *lenient)])

        reports = [read_report(store, digests=names) for names in ((), ("strict",), ("lenient",))]

    assert [one.summary.cases for one in reports] == [1, 1, 1]
    assert [one.summary.metrics[0].passed for one in reports] == [1, 0, 1]


def test_a_report_of_nothing_is_empty_and_incomplete() -> None:
    with Store(":memory:") as store:
        report = read_report(store)

    assert (report.cases, report.metrics, report.reasons, report.judge) == ((), (), (), None)
    assert report.data()["exit_code"] == 3


@pytest.mark.slow
def test_a_sampled_case_that_could_not_be_scored_did_not_fail(tmp_path: Path) -> None:
    half = {"inclusionProbability": 0.5}
    asked = [Asked("a", source=half), Asked("b", source=half), Asked("c", answer="no")]
    other = "'other' AS metric_name, 'd' AS metric_digest, 'error' AS status, NULL AS score"

    with Store(landed(tmp_path, asked)) as store:
        for table in ("scores", "turn_scores"):
            store.execute(
                f"INSERT INTO {table} SELECT * REPLACE ({other}) FROM {table} WHERE eval_id = 's-0'"
            )
        found = summarise(store)

    assert found.passing_rate == pytest.approx(2 / 3), "of b, which stands for two, and c"
