"""A sink and workers over a real broker: the rows of one process, whatever happens to whom."""

import json
from pathlib import Path
from typing import Any

import pytest

from broker import Broker
from cases import RESPONSE, TRAJECTORY
from judge_server import Answer, judge_server
from scale_out import record_sessions, rubric, scale_out

pytestmark = pytest.mark.timeout(120)

# Everything but times: what workers scored must be what one process would have scored.
TABLES = {
    "scores": "* EXCLUDE (scored_at)",
    "turn_scores": "* EXCLUDE (scored_at)",
    "rubric_votes": "* EXCLUDE (scored_at)",
    "judge_calls": "* EXCLUDE (scored_at, latency_ms)",
}
EVERYTHING = "free,local_model,paid_judge"


def by_answer(body: dict[str, Any]) -> Answer:
    """Judge by the agent's words, which are somewhere in the prompt."""
    score = 0 if "no idea" in str(body) else 1
    return Answer(json.dumps({"rubricScores": [{"id": "1", "score": score, "reason": "because"}]}))


@pytest.mark.parametrize("send", ["local_model,paid_judge", EVERYTHING])
def test_workers_leave_the_rows_that_one_process_leaves(
    broker: Broker, tmp_path: Path, send: str
) -> None:
    record_sessions(broker, 30)
    with judge_server(by_answer) as judge:
        metrics = [TRAJECTORY, RESPONSE, rubric(judge.url, samples=3)]
        with scale_out(broker, tmp_path, metrics) as fleet:
            worker = fleet.work()
            assert fleet.sink("--send", send).wait() == 1
            assert worker.stop() == 0
            assert fleet.consume(tmp_path / "one.duckdb").wait() == 1

            assert worker.told["jobs"] == 30
            for table, columns in TABLES.items():
                query = f"SELECT {columns} FROM {table} ORDER BY ALL"
                expected = fleet.query(query, tmp_path / "one.duckdb")
                assert fleet.query(query) == expected, table
                assert expected
