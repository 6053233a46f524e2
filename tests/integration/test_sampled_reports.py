"""Reports of sampled traffic speak of all of it, in every format, and show the raw counts beside."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.reports.reader import read_report
from evaltap.evaluator.reports.summary import MetricCounts, Summary, summarise
from evaltap.evaluator.reports.summary_notes import summary_notes
from evaltap.evaluator.store.database import Store
from evaltap.recorder.sampling.rules import parse_outcome_rules
from evaltap.recorder.sampling.sampler import OutcomeSampler
from evaltap.schemas.wire.record import Manifest, encode_case, encode_manifest
from support.builders.cases import make_case, make_turn, write_log
from support.builders.estimated import METRICS, RULES
from support.worlds.shop import POLITE, Asked, landed

START = datetime(2026, 11, 21, 10, tzinfo=UTC)


class Sampled:
    """Traffic of which most failures and a tenth of the rest were kept, and its truth."""

    def __init__(self, folder: Path, *, head: float = 0.2, crashes: bool = True) -> None:
        rng = np.random.default_rng(12)
        sampler = OutcomeSampler(head, parse_outcome_rules(RULES))
        cases, self.cost, self.passed, self.turns = [], 0.0, 0, 0
        self.latencies: list[float] = []
        dropped: dict[str, int] = {}
        for number in range(1200):
            failed = number % 10 == 0
            crashed = crashes and failed and number % 40 == 0
            cost = 0.05 if failed else 0.01
            latency = float(rng.lognormal(7 if failed else 5, 0.3))
            telemetry = {
                "status": "error" if crashed else "ok",
                "outputTokens": 99 if failed else 9,
                "costUsd": cost,
                "latencyMs": latency,
            }
            answer = {} if crashed else {"answer": "no" if failed else "yes"}
            turn = make_turn(
                "t", creationTimestamp=START.timestamp(), telemetry=telemetry, **answer
            )
            case = make_case(f"session {number}", [turn])
            self.turns += 1
            self.passed += not failed
            self.cost += cost
            self.latencies.append(latency)
            decision = sampler.decide(case)
            if not decision.kept:
                dropped[decision.reason] = dropped.get(decision.reason, 0) + 1
                continue
            source = {
                "samplingReason": decision.reason,
                "inclusionProbability": decision.probability,
            }
            cases.append({**case, "source": source})
        self.kept = len(cases)
        records = [
            encode_case(case, producer_id="p", seq=seq, time=START)
            for seq, case in enumerate(cases, start=1)
        ]
        records.append(encode_manifest(Manifest("p", len(records), START, dropped, closing=True)))
        write_log(folder / "log.db", records)
        (folder / "m.json").write_text(json.dumps(METRICS))
        self.db = str(folder / "x.duckdb")
        self.consume = [
            "consume", "--log", str(folder / "log.db"), "--db", self.db, "--metrics",
            str(folder / "m.json"), "--until-idle",
        ]  # fmt: skip

    @property
    def truth(self) -> float:
        return self.passed / self.turns


@pytest.fixture
def sampled(tmp_path: Path) -> Sampled:
    return Sampled(tmp_path)


def data(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:  # Any: an object or a list
    capsys.readouterr()
    main([*arguments, "--json"])
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_summaries_of_consume_and_report_are_the_estimate(
    sampled: Sampled, capsys: pytest.CaptureFixture[str]
) -> None:
    consumed = data(capsys, *sampled.consume)["summary"]
    report = data(capsys, "report", sampled.db)
    (estimate,) = data(capsys, "estimate", sampled.db)

    assert consumed == report
    (row,) = report["metrics"]
    assert row["pass_rate"] == estimate["rate"] == pytest.approx(sampled.truth, abs=0.02)
    assert row["interval"] == [estimate["low"], estimate["high"]]
    assert row["interval"][0] < sampled.truth < row["interval"][1]
    assert row["effective_turns"] == estimate["effective_turns"]
    assert row["estimated_turns"] == pytest.approx(sampled.turns, rel=0.1)
    assert row["mean_score"] == pytest.approx(sampled.truth, abs=0.03)
    passed, failed, crashed = row["passed"], row["failed"], row["crashed"]
    assert (failed, crashed) == (90, 30), "what was recorded is counted as it is"
    assert row["sample_pass_rate"] == passed / (passed + failed + crashed) < 0.75
    assert report["crashed"]["rate"] == pytest.approx(30 / 1200, rel=0.1)
    assert report["crashed"]["sample_rate"] == pytest.approx(30 / sampled.kept)


@pytest.mark.slow
def test_the_console_says_of_what_the_rates_are(
    sampled: Sampled, capsys: pytest.CaptureFixture[str]
) -> None:
    main(sampled.consume)
    capsys.readouterr()

    main(["report", sampled.db])

    shown = capsys.readouterr().out
    with Store(sampled.db) as store:
        ((found, *_), _) = estimate_rates(store)
    assert found.rate is not None
    assert (
        f"{sampled.kept} recorded cases; rates, intervals and means are estimates for all traffic"
        in shown
    )
    assert f"{found.rate.value:.1%} of all traffic" in shown
    assert "of the recorded cases; from" in shown
    assert "2.5% of all cases" in shown, "the crashed runs"


@pytest.mark.slow
def test_each_format_has_the_weighted_rate(
    sampled: Sampled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [tmp_path / f"r.{ending}" for ending in ("json", "html", "md", "xml")]
    main([*sampled.consume, *(word for file in files for word in ("--report", str(file)))])
    with Store(sampled.db) as store:
        (found,) = estimate_rates(store).rates
        summary = summarise(store)
    rate = found.rate
    assert rate is not None
    report, page, markdown, junit = (file.read_text() for file in files)

    (row,) = json.loads(report)["summary"]["metrics"]
    assert row["pass_rate"] == rate.value
    for text in (page, markdown):
        assert f"{rate.value:.1%}" in text
        assert f"{rate.interval.low:.0%} to {rate.interval.high:.0%}" in text
        assert "Not all turns were recorded" in text
    assert f"{sampled.kept} recorded cases: " in markdown.splitlines()[0]
    assert summary.passing_rate is not None
    assert f"{summary.passing_rate:.1%}" in page
    (suite,) = ElementTree.fromstring(junit).iter("testsuite")
    properties = {one.get("name"): one.get("value") for one in suite.iter("property")}
    assert float(properties["pass_rate"] or "") == pytest.approx(rate.value, rel=1e-5)
    assert float(properties["pass_rate_low"] or "") == pytest.approx(rate.interval.low, rel=1e-5)
    assert suite.get("tests") == str(sampled.kept)


@pytest.mark.slow
def test_cost_and_latency_are_those_of_all_traffic(
    sampled: Sampled, capsys: pytest.CaptureFixture[str]
) -> None:
    main(sampled.consume)
    with Store(sampled.db) as store:
        use = read_report(store).agent

    assert use.count == sampled.kept
    assert use.cost_usd == pytest.approx(sampled.cost, rel=0.1)
    assert use.estimated_turns == pytest.approx(sampled.turns, rel=0.1)
    assert use.latency_p50_ms == pytest.approx(np.quantile(sampled.latencies, 0.5), rel=0.1)
    assert use.latency_p95_ms == pytest.approx(np.quantile(sampled.latencies, 0.95), rel=0.15)
    assert use.recorded is not None
    assert use.recorded.cost_usd is not None
    assert use.recorded.cost_usd < 0.9 * sampled.cost
    assert use.recorded.latency_p50_ms != use.latency_p50_ms


@pytest.mark.slow
def test_the_bound_on_latency_is_one_on_all_traffic(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = Sampled(tmp_path, crashes=False)
    limit = float(np.quantile(sampled.latencies, 0.965))
    main(sampled.consume)
    capsys.readouterr()

    main(["report", sampled.db, "--fail-on", "never", "--p95-ms", str(limit)])

    said = capsys.readouterr().err
    assert "only" not in said, "most slow turns were kept, and of the fast ones a fifth"
    assert "of all traffic; of the recorded turns" in said


@pytest.mark.slow
def test_traffic_that_was_not_sampled_has_the_rates_of_its_cases(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = Sampled(tmp_path, head=1.0)
    main(sampled.consume)

    report = data(capsys, "report", sampled.db)

    (row,) = report["metrics"]
    assert row["pass_rate"] == row["sample_pass_rate"] == sampled.truth
    assert row["effective_turns"] is None
    assert report["weighted"] is False
    assert report["notes"] == []


@pytest.mark.slow
def test_a_report_of_errors_only_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled = Sampled(tmp_path, head=0.0)
    main(sampled.consume)
    capsys.readouterr()

    main(["report", sampled.db])

    assert "turns without a chance of being kept" in capsys.readouterr().out.lower()


@pytest.mark.slow
def test_a_run_over_sampled_traffic_is_weighted_too(
    sampled: Sampled, capsys: pytest.CaptureFixture[str]
) -> None:
    main(sampled.consume)
    with Store(sampled.db) as store:
        ((run_id,),) = store.rows("SELECT run_id FROM runs")

    assert (
        data(capsys, "report", sampled.db, "--run", run_id)["metrics"]
        == (data(capsys, "report", sampled.db)["metrics"])
    )


@pytest.mark.slow
def test_the_rates_of_a_file_of_sampled_cases_are_not_passed_off_as_those_of_the_traffic(
    sampled: Sampled, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(sampled.consume)
    exported, metrics = str(tmp_path / "kept.jsonl"), str(tmp_path / "m.json")
    main(["set", "export", sampled.db, "--out", exported])
    page = tmp_path / "kept.md"
    capsys.readouterr()

    report = data(capsys, "score", exported, "--metrics", metrics, "--report", str(page))

    assert "went through sampling" in report["notes"][0]
    assert "went through sampling" in page.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("kept", [None, 0.5])
def test_a_rate_says_its_unit_and_a_report_gives_those_of_cases_and_turns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kept: float | None
) -> None:
    source = {"inclusionProbability": kept} if kept else {}
    cases = [
        make_case(
            f"session {number}",
            [make_turn(turn, answer="no" if turn == "2" and number < 2 else "yes")],
            source=source,
        )
        for number in range(20)
        for turn in ("1", "2")
    ]
    write_log(
        tmp_path / "log.db",
        [
            encode_case(one, producer_id="p", seq=number, time=START)
            for number, one in enumerate(cases, start=1)
        ],
    )
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    db = tmp_path / "x.duckdb"
    consume = ["consume", "--log", str(tmp_path / "log.db"), "--db", str(db), "--until-idle"]
    main([*consume, "--metrics", str(tmp_path / "m.json")])
    capsys.readouterr()

    main(["report", str(db), "--json"])
    (metric,) = json.loads(capsys.readouterr().out)["metrics"]
    main(["estimate", str(db), "--json"])
    (estimated,) = json.loads(capsys.readouterr().out)

    assert (metric["case_pass_rate"], metric["turn_pass_rate"]) == pytest.approx((0.9, 0.95))
    assert metric["turn_interval"] == [estimated["low"], estimated["high"]]
    unit = "turns" if kept else "cases"
    assert metric["pass_rate_unit"] == unit
    assert metric["pass_rate"] == metric[f"{unit[:-1]}_pass_rate"]
    assert metric["interval"] == metric[f"{unit[:-1]}_interval"]
    main(["report", str(db)])
    shown = capsys.readouterr().out
    assert "rule_avg_score: 90.0% (" in shown
    assert "of the cases passed, 95.0% (" in shown


@pytest.mark.slow
def test_a_report_flags_the_turns_that_were_lost_beside_those_that_a_rule_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = make_case("s", [make_turn("1", answer="no")], source={"samplingReason": "failures"})
    manifest = Manifest("p", 1, START, {"shutdown": 30}, closing=True)
    write_log(
        tmp_path / "log.db",
        [encode_case(case, producer_id="p", seq=1, time=START), encode_manifest(manifest)],
    )
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    db = tmp_path / "x.duckdb"
    consume = ["consume", "--log", str(tmp_path / "log.db"), "--db", str(db), "--until-idle"]
    main([*consume, "--metrics", str(tmp_path / "m.json")])
    capsys.readouterr()

    main(["report", str(db), "--json"])

    found = json.loads(capsys.readouterr().out)
    assert found["metrics"][0]["flags"] == ["uncovered"]
    assert any("shutdown 30" in note for note in found["notes"])


@pytest.mark.slow
def test_a_rate_of_turns_of_one_version_does_not_stand_beside_that_of_cases_of_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [Asked("Help", session="s-0"), Asked("Go on", session="s-0"), Asked("Or us")]
    db = landed(tmp_path, asked)
    (tmp_path / "m.json").write_text(json.dumps([{**POLITE, "threshold": 0.5}]))
    main(["score", str(db), "--metrics", str(tmp_path / "m.json"), "--filter", "id:s-0"])
    capsys.readouterr()

    main(["report", str(db), "--json"])
    found = json.loads(capsys.readouterr().out)

    (metric,) = found["metrics"]
    assert (metric["passed"], metric["case_pass_rate"], metric["turn_pass_rate"]) == (2, 1, None)
    assert "the rate of polite mixes 2 versions of the metric (1, 1 cases)" in found["notes"][0]


def test_a_note_about_a_metric_keeps_its_name() -> None:
    counts = MetricCounts("polite", 1, 0, 0, 0)
    notes = ("polite: 2.6% of the turns have no verdict", "the rate of polite mixes 2 versions")

    shown = summary_notes(Summary(None, 1, (counts,), (), (), notes=notes))

    assert shown == [notes[0], "The rate of polite mixes 2 versions"]
