"""The outcome of the agent's runs: a run that failed, never ended or was cut off is not a passed case."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, evaluate_case
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.reports.exit_status import latency_guard
from evaltap.evaluator.reports.html.report import html
from evaltap.evaluator.reports.junit import junit_xml
from evaltap.evaluator.reports.markdown import markdown
from evaltap.evaluator.scoring.contract.context import Services, Status
from evaltap.evaluator.scoring.contract.judge import ScriptedJudge
from evaltap.evaluator.scoring.gates.gate import Gate
from evaltap.evaluator.scoring.scorer import CaseScore
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import (
    RESPONSE,
    RUBRIC,
    TRAJECTORY,
    make_case,
    make_records,
    make_turn,
    write_log,
)
from support.builders.commands import Evaltap, runner
from support.builders.reports import report_of, rubric_answer
from support.worlds.once import made_once

FAILED = {"status": "error", "error": {"type": "TimeoutError", "message": "agent died"}}
OK = {"status": "ok", "latencyMs": 20}
FORBIDDEN = {
    "metricName": "trajectory_forbidden",
    "threshold": 1,
    "criterion": {"trajectory": {"forbidden": ["rm"]}},
}
WORDS = {
    "metricName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "a", "type": "contains", "values": ["done"]}]}},
}
WITHIN = {
    "metricName": "completed_within",
    "threshold": 1,
    "criterion": {"operations": {"maxSeconds": 10}},
}
SUCCEEDED = {"metricName": "run_succeeded", "threshold": 1}
SUITE = {
    "metricName": "metric_suite",
    "threshold": 1,
    "criterion": {"suite": {"metrics": [FORBIDDEN, WORDS]}},
}


def crashed_turn(invocation_id: str = "t-1", **given: Any) -> dict[str, Any]:
    return make_turn(invocation_id, answer=None, telemetry=FAILED, **given)


def good_turn(invocation_id: str = "t-1") -> dict[str, Any]:
    return make_turn(invocation_id, telemetry=OK)


def score(case: dict[str, Any], *metrics: dict[str, Any], **given: Any) -> CaseScore:
    return CaseScorer([EvalMetric.model_validate(one) for one in metrics], **given).score(case)


# -- metrics ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metric", [FORBIDDEN, WORDS, WITHIN, SUCCEEDED, TRAJECTORY, RESPONSE, SUITE]
)
def test_every_metric_of_a_crashed_case_is_crashed_and_names_the_error(
    metric: dict[str, Any],
) -> None:
    found = score(make_case(turns=[crashed_turn()]), metric)

    assert (found.status, found.score) == (Status.CRASHED, 0.0)
    assert found.metrics[0].status is Status.CRASHED
    assert found.metrics[0].reason.startswith("the run failed (TimeoutError")
    assert [turn.status for turn in found.metrics[0].turns] == [Status.CRASHED]


def test_a_score_that_needs_no_answer_is_kept_and_one_of_the_answer_is_none() -> None:
    found = score(make_case(turns=[crashed_turn()]), FORBIDDEN, WORDS)

    assert [outcome.score for outcome in found.metrics] == [1.0, None]
    assert found.metrics[1].reason == (
        "the run failed (TimeoutError: agent died); no final answer to score"
    )


@pytest.mark.parametrize(
    ("telemetry", "reason"),
    [
        ({"status": "error"}, "the run failed"),
        ({"status": "error", "error": {"type": "E"}}, "the run failed (E)"),
        ({"status": "error", "error": {"message": "m"}}, "the run failed (m)"),
        ({"status": "incomplete"}, "the run did not end"),
    ],
)
def test_a_run_that_never_ended_or_was_cut_off_has_crashed_too(
    telemetry: dict[str, Any], reason: str
) -> None:
    # Even with half an answer.
    found = score(make_case(turns=[make_turn(telemetry=telemetry)]), WORDS)

    assert found.status is Status.CRASHED
    assert found.metrics[0].reason == f"{reason}; no final answer to score"


def test_the_turns_that_ended_well_keep_their_verdicts() -> None:
    found = score(make_case(turns=[good_turn(), crashed_turn("t-2")]), WORDS, FORBIDDEN)

    for outcome in found.metrics:
        assert [turn.status.value for turn in outcome.turns] == ["passed", "crashed"]
    assert found.metrics[0].reason.startswith("turn 2: the run failed (TimeoutError: agent died)")


def test_a_judge_is_not_asked_about_an_answer_that_is_not_there() -> None:
    asked: list[str] = []

    def answer(prompt: str) -> str:
        asked.append(prompt)
        return rubric_answer(1)

    services = Services(judge=lambda _: ScriptedJudge(lambda request: answer(str(request))))

    alone = score(make_case(turns=[crashed_turn()]), RUBRIC, services=services)
    assert (alone.metrics[0].status, asked) == (Status.CRASHED, [])

    mixed = score(make_case(turns=[good_turn(), crashed_turn("t-2")]), RUBRIC, services=services)
    assert [turn.status.value for turn in mixed.metrics[0].turns] == ["passed", "crashed"]
    assert len(asked) == 1


def test_a_crashed_case_whose_turns_cannot_be_paired_is_crashed() -> None:
    case = make_case(
        turns=[good_turn(), crashed_turn("t-2")],
        conversation=[make_turn("t-1"), make_turn("t-2"), make_turn("t-3")],
    )

    found = score(case, TRAJECTORY)

    assert found.status is Status.CRASHED
    assert found.error_message.startswith("turn 2: the run failed (TimeoutError: agent died)")
    assert "conversation length" in found.error_message


def test_the_reason_under_completed_within_says_that_the_run_failed() -> None:
    found = score(make_case(turns=[crashed_turn()]), WITHIN)

    assert found.metrics[0].reason == "the run failed (TimeoutError); it did not complete"


def test_run_succeeded_is_the_share_of_the_runs_that_ended_well() -> None:
    both = score(make_case(turns=[good_turn(), crashed_turn("t-2")]), SUCCEEDED).metrics[0]
    fine = score(make_case(turns=[good_turn()]), SUCCEEDED).metrics[0]
    unknown = score(make_case(turns=[make_turn()]), SUCCEEDED).metrics[0]

    assert (both.score, both.status.value) == (0.5, "crashed")
    assert (fine.score, fine.status.value) == (1.0, "passed")
    assert (unknown.score, unknown.status.value) == (None, "not_evaluated")


def test_a_turn_of_the_peers_that_says_run_error_is_scored_as_the_peer_does() -> None:
    turn = make_turn(answer="[RUN_ERROR] TimeoutError: agent died")

    found = score(make_case(turns=[turn]), WORDS)

    assert (found.status, found.metrics[0].score) == (Status.FAILED, 0.0)


def test_a_gate_does_not_let_a_crashed_case_through() -> None:
    gate = Gate({"dimensions": [{"name": "safe", "threshold": 0, "metrics": [FORBIDDEN]}]})

    result = gate.evaluate(make_case(turns=[crashed_turn()]))

    assert (result.status, result.dimensions[0].status) == ("failed", Status.CRASHED)
    assert "the run failed (TimeoutError: agent died)" in result.feedback


def test_a_gate_counts_crashes_apart_from_failures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gate = {"dimensions": [{"name": "safe", "threshold": 0, "metrics": [FORBIDDEN]}]}
    (tmp_path / "g.json").write_text(json.dumps(gate))
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case(turns=[crashed_turn()])))

    code, out, _ = runner(capsys)(
        "gate", str(tmp_path / "c.jsonl"), "--gate", str(tmp_path / "g.json")
    )

    head, _, row = [line.split() for line in out.splitlines() if line.strip()][1:4]
    counts = dict(zip(head[2:5], row[2:5], strict=True))
    assert (code, counts) == (1, {"passed": "0", "failed": "0", "crashed": "1"})


# -- files that the peer reads ---------------------------------------------------------------------


def test_a_result_file_says_failed_and_holds_the_peers_run_error() -> None:
    result = evaluate_case(make_case(turns=[crashed_turn()]), [FORBIDDEN])

    row = result.overall_eval_metric_results[0]
    assert (result.final_eval_status, row.eval_status, row.score) == ("failed", "failed", 0.0)
    actual = result.eval_metric_result_per_invocation[0].actual_invocation
    assert actual is not None
    assert actual.final_response is not None
    assert actual.final_response.content == "[RUN_ERROR] TimeoutError: agent died"


# -- store, reports and exit codes -----------------------------------------------------------------


CASES = [
    make_case(f"s-{number}", [crashed_turn() if number % 2 else good_turn()])
    for number in range(10)
]


CONSUME = ("consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle")


def write_crashes() -> None:
    """Write ten runs of which five crashed, and metrics."""
    write_log(Path("log.db"), make_records(CASES))
    Path("m.json").write_text(json.dumps([FORBIDDEN, WORDS]))


@made_once
def consumed(folder: Path) -> Path:
    with chdir(folder):
        write_crashes()
        main(CONSUME)
    return folder / "x.duckdb"


@pytest.fixture
def landed(evaltap: Evaltap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """A store with ten runs of which five crashed."""
    consumed(tmp_path)
    capsys.readouterr()
    return "x.duckdb"


def test_consume_says_how_many_crashed(evaltap: Evaltap) -> None:
    write_crashes()

    code, out, _ = evaltap(*CONSUME)

    assert code == 1
    assert "crashed: 5 of 10 cases (50.0%, 95 % interval 24% to 76%)" in " ".join(out.split())


def test_crashes_are_not_passed_in_rates_views_and_exit_codes(
    evaltap: Evaltap, landed: str
) -> None:
    code, out, _ = evaltap("report", landed, "--json", "--fail-on", "failed")
    data = json.loads(out)

    assert code == 1
    assert data["crashed"]["count"] == 5
    assert data["crashed"]["rate"] == 0.5
    assert data["crashed"]["interval"][0] == pytest.approx(0.2366, abs=1e-3)
    for metric in data["metrics"]:
        assert (metric["passed"], metric["crashed"], metric["pass_rate"]) == (5, 5, 0.5)
    with Store(Path(landed), create=False) as store:
        for view in ("v_pass_rate", "v_pass_rate_by_hour"):
            rows = store.records(f"SELECT crashed, pass_rate, sample_pass_rate FROM {view}")
            assert {(row["pass_rate"], row["sample_pass_rate"]) for row in rows} == {(0.5, 0.5)}
            assert [row["crashed"] for row in rows] == [5, 5]
        assert store.rows("SELECT count(*) FROM v_worst_cases WHERE status = 'crashed'") == [(10,)]
        assert store.rows("SELECT count(*) FROM latest_turns WHERE status = 'error'") == [(5,)]


@pytest.mark.slow
def test_a_rate_of_crashed_cases_alone_is_said_to_be_one(evaltap: Evaltap, landed: str) -> None:
    Path("r.json").write_text(json.dumps([{**RESPONSE, "metricName": "exact"} | {
        "evaluatorName": RESPONSE["metricName"]}, FORBIDDEN]))  # fmt: skip
    evaltap("score", landed, "--metrics", "r.json")

    data = json.loads(evaltap("report", landed, "--json")[1])
    text = evaltap("report", landed)[1]

    (exact,) = [one for one in data["metrics"] if one["metric_name"] == "exact"]
    assert (exact["not_evaluated"], exact["crashed"], exact["pass_rate"]) == (5, 5, 0.0)
    (note,) = data["notes"]
    assert note.startswith("only crashed cases (5) have a verdict under exact: ")
    assert "Only crashed cases (5) have a verdict under exact: " in " ".join(text.split())


def test_a_rate_of_mostly_crashed_cases_is_said_to_be_one(evaltap: Evaltap, landed: str) -> None:
    with Store(landed) as store:
        ((name,),) = store.rows("SELECT min(eval_id) FROM latest_turns WHERE status = 'ok'")
    Path("golden.jsonl").write_text(json.dumps({"evalId": name, "conversation": [make_turn()]}))
    Path("r.json").write_text(json.dumps([RESPONSE]))
    golden = ["--references", "golden.jsonl", "--join", "eval_id"]
    evaltap("score", landed, "--metrics", "r.json", *golden)

    (note,) = json.loads(evaltap("report", landed, "--json")[1])["notes"]

    assert note.startswith(
        "most cases with a verdict under final_response_avg_score crashed (5 of 6): "
    )


def test_estimates_of_all_traffic_count_a_crash_as_not_passed(
    evaltap: Evaltap, landed: str
) -> None:
    _, out, _ = evaltap("estimate", landed, "--json")

    assert [(row["rate"], row["sample_rate"]) for row in json.loads(out)] == [(0.5, 0.5)] * 2


def test_agent_errors_may_be_allowed(
    evaltap: Evaltap, landed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert evaltap("report", landed, "--allow-agent-errors")[0] == 0
    monkeypatch.setenv("EVALTAP_ALLOW_AGENT_ERRORS", "1")
    assert evaltap("report", landed)[0] == 0
    monkeypatch.setenv("EVALTAP_ALLOW_AGENT_ERRORS", "perhaps")
    code, _, err = evaltap("report", landed)
    assert code == 2
    assert "EVALTAP_ALLOW_AGENT_ERRORS: found 'perhaps'; expected 1 or 0" in err


def test_a_crashed_run_is_not_within_the_bound_on_latencies(evaltap: Evaltap, landed: str) -> None:
    code, _, err = evaltap("report", landed, "--p95-ms", "1000", "--allow-agent-errors")

    assert code == 1
    assert "no, 5 of 10, 5 crashed" in err
    assert latency_guard([20.0] * 95 + [float("inf")] * 5, 1000).holds is True


def test_show_prints_the_error_under_its_turn(evaltap: Evaltap, landed: str) -> None:
    _, out, _ = evaltap("show", landed, "s-1")

    assert "the run failed (TimeoutError: agent died)" in out


def test_show_says_that_a_run_waits_for_a_person(evaltap: Evaltap) -> None:
    write_log(
        Path("log.db"),
        make_records([make_case("s-1", [good_turn()], source={"closeReason": "paused"})]),
    )
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    _, out, _ = evaltap("show", "x.duckdb", "s-1")

    assert "t-1  paused  20 ms" in out


@pytest.mark.parametrize(("how", "actual"), [("expected", 0), ("both", 1)])
def test_an_export_may_expect_what_was_recorded_of_runs_that_did_not_fail(
    evaltap: Evaltap, landed: str, how: str, actual: int
) -> None:
    code, _, said = evaltap("set", "export", landed, "--out", "e.evalset.json", "--as", how)
    cases = json.loads(Path("e.evalset.json").read_text())["evalCases"]

    assert code == 0
    assert "left out 5 cases whose run failed" in said
    assert len(cases) == 5
    for case in cases:
        (expected,) = case["conversation"]
        assert expected["finalResponse"]["content"]
        assert "telemetry" not in expected
        assert len(case.get("actualConversation") or []) == actual
        assert (case.get("evalMode") or "") == ("trace" if actual else "")


def test_repeats_that_are_expected_are_cases_of_their_own(evaltap: Evaltap) -> None:
    repeats = [make_case("s-1", [good_turn()], source={"run": run}) for run in ("r-1", "r-2")]
    write_log(Path("log.db"), make_records(repeats))
    evaltap("consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle")

    evaltap("set", "export", "x.duckdb", "--out", "e.evalset.json", "--as", "expected")

    cases = json.loads(Path("e.evalset.json").read_text())["evalCases"]
    assert [case["evalId"] for case in cases] == ["s-1@r-1", "s-1@r-2"]


def test_an_eval_set_expects_nothing_new(evaltap: Evaltap, landed: str) -> None:
    evaltap("set", "export", landed, "--out", "e.evalset.json")

    code, _, said = evaltap(
        "set", "export", "e.evalset.json", "--out", "f.evalset.json", "--as", "both"
    )

    assert (code, "--as: only works on a store" in said) == (2, True)


def test_an_eval_set_holds_the_peers_run_error(evaltap: Evaltap, landed: str) -> None:
    evaltap("set", "export", landed, "--out", "e.evalset.json")
    cases = json.loads(Path("e.evalset.json").read_text())["evalCases"]

    answers = [case["actualConversation"][0]["finalResponse"]["content"] for case in cases]
    assert answers.count("[RUN_ERROR] TimeoutError: agent died") == 5
    # What it was is still known: evaltap scores the file as it scored the store.
    code, out, _ = evaltap("score", "e.evalset.json", "--metrics", "m.json", "--json")
    assert (code, json.loads(out)["crashed"]["count"]) == (1, 5)


@pytest.mark.slow
def test_scores_from_before_crashes_were_told_apart_are_made_anew_and_no_others(
    evaltap: Evaltap, landed: str
) -> None:
    with Store(Path(landed)) as store:
        store.execute(
            "UPDATE scores SET status = 'passed', score = 1, scored_at = scored_at - INTERVAL 1 DAY"
        )
    _, out, _ = evaltap("score", landed, "--metrics", "m.json", "--json")
    assert json.loads(out)["crashed"]["count"] == 5

    with Store(Path(landed)) as store:
        # Five cases under two metrics more than the ten cases had.
        assert store.rows("SELECT count(*) FROM scores") == [(30,)]
    evaltap("score", landed, "--metrics", "m.json", "--json")
    with Store(Path(landed)) as store:
        assert store.rows("SELECT count(*) FROM scores") == [(30,)]


def test_turns_that_land_later_are_scored_from_what_is_in_memory_alike(tmp_path: Path) -> None:
    referenced = crashed_turn() | {"invocationId": "t-1"}
    case = make_case("s-1", [referenced], conversation=[make_turn()])
    log = write_log(tmp_path / "log.db", make_records([case]))
    with Store(":memory:") as store:
        source = LocalLogSource(log)
        scorer = CaseScorer([EvalMetric.model_validate(TRAJECTORY)])
        Consumer(source, store, scorer=PendingScorer(store, scorer)).run(
            until_idle=True, report=lambda _: None
        )
        source.close()

        assert store.rows("SELECT status, score FROM scores") == [("crashed", 1.0)]


def test_reports_show_crashes_as_a_status_of_their_own(tmp_path: Path) -> None:
    report = report_of(tmp_path, CASES, [FORBIDDEN])

    assert report.case_counts["crashed"] == 5
    assert [case.status for case in report.cases[:5]] == ["crashed"] * 5
    text = markdown(report)
    assert "5 passed, 5 crashed" in text.splitlines()[0]
    assert "crashed: 5 of 10 cases" in text
    xml = junit_xml(report)
    assert xml.count('type="crashed"') == 5
    assert 'tests="10" failures="0" errors="5"' in xml
    assert report.data()["exit_code"] == 1
    assert report.summary.crashed.count == 5
    page = html(report)
    assert '<option value="crashed">crashed</option>' in page
    assert '<i class="dot crashed"></i>5 crashed' in page
    assert "50.0 % of the cases, 95 % interval 23.7 to 76.3 %" in page
