"""`evaltap estimate` on traffic with known truth: sampler, log, consumer, store, command, views."""

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.analysis.estimates.scope import Scope, Signal, Unit
from evaltap.evaluator.analysis.estimates.turns import choose_turns, quantile
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.recorder.sampling.rules import parse_outcome_rules
from evaltap.recorder.sampling.sampler import OutcomeSampler
from evaltap.schemas.wire.record import Manifest, WireRecord, encode_case, encode_manifest
from support.builders.cases import make_case, make_records, make_tool, make_turn, write_log
from support.proofs.estimate_oracle import Oracle
from support.worlds.traffic import binomial_bounds

START = datetime(2026, 11, 21, 10, tzinfo=UTC)
RULES = (
    '[{"name": "flagged", "keep": 1, "field": {"path": "turn.telemetry.outputTokens", "over": 90}}]'
)
METRICS = [
    {
        "metricName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [{"id": "yes", "type": "contains", "values": ["yes"]}]}},
    }
]
TOOLS = ((), ("find",), ("find", "refund"), ("refund",))
MODELS = ("small", "large")


@dataclass(frozen=True)
class Kept:
    """A turn that was kept, as the test knows it."""

    session: str
    turn: str
    probability: float
    passed: bool
    tools: tuple[str, ...]
    model: str
    hour: str
    latency: float


@dataclass
class Traffic:
    """Traffic as it went through the recorder's sampler."""

    kept: list[Kept] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    dropped: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    turns: int = 0

    @property
    def truth(self) -> float:
        return self.passed / self.turns


def make_traffic(
    rng: np.random.Generator, *, sessions: int = 150, longest: int = 6, rate: float = 0.85, head: float = 0.3
) -> Traffic:  # fmt: skip
    """Return traffic of which a tenth, mostly failures, is flagged and kept, and of the rest a share."""
    sampler = OutcomeSampler(head, parse_outcome_rules(RULES))
    made = Traffic()
    for _ in range(sessions):
        name, chance = f"session {rng.integers(1 << 60)}", rng.beta(rate * 5, (1 - rate) * 5)
        begins = START + timedelta(minutes=int(rng.integers(0, 170)))
        for number in range(int(rng.integers(1, longest + 1))):
            passed = bool(rng.random() < chance)
            flagged = rng.random() < (0.03 if passed else 0.6)
            tools, model = TOOLS[rng.integers(4)], MODELS[rng.integers(2)]
            latency = float(rng.lognormal(6, 0.5))
            turn = make_turn(
                f"t-{number}",
                answer="yes" if passed else "no",
                tools=[make_tool(tool) for tool in tools],
                creationTimestamp=begins.timestamp(),
                telemetry={
                    "status": "ok",
                    "outputTokens": 99 if flagged else 9,
                    "models": [model],
                    "latencyMs": latency,
                },
            )
            case = make_case(name, [turn])
            decision = sampler.decide(case)
            made.turns += 1
            made.passed += passed
            if not decision.kept:
                made.dropped[decision.reason] += 1
                continue
            hour = f"{begins:%Y-%m-%dT%H}:00:00Z"
            made.kept.append(
                Kept(name, f"t-{number}", decision.probability, passed, tools, model, hour, latency)
            )
            source = {
                "samplingReason": decision.reason, "inclusionProbability": decision.probability
            }  # fmt: skip
            made.cases.append({**case, "source": source})
    return made


def land(folder: Path, traffic: Traffic, *, manifests: bool = True) -> Path:
    """Land and score traffic; return the DuckDB file."""
    records = [
        encode_case(case, producer_id="p", seq=seq, time=START)
        for seq, case in enumerate(traffic.cases, start=1)
    ]
    if manifests:
        drops = Manifest(
            "p", len(records), START + timedelta(hours=2), traffic.dropped, closing=True
        )
        records.append(encode_manifest(drops))
    write_log(folder / "log.db", records)
    (folder / "m.json").write_text(json.dumps(METRICS))
    consume = ["consume", "--log", str(folder / "log.db"), "--db", str(folder / "x.duckdb")]
    main([*consume, "--metrics", str(folder / "m.json"), "--until-idle", "--json"])
    return folder / "x.duckdb"


Estimate = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Estimate:
    """Run the command on the test's file and return its rows."""

    def run(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["estimate", str(tmp_path / "x.duckdb"), "--json", *arguments]) == code
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    return run


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


def test_windows_and_conditions_choose_turns(tmp_path: Path, estimate: Estimate) -> None:
    traffic = make_traffic(np.random.default_rng(2))
    land(tmp_path, traffic)
    hour = ("--since", "2026-11-21T11:00:00Z", "--until", "2026-11-21T13:00:00+01:00")

    (row,) = estimate(*hour)
    check(row, [turn for turn in traffic.kept if turn.hour == "2026-11-21T11:00:00Z"])

    (row,) = estimate("--where", "'refund' IN tools AND latency_ms > 400")
    check(row, [turn for turn in traffic.kept if "refund" in turn.tools and turn.latency > 400])

    assert estimate("--since", "24h", code=3) == []
    (row,) = estimate("--until", "2999-01-01T00:00:00Z")
    assert "open" in row["flags"]


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


@pytest.mark.parametrize("rounds", [12, pytest.param(120, marks=pytest.mark.slow)])
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


# -- what is not covered ---------------------------------------------------------------------------


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


def consume(folder: Path) -> None:
    (folder / "m.json").write_text(json.dumps(METRICS))
    log, store = str(folder / "log.db"), str(folder / "x.duckdb")
    main(
        [
            "consume",
            "--log",
            log,
            "--db",
            store,
            "--metrics",
            str(folder / "m.json"),
            "--until-idle",
        ]
    )


ERRORS = '[{"name": "errors", "keep": 1, "error": true}]'


def test_a_crashed_run_has_not_passed(tmp_path: Path, estimate: Estimate) -> None:
    record(tmp_path / "log.db")
    consume(tmp_path)

    (row,) = estimate()

    assert (row["turns"], row["rate"], row["not_counted"]) == (300, pytest.approx(0.9), 0.0)


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


def test_with_a_share_of_the_rest_nothing_is_uncovered(tmp_path: Path, estimate: Estimate) -> None:
    record(tmp_path / "log.db", sample_rate=0.3, sample_rules=ERRORS)
    consume(tmp_path)

    (row,) = estimate("--signal", "error_rate")

    assert row["covered"] == 1.0
    assert row["flags"] == []
    assert row["low"] < 0.1 < row["high"]


@pytest.mark.slow
def test_turns_that_a_burst_brings_beyond_the_limit_are_uncovered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = []
    for sessions in ("a", "b", "c", "d", "e"):  # one estimate alone varies by a tenth
        (folder := tmp_path / sessions).mkdir()
        record(folder / "log.db", sessions, sample_max_per_minute=60)
        consume(folder)
        capsys.readouterr()
        assert main(["estimate", str(folder / "x.duckdb"), "--signal", "error_rate", "--json"]) == 0
        rows += json.loads(capsys.readouterr().out)

    assert all("uncovered" in row["flags"] for row in rows)
    totals = [row["estimated_turns"] / row["covered"] for row in rows]
    assert np.mean(totals) == pytest.approx(300, rel=0.15)


# -- signals, labels, versions, mistakes -----------------------------------------------------------


@pytest.fixture
def landed(tmp_path: Path) -> Traffic:
    traffic = make_traffic(np.random.default_rng(4), sessions=60)
    land(tmp_path, traffic)
    return traffic


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
        (["--since", "yesterday"], "expected a time with a time zone"),
        (["--since", "2026-11-21T12:00:00"], "expected a time with a time zone"),
        (["--since", "2026-11-22T12:00:00Z", "--until", "2026-11-21T12:00:00Z"], "after --since"),
        (["--where", "colour = 'red'"], 'Referenced column "colour" not found'),
        (["--where", "1=1); DROP TABLE turns; --"], "--where 1=1); DROP TABLE turns; --"),
        (["--where", "count(*) > 1"], "cannot contain aggregates"),
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


# -- what reports call -----------------------------------------------------------------------------


def test_cases_are_drawn_with_the_largest_probability_of_their_turns(
    landed: Traffic, tmp_path: Path
) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        ((found,), _) = estimate_rates(store, unit=Unit.CASE)
        (view,) = store.records("FROM v_pass_rate")

    sessions: dict[str, list[Kept]] = {}
    for turn in landed.kept:
        sessions.setdefault(turn.session, []).append(turn)
    oracle = Oracle(
        list(sessions),
        [max(turn.probability for turn in turns) for turns in sessions.values()],
        [1.0] * len(sessions),
        [float(all(turn.passed for turn in turns)) for turns in sessions.values()],
    )
    one = found.estimate
    assert one is not None
    assert one.rate.value == pytest.approx(oracle.rate) == pytest.approx(view["pass_rate"])
    assert one.rate.interval == pytest.approx(oracle.process)
    assert one.rate.n == one.sessions == len(sessions)


def test_turns_of_scored_files_count_once_where_they_are_asked_for(tmp_path: Path) -> None:
    lines = [make_case(f"c-{n}", [make_turn(answer="yes" if n else "no")]) for n in range(20)]
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    store_path = str(tmp_path / "x.duckdb")
    main(
        [
            "score",
            str(tmp_path / "c.jsonl"),
            "--metrics",
            str(tmp_path / "m.json"),
            "--db",
            store_path,
        ]
    )

    with Store(store_path) as store:
        assert estimate_rates(store).rates == ()
        ((run_id,),) = store.rows("SELECT run_id FROM runs")
        for unit in Unit:
            ((found,), _) = estimate_rates(store, Scope(run_id=run_id, files=True), unit=unit)
            one = found.estimate
            assert one is not None
            assert (one.rate.value, one.rate.n, one.estimated_turns) == (0.95, 20, 20.0)
            assert one.traffic == (0.95, 0.95)
        assert estimate_rates(store, Scope(run_id="another", files=True)).rates == ()


def test_a_turn_that_has_grown_since_it_was_scored_is_not_scored_yet(tmp_path: Path) -> None:
    def revision(number: int, answer: str) -> dict[str, Any]:
        return make_case("s", [make_turn("t", answer=answer)], source={"revision": number})

    def records(*cases: dict[str, Any], first: int) -> list[WireRecord]:
        return make_records(cases, first_seq=first)

    write_log(tmp_path / "log.db", records(revision(1, "yes"), first=1))
    consume(tmp_path)
    with Store(tmp_path / "x.duckdb") as store:
        assert len(estimate_rates(store).rates) == 1

    write_log(tmp_path / "log.db", records(revision(2, "no"), first=2))
    log, path = str(tmp_path / "log.db"), str(tmp_path / "x.duckdb")
    main(["consume", "--log", log, "--db", path, "--until-idle"])
    with Store(path) as store:
        assert estimate_rates(store).rates == ()
        assert estimate_rates(store, Scope(files=True)).rates == ()


def test_a_quantile_of_the_latency_is_weighted(landed: Traffic, tmp_path: Path) -> None:
    known = Signal("latency_ms", "latency_ms IS NOT NULL")
    with (
        Store(tmp_path / "x.duckdb") as store,
        choose_turns(store, Scope(), (), known) as turns,
        choose_turns(store, Scope(), (), Signal("cost_usd", "cost_usd IS NOT NULL")) as without,
    ):
        found = [quantile(turns, share) for share in (0.5, 0.95)]
        assert quantile(without, 0.5) is None

    weights = np.array([1 / turn.probability for turn in landed.kept])
    latency = np.array([turn.latency for turn in landed.kept])
    order = np.argsort(latency)
    shares = np.cumsum(weights[order]) / weights.sum()
    expected = [latency[order][np.searchsorted(shares, share)] for share in (0.5, 0.95)]
    assert found == pytest.approx(expected)


def test_drops_count_in_the_hour_in_which_they_were_stated(
    tmp_path: Path, estimate: Estimate
) -> None:
    records = [
        encode_case(
            make_case(f"s-{n}", [make_turn(creationTimestamp=(START + timedelta(minutes=n)).timestamp())]),
            producer_id="p", seq=n + 1, time=START,
        )
        for n in range(120)
    ]  # fmt: skip
    for minutes, lost in ((30, 10), (70, 10), (110, 40)):
        stated = START + timedelta(minutes=minutes)
        records.append(encode_manifest(Manifest("p", 120, stated, {"queue_full": lost})))
    write_log(tmp_path / "log.db", records)
    consume(tmp_path)

    first, second = estimate("--by", "hour")
    (whole,) = estimate()

    assert first["covered"] == pytest.approx(60 / 70)
    assert second["covered"] == pytest.approx(60 / 90)
    assert whole["covered"] == pytest.approx(120 / 160)


def test_the_drops_of_a_process_without_a_kept_turn_are_missing_from_the_whole(
    tmp_path: Path, estimate: Estimate
) -> None:
    records = make_records([make_case(f"s-{n}") for n in range(30)])
    for producer, drops in (
        ("p", {}),
        ("other", {"queue_full": 10}),
        ("third", {"sampled_out": 5}),
    ):
        records.append(encode_manifest(Manifest(producer, 30, START, drops)))
    write_log(tmp_path / "log.db", records)
    consume(tmp_path)

    (whole,) = estimate()
    (by_app,) = estimate("--by", "app")

    assert whole["covered"] == pytest.approx(30 / 40)
    assert by_app["covered"] == 1.0


def test_the_language_of_the_user_is_a_slice_and_a_condition(
    tmp_path: Path, estimate: Estimate
) -> None:
    said = {
        "en": "I would like to return the shoes that I have ordered last week, please.",
        "de": "Ich möchte bitte die Schuhe zurückgeben, die ich letzte Woche bestellt habe.",
        "ja": "先週注文した靴を返品したいのですが。",
        "und": "A-100?",
    }
    cases = []
    for number in range(24):
        language = list(said)[number % 4]
        turn = make_turn(
            answer="no" if language == "de" and number > 8 else "yes",
            userContent={"role": "user", "content": said[language]},
        )
        cases.append(make_case(f"s-{number}", [turn]))
    land(tmp_path, Traffic(cases=cases))

    rates = {one["slice"]["language"]: one["rate"] for one in estimate("--by", "language")}

    assert rates == {"en": 1, "ja": 1, "und": 1, "de": pytest.approx(1 / 3)}
    (german,) = estimate("--where", "language = 'de'")
    assert (german["turns"], german["rate"]) == (6, pytest.approx(1 / 3))
