"""`evaltap compare`: pairs of runs in all input formats, the findings for each case, exit codes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.analysis.stats.rate import Interval, Rate
from evaltap.evaluator.reports.compare.metrics import usage_changes, verdict_of
from evaltap.evaluator.reports.compare.model import MetricChange, Rules, Totals
from evaltap.evaluator.reports.compare.sides import Recording
from evaltap.evaluator.reports.compare.wording import difference
from support.builders.cases import make_case, make_records, make_turn, write_log
from support.builders.commands import Evaltap
from support.builders.compared_runs import (
    BROKEN,
    STEADY,
    compared,
    score_line,
    trials,
    write_lines,
    write_runs,
)

"""Passes in base and in head, of five trials each."""


def test_a_broken_case_is_a_regression_and_flaky_and_known_ones_are_not(evaltap: Evaltap) -> None:
    code, found = compared(evaltap, *write_runs(BROKEN))

    assert (code, found["verdict"], found["exit_code"]) == (1, "regression", 1)
    assert found["p_value"] <= found["alpha"] == 0.02
    assert found["drop"] == pytest.approx((1 + 0.2) / 17)
    assert found["low"] < found["drop"] < found["high"]
    assert found["base"] | {"runs": 5, "cases": 17, "trials": 85} == found["base"]
    cases = {case["eval_id"]: case for case in found["cases"]}
    assert [one for one, case in cases.items() if case["change"] == "regressed"] == ["s-00"]
    assert cases["s-00"]["base"] == [5, 5]
    assert cases["s-00"]["head"] == [0, 5]
    assert cases["s-00"]["outcome"] == "newly_failing"
    assert cases["known"]["outcome"] == "still_failing"
    assert cases["flaky"]["change"] == "flaky"
    assert cases["flaky"]["low"] < cases["flaky"]["rate"] == 0.4 < cases["flaky"]["high"]


def test_a_set_of_known_failures_passes_as_long_as_nothing_gets_worse(evaltap: Evaltap) -> None:
    code, found = compared(evaltap, *write_runs(STEADY | {"known": (0, 0), "flaky": (2, 3)}))

    assert (code, found["verdict"]) == (0, "pass")


def test_the_other_way_round_a_regression_is_an_improvement(evaltap: Evaltap) -> None:
    base, head = write_runs(BROKEN)
    _, worse = compared(evaltap, base, head)
    code, better = compared(evaltap, head, base)

    assert (code, better["verdict"]) == (0, "improvement")
    assert better["metrics"][0]["p_value_improvement"] == worse["metrics"][0]["p_value"]
    assert better["drop"] == pytest.approx(-worse["drop"])
    assert compared(evaltap, base, base)[1]["verdict"] == "pass"


def test_mended_cases_have_no_reason_in_markdown(evaltap: Evaltap) -> None:
    base, head = write_runs(BROKEN)

    evaltap("compare", head, base, "--report", "c.md")

    text = Path("c.md").read_text()
    assert "### Newly passing (1)\n\n- s-00: 0/5" in text


def test_the_headline_is_about_the_metric_that_improved(evaltap: Evaltap) -> None:
    even = {name: (4, 4) for name in BROKEN}
    sides = [
        write_lines(f"{name}.jsonl", [
            line
            for metric, rates in (("helpful", even), ("honest", BROKEN))
            for eval_id, passes in rates.items()
            for line in trials(eval_id, passes[at], metricName=metric)
        ])
        for at, name in enumerate(("worse", "better"))
    ]  # fmt: skip
    sides.reverse()

    code, text, _ = evaltap("compare", *sides)
    found = compared(evaltap, *sides)[1]

    assert (code, found["verdict"]) == (0, "improvement")
    honest = next(one for one in found["metrics"] if one["metric"] == "honest")
    assert found["drop"] == honest["drop"] < 0
    assert (
        "p = 0.0079" in text.partition("\nhonest\n")[2]
    )  # that it is better, not "no worse": 1.00


def test_too_few_trials_to_see_anything_are_inconclusive(evaltap: Evaltap) -> None:
    base = write_lines("b.jsonl", [score_line(f"s-{n}", 1) for n in range(3)])
    head = write_lines("h.jsonl", [score_line(f"s-{n}", 1, "failed") for n in range(3)])

    code, found = compared(evaltap, base, head)

    assert (code, found["verdict"]) == (3, "inconclusive")
    assert "too few passing trials" in found["reasons"][0]


def test_a_metric_leaves_out_cases_that_expect_nothing_of_it_also_if_they_crashed(
    evaltap: Evaltap,
) -> None:
    names = []
    for side, crashed in {"base": 6, "head": 0}.items():
        other = [
            {
                **score_line(f"o-{n}", 1, "crashed" if n < crashed else "not_evaluated"),
                "reason": "not applicable: the case expects no particular calls",
            }
            for n in range(12)
        ]
        names.append(
            write_lines(f"{side}.jsonl", [*(score_line(f"s-{n}", 1) for n in range(24)), *other])
        )

    code, found = compared(evaltap, *names)

    assert (code, found["verdict"]) == (0, "pass")
    (metric,) = found["metrics"]
    assert (metric["base"]["cases"], metric["base"]["missing"]) == (24, 0)


@pytest.mark.parametrize(("passed", "code"), [(3, 0), (1, 0), (0, 3)])
def test_a_set_that_failed_as_a_whole_is_not_worse_once_a_case_passes(
    evaltap: Evaltap, passed: int, code: int
) -> None:
    base = write_lines("b.jsonl", [score_line(f"s-{n}", 1, "failed") for n in range(3)])
    lines = [score_line(f"s-{n}", 1, "passed" if n < passed else "failed") for n in range(3)]

    assert compared(evaltap, base, write_lines("h.jsonl", lines))[0] == code


@pytest.mark.parametrize(
    ("gaps", "reason"),
    [({"base": 2, "head": 2}, "have no verdict"), ({"base": 0, "head": 1}, None)],
)
def test_verdicts_that_are_missing_leave_it_open(
    evaltap: Evaltap, gaps: Mapping[str, int], reason: str | None
) -> None:
    names = []
    for side, missing in gaps.items():
        lines = [score_line(f"s-{n}", 1, "error" if n < missing else "passed") for n in range(24)]
        names.append(write_lines(f"{side}.jsonl", lines))

    code, found = compared(evaltap, *names)

    assert code == (3 if reason else 0)
    assert reason is None or reason in found["reasons"][0]


def test_what_head_alone_could_not_evaluate_is_missing_and_no_pass(evaltap: Evaltap) -> None:
    base = write_lines("b.jsonl", [score_line(f"s-{n:02}", 1) for n in range(20)])
    lines = [score_line(f"s-{n:02}", 1, "not_evaluated" if n < 5 else "passed") for n in range(20)]

    code, found = compared(evaltap, base, write_lines("h.jsonl", lines))

    assert code == 3
    assert [case["change"] for case in found["cases"][:5]] == ["missing"] * 5


def test_what_one_side_has_no_score_of_at_all_is_missing_and_no_pass(evaltap: Evaltap) -> None:
    def lines(scored: int) -> list[dict[str, Any]]:
        judged = [line for n in range(scored) for line in trials(f"s-{n:02}", 5)]
        every = [line for n in range(20) for line in trials(f"s-{n:02}", 5, metricName="said")]
        return judged + every

    base = write_lines("b.jsonl", lines(20))
    code, found = compared(evaltap, base, write_lines("h.jsonl", lines(10)))

    assert code == 3
    assert found["reasons"] == ["helpful: 50 of 100 trials of head have no verdict"]
    helpful = next(one for one in found["metrics"] if one["metric"] == "helpful")
    assert (helpful["base"]["missing"], helpful["head"]["missing"]) == (0, 50)
    changes = [one["change"] for one in found["cases"] if one["metric"] == "helpful"]
    assert changes.count("missing") == 10


def test_a_metric_that_no_side_can_evaluate_on_a_case_leaves_nothing_open(evaltap: Evaltap) -> None:
    lines = [score_line(f"s-{n:02}", 1, "not_evaluated" if n < 5 else "passed") for n in range(20)]
    name = write_lines("b.jsonl", lines)

    code, found = compared(evaltap, name, name)

    assert code == 0
    assert [case["change"] for case in found["cases"][:5]] == ["not_evaluated"] * 5


def test_a_crashed_run_has_not_passed(evaltap: Evaltap) -> None:
    base = write_lines("b.jsonl", [score_line(f"s-{n}", 1) for n in range(8)])
    head = write_lines("h.jsonl", [score_line(f"s-{n}", 1, "crashed") for n in range(8)])

    assert compared(evaltap, base, head)[0] == 1


def test_harmlessness_is_shown_or_left_open(evaltap: Evaltap) -> None:
    base, head = write_runs({f"s-{n:02}": (5, 5) for n in range(40)})

    assert compared(evaltap, base, head, "--max-drop", "0.05")[0] == 0
    code, found = compared(evaltap, base, head, "--max-drop", "0.01")
    assert code == 3
    assert "the limit is 1.0 points" in found["reasons"][0]


def test_a_margin_lets_a_small_drop_pass(evaltap: Evaltap) -> None:
    base, head = write_runs(BROKEN)

    assert compared(evaltap, base, head, "--margin", "0.1")[0] == 0
    assert compared(evaltap, base, head, "--margin", "0.05")[0] == 1


@pytest.mark.parametrize(("wanted", "code"), [("0.8", 0), ("0.9", 3), ("0.97", 1)])
def test_the_least_pass_rate_is_held_against_the_interval(
    evaltap: Evaltap, wanted: str, code: int
) -> None:
    sides = write_runs({f"s-{n:02}": ((5, 5) if n < 14 else (3, 3)) for n in range(20)})

    found = compared(evaltap, *sides, "--min-pass-rate", wanted)

    assert found[0] == code
    assert found[1]["verdict"] == {0: "pass", 1: "below_minimum", 3: "inconclusive"}[code]


def test_several_metrics_share_the_level_and_only_those_that_are_named_decide(
    evaltap: Evaltap,
) -> None:
    sides = []
    for name, passes in (("b.jsonl", 5), ("h.jsonl", 0)):
        lines = [line for n in range(12) for line in trials(f"s-{n}", 5)]
        lines += trials("s-99", passes)
        for metric in ("polite", "short", "true"):
            lines += [
                one | {"metricName": metric} for n in range(13) for one in trials(f"s-{n}", 5)
            ]
        sides.append(write_lines(name, lines))

    code, found = compared(evaltap, *sides)
    helpful = next(one for one in found["metrics"] if one["metric"] == "helpful")
    assert code == 1
    assert helpful["adjusted_p"] == pytest.approx(4 * helpful["p_value"])
    assert found["metric"] == "helpful"

    code, found = compared(evaltap, *sides, "--fail-on-metrics", "polite,short")
    helpful = next(one for one in found["metrics"] if one["metric"] == "helpful")
    assert code == 0
    assert not helpful["decides"]
    assert helpful["adjusted_p"] is None
    assert helpful["q_value"] <= 0.02

    code, _, error = evaltap("compare", *sides, "--fail-on-metrics", "polit")
    assert code == 2
    assert "did you mean 'polite'?" in error


def test_scores_without_verdicts_are_compared_by_their_means(evaltap: Evaltap) -> None:
    def side(name: str, less: float) -> str:
        lines = [
            score_line(f"s-{n}", 1)
            | {"score": 0.5 + n / 40 - less, "status": None, "threshold": None}
            for n in range(12)
        ]
        return write_lines(name, lines)

    code, found = compared(evaltap, side("b.jsonl", 0), side("h.jsonl", 0.2))

    assert (code, found["metrics"][0]["kind"]) == (1, "score")
    assert found["drop"] == pytest.approx(0.2)
    assert found["p_value"] == pytest.approx(2**-12)


def test_the_least_pass_rate_is_of_all_cases_of_head(evaltap: Evaltap) -> None:
    steady = [score_line(f"s-{n:02}", 0) for n in range(40)]
    added = [score_line(f"new-{n:02}", 0, "failed") for n in range(20)]
    base, head = write_lines("b.jsonl", steady), write_lines("h.jsonl", [*steady, *added])

    code, found = compared(evaltap, base, head, "--min-pass-rate", "0.85")

    assert (code, found["verdict"]) == (1, "below_minimum")
    assert "66.7% of head's 60 cases pass" in found["reasons"][0]
    assert any("20 of 20 cases only in head failed" in note for note in found["notes"])
    assert compared(evaltap, base, base, "--min-pass-rate", "0.85")[0] == 0


def test_a_metric_that_head_lost_leaves_it_open(evaltap: Evaltap) -> None:
    judged = [line for n in range(20) for line in trials(f"s-{n:02}", 5)]
    said = [line | {"metricName": "said"} for line in judged]
    base, head = write_lines("b.jsonl", [*judged, *said]), write_lines("h.jsonl", judged)

    code, found = compared(evaltap, base, head)

    assert (code, found["verdict"]) == (3, "inconclusive")
    assert found["reasons"] == [
        "said: has verdicts in base and none in head (--subset allows that)"
    ]
    assert compared(evaltap, base, head, "--subset")[0] == 0
    assert compared(evaltap, base, head, "--fail-on-metrics", "helpful")[0] == 0
    assert compared(evaltap, head, base)[0] == 0, "a new metric has nothing to be compared with"


def test_cases_of_one_side_are_listed_and_not_compared(evaltap: Evaltap) -> None:
    base, head = write_runs(STEADY)
    write_lines(
        "h.jsonl", [*map(json.loads, Path(head).read_text().splitlines()), *trials("new", 0)]
    )

    code, found = compared(evaltap, base, "h.jsonl")

    assert code == 0
    assert (found["added"], found["removed"]) == (["new"], [])


def test_cases_that_head_lost_are_an_error_of_the_junit_report_too(evaltap: Evaltap) -> None:
    base, head = write_runs(STEADY)
    lines = [json.loads(line) for line in Path(head).read_text().splitlines()]
    lost = write_lines("h.jsonl", [one for one in lines if one["evalId"] != "s-01"])

    code, _, _ = evaltap("compare", base, lost, "--report", "junit.xml")

    assert code == 3
    assert '<error message="1 of' in Path("junit.xml").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metricDigest": "d2"}, "--across-metrics"),
        ({"metricName": "other"}, "no metric is in both"),
        ({"evalId": "other"}, "no case is in both"),
        ({"status": "maybe"}, "`status` is 'maybe'; expected one of passed"),
        ({"score": "high"}, "`score` is 'high'; expected a number"),
        ({"runId": None}, "`runId` is nothing; expected a text"),
        ({"status": None, "score": None}, "neither `status` nor `score`"),
    ],
)
def test_what_cannot_be_compared_is_explained(
    evaltap: Evaltap, change: Mapping[str, Any], message: str
) -> None:
    base = write_lines("b.jsonl", [score_line("s-1", 1)])
    head = write_lines("h.jsonl", [{**score_line("s-1", 1), **change}])

    code, _, error = evaltap("compare", base, head)

    assert code == 2
    assert message in error
    assert "Traceback" not in error


@pytest.mark.parametrize("name", ["missing.json", "empty.jsonl", "cases.json", "x.duckdb#run"])
def test_a_side_that_holds_no_scores_is_refused(evaltap: Evaltap, name: str) -> None:
    Path("empty.jsonl").write_text("")
    Path("cases.json").write_text('{"evalSetId": "a", "evalCases": []}')
    good = write_lines("b.jsonl", [score_line("s-1", 1)])

    code, _, error = evaltap("compare", good, name)

    assert code == 2
    assert name.partition("#")[0] in error


def test_another_version_of_a_metric_is_compared_when_that_is_asked_for(evaltap: Evaltap) -> None:
    base, _ = write_runs(STEADY)
    lines = map(json.loads, Path(base).read_text().splitlines())
    head = write_lines("h.jsonl", [line | {"metricDigest": "d2"} for line in lines])

    code, found = compared(evaltap, base, head, "--across-metrics")

    assert code == 0
    assert any("across versions" in note for note in found["notes"])


def test_scores_under_other_versions_of_a_metric_are_counted_in_a_note(evaltap: Evaltap) -> None:
    older = [score_line("s-1", 0, metricDigest="d1"), score_line("s-2", 1, metricDigest="d1")]
    base = write_lines("b.jsonl", [*older, score_line("s-1", 1, metricDigest="d2")])
    head = write_lines("h.jsonl", [score_line("s-1", 1, metricDigest="d2")])

    _, found = compared(evaltap, base, head)

    assert found["base"]["trials"] == 1
    assert [note for note in found["notes"] if "other versions" in note] == [
        "b.jsonl: scores of 2 cases under other versions of helpful are not compared"
    ]


@pytest.mark.slow
def test_so_are_those_of_traffic(evaltap: Evaltap) -> None:
    def recorded(version: str) -> list[dict[str, Any]]:
        apps = ["shop"] * 8 + ["desk"] * 12
        return [
            make_case(
                f"{version}-{number}",
                [make_turn(telemetry={"status": "ok"})],
                sessionInput={"appName": app},
                source={"version": version},
            )
            for number, app in enumerate(apps)
        ]

    write_log(Path("t.log.db"), make_records([*recorded("1"), *recorded("2")]))
    succeeded = {"metricName": "run_succeeded", "threshold": 1}
    evaltap("consume", "--log", "t.log.db", "--db", "t.duckdb", "--until-idle")
    for threshold, chosen in ((1, ""), (0.5, "app:desk")):
        Path("m.json").write_text(json.dumps([succeeded | {"threshold": threshold}]))
        evaltap("score", "t.duckdb", "--metrics", "m.json", "--filter", chosen)

    _, found = compared(evaltap, "t.duckdb@version=1", "t.duckdb@version=2")

    assert (found["base"]["cases"], found["head"]["cases"]) == (12, 12)
    assert [note for note in found["notes"] if "other versions" in note] == [
        f"t.duckdb@version={version}: 20 verdicts under other versions of run_succeeded are not"
        " compared, 12 are"
        for version in "12"
    ]


@pytest.mark.slow
def test_a_metric_without_a_verdict_on_newer_traffic_leaves_it_open(evaltap: Evaltap) -> None:
    cases = [
        make_case(
            f"{version}-{number}",
            # Whether a run succeeded is known from its telemetry, which version 2 has none of.
            [make_turn(telemetry={"status": "ok"} if version == "1" else {})],
            source={"version": version},
        )
        for version in "12"
        for number in range(20)
    ]
    write_log(Path("t.log.db"), make_records(cases))
    says = {"rules": [{"id": "r", "type": "contains", "values": ["done"]}]}
    said = {
        "metricName": "said",
        "evaluatorName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": says},
    }
    exact = {"metricName": "trajectory_exact", "threshold": 1, "criterion": {"trajectory": {}}}
    Path("m.json").write_text(
        json.dumps([{"metricName": "run_succeeded", "threshold": 1}, said, exact])
    )
    evaltap(
        "consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json", "--until-idle"
    )
    sides = ("t.duckdb@version=1", "t.duckdb@version=2")

    code, found = compared(evaltap, *sides)

    assert (code, found["reasons"]) == (3, ["run_succeeded: no turn of head has a verdict"])
    assert {one["metric"] for one in found["metrics"]} == {"said", "run_succeeded"}
    assert compared(evaltap, *sides, "--fail-on-metrics", "said")[0] == 0
    assert "100.0% -> -, not compared" in evaltap("compare", *sides)[1]

    Path("m.json").write_text(json.dumps([said | {"metricName": "older"}]))
    evaltap("score", "t.duckdb", "--metrics", "m.json", "--filter", "version:1")
    code, found = compared(evaltap, *sides, "--fail-on-metrics", "said")
    assert (code, found["notes"][-1]) == (0, f"only in {sides[0]}, not compared: older")
    assert (
        "older: has verdicts in base and none in head (--subset allows that)"
        in (compared(evaltap, *sides)[1]["reasons"])
    )


def test_costs_that_are_no_amounts_are_ignored_like_free_trials() -> None:
    trials = [Recording("t", "", "", cost, None) for cost in (0.1, 0.0, -1.0, None)]
    case = ("a", "s", "c")

    (cost,) = usage_changes({case: trials}, {case: trials[:1]}, [case], level=0.05)

    assert (cost.base, cost.head) == pytest.approx((0.1, 0.1))


def test_a_difference_that_rounds_to_zero_has_no_minus() -> None:
    side = Totals(Rate(1.0, Interval(1.0, 1.0), 50_000, 50_000, "cases"), 50_000)
    change = MetricChange(
        "m", False, True, side, side, 0.0, Interval(-4e-5, 4e-5), 1.0, 1.0, None
    )  # fmt: skip

    assert difference(change) == "+0.0 points (95 %: +0.0 to +0.0)"


@pytest.mark.parametrize(
    ("costs_of_head", "verdict", "reason"),
    [
        ([0.1] * 10, "pass", []),
        ([0.3] * 10, "regression", ["cost: 3.00 times base (3.00 to 3.00), at most 1.2"]),
        (
            [None] * 10,
            "inconclusive",
            ["cost: known in no case of both sides; --max-cost-ratio is undecided"],
        ),
        (
            [0.1] * 9 + [None],
            "inconclusive",
            ["cost: known on one side only, in 1 case; --max-cost-ratio is undecided"],
        ),
    ],
)
def test_a_limit_on_cost_is_undecided_where_the_cost_was_not_recorded(
    costs_of_head: list[float | None], verdict: str, reason: list[str]
) -> None:
    cases = [("a", "s", f"c{number}") for number in range(10)]
    base, head = (
        {
            case: [Recording("t", "", "", cost, None)]
            for case, cost in zip(cases, costs, strict=True)
        }
        for costs in ([0.1] * 10, costs_of_head)
    )
    usage = usage_changes(base, head, cases, level=0.05)

    assert verdict_of([], usage, Rules(max_cost_ratio=1.2)) == (verdict, reason)
    assert verdict_of([], usage, Rules())[0] == "pass"
