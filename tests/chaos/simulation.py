"""A deterministic simulation of agents, a broker and a consumer: one seed is one schedule of faults.

The code that records, spools, forwards, lands and scores is the product's own; time, topic, judge and the
moment of each crash are drawn from the seed.  One thread takes every step, so a seed that fails fails again,
with the same steps.  The independent checker examines the final state.
"""

import json
import random
import shutil
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from chaos.checker import RAISED, Finding, check, what_is_wrong_with
from chaos.evidence import Evidence, Turn, ends_of, read_log_file, read_store
from chaos.simulated_agent import Agent, Surroundings, unsafe
from chaos.simulated_broker import Crash, Topic, TopicSource
from chaos.simulated_evaluator import (
    ANSWERS_WELL,
    RUBRIC,
    AnswersWell,
    CrashingStore,
    ImpatientLog,
    judge_of,
    poison,
)
from chaos.simulated_time import Clock, simulated
from evaltap.evaluator.ingest.sources.base import CaseSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.spool import spool
from evaltap.schemas.log import opening
from evaltap.schemas.log.local import open_log

STEPS = 30


@dataclass(slots=True)
class Outcome:
    """What a schedule came to; `steps` replay it for a reader."""

    seed: int
    steps: list[str]
    findings: list[Finding]
    evidence: Evidence

    def told(self) -> str:
        """Return what a developer needs to see."""
        found = "\n".join(f"  {kind}: {what}" for kind, what in self.findings)
        return f"seed {self.seed}:\n{found}\nsteps:\n  " + "\n  ".join(self.steps)


@dataclass(slots=True)
class Planted:
    """Bugs that are planted in what stands around the product, for the checker's own test."""

    seq_after_fork: Callable[[Agent, Agent], None] | None = None
    source: Callable[[CaseSource], CaseSource] = field(default=lambda source: source)


class Simulation:
    """The world of one schedule."""

    def __init__(self, seed: int, store: CrashingStore, folder: Path, planted: Planted) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.clock = Clock()
        self.store = store
        self.planted = planted
        self.steps: list[str] = []
        self.gaps: list[str] = []
        self.power_cut = False
        self.boot = 0
        self.topic = Topic(rng, rng.randint(1, 3))
        self.local_log = folder / "log.db" if rng.random() < 0.3 else None
        rate = rng.choice((1.0, 1.0, 0.6))
        self.world = Surroundings(
            rng, self.clock, folder, self.topic, self.local_log,
            RecorderConfig(log="log.db", sample_rate=rate, manifest_interval_seconds=3.0),
            seq_after_fork=planted.seq_after_fork,
        )  # fmt: skip
        self.judged = rng.random() < 0.3
        self.lives = 0
        self.agents = [self._born() for _ in range(rng.randint(1, 3))]

    def run(self) -> Outcome:
        """Take the steps of the schedule, heal everything, and have the checker look at it."""
        actions = self._actions()
        names, weights = list(actions), [weight for weight, _ in actions.values()]
        try:
            with simulated(self.clock), self._machine():
                for _ in range(STEPS):
                    (name,) = self.rng.choices(names, weights)
                    self._take(name, actions[name][1])
                self._heal()
        except Exception:
            # Whatever a step raises is a fault of the product or of the simulation: told like the others.
            raised = Finding(RAISED, traceback.format_exc(limit=-3))
            return Outcome(self.seed, self.steps, [raised], Evidence(self.world.ledger))
        evidence = self._evidence()
        return Outcome(self.seed, self.steps, check(evidence), evidence)

    @contextmanager
    def _machine(self) -> Iterator[None]:
        """Have the machine's facts come from the seed: which boot it is, how old a file is."""
        kept = opening.boot_id, spool._written_at
        opening.boot_id = lambda: f"boot-{self.boot}"
        spool._written_at = lambda path: float(path.name.strip("a").split(".")[0])
        try:
            yield
        finally:
            opening.boot_id, spool._written_at = kept

    def _actions(self) -> dict[str, tuple[float, Callable[[], str]]]:
        """Return what may happen: how often, and what it does; each says what it did."""
        everywhere = {
            "speak": (14.0, self._speak),
            "disk": (0.5, self._disk),
            "kill agent": (0.8, self._kill),
            "close agent": (0.6, self._close),
            "fork": (0.3, self._fork),
            "power cut": (0.25, self._lose_power),
            "poison": (0.8, self._poison),
            "wall clock": (0.4, self._set_clock),
            "consume": (1.4, self._consume),
            "crash consumer": (1.4, self._crash_consumer),
        }
        if self.local_log is not None:
            return everywhere
        return everywhere | {
            "forward": (5.0, self._forward),
            "crash forwarder": (0.8, self._crash_forwarder),
            "broker": (2.0, self._broker),
            "adopt": (0.5, self._adopt),
            "retention": (0.8, self._retention),
            "new partition": (0.15, self._grow),
        }

    def _take(self, name: str, action: Callable[[], str]) -> None:
        self.steps.append(f"{self.clock.monotonic():7.2f} {name}: {action()}")

    def _born(self) -> Agent:
        self.lives += 1
        return Agent(self.world, f"a{self.lives}")

    def _any(self) -> Agent:
        return self.rng.choice(self.agents)

    def _speak(self) -> str:
        agent = self._any()
        for _ in range(self.rng.randint(1, 3)):
            agent.speak()
        # The thread writes at once, unless it is late.
        written = agent.write() if self.rng.random() < 0.9 else None
        return f"{agent.name} has begun {agent.begun}, written: {written}"

    def _disk(self) -> str:
        agent, full = self._any(), self.rng.random() < 0.6
        agent.fill_disk(full)
        return f"{agent.name} full: {full}"

    def _kill(self) -> str:
        agent = self._replace(self._any())
        agent.die()
        return agent.name

    def _close(self) -> str:
        agent = self._replace(self._any())
        agent.close()
        return agent.name

    def _fork(self) -> str:
        parent = self._any()
        self.lives += 1
        child = parent.fork(f"a{self.lives}")
        self.agents.append(child)
        return f"{parent.name} to {child.name}"

    def _replace(self, agent: Agent) -> Agent:
        """Start another process in the place of one that is about to end."""
        self.agents[self.agents.index(agent)] = self._born()
        return agent

    def _lose_power(self) -> str:
        self.power_cut = True
        self.boot += 1
        fallen = list(self.agents) if self.local_log is not None else [self._any()]
        if self.local_log is not None:
            # One file under all of them: it is cut once, when nobody holds it any more.
            for agent in fallen[1:]:
                agent.die()
        fallen[0].lose_power()
        for agent in fallen:
            self._replace(agent)
        there = self._names_there()
        unsafe(self.world.ledger, lambda turn: _name(turn) in there)
        return ", ".join(agent.name for agent in fallen)

    def _names_there(self) -> set[tuple[str, str, int]]:
        """Return the turns that are still on some log, spool or in the store."""
        evidence = self._evidence()
        names = {
            (row["eval_id"], row["invocation_id"], row["turn_revision"])
            for row in evidence.tables["turns"]
        }
        for record in (*evidence.log, *evidence.spooled, *evidence.gone):
            if record.headers.get("ce_type") == "evaltap.case" and not what_is_wrong_with(record):
                case = json.loads(record.value)
                for turn in case.get("actualConversation", ()):
                    revision = case.get("source", {}).get("revision", 1)
                    names.add((case["evalId"], turn["invocationId"], revision))
        return names

    def _poison(self) -> str:
        record = poison(self.rng)
        if self.local_log is not None:
            log = open_log(self.local_log, mode="append")
            log.append([record])
            log.close()
        else:
            self.topic.append(self.rng.choice(self.topic.partitions), record)
        return repr((record.value or b"")[:30])

    def _set_clock(self) -> str:
        ahead = self.rng.choice((0.0, 3600.0, -3600.0, self.rng.uniform(-5, 5)))
        self.clock.set_wall_clock(ahead)
        return f"{ahead:+.1f} s"

    def _forward(self) -> str:
        agent = self._any()
        assert agent.forwarder is not None
        self.clock.advance(0.2)
        return f"{agent.name} acknowledged: {agent.forwarder.step()}"

    def _crash_forwarder(self) -> str:
        agent = self._any()
        assert agent.forwarder is not None
        try:
            agent.forwarder.crash(self.rng.randint(0, 3))
        except Crash as crash:
            self._replace(agent).die()
            return f"{agent.name}: {crash}"
        return f"{agent.name} had nothing to send"

    def _broker(self) -> str:
        self.topic.mood = self.rng.choice(("well", "well", "down", "loses acks", "half"))
        return self.topic.mood

    def _adopt(self) -> str:
        agent = self._any()
        assert agent.forwarder is not None
        agent.forwarder.adopt()
        return agent.name

    def _retention(self) -> str:
        number = self.rng.choice(self.topic.partitions)
        stored = {
            row["partition_number"]: row["next_offset"]
            for row in self.store.records("FROM offsets ORDER BY next_offset")
        }
        if number not in stored:
            return "nothing was read yet"
        ahead = self.rng.choice((0, 0, 1, 3))
        before = min(stored[number] + ahead, self.topic.end(number))
        self.topic.delete_before(number, before)
        return f"partition {number} before {before}"

    def _grow(self) -> str:
        self.topic.grow()
        return f"{len(self.topic.partitions)} partitions"

    def _consume(self) -> str:
        return self._consumer(crash_at=None, crash_at_poll=None)

    def _crash_consumer(self) -> str:
        if self.rng.random() < 0.2:
            return self._consumer(crash_at=None, crash_at_poll=self.rng.randint(0, 3))
        return self._consumer(crash_at=self.rng.randint(1, 30), crash_at_poll=None)

    def _consumer(self, *, crash_at: int | None, crash_at_poll: int | None) -> str:
        """Live the life of a consumer's process."""
        source = self._source(crash_at_poll)
        self.store.open_again(crash_at)
        consumer: Consumer | None = None
        try:
            consumer = Consumer(
                self.planted.source(source), self.store,
                scorer=self._scorer(), log="simulated", clock=self.clock.monotonic,
            )  # fmt: skip
            consumer.run(until_idle=True, report=lambda _: None)
            told = f"landed {consumer.consumed.landed}"
        except Crash as crash:
            told = str(crash)
        finally:
            self.store.end()
            source.close()
        self.gaps += consumer.consumed.gaps if consumer is not None else []
        return told

    def _source(self, crash_at_poll: int | None) -> CaseSource:
        if self.local_log is not None:
            return ImpatientLog(self.local_log, must_exist=False)
        source = TopicSource(self.topic, self.rng)
        source.hold_back = self.rng.random() < 0.2
        source.crash_at_poll = crash_at_poll
        return source

    def _scorer(self) -> PendingScorer:
        metrics = [ANSWERS_WELL, RUBRIC] if self.judged else [ANSWERS_WELL]
        judge = judge_of(self.clock)
        registry = Registry({"answers_well": lambda _: AnswersWell()})
        services = Services(judge=lambda _: judge)
        return PendingScorer(self.store, CaseScorer(metrics, services=services, registry=registry))

    def _heal(self) -> None:
        """Let every fault end: all that is anywhere must arrive now."""
        self.topic.mood = "well"
        for agent in list(self.agents):
            agent.fill_disk(False)
            agent.close()
            self.steps.append(f"in the end {agent.name} is closed")
        if self.local_log is None:
            last = self._born()
            assert last.forwarder is not None
            last.forwarder.adopt()
            last.die()
        self._take("consume", self._consume)

    def _evidence(self) -> Evidence:
        spools = sorted(self.world.folder.glob("*.log.db")) + sorted(
            self.world.folder.glob("*.rejected")
        )
        spooled = [
            record for path in spools if path.stat().st_size for record in read_log_file(path)
        ]
        log = self.topic.dump()
        if self.local_log is not None:
            log = read_log_file(self.local_log) if self.local_log.exists() else []
        cut = self.power_cut and self.local_log is not None
        return Evidence(
            self.world.ledger,
            log=log,
            gone=self.topic.gone,
            spooled=spooled,
            tables=read_store(self.store._connection),
            ends={} if cut else ends_of([*log, *self.topic.gone]),
            gaps=self.gaps,
            drained=True,
            power_cut=self.power_cut,
        )


def _name(turn: Turn) -> tuple[str, str, int]:
    return turn.eval_id, turn.invocation_id, turn.revision


class Harness:
    """Runs schedules one after the other over one database, emptied in between."""

    RENEW = 200

    def __init__(self) -> None:
        shared = Path("/dev/shm")
        self._folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self._store: CrashingStore | None = None
        self._used = 0

    def __enter__(self) -> "Harness":
        return self

    def __exit__(self, *_: object) -> None:
        if self._store is not None:
            self._store.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, seed: int, planted: Planted | None = None) -> Outcome:
        """Return what the schedule of a seed comes to."""
        if self._store is None or self._used >= self.RENEW:
            if self._store is not None:
                self._store.close()
            self._store, self._used = CrashingStore(), 0
        self._used += 1
        self._store.clear()
        folder = self._folder / "schedule"
        folder.mkdir()
        try:
            return Simulation(seed, self._store, folder, planted or Planted()).run()
        finally:
            shutil.rmtree(folder)
