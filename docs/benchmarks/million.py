"""A store with many turns, for the benchmarks that read one: made by SQL, as long as a minute for a million.

Sessions of two turns that overlap with others, ids at random, thirty intents with four tools at most a turn,
two metrics, one complaint in a hundred turns; the last turn began just now, the first thirty days before.

    python docs/benchmarks/million.py PATH [--turns 1000000]
"""

import argparse
import json
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from evaltap.cli.main import main as evaltap
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder

_MADE = """
SELECT setseed(0.4);
CREATE TEMP TABLE made AS
SELECT i, 's-' || left(md5('session ' || (i // 74 * 37 + i % 37)), 12) AS session,
       't-' || left(md5('turn ' || i), 12) AS turn, i % 74 // 37 AS place,
       now()::TIMESTAMP - to_seconds(({turns} - i) * 2592000.0 / {turns}) AS began,
       (i * 7919) % 30 AS intent, random() AS r,
       'Hello, my order A-' || i || ' about topic ' || (i * 7919) % 30 || ' is late, number ' || (i % 997)
         || '. I have been waiting for some days and would like to know when the parcel arrives.' AS asked,
       'I have looked at order A-' || i || ': it left the warehouse and is on its way. Answer '
         || (i * 7919) % 30 || '. Is there anything else that I can do for you today?' AS answered
FROM range({turns}) t(i);
CREATE TEMP TABLE metrics AS
SELECT run_id, metric_name AS metric, metric_digest AS digest FROM run_metrics;
CREATE TEMP TABLE calls AS
SELECT i, k, 'tool_' || ((intent + k) % 25) AS tool_name,
       '{{"order": "A-' || i || '", "topic": ' || intent || '}}' AS arguments,
       '{{"ok": true, "order": "A-' || i || '", "state": "on its way", "items": [1, 2, 3]}}' AS result,
       if(r < 0.02 AND k = 0, 'Timeout', NULL) AS error_type, 20 + 100 * r AS duration_ms
FROM made, range(intent % 4) u(k);
CREATE TEMP TABLE tools AS
SELECT i, string_agg('{{"id": "c-' || k || '", "name": "' || tool_name || '", "arguments": ' || arguments
         || ', "result": ' || result || '}}', ', ' ORDER BY k) AS tools
FROM calls GROUP BY i;
CREATE TEMP TABLE texts AS
SELECT i, '{{"invocationId": "' || turn || '", "userContent": {{"role": "user", "content": "' || asked
         || '"}}, "finalResponse": {{"role": "assistant", "content": "' || answered || '"}}, "tools": ['
         || coalesce(tools, '') || '], "telemetry": {{"status": "' || if(r < 0.01, 'error', 'ok')
         || '"}}}}' AS actual_json
FROM made LEFT JOIN tools USING (i);
"""

# Times in a file never go back, so the first case, which landed now, moves to the front.
_LANDED = """
UPDATE turns SET landed_at = now()::TIMESTAMP - INTERVAL 31 DAY;
UPDATE cases SET landed_at = now()::TIMESTAMP - INTERVAL 31 DAY;
INSERT INTO turns BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, turn AS invocation_id,
       1 AS turn_revision, began AS started_at, if(r < 0.01, 'error', 'ok') AS status,
       asked AS user_text, answered AS final_text, intent % 4 AS tool_count,
       ['m-' || i % 3] AS models, 900 AS input_tokens, 140 AS output_tokens, 0.002 * r AS cost_usd,
       1000 * r + 200 AS latency_ms, if(r < 0.01, 'Timeout', NULL) AS error_type,
       if(r > 0.98, '{{"finalResponse": "truncated"}}', NULL)::JSON AS capture,
       'tr-' || i AS trace_id, actual_json, actual_json AS expected_json, 'e-' || i AS event_id,
       'p' AS producer_id, i + 1 AS seq, i + 2 AS landed_seq, began + INTERVAL 3 SECOND AS landed_at,
       'v' || i * 5 // {turns} AS version, 'production' AS environment, ['a', 'b-' || i % 4] AS tags
FROM made JOIN texts USING (i) ORDER BY i;
INSERT INTO cases BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, place + 1 AS revision,
       place + 1 AS turn_count, 'u-' || (i // 74 * 37 + i % 37) % 1000 AS user_id, 'svc' AS service,
       '{{"evalId": "' || session || '", "evalSetId": "live", "evalMode": "trace", "sessionInput": '
         || '{{"appName": "shop"}}}}' AS case_json,
       began + INTERVAL 3 SECOND AS landed_at
FROM made ORDER BY i;
INSERT INTO tool_calls BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, turn AS invocation_id,
       1 AS turn_revision, k AS call_index, 'c-' || k AS call_id, tool_name, arguments::JSON AS arguments,
       result::JSON AS result, error_type, duration_ms
FROM calls JOIN made USING (i) ORDER BY i, k;
INSERT INTO turn_scores BY NAME
SELECT md5(turn || metric) AS score_id, run_id, 'shop' AS app_name, 'live' AS eval_set_id,
       session AS eval_id, turn AS invocation_id, place AS turn_index, 1 AS turn_revision,
       metric AS metric_name, if(r < 0.05, 0, 1) AS score, {status_of_r} AS status,
       1 AS threshold, if(r < 0.05, 'tool_' || intent || ' was not called', NULL) AS reason,
       digest AS metric_digest, began + INTERVAL 4 SECOND AS scored_at
FROM made, metrics ORDER BY i;
INSERT INTO scores BY NAME
SELECT md5(session || metric || place) AS score_id, run_id, 'shop' AS app_name,
       'live' AS eval_set_id, session AS eval_id, place + 1 AS revision, metric AS metric_name,
       if(lowest < 0.05, 0, 1) AS score, {status_of_lowest} AS status,
       1 AS threshold, if(lowest < 0.05, 'a call is missing', NULL) AS reason, 'e' AS evaluator_name,
       '1' AS evaluator_version, digest AS metric_digest, place + 1 AS turn_count,
       began + INTERVAL 4 SECOND AS scored_at
FROM (SELECT *, min(r) OVER (PARTITION BY session ORDER BY place) AS lowest FROM made),
     metrics ORDER BY i;
INSERT INTO feedback BY NAME
SELECT 'shop' AS app_name, 'live' AS eval_set_id, session AS eval_id, turn AS invocation_id,
       'f-' || i AS feedback_id, 'thumbs' AS name, r > 0.5 AS positive, 'p' AS producer_id,
       began AS given_at, began + INTERVAL 3 SECOND AS landed_at
FROM made WHERE i % 50 = 0;
INSERT INTO consumed_ranges BY NAME
SELECT 'p' AS producer_id, 1 AS first_seq, {turns} AS last_seq, now()::TIMESTAMP AS landed_at;
DROP TABLE metrics; DROP TABLE texts; DROP TABLE tools; DROP TABLE calls; DROP TABLE made;
CHECKPOINT;
"""


METRICS = [
    {"metricName": "trajectory_no_loop", "threshold": 1, "criterion": {"trajectory": {}}},
    {
        "metricName": "trajectory_max_calls",
        "threshold": 1,
        "criterion": {"trajectory": {"maxCalls": 9}},
    },
]
_STATUS = "if({value} < 0.01, 'crashed', if({value} < 0.05, 'failed', 'passed'))"


def make_store(path: Path, turns: int) -> Path:
    """Make the store, unless it is there; `consume` with METRICS has nothing to score in it."""
    if path.exists():
        return path
    with TemporaryDirectory() as folder:
        # A run begins with its first case.
        with (
            closing(Recorder(f"{folder}/log.db", app_name="first")) as recorder,
            recorder.turn(session_id="first", user="hello") as turn,
        ):
            turn.respond("Hello.")
        metrics = Path(folder) / "metrics.json"
        metrics.write_text(json.dumps(METRICS))
        evaltap(["consume", "--log", f"{folder}/log.db", "--db", str(path), "--metrics", str(metrics),
                 "--until-idle", "--json"])  # fmt: skip
    statuses = {name: _STATUS.format(value=name) for name in ("r", "lowest")}
    with Store(path) as store:
        store.execute(
            (_MADE + _LANDED).format(
                turns=turns, status_of_r=statuses["r"], status_of_lowest=statuses["lowest"]
            )
        )
    return path


def main() -> None:
    """Make it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path", type=Path)
    parser.add_argument("--turns", type=int, default=1_000_000)
    options = parser.parse_args()
    print(make_store(options.path, options.turns))


if __name__ == "__main__":
    main()
