"""Telemetry on topics in memory, read with a clock of the test."""

import itertools
import random
from collections.abc import Iterable
from typing import Any

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.landing.trace_progress import progress
from evaltap.evaluator.ingest.sources.base import SourceBatch
from evaltap.evaluator.ingest.sources.otlp_topics import OtlpSource
from evaltap.evaluator.store.database import Store
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.sources.otlp_topics import TopicTraces
from evaltap.recorder.traces.buffer import TraceLimits
from support.builders.telemetry_log import START_MS, MemoryTopics, Message, spread

SECOND = 1_000


producers = itertools.count(1)


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


class Process:
    """One life of a consumer of `topics` that lands in `store`; being dropped is being killed."""

    def __init__(
        self,
        topics: MemoryTopics,
        store: Store,
        *,
        closes_at_end: bool = True,
        limits: TraceLimits | None = None,
        clock: Clock | None = None,
        offsets_every_seconds: float = 0,
        **settings: Any,
    ) -> None:
        config = RecorderConfig(log="unused.db", **{"redaction": False, **settings})
        self.clock = clock or Clock()
        self.assembler = TopicTraces(config, producer_id=f"p-{next(producers)}", limits=limits)
        self.source = OtlpSource(
            topics,
            self.assembler,
            progress=lambda: progress(store),
            closes_at_end=closes_at_end,
            clock=self.clock,
            wall_clock=lambda: START_MS / 1000 + 1_000_000,
            offsets_every_seconds=offsets_every_seconds,
        )
        self.lander = Lander(store)
        self.source.seek(self.lander.offsets())

    def poll(self, most: int = 1_000) -> SourceBatch:
        return self.source.poll(most, 0)

    def step(self, most: int = 1_000) -> SourceBatch:
        """Read and land one batch."""
        batch = self.poll(most)
        self.lander.land(batch)
        return batch

    def run(self, most: int = 1_000) -> "Process":
        """Consume until the log has nothing new."""
        while (batch := self.step(most)).records or batch.more:
            pass
        return self

    def wait(self, seconds: float) -> SourceBatch:
        """Let time pass at the end of the log, then read and land."""
        self.clock.seconds += seconds
        return self.step()


def turns(store: Store, *, latest: bool = False) -> list[tuple[Any, ...]]:
    """Return what was landed, without what differs from life to life."""
    table = "latest_turns" if latest else "turns"
    return store.rows(
        f"SELECT eval_id, invocation_id, turn_revision, actual_json FROM {table} ORDER BY ALL"
    )


def consumed(topics: MemoryTopics, **settings: Any) -> Store:
    store = Store(":memory:")
    Process(topics, store, **settings).run()
    return store


def on_topics(messages: Iterable[Message], *, seed: int | None = None, **how: Any) -> MemoryTopics:
    """Put messages on topics: by key, or anywhere and read at odd speeds with a seed."""
    chance = random.Random(seed) if seed is not None else None
    topics = MemoryTopics(chance, most=5)
    spread(topics, messages, chance=chance, **how)
    return topics
