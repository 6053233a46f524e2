"""How fast `evaltap consume` lands and scores a topic, and whether that depends on what is stored.

Beside it, in the same run, the floor: decode each of these turns with orjson and compare calls and answer as
dictionaries, on one thread, without a broker or a database.  Start-up is taken off both.

Broker, topic and consumer share one machine.  The cases have two turns of 4 tool calls (2.5 KB a turn
with its reference) that come one after the other, and are scored by two deterministic metrics.

    python docs/benchmarks/kafka_throughput.py [--turns 50000] [--stored 1000] [--consumers 2] [--apache]
        [--client kafka-python confluent-kafka] [--rounds 3]

For each size a file is filled with so many turns; then the same number of new turns is consumed into it.
With several clients, they take turns in each round.  With `--consumers 2`, two processes share the topic's
four partitions, each with its own file.
The broker is the development dependency noida-db, Apache Kafka itself (needs Java 17 and Maven), or the
cluster of EVALTAP_TEST_KAFKA=host:port.  noida-db answers a fetch with all that a partition holds, however
much it is, so a million turns need Apache Kafka.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, get_args

from resident import resident_mb
from score_files import EVALTAP, FLOOR, METRICS, tool_call
from score_files import measure as run_floor

from evaltap.evaluator.ingest.topics.clients import TopicWriter, create_topics
from evaltap.schemas.log.location import KafkaClientName, KafkaLocation
from evaltap.schemas.wire.record import WireRecord, encode_case

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
TOPIC = "evaltap.cases"
PARTITIONS = 4


def records(first: int, count: int) -> Iterator[WireRecord]:
    """Yield turns `first` and following: sessions of two turns, of which every tenth turn is wrong."""
    rng = random.Random(7)
    pool = [
        [tool_call(rng, f"call_{rng.getrandbits(96):024x}", k) for k in range(4)]
        for _ in range(500)
    ]
    for number in range(first, first + count):
        session, turn = number // 2, number % 2
        calls = pool[number % len(pool)]
        said = {
            "userContent": {"role": "user", "content": f"Please handle request {number}: " * 2},
            "finalResponse": {"role": "assistant", "content": f"Request {number} is done. " * 3},
        }
        ids = random.Random(session)
        eval_id = str(uuid.UUID(int=ids.getrandbits(128)))
        invocation_id = f"{ids.getrandbits(96) + turn:024x}"
        actual = {"invocationId": invocation_id, "tools": calls, **said}
        expected = actual | ({"tools": calls[1:]} if number % 10 == 0 else {"tools": calls[::-1]})
        case = {
            "evalId": eval_id,
            "evalMode": "trace",
            "conversation": [expected],
            "actualConversation": [actual],
            "sessionInput": {"appName": "bench", "userId": f"user-{session % 97}"},
        }
        yield encode_case(case, producer_id="bench", seq=number + 1, time=datetime.now(UTC))


@contextmanager
def broker(folder: Path, *, apache: bool = False) -> Iterator[str]:
    """Give the address of a broker."""
    if given := os.environ.get("EVALTAP_TEST_KAFKA"):
        yield given
        return
    from support.servers.apache import ApacheKafka
    from support.servers.broker import Broker

    kafka = Broker(folder, ApacheKafka() if apache else None)
    kafka.start()
    try:
        yield kafka.address
    finally:
        kafka.stop()


def fill(location: KafkaLocation, first: int, count: int) -> None:
    """Write turns to the topic."""
    writer = TopicWriter(location, client_id="bench")
    batch = []
    for record in records(first, count):
        batch.append(record)
        if len(batch) == 2_000:
            writer.write(location.topics[0], batch)
            batch.clear()
    writer.write(location.topics[0], batch)
    writer.close()


class Consumption(NamedTuple):
    """What consuming a topic took."""

    seconds: float
    peak_mb: float
    """Resident memory of the largest process."""
    mean_mb: list[float]
    """The same in each tenth of the run."""
    processor: float
    """Processor time of all processes in seconds."""
    main: float
    """Processor time of the first thread of each process in seconds, up to the last look (0.1 s)."""


def main_thread_seconds(pid: int) -> float:
    """Return the processor time of a process's first thread."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


def consume(
    location: KafkaLocation, work: Path, consumers: int, client: KafkaClientName
) -> Consumption:
    """Consume what is new, in `consumers` processes side by side."""
    began, used = time.perf_counter(), os.times()
    size = PARTITIONS // consumers
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", EVALTAP, "consume", "--log", str(location),
             "--partitions", f"{number * size}-{(number + 1) * size - 1}",
             "--kafka-client", client,
             "--db", work / f"{number}.duckdb", "--metrics", work / "metrics.json", "--until-idle"],
            stdout=subprocess.DEVNULL,
        )
        for number in range(consumers)
    ]  # fmt: skip
    resident = []
    main: dict[int, float] = {}
    while running := [process.pid for process in processes if process.poll() is None]:
        resident.append(max(resident_mb(pid) for pid in running))
        main |= {pid: main_thread_seconds(pid) for pid in running}
        time.sleep(0.1)
    seconds = time.perf_counter() - began
    for process in processes:
        if process.returncode not in (0, 1):
            raise SystemExit(f"consume ended with {process.returncode}")
    now = os.times()
    processor = now.children_user + now.children_system - used.children_user - used.children_system
    tenth = max(1, len(resident) // 10)
    tenths = [resident[first : first + tenth] for first in range(0, len(resident), tenth)]
    means = [sum(part) / len(part) for part in tenths[:10]]
    return Consumption(seconds, max(resident), means, processor, sum(main.values()))


def measure(
    turns: int, stored: int, *, consumers: int, client: KafkaClientName, address: str
) -> tuple[float, Consumption, Consumption]:
    """Return turns a second into a file of `stored` turns; what filling took, and what those took."""
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "metrics.json").write_text(json.dumps(METRICS))
        location = KafkaLocation((address,), (f"{TOPIC}-{uuid.uuid4().hex[:8]}",))
        create_topics(location, {location.topics[0]: PARTITIONS})
        fill(location, 0, stored)
        filling = consume(location, work, consumers, client)
        start_up = consume(location, work, consumers, client)
        fill(location, stored, turns)
        consumed = consume(location, work, consumers, client)
    own = consumed._replace(
        processor=consumed.processor - start_up.processor, main=consumed.main - start_up.main
    )
    return turns / (consumed.seconds - start_up.seconds), filling, own


def floor(first: int, count: int) -> tuple[float, float]:
    """Return what the floor takes for these turns, in seconds and processor seconds: the best of three."""
    with tempfile.TemporaryDirectory() as folder:
        lines, one = Path(folder, "turns.jsonl"), Path(folder, "one.jsonl")
        with lines.open("wb") as file:
            for record in records(first, count):
                file.write((record.value or b"") + b"\n")
        one.write_bytes(next(iter(lines.open("rb"))))
        whole, start_up = ([timed_floor(path) for _ in range(3)] for path in (lines, one))
    seconds, processor = (
        min(many) - min(few)
        for many, few in zip(zip(*whole, strict=True), zip(*start_up, strict=True), strict=True)
    )
    return seconds, processor


def timed_floor(path: Path) -> tuple[float, float]:
    """Run the floor once."""
    before = os.times()
    seconds, _ = run_floor(FLOOR, str(path))
    after = os.times()
    used = after.children_user + after.children_system
    return seconds, used - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description="Throughput of consume over a topic.")
    parser.add_argument("--turns", type=int, default=50_000)
    parser.add_argument("--stored", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--consumers", type=int, default=1, choices=(1, 2, 4), help="processes")
    parser.add_argument(
        "--client", nargs="+", default=["kafka-python"], choices=get_args(KafkaClientName)
    )
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--apache", action="store_true", help="over Apache Kafka itself")
    options = parser.parse_args()
    rates: dict[tuple[int, str], float] = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        broker(Path(folder) / "broker", apache=options.apache) as address,
    ):
        for stored in options.stored:
            for client in options.client * options.rounds:
                rates[stored, client] = report(options, stored, client, address)
    first, last = options.stored[0], options.stored[-1]
    for client in options.client if last != first else ():
        print(f"{client}: cost of a turn with {last:,} stored / with {first:,}: "
              f"{rates[first, client] / rates[last, client]:.2f}")  # fmt: skip


def report(
    options: argparse.Namespace, stored: int, client: KafkaClientName, address: str
) -> float:
    """Measure a client and its floor, print the figures, and return the turns a second."""
    rate, filling, consumed = measure(
        options.turns, stored, consumers=options.consumers, client=client, address=address
    )
    seconds, processor = floor(stored, options.turns)
    print(
        f"{stored:>9,} stored, {client}: {rate:>7,.0f} turns/s,"
        f" {options.turns / rate / seconds:.1f} x the floor ({options.turns / seconds:,.0f} turns/s);"
        f" in processor time {consumed.main / processor:.1f} x on the first thread"
        f" ({consumed.main / options.turns * 1e6:.0f} us a turn),"
        f" {consumed.processor / processor:.1f} x in all;"
        f" memory at most {filling.peak_mb:.0f} MB while filling, {consumed.peak_mb:.0f} MB after; by tenths"
        f" of the filling: {' '.join(f'{mean:.0f}' for mean in filling.mean_mb)}",
        flush=True,
    )
    return rate


if __name__ == "__main__":
    main()
