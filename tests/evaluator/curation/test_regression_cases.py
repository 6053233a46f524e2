"""Regression cases: they fail as recorded and pass as corrected, or are left out."""

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.curation.expectations import RegressionCheck
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.recorder import Recorder
from evaltap.schemas import EvalMetric
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn
from support.servers.judge_server import Answer, judge_server
from support.worlds.curated import curate, labels
from support.worlds.shop import POLITE, Asked, landed


@pytest.mark.slow
def test_a_regression_case_fails_as_recorded_and_passes_as_corrected(
    database: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "bugs.evalset.json"
    cases = curate(database, out, "--as", "regression")

    corrected = next(case for case in cases if case["evalId"] == "s-42")
    assert corrected["conversation"][0]["finalResponse"]["content"] == "Yes, please see."
    metrics = tmp_path / "bugs.metrics.json"
    assert [one["metricName"] for one in json.loads(metrics.read_text())] == ["polite"]
    capsys.readouterr()

    code = main(["score", str(out), "--metrics", str(metrics), "--json"])
    (summary,) = json.loads(capsys.readouterr().out)["metrics"]
    assert code == 1
    assert summary["passed"] == 0
    assert summary["failed"] + summary["crashed"] == len(cases)


@pytest.mark.slow
def test_a_users_correction_expects_an_answer_and_no_particular_calls(tmp_path: Path) -> None:
    asked = [Asked("Refund A-1", ("get_order",), "No.", thumb=False, correction="Yes, please.")]
    database = landed(tmp_path, asked)
    (case,) = curate(database, tmp_path / "bugs.evalset.json", "--as", "regression")
    scorer = CaseScorer([EvalMetric.model_validate(one) for one in (RESPONSE, TRAJECTORY)])
    fixed = make_turn(answer="Yes, please.", tools=[make_tool(), make_tool("refund")])

    found = scorer.score({**case, "actualConversation": [fixed]})

    assert [one.status.value for one in found.metrics] == ["passed", "not_evaluated"]


@pytest.mark.slow
def test_a_verdict_of_a_metric_that_was_changed_since_neither_fails_nor_proves_a_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [Asked("Help me", answer="No."), Asked("Or us"), Asked("And them", answer="No.")]
    database = landed(tmp_path, asked)
    rule = {"id": "r", "type": "contains", "values": ["No"]}
    metrics = tmp_path / "changed.json"
    metrics.write_text(json.dumps([{**POLITE, "criterion": {"rules": {"rules": [rule]}}}]))
    score = ["score", str(database), "--metrics", str(metrics), "--filter", "id:s-0,s-1"]
    assert main(score) == 1

    def made(name: str, *how: str) -> list[str]:
        return [one["evalId"] for one in curate(database, tmp_path / f"{name}.json", "--all", *how)]

    assert made("failures", "--like", "failures") == ["s-1", "s-2"]
    assert made("good", "--as", "expected", "--metric", "polite") == ["s-0"]
    capsys.readouterr()
    main(["report", str(database), "--json"])
    (polite,) = json.loads(capsys.readouterr().out)["metrics"]
    assert (polite["passed"], polite["failed"]) == (1, 2), "as the picks have it"


@pytest.mark.slow
def test_a_correction_that_fails_itself_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [
        Asked("Help me", answer="No.", thumb=False, correction="Yes."),
        Asked("Or me", answer="No."),
    ]
    database = landed(tmp_path, asked)
    out = tmp_path / "bugs.evalset.json"

    cases = curate(database, out, "--as", "regression", code=1)
    assert [case["evalId"] for case in cases] == ["s-1"]
    assert "s-0#t-0: unsatisfiable" in capsys.readouterr().err

    cases = curate(database, out, "--as", "regression", "--keep-unproven", code=1)
    assert "unproven" in labels(cases)["s-0"]


def test_a_fixed_recording_must_pass(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = landed(tmp_path, [Asked("Help me", answer="No."), Asked("Or us", answer="No.")])

    def recorded(name: str, text: str, answer: str) -> str:
        user = {"role": "user", "content": text}
        return json.dumps(make_case(name, [make_turn(answer=answer, userContent=user)]))

    fixed = tmp_path / "fixed.jsonl"
    fixed.write_text(
        f"{recorded('x', 'Help me', 'Yes, please.')}\n{recorded('s-1', '?', 'Still no.')}\n"
    )

    cases = curate(
        database, tmp_path / "b.evalset.json", "--as", "regression", "--fixed", str(fixed), code=1
    )

    assert [case["evalId"] for case in cases] == ["s-0"]
    assert "s-1#t-1: not fixed" in capsys.readouterr().err


def nameless(folder: Path, metrics: list[dict[str, Any]]) -> Path:
    """Return a store with one turn of a recorder that was given neither an app nor a user."""
    with (
        closing(Recorder(folder / "n.log.db")) as recorder,
        recorder.turn(session_id="s-1", user="Where is A-1?") as turn,
    ):
        turn.respond("I do not know.")
    (folder / "n.metrics.json").write_text(json.dumps(metrics))
    code = main(["consume", "--log", str(folder / "n.log.db"), "--db", str(folder / "n.duckdb"),
                 "--metrics", str(folder / "n.metrics.json"), "--until-idle"])  # fmt: skip
    assert code == 1
    return folder / "n.duckdb"


@pytest.mark.slow
def test_cases_of_traffic_without_an_app_can_be_scored(tmp_path: Path) -> None:
    rule = {"id": "tells", "type": "contains", "values": ["shipped"]}
    metric = {
        "metricName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [rule]}},
    }
    store = nameless(tmp_path, [metric])

    (case,) = curate(store, tmp_path / "all.evalset.json")
    (proven,) = curate(store, tmp_path / "bugs.evalset.json", "--as", "regression")

    assert (case["sessionInput"], proven["sessionInput"]) == ({}, {})
    for name in ("all", "bugs"):
        scored = main(["score", str(tmp_path / f"{name}.evalset.json"), "--metrics",
                       str(tmp_path / "n.metrics.json")])  # fmt: skip
        assert scored == 1, "failed, and not refused"


def test_a_case_that_cannot_be_scored_is_no_proof() -> None:
    metric = EvalMetric.model_validate({"metricName": "run_succeeded", "threshold": 1})
    check = RegressionCheck({}, CaseScorer)

    why = check.unproven({"evalId": "s", "evalMode": "trace", "actualConversation": []}, [metric])

    assert why is not None
    assert why.why.startswith("cannot be scored: sessionInput is missing")


@pytest.mark.slow
def test_a_judge_that_gives_no_verdict_leaves_a_regression_case_undecided(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    verdict = '{"rubricScores": [{"id": "1", "score": 0, "reason": "it does not"}]}'
    answers = [Answer(verdict)]
    rubric = {"id": "1", "content": {"text": "It tells the status."}}
    metric = {
        "metricName": "llm_rubric_response",
        "threshold": 1,
        "criterion": {"llmJudge": {"rubrics": [rubric]}},
    }
    with judge_server(lambda _: answers[-1]) as judge:
        for name, value in (("BASE_URL", judge.url), ("MODEL", "m"), ("API_KEY", "k"),
                            ("CACHE", "off"), ("RETRIES", "0")):  # fmt: skip
            monkeypatch.setenv(f"EVALTAP_JUDGE_{name}", value)
        store = nameless(tmp_path, [metric])
        answers.append(Answer("overloaded", status=500))

        code = main(["curate", str(store), "--as", "regression", "--out", str(tmp_path / "b.json")])

    assert code == 3
    assert "undecided: the recorded turns have no verdict (" in capsys.readouterr().err


@pytest.mark.slow
def test_a_case_without_an_expected_turn_expects_nothing_rather_than_its_failure(
    tmp_path: Path,
) -> None:
    database = landed(tmp_path, [Asked("Help me", ("cancel",), answer="No.")])

    (case,) = curate(database, tmp_path / "bugs.evalset.json", "--as", "regression")

    (expected,) = case["conversation"]
    assert expected["capture"] == {"finalResponse": "missing", "tools": "missing"}
    mended = {**case, "actualConversation": [make_turn(answer="Yes, please.", tools=[])]}
    metrics = [EvalMetric.model_validate(one) for one in (POLITE, TRAJECTORY)]
    found = CaseScorer(metrics).score(mended)
    assert [(one.status.value, one.reason) for one in found.metrics] == [
        ("passed", ""),
        ("not_evaluated", "not applicable: the case expects no particular calls"),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["tool_trajectory_avg_score", "trajectory_exact"])
def test_the_reference_that_a_turn_was_scored_with_is_what_its_case_expects(
    tmp_path: Path, metric: str
) -> None:
    criterion = TRAJECTORY["criterion"] if metric.startswith("tool") else {"trajectory": {}}
    exact = {"metricName": metric, "threshold": 1, "criterion": criterion}
    asked = [Asked("Refund A-1", ("cancel",)), Asked("Help", ("x",), error="TimeoutError")]
    database = landed(tmp_path, asked, metrics=[])
    user = {"role": "user", "content": "Refund A-1"}
    wanted = make_turn(userContent=user, tools=[make_tool("refund")])
    files = {"m.json": [exact, POLITE], "r.json": {"evalSetId": "r", "evalCases": [
        {"evalId": "r", "conversation": [wanted]}]}}  # fmt: skip
    for name, data in files.items():
        (tmp_path / name).write_text(json.dumps(data))
    given = ["--metrics", str(tmp_path / "m.json"), "--references", str(tmp_path / "r.json")]
    assert main(["score", str(database), *given]) == 1

    cases = curate(
        database, tmp_path / "bugs.evalset.json", "--as", "regression", "--unit", "session"
    )

    by_id = {case["evalId"]: case["conversation"] for case in cases}
    assert [one["name"] for one in by_id["s-0"][0]["tools"]] == ["refund"]
    assert by_id["s-0"][0]["userContent"] == user, "which the store has not kept with the reference"
    assert by_id["s-1"][0]["capture"]["tools"] == "missing"


@pytest.mark.slow
def test_a_turn_that_took_too_long_is_a_case_that_fails_as_it_did(tmp_path: Path) -> None:
    fast = {
        "metricName": "completed_within",
        "threshold": 1,
        "criterion": {"operations": {"maxSeconds": 2}},
    }
    slow = [Asked("Slow", telemetry={"latencyMs": 9_000.0}), Asked("Fast")]
    database = landed(tmp_path, slow, metrics=[fast])
    out = tmp_path / "bugs.evalset.json"

    (case,) = curate(database, out, "--as", "regression")

    assert case["actualConversation"][0]["telemetry"]["latencyMs"] == 9_000.0
    assert main(["score", str(out), "--metrics", str(tmp_path / "bugs.metrics.json")]) == 1
