"""Scores of sampled traffic speak of all the traffic, whatever the rules kept more of."""

from pathlib import Path

import pytest

from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.recorder.sampling.rules import parse_outcome_rules
from evaltap.recorder.sampling.sampler import OutcomeSampler
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import make_case, make_records, make_turn, write_log

TURNS = 6_000
RULE = '[{"name": "long", "keep": 1, "field": {"path": "turn.telemetry.outputTokens", "over": 90}}]'
METRIC = {
    "metricName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "yes", "type": "contains", "values": ["yes"]}]}},
}


@pytest.mark.slow
def test_the_estimated_pass_rate_is_that_of_all_turns(tmp_path: Path) -> None:
    sampler = OutcomeSampler(0.2, parse_outcome_rules(RULE))
    kept, passing = [], 0
    for number in range(TURNS):
        # Long answers are kept always, and seven in ten of them fail; of the others, one in ten does.
        long = number % 10 == 0
        good = number % 100 >= 70 if long else number % 7 > 0
        passing += good
        case = make_case(
            f"session {number}",
            [
                make_turn(
                    answer="yes" if good else "no", telemetry={"outputTokens": 99 if long else 9}
                )
            ],
        )
        decision = sampler.decide(case)
        if decision.kept:
            source = {
                "samplingReason": decision.reason,
                "inclusionProbability": decision.probability,
            }
            kept.append({**case, "source": source})
    log = write_log(tmp_path / "log.db", make_records(kept))

    with Store(tmp_path / "x.duckdb") as store:
        scorer = PendingScorer(store, CaseScorer([EvalMetric.model_validate(METRIC)]))
        Consumer(LocalLogSource(log), store, scorer=scorer).run(
            until_idle=True, report=lambda _: None
        )
        ((found,), _) = estimate_rates(store)
        ((by_rule,),) = store.rows("SELECT turns FROM v_sampling WHERE reason = 'long'")

    truth = passing / TURNS
    estimated, rate = found.estimate, found.rate
    assert estimated is not None
    assert rate is not None
    assert (rate.n, by_rule) == (len(kept), TURNS // 10)
    assert estimated.estimated_turns == pytest.approx(TURNS, rel=0.06)
    assert rate.value == pytest.approx(truth, abs=0.025)
    assert abs((found.sample_rate or 0) - truth) > 0.1, "the sample alone would mislead"
    assert rate.n / 2 < rate.effective_n < rate.n
