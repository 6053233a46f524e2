"""An agent's process in the simulation: the recorder's own parts on one thread, and a spool on disk.

The parts are the real assembler, case processor, writer, local log, spool and forwarder; simulated are the
clock and the broker.  A process that dies leaves its files and nothing else.
"""

import fcntl
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.evidence import Closed, Ledger, Turn
from chaos.simulated_broker import TOO_LARGE, Producer, Topic
from chaos.simulated_time import Clock, Signal
from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.delivery.counters import LiveCounters
from evaltap.recorder.delivery.event_queue import Deadline
from evaltap.recorder.delivery.retrying_writer import RetryingWriter
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.recorder.delivery.sinks.local_log import LocalLogSink
from evaltap.recorder.delivery.spool.forwarder import Forwarder
from evaltap.recorder.delivery.spool.spool import Spool, SpoolReader
from evaltap.recorder.faults import Faults
from evaltap.recorder.observation import (
    Observation,
    Responded,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.schemas.log.location import KafkaLocation

LOCATION = KafkaLocation(("broker:1",), ("simulated",))
CLOSE_SECONDS = 2.0
LARGE_LOG = 1 << 30


class SimulatedForwarder(Forwarder):
    """The forwarder without its thread: the simulation takes its steps."""

    def __init__(self, topic: Topic, clock: Clock, spool: Spool) -> None:
        super().__init__(self._produce, spool)
        self._topic = topic
        self._stopping = self._hurry = Signal(clock)  # type: ignore[assignment]  # twins of an Event
        self.own = SpoolReader(spool, self._fork_lock)
        self.crash_after: int | None = None

    def _produce(self) -> Producer:
        producer = self._topic.producer()
        producer.crash_after = self.crash_after
        return producer

    def step(self) -> bool:
        """Send what is next, as the thread would; True when the next may follow at once."""
        return self._guarded(lambda: self._forward(self.own), False)

    def crash(self, after: int) -> None:
        """Send what is next, and die when so many records were sent; raises Crash then."""
        self._sender.disconnect()
        self.crash_after = after
        self.step()
        self._sender.disconnect()
        self.crash_after = None

    def adopt(self) -> None:
        """Send what other processes left."""
        self._next_scan = 0.0
        self._adopt_orphans()


class SimulatedKafkaSink(KafkaSink):
    """The sink over a spool, opened without a thread and closed without one."""

    def __init__(self, local: LocalLogSink, forwarder: SimulatedForwarder) -> None:
        super().__init__(LOCATION)
        self._pid = os.getpid()
        self._local, self._forwarder = local, forwarder

    def flush(self, timeout_seconds: float) -> bool:
        """Have as little time as it gets: a step of the forwarder, if the broker is there."""
        while self._forwarder is not None and self._forwarder.waiting > 0:
            assert isinstance(self._forwarder, SimulatedForwarder)
            if not self._forwarder.step():
                return False
        return True

    def close(self) -> None:
        """Leave the files to the simulation."""


@dataclass(slots=True)
class Run:
    """A run of the agent that is under way or over: what the agent knows of it."""

    run_id: str
    session: str
    answer: str
    user: str
    scores: dict[str, str]
    tools: int = 1
    revision: int = 0
    ended: bool = False


@dataclass(slots=True)
class Surroundings:
    """What agents share: the world as one of them sees it."""

    rng: random.Random
    clock: Clock
    folder: Path
    topic: Topic
    local_log: Path | None
    config: RecorderConfig
    ledger: Ledger = field(default_factory=Ledger)
    seq_after_fork: Callable[["Agent", "Agent"], None] | None = None
    """A planted bug: what the child of a fork takes over from its parent."""


class Agent:
    """One process; `name` is unique among all that ever lived."""

    def __init__(self, world: Surroundings, name: str) -> None:
        self.world = world
        self.name = name
        self.runs: list[Run] = []
        self.begun = 0
        self.pending: list[Turn] = []
        self.assembler = Assembler()
        self.ledger = LiveCounters()
        path = world.local_log or world.folder / f"{name}.log.db"
        self.local = LocalLogSink(path, min_free_bytes=0)
        self.forwarder: SimulatedForwarder | None = None
        self.spool: Spool | None = None
        sink: Any = self.local
        if world.local_log is None:
            self.spool = _claimed(path)
            self.forwarder = SimulatedForwarder(world.topic, world.clock, self.spool)
            sink = SimulatedKafkaSink(self.local, self.forwarder)
        self.writer = RetryingWriter(
            world.config,
            sink,
            CaseProcessor(world.config, lambda: None),
            self.ledger,
            Faults(),
            producer_id=f"producer-{name}",
        )

    def speak(self) -> None:
        """Begin a run, go on with one, or say something late about one that is over."""
        rng = self.world.rng
        late = [run for run in self.runs if run.ended]
        live = [run for run in self.runs if not run.ended]
        choice = rng.random()
        if late and choice < 0.25:
            self._tell_late(rng.choice(late))
        elif live and choice < 0.5:
            self._end(rng.choice(live))
        else:
            run = self._begin()
            if rng.random() < 0.8:
                self._end(run)

    def write(self) -> bool:
        """Write what waits, as the background thread does after each turn."""
        written = self.writer.write()
        if written:
            self.world.ledger.turns += self.pending
            self.pending.clear()
        self.writer.write_manifest()
        return written

    def fill_disk(self, full: bool) -> None:
        """Let the log take nothing any more, or take everything again."""
        self.local.max_bytes = 0 if full else LARGE_LOG

    def close(self) -> None:
        """End in order: what is open is written as incomplete."""
        for run in self.runs:
            run.ended = True
        for case in self.assembler.close_all("shutdown"):
            self._hand_over(case)
        unwritten = self.ledger.drops().get("log_unavailable", 0)
        self.writer.finish(Deadline(CLOSE_SECONDS, CLOSE_SECONDS))
        recorded, _, _, dropped = self.ledger.snapshot(0)
        numbered = recorded - sum(dropped.values())
        if dropped.get("log_unavailable", 0) == unwritten:
            self.world.ledger.turns += self.pending
        self.pending.clear()
        self.world.ledger.closed.append(
            Closed(self.writer.records.producer_id, self.begun, numbered, dropped)
        )
        self.die()

    def die(self) -> None:
        """End without another word: memory is gone, files stay as they were committed."""
        if self.forwarder is not None:
            self.forwarder.own.__exit__()
        self.local.close()
        if self.spool is not None:
            self.spool.release()

    def lose_power(self) -> None:
        """Die together with the machine: of the journal only a part had reached the disk."""
        path, rng = self.local.path, self.world.rng
        journal = path.with_name(path.name + "-wal")
        if not path.exists():
            self.die()
            return
        kept = {"": path.read_bytes()}
        if journal.exists():
            whole = journal.read_bytes()
            kept["-wal"] = whole[: rng.randint(0, len(whole))]
        self.die()
        for ending in ("", "-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        for ending, content in kept.items():
            path.with_name(path.name + ending).write_bytes(content)

    def fork(self, name: str) -> "Agent":
        """Return the child of a fork: a recorder of its own, and none of the parent's turns."""
        child = Agent(self.world, name)
        if self.world.seq_after_fork is not None:
            self.world.seq_after_fork(self, child)
        return child

    def _begin(self) -> Run:
        rng, clock = self.world.rng, self.world.clock
        number = len(self.runs)
        run_id = f"{self.name}-{number}"
        good = rng.random() < 0.7
        verdict = rng.choice(("pass", "pass", "fail", "garbage"))
        answer = f"{'good' if good else 'bad'} answer of {run_id}"
        broken = rng.random() < 0.05
        scores = {
            "answers_well": "error" if broken else "passed" if good else "failed",
            "llm_rubric_response": _RUBRIC[verdict],
        }
        user = f"verdict={verdict} {'raise ' * broken}of {run_id}"
        if rng.random() < 0.02:
            user += TOO_LARGE.decode()
        run = Run(run_id, f"s-{rng.randint(0, 5)}", answer, user, scores)
        self.runs.append(run)
        now = clock.time_ns()
        self._feed(run, RunStarted(run_id, now, session_id=run.session, app_name="app"))
        self._feed(run, UserMessage(run_id, now + 1, user))
        self._feed(run, ToolCalled(run_id, now + 2, "c-0", "look_up", {"number": number}))
        self._feed(run, ToolReturned(run_id, now + 3, "c-0", {"found": number}))
        clock.advance(0.1)
        return run

    def _end(self, run: Run) -> None:
        now = self.world.clock.time_ns()
        run.ended = True
        self._feed(run, Responded(run.run_id, now, run.answer))
        self._feed(run, RunEnded(run.run_id, now + 1))

    def _tell_late(self, run: Run) -> None:
        """Learn of a call, or of the answer, after the run has ended; or hear the same again."""
        now = self.world.clock.time_ns()
        if self.world.rng.random() < 0.3:
            self._feed(run, RunEnded(run.run_id, now))
            return
        call = f"c-{run.tools}"
        run.tools += 1
        self._feed(run, ToolCalled(run.run_id, now, call, "look_up_late", {"call": call}))

    def _feed(self, run: Run, observation: Observation) -> None:
        for case in self.assembler.feed(observation, self.world.clock.time_ns(), weight=100):
            self._hand_over(case)

    def _hand_over(self, case: dict[str, Any]) -> None:
        (turn,) = case["actualConversation"]
        run = next(run for run in self.runs if run.run_id == turn["invocationId"])
        run.revision += 1
        self.begun += 1
        before = sum(self.ledger.drops().values())
        self.writer.add(case)
        if sum(self.ledger.drops().values()) == before:
            answered = "finalResponse" in turn
            unanswered = {**run.scores, "answers_well": "failed"}
            self.pending.append(
                Turn(
                    run.session,
                    run.run_id,
                    run.answer if answered else None,
                    run.revision,
                    run.tools,
                    run.scores if answered or "raise" in run.user else unanswered,
                )
            )


_RUBRIC = {"pass": "passed", "fail": "failed", "garbage": "error"}


def unsafe(ledger: Ledger, there: Callable[[Turn], bool]) -> None:
    """Let go of turns that a power cut may have taken: those that are not there any more."""
    ledger.turns[:] = [turn if there(turn) else replace(turn, safe=False) for turn in ledger.turns]


def _claimed(path: Path) -> Spool:
    lock = path.with_name(path.name + ".lock").open("ab")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return Spool(path, lock)
