"""Versions of an agent, and repeats: kept apart in one file, and compared."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider

from evaltap.cli.main import main
from evaltap.evaluator.analysis.estimates.scope import CASE, LABEL, SESSION, SIGNALS, USER, Scope
from evaltap.evaluator.analysis.estimates.turns import choose_turns
from evaltap.evaluator.analysis.stats.estimate import estimate
from evaltap.evaluator.store.database import Store
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.sources.span_processor import CaseSpanProcessor
from support.builders.cases import SAYS_YES, make_case, make_turn

METRICS = [SAYS_YES]
SESSIONS = ("s-1", "s-2", "s-3", "s-4")
NO_USERS: Mapping[str, str] = {}


def record(log: Path, good: set[str], users: Mapping[str, str] = NO_USERS, **settings: Any) -> None:
    recorder = Recorder(str(log), **settings)
    for session in SESSIONS:
        who = users.get(session)
        with recorder.turn(
            session_id=session, user="hello", invocation_id="t-1", user_id=who
        ) as turn:
            turn.respond("yes" if session in good else "no")
    recorder.close()


@pytest.fixture
def db(tmp_path: Path) -> Path:
    (tmp_path / "m.json").write_text(json.dumps(METRICS))
    return tmp_path / "x.duckdb"


def consume(log: Path, db: Path) -> None:
    metrics = str(db.parent / "m.json")
    main(["consume", "--log", str(log), "--db", str(db), "--metrics", metrics, "--until-idle"])


def report(db: Path, capsys: pytest.CaptureFixture[str], *more: str) -> Any:
    capsys.readouterr()
    main(["report", str(db), "--json", *more])
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_the_same_eval_ids_of_another_version_are_other_cases(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(db.parent / "1.log.db", {"s-1", "s-2", "s-3"}, version="1.0")
    record(db.parent / "2.log.db", {"s-1"}, version="2.0")
    for name in ("1.log.db", "2.log.db"):
        consume(db.parent / name, db)

    with Store(db) as store:
        cases = store.rows("SELECT eval_set_id, count(*) FROM latest_cases GROUP BY 1 ORDER BY 1")
        assert cases == [("1.0", 4), ("2.0", 4)]
        assert store.rows("SELECT DISTINCT turn_count FROM latest_cases") == [(1,)]
        views = store.rows("SELECT version, pass_rate, passed FROM v_pass_rate_by_version")
    assert views == [("1.0", 0.75, 3), ("2.0", 0.25, 1)]
    rows = report(db, capsys, "--by", "version")["by"]
    assert [(row["slice"], row["rate"]) for row in rows] == [
        ({"version": "1.0"}, 0.75),
        ({"version": "2.0"}, 0.25),
    ]
    main(["report", str(db), "--by", "version"])
    assert "75.0%" in capsys.readouterr().out


@pytest.mark.slow
def test_repeats_are_runs_and_give_pass_at_k(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    passed = ({"s-1", "s-2", "s-3", "s-4"}, {"s-1", "s-2"}, {"s-1", "s-3", "s-4", "s-2"})
    for number, good in enumerate(passed, start=1):
        log = db.parent / f"{number}.log.db"
        record(log, good, version="1.0", run=f"run-{number}")
        consume(log, db)

    found = report(db, capsys, "--pass-k", "1,2,4")["pass_k"]

    rows = {(row["metric_name"], row["k"]): row for row in found}
    one, two = rows["rule_avg_score", 1], rows["rule_avg_score", 2]
    # Two cases passed 3 of 3 times, two 2 of 3 times.
    assert (one["cases"], one["most_runs"], one["version"]) == (4, 3, "1.0")
    assert one["pass_at_k"] == pytest.approx((1 + 1 + 2 / 3 + 2 / 3) / 4)
    assert one["pass_hat_k"] == pytest.approx(one["pass_at_k"])
    assert two["pass_at_k"] == pytest.approx(1.0)
    assert two["pass_hat_k_unbiased"] == pytest.approx((1 + 1 + 1 / 3 + 1 / 3) / 4)
    assert two["pass_hat_k"] == pytest.approx((1 + 1 + 4 / 9 + 4 / 9) / 4)
    assert rows["rule_avg_score", 4]["pass_at_k"] is None
    assert rows[None, 1]["pass_hat_k"] == pytest.approx(2 / 3), "the whole set passed in two runs"
    main(["report", str(db), "--pass-k", "4"])
    assert "needs 4 runs" in capsys.readouterr().out
    with Store(db) as store:
        store.execute("DELETE FROM scores WHERE eval_set_id LIKE '%run-3' AND eval_id = 's-1'")
    whole = report(db, capsys, "--pass-k", "1")["pass_k"][-1]
    assert (whole["metric_name"], whole["most_runs"]) == (None, 2), "the third run lacks a case"
    assert whole["pass_hat_k"] == pytest.approx(1 / 2)


@pytest.mark.slow
def test_report_and_estimate_count_the_repeats_of_a_case_as_one_cluster(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(1, 6):
        log = db.parent / f"{number}.log.db"
        record(log, {"s-1", "s-2"}, run=f"run-{number}")
        consume(log, db)

    summary = report(db, capsys)
    (one,) = (row for row in summary["metrics"] if row["metric_name"] == "rule_avg_score")
    assert (one["passed"], one["failed"]) == (10, 10)
    assert (one["pass_rate"], one["pass_rate_unit"]) == (0.5, "trials")
    low, high = one["interval"]
    assert low < 0.1, "four cases say as little as four cases recorded once"
    assert high > 0.9
    assert any("20 recordings of 4 cases" in note for note in summary["notes"])
    main(["estimate", str(db), "--metric", "rule_avg_score", "--json"])
    (rate,) = json.loads(capsys.readouterr().out)
    assert (rate["turns"], rate["sessions"]) == (20, 4)
    assert (rate["low"], rate["high"]) == pytest.approx((low, high))

    for version in ("2", "team@3"):
        log = db.parent / f"{version}.log.db"
        record(log, {"s-1", "s-2"}, version=version, run="run-1")
        consume(log, db)
    notes = report(db, capsys)["notes"]
    assert any("28 recordings of 4 cases" in note for note in notes), "whatever the version"
    main(["estimate", str(db), "--metric", "rule_avg_score", "--json"])
    (rate,) = json.loads(capsys.readouterr().out)
    assert (rate["turns"], rate["sessions"]) == (28, 4)

    (at, *_) = report(db, capsys, "--pass-k", "2")["pass_k"]
    low, high = at["pass_at_k_interval"]
    assert low < at["pass_at_k"] == 0.5 < high
    main(["report", str(db), "--pass-k", "2"])
    assert f"rule_avg_score, k 2: {low:.0%} to {high:.0%}, " in capsys.readouterr().out


@pytest.mark.slow
def test_repeats_of_a_case_are_one_cluster_where_the_case_is_named(db: Path) -> None:
    for number in (1, 2, 3):
        log = db.parent / f"{number}.log.db"
        record(log, {"s-1"}, run=f"run-{number}", users={"s-1": "ann", "s-2": "ann", "s-3": "bob"})
        consume(log, db)

    found = {}
    with Store(db) as store:
        for cluster in (SESSION, CASE, USER, LABEL):
            chosen = choose_turns(store, Scope(), (), SIGNALS["pass_rate"], cluster=cluster)
            with chosen as turns:
                (profiles,) = turns.profiles().values()
            estimated = estimate(profiles)
            assert estimated is not None
            assert (estimated.rate.value, estimated.rate.n) == (0.25, 12)
            found[cluster.name] = (estimated.sessions, estimated.rate.interval)

    assert {name: clusters for name, (clusters, _) in found.items()} == {
        "session": 12, "case": 4, "user": 2 + 3, "label": 12,
    }  # fmt: skip
    assert found["case"][1].high > found["session"][1].high, "repeats of a case are alike"


def test_repeats_in_a_file_are_told_apart_by_their_run(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [
        make_case("c", [make_turn(answer=answer)], source={"run": f"run-{number}"})
        for number, answer in enumerate(("yes", "no", "yes"))
    ]
    (db.parent / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    metrics = str(db.parent / "m.json")

    code = main(["score", str(db.parent / "c.jsonl"), "--metrics", metrics, "--db", str(db)])

    assert code == 1
    (one, *_) = report(db, capsys, "--pass-k", "1")["pass_k"]
    assert (one["cases"], one["most_runs"]) == (1, 3)
    assert one["pass_at_k"] == pytest.approx(2 / 3)


def test_repeats_of_a_case_are_runs_of_one_result_file(db: Path) -> None:
    lines = [
        make_case("c", [make_turn(answer="yes" if number != 2 else "no")], evalSetId="set")
        for number in range(1, 12)
    ]
    (db.parent / "c.jsonl").write_text("\n".join(map(json.dumps, lines)))
    target = db.parent / "r.evalset_result.json"

    main(["score", str(db.parent / "c.jsonl"), "--metrics", str(db.parent / "m.json"),
          "--result", str(target)])  # fmt: skip

    result = json.loads(target.read_text())
    assert (result["evalSetId"], result["summary"]["numRuns"]) == ("set", 11)
    statuses = {one["runId"]: one["finalEvalStatus"] for one in result["evalCaseResults"]}
    assert [run for run, status in statuses.items() if status == "failed"] == [2]


def test_what_is_recorded_is_described_by_settings_and_environment(
    db: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_ENVIRONMENT", "staging")
    monkeypatch.setenv("EVALTAP_VERSION", "from the environment")
    log = db.parent / "log.db"
    record(log, set(SESSIONS), version="1.0", tags=["canary", "prompt=b"], agent_name="support")
    consume(log, db)

    with Store(db) as store:
        found = store.rows("SELECT DISTINCT agent_name, version, environment, tags, run FROM turns")
        tags = store.rows("SELECT tag, turns FROM v_pass_rate_by_tag ORDER BY tag")
    assert found == [("support", "1.0", "staging", ["canary", "prompt=b"], None)]
    assert tags == [("canary", 4), ("prompt=b", 4)]


@pytest.mark.parametrize("key", ["deployment.environment.name", "deployment.environment"])
def test_resource_attributes_say_version_and_environment(key: str) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    resource = Resource({"service.name": "shop", "service.version": "3.1", key: "production"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder))
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s"}
    provider.get_tracer("t").start_span("invoke_agent support", attributes=attributes).end()
    provider.force_flush()
    recorder.close()

    (case,) = sink.cases
    assert (case["source"]["version"], case["source"]["environment"]) == ("3.1", "production")


@pytest.mark.slow
def test_feedback_finds_the_turn_of_its_version(db: Path) -> None:
    for version in ("1.0", "2.0"):
        recorder = Recorder(str(db.parent / f"{version}.log.db"), version=version)
        with recorder.turn(session_id="s", user="hi", invocation_id="t-1") as turn:
            turn.feedback(positive=version == "1.0")
            turn.respond("yes")
        recorder.close()
        consume(db.parent / f"{version}.log.db", db)

    with Store(db) as store:
        found = store.rows("SELECT eval_set_id, positive FROM v_feedback ORDER BY 1")
    assert found == [("1.0", True), ("2.0", False)]


def test_feedback_that_knows_no_version_finds_its_turn_by_the_trace(db: Path) -> None:
    recorder = Recorder(str(db.parent / "log.db"))
    resource = Resource({"service.name": "shop", "service.version": "3.1"})
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(CaseSpanProcessor(recorder=recorder))
    attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s"}
    span = provider.get_tracer("t").start_span("invoke_agent support", attributes=attributes)
    span.end()
    provider.force_flush()
    trace_id = format(span.get_span_context().trace_id, "032x")
    recorder.feedback("s", trace_id=trace_id, positive=False)
    recorder.close()
    consume(db.parent / "log.db", db)

    with Store(db) as store:
        (found,) = store.rows("SELECT eval_set_id, invocation_id, positive FROM v_feedback")
        ((invocation_id,),) = store.rows("SELECT invocation_id FROM turns")
    assert found == ("3.1", invocation_id, False)


@pytest.mark.slow
def test_references_join_each_version(db: Path, capsys: pytest.CaptureFixture[str]) -> None:
    metrics = [
        {
            "metricName": "final_response_avg_score",
            "threshold": 1,
            "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
        }
    ]
    (db.parent / "m.json").write_text(json.dumps(metrics))
    references = {
        "evalSetId": "r",
        "evalCases": [
            make_case(session, conversation=[make_turn("t-1", answer="yes", tools=[])])
            for session in SESSIONS
        ],
    }
    (db.parent / "r.evalset.json").write_text(json.dumps(references))
    good_ones: dict[str, set[str]] = {"1.0": set(SESSIONS), "2.0": {"s-1"}}
    for version, good in good_ones.items():
        record(db.parent / f"{version}.log.db", good, version=version)
        main(
            [
                "consume", "--log", str(db.parent / f"{version}.log.db"), "--db", str(db),
                "--metrics", str(db.parent / "m.json"), "--until-idle",
                "--references", str(db.parent / "r.evalset.json"),
            ]
        )  # fmt: skip

    (row,) = report(db, capsys)["metrics"]
    assert (row["passed"], row["failed"]) == (5, 3)
    assert row["errors"] == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--by", "xyz"], "unknown slice; expected one of app"),
        (["--pass-k", "0"], "expected a whole number, 1 or more"),
        (["--by", "version", "--out", "r.html"], "only for the console and --json"),
    ],
)
def test_a_mistake_is_named(
    db: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    record(db.parent / "log.db", set(SESSIONS))
    consume(db.parent / "log.db", db)
    try:
        code = main(["report", str(db), *arguments])
    except SystemExit as refused:
        code = int(str(refused.code))

    assert code == 2
    assert says in capsys.readouterr().err


@pytest.mark.slow
def test_runs_of_the_same_name_but_of_another_version_are_other_cases(
    db: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for version, good in (("1.0", set[str](SESSIONS)), ("2.0", set[str]())):
        for run in ("try-1", "try-2"):
            log = db.parent / f"{version}-{run}.log.db"
            record(log, good, version=version, run=run)
            consume(log, db)

    found = report(db, capsys, "--pass-k", "2")["pass_k"]

    rates = {row["version"]: row["pass_at_k"] for row in found if row["metric_name"]}
    assert rates == {"1.0": 1, "2.0": 0}
    with Store(db) as store:
        assert store.rows("SELECT DISTINCT turn_count FROM latest_cases") == [(1,)]


@pytest.mark.parametrize("scored_from", ["files", pytest.param("logs", marks=pytest.mark.slow)])
def test_repeats_are_trials_in_a_comparison(
    db: Path, scored_from: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sides = (("base", set[str](SESSIONS)), ("head", {"s-1"}))
    for side, good in sides:
        store = db.parent / f"{side}.duckdb"
        if scored_from == "logs":
            for number in range(6):
                log = db.parent / f"{side}-{number}.log.db"
                record(log, good, run=f"try-{number}")
                consume(log, store)
            continue
        lines = [
            make_case(session, [make_turn(answer="yes" if session in good else "no")])
            for _ in range(6)
            for session in SESSIONS
        ]
        path = db.parent / side / "c.jsonl"
        path.parent.mkdir()
        path.write_text("\n".join(map(json.dumps, lines)))
        main(["score", str(path), "--metrics", str(db.parent / "m.json"), "--db", str(store)])
    capsys.readouterr()

    code = main(["compare", *(str(db.parent / f"{side}.duckdb") for side, _ in sides), "--json"])

    (metric,) = json.loads(capsys.readouterr().out)["metrics"]
    assert (code, metric["base"]["cases"], metric["base"]["trials"]) == (1, 4, 24)
