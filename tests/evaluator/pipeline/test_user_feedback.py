"""`user_feedback`: thumbs and stars of users as scores, and as labels of a judge."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, MetricOutcome
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer, ConsumerLimits
from evaltap.evaluator.reports.summary import summarise
from evaltap.evaluator.store.database import Store
from evaltap.recorder import MemorySink, Recorder
from evaltap.schemas import EvalMetric
from support.builders.cases import make_case, make_turn, write_log
from support.builders.memory_source import MemorySource
from support.worlds.once import made_once

TRACE = "0af7651916cd43dd8448eb211c80319c"


def metric(metric_name: str = "user_feedback", /, **criterion: Any) -> dict[str, Any]:
    evaluator = {} if metric_name == "user_feedback" else {"evaluatorName": "user_feedback"}
    return {
        "metricName": metric_name,
        "threshold": 1,
        "criterion": {"feedback": criterion},
        **evaluator,
    }


def outcome(given: dict[str, Any], *feedback: dict[str, Any]) -> MetricOutcome:
    case = make_case(turns=[make_turn(feedback=[*feedback])])
    return CaseScorer([EvalMetric.model_validate(given)]).score(case).metrics[0]


UP: dict[str, Any] = {"name": "thumbs", "positive": True}
DOWN: dict[str, Any] = {"name": "thumbs", "positive": False, "comment": "Wrong order."}


@pytest.mark.parametrize(
    ("criterion", "feedback", "score", "reason"),
    [
        ({}, [UP], 1, ""),
        ({}, [UP, DOWN], 0.5, "Wrong order."),
        ({"name": "thumbs"}, [DOWN, {"name": "stars", "positive": True}], 0, "Wrong order."),
        ({"name": "stars", "min": 4}, [{"name": "stars", "score": 4}, UP], 1, ""),
        ({"min": 4}, [{"name": "stars", "score": 3.5}], 0, ""),
        ({"name": "stars"}, [UP], None, "no feedback 'stars' was given on this turn"),
        ({}, [{"name": "note", "comment": "hm"}], None,
         "no feedback was given on this turn"),
    ],
)  # fmt: skip
def test_the_score_is_the_share_of_positive_feedback(
    criterion: dict[str, Any], feedback: list[dict[str, Any]], score: float | None, reason: str
) -> None:
    found = outcome(metric(**criterion), *feedback)

    assert (found.score, found.reason) == (score, reason)


@made_once
def landed(folder: Path) -> Path:
    """Land two sessions, of which one turn has no feedback."""
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    for session, answers in (("a", ["A-100 left", "It is late"]), ("b", ["A-100 left"])):
        for answer in answers:
            with recorder.turn(session_id=session, user="Where is it?") as turn:
                turn.respond(answer)
            if answer != "It is late":
                turn.feedback(positive=session == "a", comment=f"said in {session}")
    recorder.feedback("b", score=2, name="stars")
    recorder.close()
    write_log(folder / "log.db", sink.records)
    store = folder / "x.duckdb"
    assert (
        main(["consume", "--log", str(folder / "log.db"), "--db", str(store), "--until-idle"]) == 0
    )
    return store


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store with two sessions, of which one turn has no feedback."""
    monkeypatch.chdir(tmp_path)
    landed(tmp_path)


def scores(name: str) -> list[tuple[str, float | None, str]]:
    with Store("x.duckdb") as store:
        return store.rows(
            "SELECT eval_id, score, status FROM scores WHERE metric_name = $name"
            " QUALIFY row_number() OVER (PARTITION BY eval_id ORDER BY scored_at DESC) = 1 ORDER BY 1",
            {"name": name},
        )


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_landed_feedback_scores_its_turn_and_that_on_a_session_its_last_turn() -> None:
    suite = {
        "metricName": "both",
        "evaluatorName": "metric_suite",
        "threshold": 1,
        "criterion": {"suite": {"metrics": [metric("thumbs")]}},
    }
    stars = metric("stars", name="stars", min=4)
    Path("m.json").write_text(json.dumps([metric(), stars, suite]))

    assert main(["score", "x.duckdb", "--metrics", "m.json"]) == 1

    assert scores("user_feedback") == [("a", 1, "passed"), ("b", 0, "failed")]
    assert scores("stars") == [("a", None, "not_evaluated"), ("b", 0, "failed")]
    assert scores("both") == [("a", 1, "passed"), ("b", 0, "failed")]


def give(*feedback: tuple[str, float]) -> None:
    """Write stars for sessions to the log."""
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    for session, stars in feedback:
        recorder.feedback(session, score=stars, positive=stars > 3, name="stars")
    recorder.close()
    write_log(Path("log.db"), sink.records)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_feedback_that_lands_later_counts_at_the_next_scoring() -> None:
    Path("m.json").write_text(json.dumps([metric("stars", name="stars", min=4)]))
    main(["score", "x.duckdb", "--metrics", "m.json"])
    give(("a", 5), ("b", 5))
    main(["consume", "--log", "log.db", "--db", "x.duckdb", "--until-idle"])

    main(["score", "x.duckdb", "--metrics", "m.json"])

    assert scores("stars") == [("a", 1, "passed"), ("b", 0.5, "failed")]


@pytest.mark.slow
def test_a_consumer_that_runs_scores_feedback_that_lands_after_its_turn() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    for answer in ("It is late", "It left"):
        with recorder.turn(session_id="a", user="Where is it?") as turn:
            turn.respond(answer)
        recorder.flush(10)
    turn.feedback(positive=False)
    recorder.close()
    limits = ConsumerLimits(records_per_batch=1, most_changed=1)
    with Store(":memory:") as store:
        pending = PendingScorer(store, CaseScorer([EvalMetric.model_validate(metric())]))
        consumer = Consumer(MemorySource(sink.records), store, scorer=pending, limits=limits)

        consumer.run(until_idle=True, report=lambda _: None)

        assert store.column("SELECT status FROM scores ORDER BY scored_at")[-1] == "failed"
        (run,) = store.column("SELECT run_id FROM runs")
        (found,) = summarise(store, run_id=run).metrics
        assert (found.failed, found.not_evaluated) == (1, 0)


@pytest.mark.slow
@pytest.mark.usefixtures("here")
def test_a_judge_is_calibrated_with_the_thumbs_of_users(
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = {"id": "n", "type": "contains", "values": ["A-100"]}
    rules = {
        "metricName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [names]}},
    }
    Path("m.json").write_text(json.dumps([rules]))
    main(["score", "x.duckdb", "--metrics", "m.json"])
    capsys.readouterr()
    calibrate = ["calibrate", "--labels-from", "feedback", "--metrics", "m.json", "--json"]

    assert main([*calibrate, "--db", "x.duckdb"]) == 3

    (found,) = json.loads(capsys.readouterr().out)["calibrations"]
    table = found["table"]
    assert (table["both_pass"], table["false_pass"], sum(table.values())) == (1, 1, 2)
    for wrong, said in [
        ([*calibrate, "--cases", "c.jsonl"], "needs --db"),
        ([*calibrate, "labels.csv", "--db", "x.duckdb"], "give either LABELS or --labels-from"),
        (["calibrate", "--metrics", "m.json", "--db", "x.duckdb"], "give either LABELS or"),
    ]:
        assert main(wrong) == 2
        assert said in capsys.readouterr().err
