"""`state_match` on recorded traffic: what `turn.set_state` recorded is what is compared."""

from typing import Any

import pytest

from evaltap.evaluator import evaluate_case
from evaltap.recorder import MemorySink, Recorder


@pytest.mark.parametrize(
    ("left", "status", "score"),
    [({"returned": ["A"]}, "passed", 1.0), ({"returned": []}, "failed", 0.0), (None, "not_evaluated", None)],
)  # fmt: skip
def test_the_state_after_a_recorded_turn_is_scored(left: Any, status: str, score: Any) -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(session_id="s", user="Return A.", app_name="shop", user_id="u") as turn:
        turn.respond("Done.")
        if left is not None:
            turn.set_state(left)
    recorder.close()
    (case,) = sink.cases
    (actual,) = case["actualConversation"]
    wanted = {**actual, "state": {"returned": ["A"]}}
    metric = {"metricName": "state_match", "threshold": 1, "criterion": {"trajectory": {}}}

    result = evaluate_case({**case, "conversation": [wanted]}, [metric])

    (metric_result,) = result.overall_eval_metric_results
    assert metric_result.eval_status == status
    if score is not None:
        assert metric_result.score == score
