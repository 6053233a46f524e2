"""Rules that select the turns of live traffic to score: fewer judge calls, unbiased estimates."""

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.pipeline.batch.sampling import draw_of
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.scoring.judge_session import JudgeSession, JudgeSettings
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.recorder.sampling.sampler import position
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.monitor import ScoreRule
from support.builders.cases import RESPONSE, RUBRIC, make_case, make_records, make_turn, write_log
from support.builders.commands import Evaltap
from support.proofs.estimate_oracle import Oracle
from support.servers.judge_server import Answer, JudgeServer, judge_server
from support.servers.page_server import served

SESSIONS, TURNS = 150, 4
METRICS = [
    RESPONSE | {"metricName": "said", "evaluatorName": "final_response_avg_score"},
    RUBRIC | {"metricName": "helpful", "evaluatorName": "llm_rubric_response"},
]


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch) -> Iterator[JudgeServer]:
    def by_answer(body: dict[str, Any]) -> Answer:
        score = 0 if "no idea" in str(body) else 1
        rows = [{"id": "1", "score": score, "reason": "because"}]
        return Answer(json.dumps({"rubricScores": rows}))

    with judge_server(by_answer) as server:
        monkeypatch.setenv("EVALTAP_JUDGE_BASE_URL", server.url)
        monkeypatch.setenv("EVALTAP_JUDGE_API_KEY", "k")
        monkeypatch.setenv("EVALTAP_JUDGE_CACHE", "off")
        yield server


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    """Run a command in a folder with a cheap metric, `said`, and a judged one, `helpful`."""
    Path("m.json").write_text(json.dumps(METRICS))
    return evaltap


def session(number: int, source: random.Random, turns: int = TURNS) -> list[dict[str, Any]]:
    """Return the turns of a session, one record each; a fifth is wrong."""
    name = f"s-{number}"
    found = []
    for turn in range(turns):
        wrong = source.random() < 0.2
        made = make_turn(f"t-{turn}", "no idea" if wrong else "done")
        made["creationTimestamp"] = 1_790_000_000 + 3600 * number + turn
        case = make_case(name, [made], conversation=[make_turn(f"t-{turn}")])
        case["sessionInput"]["appName"] = "shop" if number % 2 else "desk"
        found.append(case)
    return found


def land(sessions: int = SESSIONS, turns: int = TURNS) -> None:
    source = random.Random(3)
    cases = [case for number in range(sessions) for case in session(number, source, turns)]
    write_log(Path("t.log.db"), make_records(cases))


def consume(
    evaltap: Evaltap, *rules: dict[str, Any], more: Sequence[str] = ()
) -> tuple[int, str, str]:
    given: Sequence[str] = ()
    if rules:
        Path("rules.json").write_text(json.dumps({"score": rules}))
        given = ("--monitor", "rules.json")
    return evaltap("consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
                   "--until-idle", *given, *more)  # fmt: skip


def rows(query: str) -> list[tuple[Any, ...]]:
    with Store("t.duckdb") as store:
        return store.rows(query)


def rule(rate: float, **more: Any) -> dict[str, Any]:
    return {"name": "judged", "metrics": ["helpful"], "rate": rate, **more}


@pytest.mark.slow
def test_only_drawn_turns_are_judged_and_the_estimate_speaks_of_all(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land()
    consume(evaltap, rule(0.25))

    ((scored,),) = rows("SELECT count(*) FROM turn_scores WHERE metric_name = 'helpful'")
    every = rows("SELECT count(*), avg((final_text = 'done')::INT) FROM turns")[0]
    assert len(judge.requests) == scored
    assert 0.17 < scored / every[0] < 0.33
    assert rows("SELECT count(*) FROM turn_scores WHERE metric_name = 'said'")[0] == (every[0],)
    drawn = {
        (name, turn): draw_of(name, turn) < 0.25
        for name, turn in rows("SELECT eval_id, invocation_id FROM turns")
    }
    found = rows("SELECT eval_id, invocation_id FROM turn_scores WHERE metric_name = 'helpful'")
    assert {*found} == {key for key, taken in drawn.items() if taken}

    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--metric", "helpful", "--json")[1])
    assert rate["low"] <= every[1] <= rate["high"]
    assert rate["turns"] == scored
    assert rate["estimated_turns"] == pytest.approx(4 * scored)
    assert (rate["covered"], rate["not_counted"]) == (1.0, 0.0)


@pytest.mark.slow
def test_a_turn_that_was_left_out_says_why(evaltap: Evaltap, judge: JudgeServer) -> None:
    land()
    consume(evaltap, rule(0.1))
    whole = rows("SELECT eval_id FROM sampling_decisions GROUP BY 1 "
                 "HAVING bool_and(decision = 'skip') LIMIT 1")[0][0]  # fmt: skip
    part = rows("SELECT eval_id FROM sampling_decisions GROUP BY 1 "
                "HAVING count(*) FILTER (decision = 'score') = 1 LIMIT 1")[0][0]  # fmt: skip

    code, out, _ = evaltap("why", "t.duckdb", whole)
    assert code == 3
    assert "helpful: not_scored: rule judged, sampled out at rate 0.1" in out
    _, out, _ = evaltap("why", "t.duckdb", part)
    assert "helpful: 3 turns not scored: rule judged, sampled out at rate 0.1" in out


@pytest.mark.slow
def test_starting_again_judges_nothing_twice_and_nothing_that_was_left_out(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land()
    consume(evaltap, rule(0.2))
    asked, decided = len(judge.requests), rows("SELECT count(*) FROM sampling_decisions")

    consume(evaltap, rule(0.2))
    consume(evaltap)  # without rules what was left out stays so: weights go on to hold
    evaltap("score", "t.duckdb", "--metrics", "m.json")

    assert len(judge.requests) == asked
    assert rows("SELECT count(*) FROM sampling_decisions") == decided


@pytest.mark.slow
def test_a_complaint_that_lands_later_has_its_turn_judged(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    heeds = rule(0.25, always=[{"negativeFeedback": True}])
    land(12)
    consume(evaltap, heeds)
    left_out, told = (
        rows(f"SELECT min(eval_id) FROM (SELECT eval_id, invocation_id, count(*) FILTER (decision = 'score')"
             f" OVER (PARTITION BY eval_id) AS n FROM sampling_decisions) WHERE n = {n}")[0][0]
        for n in (0, 1)
    )  # fmt: skip
    judged = "SELECT eval_id, count(*) FROM turn_scores WHERE metric_name = 'helpful' GROUP BY 1 ORDER BY 1"
    before, decided = dict(rows(judged)), rows("SELECT count(*) FROM sampling_decisions")[0][0]
    recorder = Recorder("t.log.db", app_name="")
    ((turn,),) = rows(
        "SELECT min(invocation_id) FROM sampling_decisions"
        f" WHERE eval_id = '{told}' AND decision = 'skip'"
    )
    recorder.feedback(told, turn=turn, positive=False)
    recorder.feedback(left_out, positive=False)
    recorder.close()

    consume(evaltap, heeds)

    assert dict(rows(judged)) == before | {told: before[told] + 1, left_out: 1}
    asked = len(judge.requests)
    consume(evaltap, heeds)
    assert len(judge.requests) == asked == sum(before.values()) + 2
    assert rows("SELECT count(*) FROM sampling_decisions")[0][0] <= decided + 2 * TURNS


@pytest.mark.slow
def test_a_complaint_that_lands_later_changes_the_weight_of_a_scored_turn_too(
    evaltap: Evaltap,
) -> None:
    Path("m.json").write_text(json.dumps(METRICS[:1]))
    heeds = rule(0.3, metrics=["said"], always=[{"negativeFeedback": True}])
    land(100, 1)
    consume(evaltap, heeds)
    wrong = [name for (name,) in rows("SELECT eval_id FROM turns WHERE final_text <> 'done'")]
    drawn = sum(draw_of(f"s-{number}", "t-0") < 0.3 for number in range(100))
    drawn_wrong = sum(draw_of(name, "t-0") < 0.3 for name in wrong)
    with Recorder("t.log.db", app_name="") as recorder:
        for name in wrong:
            recorder.feedback(name, turn="t-0", positive=False)

    consume(evaltap, heeds)

    assert 0 < drawn_wrong < len(wrong)
    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--json")[1])
    passes = (drawn - drawn_wrong) / 0.3
    assert rate["estimated_turns"] == pytest.approx(passes + len(wrong))
    assert rate["rate"] == pytest.approx(passes / (passes + len(wrong)))
    decided = rows("SELECT count(*) FROM sampling_decisions")
    consume(evaltap, heeds)
    assert rows("SELECT count(*) FROM sampling_decisions") == decided


@pytest.mark.slow
def test_rules_decide_on_cases_that_need_more_memory_than_a_consumer_has(evaltap: Evaltap) -> None:
    land(100)
    evaltap("consume", "--log", "t.log.db", "--db", "t.duckdb", "--until-idle")
    said = CaseScorer([EvalMetric.model_validate(METRICS[0])])
    judged = ScoreRule.model_validate(rule(0.5, metrics=["said"]))

    with Store("t.duckdb") as store, store.limited_memory(16):
        pending = PendingScorer(store, said, rules=[judged])
        pending.score("landed", "t.duckdb")

    assert rows("SELECT count(*) FROM sampling_decisions") == [(100 * TURNS,)]


@pytest.mark.slow
def test_a_session_that_goes_on_keeps_its_draws(evaltap: Evaltap, judge: JudgeServer) -> None:
    source = random.Random(3)
    cases = [case for number in range(60) for case in session(number, source)]
    early = [case for case in cases if case["actualConversation"][0]["invocationId"] < "t-2"]
    late = [case for case in cases if case["actualConversation"][0]["invocationId"] >= "t-2"]
    write_log(Path("t.log.db"), make_records(early))
    consume(evaltap, rule(0.3))
    write_log(Path("t.log.db"), make_records(late, first_seq=len(early) + 1))
    consume(evaltap, rule(0.3))

    found = rows(
        "SELECT DISTINCT eval_id, invocation_id FROM turn_scores WHERE metric_name = 'helpful'"
    )
    assert {*found} == {
        (f"s-{number}", f"t-{turn}")
        for number in range(60)
        for turn in range(4)
        if draw_of(f"s-{number}", f"t-{turn}") < 0.3
    }
    assert len(judge.requests) == len(found)


@pytest.mark.slow
def test_a_turn_keeps_its_draw_when_a_rule_with_another_unit_takes_over(evaltap: Evaltap) -> None:
    Path("m.json").write_text(json.dumps(METRICS[:1]))
    source = random.Random(3)
    cases = [case for number in range(60) for case in session(number, source, 2)]
    first = [{**rule(0.4, unit="session"), "metrics": ["said"]}]
    write_log(Path("t.log.db"), make_records(cases[::2]))
    consume(evaltap, *first)
    write_log(Path("t.log.db"), make_records(cases[1::2], first_seq=61))
    consume(evaltap, *first, {"name": "more", "metrics": ["said"], "rate": 0.7})

    scored = rows("SELECT eval_id, invocation_id FROM turn_scores ORDER BY ALL")
    assert scored == rows(
        "SELECT eval_id, invocation_id FROM latest_decisions WHERE decision = 'score' ORDER BY ALL"
    )
    assert rows("SELECT invocation_id, unit, any_value(probability) FROM latest_decisions GROUP BY 1, 2 "
                "ORDER BY 1") == [("t-0", "session", 0.7), ("t-1", "turn", 0.7)]  # fmt: skip
    assert {(name, "t-0") for name in {name for name, _ in scored} if draw_of(name) < 0.7} <= {
        *scored
    }


@pytest.mark.slow
def test_a_session_is_one_draw_where_the_rule_says_so(evaltap: Evaltap, judge: JudgeServer) -> None:
    land()
    consume(evaltap, rule(0.25, unit="session"))

    counted = rows(
        "SELECT eval_id, count(*) FROM turn_scores WHERE metric_name = 'helpful' GROUP BY 1"
    )
    assert {count for _, count in counted} == {TURNS}
    assert {name for name, _ in counted} == {
        f"s-{number}" for number in range(SESSIONS) if draw_of(f"s-{number}") < 0.25
    }


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["turn", "session"])
def test_the_interval_of_this_traffic_knows_whether_turns_or_sessions_were_drawn(
    evaltap: Evaltap, unit: str
) -> None:
    said = RESPONSE | {"metricName": "said", "evaluatorName": "final_response_avg_score"}
    Path("m.json").write_text(json.dumps([said]))
    land(60)
    consume(evaltap, {"name": "some", "metrics": ["said"], "rate": 0.4, "unit": unit})

    scored = rows("SELECT eval_id, status = 'passed' FROM turn_scores ORDER BY eval_id")
    names, passed = zip(*scored, strict=True)
    ones = [1.0] * len(scored)
    oracle = Oracle(names, ones, [0.4] * len(scored), passed, by_turn=unit == "turn")
    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--json")[1])
    assert (rate["low"], rate["high"]) == pytest.approx(oracle.process, abs=1e-6)
    assert (rate["traffic_low"], rate["traffic_high"]) == pytest.approx(oracle.traffic, abs=1e-6)


@pytest.mark.slow
def test_the_costly_metric_looks_only_where_the_cheap_one_failed(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land()
    consume(evaltap, rule(0.0, always=[{"failed": "said"}]))

    failed = "SELECT eval_id, invocation_id FROM turn_scores WHERE metric_name = 'said' AND status = 'failed'"
    judged = "SELECT eval_id, invocation_id FROM turn_scores WHERE metric_name = 'helpful'"
    assert {*rows(judged)} == {*rows(failed)}
    assert len(judge.requests) == len(rows(failed))
    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--metric", "helpful", "--json")[1])
    assert "uncovered" in rate["flags"]
    assert rate["covered"] == pytest.approx(len(rows(failed)) / (SESSIONS * TURNS), abs=0.001)


@pytest.mark.slow
def test_a_metric_that_looks_where_another_failed_waits_for_it_over_several_rules(
    evaltap: Evaltap,
) -> None:
    names = ("third", "second", "said")
    Path("m.json").write_text(json.dumps([{**METRICS[0], "metricName": name} for name in names]))
    land(10, 1)
    consume(
        evaltap,
        rule(0.0, metrics=["third"], always=[{"failed": "second"}]),
        rule(0.0, name="then", metrics=["second"], always=[{"failed": "said"}]),
    )

    failed = "SELECT count(*) FROM turn_scores WHERE status = 'failed' GROUP BY metric_name"
    assert rows(failed) == [rows(failed)[0]] * 3


@pytest.mark.slow
def test_rules_with_conditions_are_nested_and_weighted(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land()
    consume(
        evaltap,
        rule(0.1, always=[{"failed": "said"}]),
        {"name": "desk", "metrics": ["helpful"], "rate": 0.5, "where": {"app": "desk"}},
    )

    found = rows("""
        SELECT d.app_name, s.status = 'failed', any_value(probability), count(DISTINCT probability)
        FROM sampling_decisions d JOIN turn_scores s
          USING (app_name, eval_set_id, eval_id, invocation_id)
        WHERE s.metric_name = 'said' GROUP BY 1, 2 ORDER BY 1, 2""")
    assert found == [
        ("desk", False, 0.5, 1), ("desk", True, 1.0, 1), ("shop", False, 0.1, 1), ("shop", True, 1.0, 1),
    ]  # fmt: skip
    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--metric", "helpful", "--json")[1])
    true, unweighted = 0.8, rate["sample_rate"]
    assert rate["low"] <= true <= rate["high"]
    assert unweighted < 0.6, "without weights this test would pass, too"


@pytest.mark.slow
def test_a_report_weights_the_scores_of_a_rule_as_the_estimate_does(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land(60, 2)
    consume(evaltap, rule(0.2, always=[{"failed": "said"}]))

    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--metric", "helpful", "--json")[1])
    report = json.loads(evaltap("report", "t.duckdb", "--json")[1])

    (helpful,) = [one for one in report["metrics"] if one["metric_name"] == "helpful"]
    assert helpful["pass_rate"] == pytest.approx(rate["rate"])
    assert helpful["interval"] == pytest.approx([rate["low"], rate["high"]])
    assert helpful["pass_rate"] > helpful["sample_pass_rate"] + 0.1
    assert helpful["case_pass_rate"] is report["passing_rate"] is None, "cases have no weight"
    with served(Path("t.duckdb"), Path.cwd()) as page:
        assert "estimated from a sample" in page.ask("/", role="admin").text


@pytest.mark.slow
def test_a_budget_that_is_spent_leaves_turns_uncovered_and_says_so(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land()
    consume(evaltap, rule(1.0, budget={"callsPerDay": 100}))

    assert len(judge.requests) == 100
    assert rows("SELECT DISTINCT decision, reason FROM sampling_decisions ORDER BY 1") == [
        ("score", "rate"), ("uncovered", "budget"),
    ]  # fmt: skip
    (rate,) = json.loads(evaltap("estimate", "t.duckdb", "--metric", "helpful", "--json")[1])
    assert rate["covered"] == pytest.approx(100 / (SESSIONS * TURNS))
    assert "uncovered" in rate["flags"]
    note = "helpful: 83.3% of the turns had no chance of being recorded and scored"
    assert note in evaltap("estimate", "t.duckdb")[2]
    assert note in evaltap("report", "t.duckdb")[1]
    case = rows("SELECT eval_id FROM sampling_decisions WHERE decision = 'uncovered' "
                "GROUP BY 1 HAVING count(*) = 4 LIMIT 1")[0][0]  # fmt: skip
    assert "its daily budget was spent" in evaltap("why", "t.duckdb", case)[1]

    before = len(judge.requests)
    consume(evaltap, rule(1.0, budget={"callsPerDay": 100}))
    assert len(judge.requests) == before


@pytest.mark.slow
def test_each_of_two_rules_for_one_metric_has_a_budget_of_its_own(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land(60)
    shares = [rule(1.0, where={"app": app}, budget={"callsPerDay": calls}) | {"name": app}
              for app, calls in (("shop", 20), ("desk", 50))]  # fmt: skip
    for _ in range(2):
        consume(evaltap, *shares)

    asked = "SELECT app_name, count(*) FROM judge_calls GROUP BY ALL ORDER BY ALL"
    assert rows(asked) == [("desk", 50), ("shop", 20)]


@pytest.mark.slow
def test_a_budget_counts_each_turn_once_while_its_session_goes_on(judge: JudgeServer) -> None:
    metrics = [EvalMetric.model_validate(one) for one in METRICS]
    limited = ScoreRule.model_validate(
        rule(1.0, metrics=["said", "helpful"], budget={"callsPerDay": 30})
    )
    source = random.Random(3)
    sessions = [make_records(session(number, source)) for number in range(10)]
    with Store(":memory:") as store, JudgeSession(JudgeSettings()) as judges:
        scorer = CaseScorer(metrics, services=judges.services(metrics))
        pending, lander = PendingScorer(store, scorer, rules=[limited]), Lander(store)
        for turn in range(TURNS):
            records = [
                SourceRecord(Partition("log"), TURNS * number + turn, one[turn])
                for number, one in enumerate(sessions)
            ]
            lander.land(SourceBatch(tuple(records)))
            pending.score("live", "log", changed=lander.take_changed())

    assert 29 <= len(judge.requests) <= 30, "the last turn may be scored by one metric only"


@pytest.mark.slow
def test_a_budget_in_usd_is_kept_on_the_first_day(
    evaltap: Evaltap, judge: JudgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_JUDGE_PRICE_INPUT", "1e6")
    monkeypatch.setenv("EVALTAP_JUDGE_PRICE_OUTPUT", "0")
    land(40, 1)
    consume(evaltap, rule(1.0, budget={"usdPerDay": 11 * 15}))

    assert len(judge.requests) == 15, "each costs 11 USD"


def test_a_budget_in_usd_needs_prices(evaltap: Evaltap, judge: JudgeServer) -> None:
    land(1, 1)
    code, _, error = consume(evaltap, rule(1.0, budget={"usdPerDay": 5}))

    assert (code, judge.requests) == (2, [])
    assert "score[0] 'judged': `usdPerDay` needs prices, and those of judge" in error
    assert consume(evaltap, rule(1.0, metrics=["said"], budget={"usdPerDay": 5}))[0] == 0


@pytest.mark.slow
def test_an_hour_is_planned_by_the_turns_that_the_rule_decides_on(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land(20, 1)
    desk = {"where": {"app": "desk"}}
    consume(evaltap, rule(1.0, **desk))
    with Store("t.duckdb") as store:
        for table, column in (
            ("turns", "landed_at"), ("judge_calls", "scored_at"), ("sampling_decisions", "decided_at"),
        ):  # fmt: skip
            store.execute(f"UPDATE {table} SET {column} = date_trunc('day', now()::TIMESTAMP)"
                          " - INTERVAL 1 MINUTE")  # fmt: skip
    records = make_records([case for n in range(100, 110) for case in session(n, random.Random(4), 1)],
                           first_seq=10_001)  # fmt: skip
    write_log(Path("t.log.db"), records)
    consume(evaltap, rule(1.0, budget={"callsPerDay": 5}, **desk))

    # Ten of the twenty turns until midnight are of the desk, and five calls may be made.
    assert rows(
        "SELECT DISTINCT probability FROM sampling_decisions WHERE eval_id LIKE 's-10_'"
        " AND app_name = 'desk' AND reason = 'rate'"
    ) == [(0.5,)]


@pytest.mark.slow
def test_an_hour_is_planned_by_the_same_hours_of_the_days_before(
    evaltap: Evaltap, judge: JudgeServer
) -> None:
    land(50)
    consume(evaltap, rule(1.0))
    asked = len(judge.requests)
    with Store("t.duckdb") as store:
        for table, column in (("turns", "landed_at"), ("judge_calls", "scored_at")):
            store.execute(f"UPDATE {table} SET {column} = date_trunc('day', now()::TIMESTAMP)"
                          " - INTERVAL 1 MINUTE")  # fmt: skip
    source = random.Random(4)
    cases = [case for number in range(1_000, 1_050) for case in session(number, source)]
    write_log(Path("t.log.db"), make_records(cases, first_seq=10_001))
    consume(evaltap, rule(1.0, budget={"callsPerDay": 50}))

    # 200 turns are expected until midnight, and 50 calls may be made: a quarter of them.
    found = rows(
        "SELECT DISTINCT probability FROM sampling_decisions WHERE eval_id LIKE 's-10__'"
        " AND decision <> 'uncovered'"
    )
    assert found == [(0.25,)]
    assert 0 < len(judge.requests) - asked <= 50


def test_the_draw_is_not_the_recorders() -> None:
    names = [f"s-{number}" for number in range(4_000)]
    kept = [name for name in names if position(name) < 0.1]

    again = sum(draw_of(name) < 0.1 for name in kept) / len(kept)

    assert 0.06 < again < 0.15, "a tenth of a tenth is a hundredth"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"metrics": ["helpfull"]}, "did you mean 'helpful'?"),
        ({"metrics": []}, "no `metrics`"),
        ({"rates": 0.5}, "did you mean 'rate'?"),
        ({"rate": 1.5}, "less than or equal to 1"),
        ({"unit": "sesion"}, "did you mean 'session'?"),
        ({"always": [{"eror": True}]}, "did you mean 'error'?"),
        ({"always": [{}]}, "is empty"),
        ({"always": [{"failed": "helpful"}]}, "depends on itself"),
        ({"where": {"ap": "shop"}}, "did you mean 'app'?"),
        ({"budget": {}}, "has no limit"),
        ({"name": ""}, "expected a unique, non-empty name"),
    ],
)
def test_rules_that_make_no_sense_are_refused(
    evaltap: Evaltap, given: dict[str, Any], message: str
) -> None:
    land(1)
    code, _, error = consume(evaltap, {**rule(0.5), **given})

    assert code == 2
    assert message in error
