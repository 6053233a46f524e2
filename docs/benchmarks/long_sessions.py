"""What one more turn of a long session costs, compared with one more turn of a short session.

A consumer lands a session of some length and scores it.  Then one more turn of
the session arrives at a time.  Times are processor time of the whole process, so the ratio holds on a noisy
machine.  Turns have 4 tool calls, a reference and two metrics, as in kafka_throughput.py.

    python docs/benchmarks/long_sessions.py [--turns 10 100 1000 5000] [--more 9]
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

from score_files import METRICS, tool_call

from evaltap.evaluator.ingest.sources.base import SourceBatch
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.schemas.files.documents import metrics_of
from evaltap.schemas.wire.record import WireRecord, encode_case
from support.builders.memory_source import MemorySource


class ReadySource(MemorySource):
    """Does not wait for records that nobody will append."""

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return what there is."""
        return super().poll(max_records, 0)


def record(rng: Random, session: str, turn: int, seq: int) -> WireRecord:
    """Return a turn of 2.5 KB."""
    said = {
        "userContent": {"role": "user", "content": f"Please handle request {turn}."},
        "finalResponse": {"role": "assistant", "content": f"Request {turn} is done."},
    }
    calls = [tool_call(rng, f"call-{turn}-{place}", place) for place in range(4)]
    case = {
        "evalId": session,
        "evalMode": "trace",
        "actualConversation": [
            {"invocationId": f"t-{turn}", "creationTimestamp": float(turn), "tools": calls, **said}
        ],
        "conversation": [{"invocationId": f"t-{turn}", "tools": calls[::-1], **said}],
        "sessionInput": {"appName": "bench", "userId": "u"},
        "source": {"service": "bench"},
    }
    return encode_case(case, producer_id="p", seq=seq, time=datetime.now(UTC))


def milliseconds(turns: int, more: int) -> list[float]:
    """Return what each further turn of a session with this many turns costs."""
    rng, times = Random(7), []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "s.duckdb") as store:
        source = ReadySource()
        scorer = PendingScorer(store, CaseScorer(metrics_of(METRICS)))
        consumer = Consumer(source, store, scorer=scorer)

        def consume(records: Sequence[WireRecord]) -> float:
            source.append(records)
            began = time.process_time()
            consumer.run(until_idle=True, report=lambda _: None)
            return (time.process_time() - began) * 1e3

        consume([record(rng, "long", turn, turn + 1) for turn in range(turns)])
        for turn in range(turns, turns + more):
            times.append(consume([record(rng, "long", turn, turn + 1)]))
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description="Time one more turn of sessions.")
    parser.add_argument("--turns", type=int, nargs="+", default=[10, 100, 1_000, 5_000])
    parser.add_argument("--more", type=int, default=9)
    options = parser.parse_args()
    base = 0.0
    for turns in options.turns:
        median = statistics.median(milliseconds(turns, options.more)[1:])
        base = base or median
        print(f"{turns:6,} turns: one more takes {median:7.1f} ms, {median / base:5.1f} x")


if __name__ == "__main__":
    main()
