"""`evaltap estimate` on traffic with known truth: sampler, log, consumer, store, command, views."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder, RedactionReport
from evaltap.recorder.sampling.sampler import is_sampled
from support.builders.estimated import METRICS, Estimate, Kept, Traffic, consume, land, make_traffic
from support.proofs.estimate_oracle import Oracle
from support.worlds.traffic import binomial_bounds


def oracle_of(turns: Sequence[Kept]) -> Oracle:
    """Return what the oracle says of turns."""
    return Oracle(
        [turn.session for turn in turns],
        [turn.probability for turn in turns],
        [1.0] * len(turns),
        [float(turn.passed) for turn in turns],
    )


def check(row: Mapping[str, Any], turns: Sequence[Kept]) -> None:
    """Check a row of the command against the oracle."""
    oracle = oracle_of(turns)
    names = (
        "rate",
        "low",
        "high",
        "traffic_low",
        "traffic_high",
        "estimated_turns",
        "effective_turns",
    )
    expected = (
        oracle.rate, *oracle.process, *oracle.traffic, oracle.estimated_turns, oracle.effective_turns
    )  # fmt: skip
    assert [row[name] for name in names] == pytest.approx(list(expected), abs=1e-6)
    assert row["turns"] == len(turns)
    assert row["sessions"] == len({turn.session for turn in turns})
    assert row["sample_rate"] == pytest.approx(sum(turn.passed for turn in turns) / len(turns))
    assert ("few_sessions" in row["flags"]) == (oracle.effective_sessions < 10)


@pytest.mark.slow
def test_the_whole_and_every_slice_are_the_oracles(tmp_path: Path, estimate: Estimate) -> None:
    traffic = make_traffic(np.random.default_rng(1))
    land(tmp_path, traffic)

    (whole,) = estimate("--metric", "rule_avg_score")
    check(whole, traffic.kept)
    assert whole["slice"] == {}
    assert (whole["covered"], whole["not_counted"]) == (1.0, 0.0)
    assert not whole["low"] <= whole["sample_rate"] <= whole["high"], "the sample would mislead"

    by: dict[str, Callable[[Kept], Sequence[str | None]]] = {
        "tool": lambda turn: turn.tools or (None,),
        "tool_path": lambda turn: (" > ".join(turn.tools),),
        "model": lambda turn: (turn.model,),
        "app": lambda turn: ("app",),
        "hour": lambda turn: (turn.hour,),
        "day": lambda turn: ("2026-11-21",),
        "week": lambda turn: ("2026-11-16",),
    }
    for name, values in by.items():
        rows = estimate("--by", name)
        assert {row["slice"][name] for row in rows} == {
            value for turn in traffic.kept for value in values(turn)
        }
        for row in rows:
            check(row, [turn for turn in traffic.kept if row["slice"][name] in values(turn)])
    for row in estimate("--by", "model,hour"):
        wanted = row["slice"]["model"], row["slice"]["hour"]
        check(row, [turn for turn in traffic.kept if (turn.model, turn.hour) == wanted])


@pytest.mark.slow
def test_windows_and_conditions_choose_turns(tmp_path: Path, estimate: Estimate) -> None:
    traffic = make_traffic(np.random.default_rng(2))
    land(tmp_path, traffic)
    hour = ("--since", "2026-11-21T11:00:00Z", "--until", "2026-11-21T13:00:00+01:00")

    (row,) = estimate(*hour)
    check(row, [turn for turn in traffic.kept if turn.hour == "2026-11-21T11:00:00Z"])
    assert estimate("--since", "2026-11-21T11:00", "--until", "2026-11-21 12:00:00") == [row]

    (row,) = estimate("--since", "2026-11-21", "--until", "2026-11-22")
    check(row, traffic.kept)

    (row,) = estimate("--where", "'refund' IN tools AND latency_ms > 400")
    check(row, [turn for turn in traffic.kept if "refund" in turn.tools and turn.latency > 400])

    assert estimate("--since", "24h", code=3) == []
    (row,) = estimate("--until", "2999-01-01T00:00:00Z")
    assert "open" in row["flags"]


@pytest.mark.slow
def test_the_views_have_the_same_rates(tmp_path: Path, estimate: Estimate) -> None:
    traffic = make_traffic(np.random.default_rng(3))
    land(tmp_path, traffic)
    by = {name: estimate("--by", name) for name in ("tool", "model", "hour")}

    with Store(tmp_path / "x.duckdb") as store:
        views = {name: store.records(f"FROM v_pass_rate_by_{name}") for name in by}
        (cases,) = store.records("FROM v_pass_rate")

    for name, column in (("tool", "tool_name"), ("model", "model"), ("hour", "hour")):
        expected = {
            row["slice"][name]: (row["rate"], row["sample_rate"], row["estimated_turns"])
            for row in by[name]
            if row["slice"][name] is not None
        }
        for row in views[name]:
            key = f"{row[column]:%Y-%m-%dT%H:00:00Z}" if name == "hour" else row[column]
            found = (row["pass_rate"], row["sample_pass_rate"], row["estimated_turns"])
            assert found == pytest.approx(expected.pop(key))
        assert not expected

    sessions: dict[str, list[Kept]] = {}
    for turn in traffic.kept:
        sessions.setdefault(turn.session, []).append(turn)
    weights = [1 / max(turn.probability for turn in turns) for turns in sessions.values()]
    # A case passes when the mean over its turns does; the threshold is 1.
    passed = [all(turn.passed for turn in turns) for turns in sessions.values()]
    assert cases["pass_rate"] == pytest.approx(np.average(passed, weights=weights))
    assert cases["sample_pass_rate"] == pytest.approx(np.mean(passed))
    assert cases["estimated_cases"] == pytest.approx(sum(weights))


@pytest.mark.parametrize("rounds", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_intervals_of_the_command_cover_the_truth(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rounds: int
) -> None:
    rng, rate = np.random.default_rng(17), 0.9
    process = traffic_covered = 0
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        traffic = make_traffic(rng, sessions=120, longest=4, rate=rate)
        store = land(folder, traffic, manifests=False)
        capsys.readouterr()
        assert main(["estimate", str(store), "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)
        process += row["low"] <= rate <= row["high"]
        traffic_covered += row["traffic_low"] <= traffic.truth <= row["traffic_high"]

    low, _ = binomial_bounds(rounds, 0.94)
    assert process / rounds >= low
    assert traffic_covered / rounds >= low


def record(log: Path, sessions: str = "s", **sampling: Any) -> None:
    """Record 300 turns, every tenth of which fails with an error."""
    recorder = Recorder(log, **sampling)
    for number in range(300):
        try:
            with recorder.turn(
                session_id=f"{sessions}-{number}", user="hi", app_name="shop"
            ) as turn:
                if number % 10 == 0:
                    raise RuntimeError("down")
                turn.respond("yes")
        except RuntimeError:
            pass
    assert recorder.close()


ERRORS = '[{"name": "errors", "keep": 1, "error": true}]'


@pytest.mark.slow
def test_a_crashed_run_has_not_passed(tmp_path: Path, estimate: Estimate) -> None:
    record(tmp_path / "log.db")
    consume(tmp_path)

    (row,) = estimate()

    assert (row["turns"], row["rate"], row["not_counted"]) == (300, pytest.approx(0.9), 0.0)


@pytest.mark.slow
def test_with_probability_0_the_rest_is_uncovered(
    tmp_path: Path, estimate: Estimate, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / "log.db", sample_rate=0, sample_rules=ERRORS)
    consume(tmp_path)

    (row,) = estimate("--signal", "error_rate")

    assert (row["rate"], row["turns"]) == (1.0, 30)
    assert row["covered"] == pytest.approx(0.1)
    assert row["flags"] == ["uncovered"]
    (by_app,) = estimate("--signal", "error_rate", "--by", "app")
    assert by_app["covered"] == pytest.approx(0.1)
    assert main(["estimate", str(tmp_path / "x.duckdb"), "--signal", "error_rate"]) == 0
    assert "sampled_out 270; the figures only describe errors" in capsys.readouterr().err


@pytest.mark.slow
def test_with_a_share_of_the_rest_nothing_is_uncovered(tmp_path: Path, estimate: Estimate) -> None:
    record(tmp_path / "log.db", sample_rate=0.3, sample_rules=ERRORS)
    consume(tmp_path)

    (row,) = estimate("--signal", "error_rate")

    assert row["covered"] == 1.0
    assert row["flags"] == []
    assert row["low"] < 0.1 < row["high"]


def half(case: dict[str, Any]) -> tuple[dict[str, Any], RedactionReport] | None:
    """A redactor that rejects every other session."""
    return None if int(case["evalId"].partition("-")[2]) % 2 else (case, RedactionReport())


@pytest.mark.slow
@pytest.mark.parametrize("rules", ["", ERRORS])
def test_a_turn_dropped_after_the_draw_stands_for_those_left_out(
    tmp_path: Path, estimate: Estimate, rules: str
) -> None:
    record(tmp_path / "log.db", sample_rate=0.2, redactor=half, sample_rules=rules)
    consume(tmp_path)

    (row,) = estimate("--signal", "error_rate")

    sampled = [number for number in range(300) if is_sampled(f"s-{number}", 0.2)]
    rejected = 150 if rules else sum(number % 2 for number in sampled) / 0.2
    stood_for = row["estimated_turns"]
    assert rejected > 100
    assert row["covered"] == pytest.approx(stood_for / (stood_for + rejected))


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampling",
    [
        {"sample_max_per_minute": 60},
        {"sample_rate": 0.3, "sample_max_per_minute": 20},
        {"sample_rate": 0.3, "sample_max_per_minute": 20, "sample_rules": ERRORS},
    ],
)
def test_turns_that_a_burst_brings_beyond_the_limit_are_uncovered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], sampling: dict[str, Any]
) -> None:
    rows = []
    for sessions in ("a", "b", "c", "d", "e"):  # one estimate alone varies by a tenth
        (folder := tmp_path / sessions).mkdir()
        record(folder / "log.db", sessions, **sampling)
        consume(folder)
        capsys.readouterr()
        assert main(["estimate", str(folder / "x.duckdb"), "--signal", "error_rate", "--json"]) == 0
        rows += json.loads(capsys.readouterr().out)

    assert all("uncovered" in row["flags"] for row in rows)
    totals = [row["estimated_turns"] / row["covered"] for row in rows]
    assert np.mean(totals) == pytest.approx(300, rel=0.15)


@pytest.mark.slow
def test_signals_are_shares_of_turns(landed: Traffic, estimate: Estimate) -> None:
    (slow,) = estimate("--signal", "slow_rate")
    (failing_tools,) = estimate("--signal", "tool_error_rate")
    (unscored,) = estimate("--signal", "not_scored")

    weights = np.array([1 / turn.probability for turn in landed.kept])
    latency = np.array([turn.latency for turn in landed.kept])
    order = np.argsort(latency)
    shares = np.cumsum(weights[order]) / weights.sum()
    limit = latency[order][np.searchsorted(shares, 0.95)]
    assert slow["rate"] == pytest.approx(weights[latency > limit].sum() / weights.sum())
    assert slow["metric"] is None
    assert failing_tools["rate"] == unscored["rate"] == 0
    assert unscored["metric"] == "rule_avg_score"
    assert estimate("--signal", "judge_disagreement", code=3) == []
    (thumbs,) = estimate("--signal", "negative_feedback")
    assert thumbs["rate"] == 0


@pytest.mark.slow
def test_labels_correct_the_judge(
    landed: Traffic, tmp_path: Path, estimate: Estimate, capsys: pytest.CaptureFixture[str]
) -> None:
    passed = [turn for turn in landed.kept if turn.passed][:40]
    failed = [turn for turn in landed.kept if not turn.passed][:20]
    lines = [
        # People fail every fourth of what the metric passes, and pass every fifth of what it fails.
        {"evalId": turn.session, "invocationId": turn.turn, "label": "pass" if good else "fail"}
        for turns, every, usual in ((passed, 4, True), (failed, 5, False))
        for place, turn in enumerate(turns)
        for good in (usual != (place % every == 0),)
    ]
    labels = tmp_path / "l.jsonl"
    labels.write_text("\n".join(map(json.dumps, lines)))

    (judge,) = estimate()
    (people,) = estimate("--labels", str(labels))

    def share(turns: Sequence[Kept], every: int, usual: bool) -> float:
        good = [usual != (place % every == 0) for place in range(len(turns))]
        return float(np.average(good, weights=[1 / turn.probability for turn in turns]))

    q, g1, g0 = judge["rate"], share(passed, 4, True), share(failed, 5, False)
    assert people["rate"] == pytest.approx(q * g1 + (1 - q) * g0)
    assert people["labels"] == 60
    assert (people["effective_turns"], people["design_effect"]) == (None, None), "the judge's"
    assert people["low"] < people["rate"] < people["high"]
    assert people["high"] - people["low"] > judge["high"] - judge["low"]
    assert not [flag for flag in people["flags"] if flag.startswith("no_labels")]

    labels.write_text("\n".join(json.dumps(line) for line in lines[:40]))
    (row,) = estimate("--labels", str(labels))
    assert "no_labels:failed" in row["flags"]

    turns = Counter(turn.session for turn in landed.kept)
    several, single = (
        next(name for name, n in turns.items() if (n > 1) is more) for more in (True, False)
    )
    for line, says in (
        ({"evalId": "nobody"}, "line 1: nobody never landed here"),
        ({"evalId": several}, "name the turn by invocationId"),
        ({"evalId": single, "rubricId": "1"}, "none of 1 labels"),
        ({"evalId": single, "metricName": "other"}, "none of 1 labels"),
    ):
        labels.write_text(json.dumps({**line, "label": "pass"}))
        assert main(["estimate", str(tmp_path / "x.duckdb"), "--labels", str(labels)]) == 2
        assert says in capsys.readouterr().err


@pytest.mark.slow
def test_an_old_rubric_and_a_new_one_are_two_rows(
    landed: Traffic, tmp_path: Path, estimate: Estimate, capsys: pytest.CaptureFixture[str]
) -> None:
    stricter = json.loads(json.dumps(METRICS))
    stricter[0]["criterion"]["rules"]["rules"][0]["values"] = ["never said"]
    (tmp_path / "new.json").write_text(json.dumps(stricter))
    store = str(tmp_path / "x.duckdb")
    main(["score", store, "--metrics", str(tmp_path / "new.json"), "--db", store])

    old, new = estimate("--metric", "rule_avg_score")

    check(old, landed.kept)
    assert (new["rate"], new["turns"]) == (0.0, len(landed.kept))
    assert old["metric_digest"] != new["metric_digest"]
    assert main(["estimate", store]) == 0
    shown = capsys.readouterr().out
    assert old["metric_digest"][:8] in shown
    assert main(["show", store, landed.kept[0].session, "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["turn_scores"]
    assert {score["status"] for score in scores} == {"failed"}, "of the newest version only"
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "xyz"], "--by xyz: unknown slice; expected one of app, tool, tool_path"),
        (["--by", "app,app"], "names something twice"),
        (["--by", "app,"], "expected names separated by commas"),
        (["--metric", "nope"], "--metric nope: no turn has a score of it; expected one of rule_avg_score"),
        (["--signal", "nope"], "--signal nope: unknown signal; expected one of pass_rate"),
        (["--since", "yesterday"], "expected a time (2026-11-21 or 2026-11-21T12:00:00Z)"),
        (["--since", "9999-12-31T23:59:59-05:00"], "expected a time"),
        (["--since", "2026-11-22T12:00:00Z", "--until", "2026-11-21T12:00:00Z"], "after --since"),
        (["--where", "colour = 'red'"], 'Referenced column "colour" not found'),
        (["--where", "1=1); DROP TABLE turns; --"], "--where 1=1); DROP TABLE turns; --"),
        (["--where", "count(*) > 1"], "cannot contain aggregates"),
        (["--where", "app IN (SELECT user_text FROM turns)"], "a query within it; expected an SQL condition"),
        (["--labels", "nothing.jsonl"], "nothing.jsonl"),
        (["--labels", "l.jsonl", "--signal", "error_rate"], "not --signal error_rate"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(
    landed: Traffic, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:  # fmt: skip
    try:
        code = main(["estimate", str(tmp_path / "x.duckdb"), *arguments])
    except SystemExit as refused:
        code = int(str(refused.code))

    assert code == 2
    error = capsys.readouterr().err
    assert says in error
    assert "Traceback" not in error


@pytest.mark.slow
def test_several_files_are_estimated_as_one(
    landed: Traffic, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    other = make_traffic(np.random.default_rng(9), sessions=40)
    second = land(tmp_path / "other", other)
    capsys.readouterr()

    assert main(["estimate", str(tmp_path / "x.duckdb"), str(second), "--json"]) == 0

    (row,) = json.loads(capsys.readouterr().out)
    check(row, [*landed.kept, *other.kept])
