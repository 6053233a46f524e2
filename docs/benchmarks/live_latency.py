"""How late a score is, from the end of a turn in the agent to the stored score, and what `consume` costs.

A recorder in this process writes turns at a fixed rate through its spool to a broker; `evaltap consume` reads
the topic and scores with two deterministic metrics.  Measured is from the end of the turn to `scored_at`, the
moment at which the transaction with the score is begun.

    python docs/benchmarks/live_latency.py [--seconds 30] [--rate 200]

The broker is the development dependency noida-db, or the cluster of EVALTAP_TEST_KAFKA=host:port.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import UTC
from pathlib import Path

import duckdb
from kafka_throughput import broker
from resident import processor_seconds
from score_files import EVALTAP, METRICS

from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.recorder import Recorder
from evaltap.schemas.log.location import KafkaLocation

WARM_UP_SECONDS = 5.0


def record(url: str, rate: int, seconds: float) -> dict[str, float]:
    """Record turns at a rate; return when each session's turn ended."""
    ended: dict[str, float] = {}
    recorder = Recorder(url)
    began = time.monotonic()
    for number in range(int(rate * seconds)):
        time.sleep(max(0.0, began + number / rate - time.monotonic()))
        session = f"session-{number}"
        with recorder.turn(session_id=session, user=f"Please handle request {number}.") as turn:
            turn.respond(f"Request {number} is done.")
        ended[session] = time.time()
    if not recorder.close(60):
        raise SystemExit("the recorder did not get everything to the broker")
    return ended


def main() -> None:
    parser = argparse.ArgumentParser(description="From the end of a turn to its score.")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--rate", type=int, default=200, help="turns a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder) / "broker") as address:
        work = Path(folder)
        os.environ["EVALTAP_SPOOL_DIR"] = str(work / "spool")
        (work / "metrics.json").write_text(json.dumps(METRICS))
        location = KafkaLocation((address,), (f"latency-{os.getpid()}",))
        create_topics(location, {location.topics[0]: 4})
        consume = subprocess.Popen(
            [sys.executable, "-c", EVALTAP, "consume", "--log", str(location), "--db", work / "x.duckdb",
             "--metrics", work / "metrics.json"],
            stdout=subprocess.DEVNULL,
        )  # fmt: skip
        time.sleep(WARM_UP_SECONDS)
        before = processor_seconds(consume.pid)
        ended = record(str(location), options.rate, options.seconds)
        time.sleep(WARM_UP_SECONDS)
        cores = (processor_seconds(consume.pid) - before) / (options.seconds + WARM_UP_SECONDS)
        consume.send_signal(signal.SIGTERM)
        consume.wait()
        with duckdb.connect(str(work / "x.duckdb"), read_only=True) as store:
            rows = store.execute("SELECT eval_id, max(scored_at) FROM scores GROUP BY 1").fetchall()
    late = [at.replace(tzinfo=UTC).timestamp() - ended[session] for session, at in rows]
    cuts = statistics.quantiles(late, n=100)
    print(f"turns                 {len(ended):,} at {options.rate} a second, {len(late):,} scored")
    print(
        f"end of turn to score  p50 {cuts[49]:.2f} s, p99 {cuts[98]:.2f} s, longest {max(late):.2f} s"
    )
    print(f"the consumer          {cores:.2f} cores")


if __name__ == "__main__":
    main()
