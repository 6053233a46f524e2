"""A broker that is away for minutes while the agent goes on: what is lost, doubled, and how fast it drains.

A recorder records at a steady rate.  After a warm-up the broker is stopped for --outage seconds, started
again, and production goes on until the spool is empty.  Then everything is landed and counted.

python docs/benchmarks/kafka_outage.py [--outage 600] [--turns-per-second 200] [--apache]

Needs the tests' brokers: noida-db, with --apache Java 17 and Maven.  Exit code 1: something was lost.
"""

import argparse
import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from resident import resident_mb

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))

WARM_SECONDS = 10.0
STEP_SECONDS = 0.02
ANSWER = (
    "Your order is on its way and should arrive on Friday; the carrier has scanned it twice. " * 40
)


@dataclass
class Agent:
    """Records turns at a steady rate on a thread of its own."""

    log: str
    rate: float
    recorded: int = 0
    stopping: threading.Event = field(default_factory=threading.Event)
    slowest: float = 0.0

    def __post_init__(self) -> None:
        from evaltap.recorder import Recorder

        self.recorder = Recorder(self.log)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self.stopping.wait(STEP_SECONDS):
            due = int((time.monotonic() - began) * self.rate)
            while self.recorded < due:
                before = time.perf_counter()
                with self.recorder.turn(session_id=f"s-{self.recorded}", user="Where?") as turn:
                    turn.tool("get_order", {"order_id": self.recorded}, id="c", result="shipped")
                    turn.respond(ANSWER)
                self.slowest = max(self.slowest, time.perf_counter() - before)
                self.recorded += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--outage", type=float, default=600.0, help="seconds without a broker")
    parser.add_argument("--turns-per-second", type=float, default=200.0)
    parser.add_argument("--apache", action="store_true", help="Apache Kafka itself")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["EVALTAP_SPOOL_DIR"] = str(Path(folder, "spool"))
        return run(options, Path(folder))


def run(options: argparse.Namespace, folder: Path) -> int:
    """Run the outage and print what came of it."""
    from support.servers.apache import ApacheKafka
    from support.servers.broker import Broker
    from support.servers.faulty_network import Proxy

    broker = Broker(folder / "broker", ApacheKafka() if options.apache else None)
    broker.start()
    # noida-db loses what it acknowledged just before it was stopped: there the network goes.
    network = Proxy(broker.port)
    network.listen()
    log = broker.log() if options.apache else broker.log().replace(broker.address, network.address)
    agent = Agent(log, options.turns_per_second)
    time.sleep(WARM_SECONDS)
    warm = round(resident_mb())
    (broker.stop if options.apache else network.refuse)()
    time.sleep(options.outage)
    behind, away = agent.recorder.counters().spooled, round(resident_mb())
    (broker.start if options.apache else network.listen)()
    drained_in, produced = drain(agent)
    highest = round(resident_mb())
    agent.stop()
    complete = agent.recorder.close(30)
    counters = agent.recorder.counters()
    landed, records = land(broker.log())
    network.close()
    broker.stop()
    lost = agent.recorded - landed
    rate = (behind + produced) / drained_in
    print(
        f"recorded {agent.recorded:,} turns at {options.turns_per_second:g}/s, "
        f"broker away for {options.outage:g} s, {behind:,} turns behind"
    )
    print(
        f"lost {lost}, dropped {sum(counters.dropped.values())}, closed "
        f"{'with everything acknowledged' if complete else 'with a rest on the spool'}"
    )
    print(
        f"records on the topic {records:,}: {records - landed:,} sent twice, 0 of them landed twice"
        if landed == agent.recorded
        else "NOT EVERY TURN LANDED"
    )
    print(
        f"drained in {drained_in:.1f} s: {rate:,.0f}/s, {rate / options.turns_per_second:.1f} x production"
    )
    print(f"memory {warm} MB warm, {away} MB at the end of the outage, {highest} MB after the drain;"
          f" slowest turn of the agent {agent.slowest * 1e3:.1f} ms")  # fmt: skip
    return int(lost != 0)


def drain(agent: Agent) -> tuple[float, int]:
    """Wait until nothing waits on the spool; return seconds and turns recorded meanwhile."""
    began, before = time.monotonic(), agent.recorded
    while agent.recorder.counters().spooled > agent.rate:
        time.sleep(0.05)
    return time.monotonic() - began, agent.recorded - before


def land(url: str) -> tuple[int, int]:
    """Land the topic; return turns in the store and case records on the topic."""
    from evaltap.evaluator.store.database import Store
    from support.builders.topics import consume

    with Store(":memory:") as store:
        landed = consume(url, store).landed
        (turns,) = store.rows("SELECT count(DISTINCT (eval_id, invocation_id)) FROM turns")[0]
        (rows,) = store.rows("SELECT count(*) FROM turns")[0]
        assert rows == turns, f"{rows - turns} turns landed twice"
        return turns, landed.turns + landed.duplicates


if __name__ == "__main__":
    sys.exit(main())
