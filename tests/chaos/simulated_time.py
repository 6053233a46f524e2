"""A clock that only a simulation advances, and the modules of the product that use it."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import evaltap.evaluator.pipeline.batch.run
import evaltap.evaluator.scoring.batch
import evaltap.evaluator.scoring.results.runs
import evaltap.evaluator.store.database
import evaltap.recorder.delivery.event_queue
import evaltap.recorder.delivery.record_writer
import evaltap.recorder.delivery.retrying_writer
import evaltap.recorder.delivery.spool.forwarder
import evaltap.schemas.log.local
import evaltap.schemas.log.opening

BEGIN = datetime(2026, 11, 22, 8, tzinfo=UTC)

MODULES: tuple[Any, ...] = (
    evaltap.evaluator.scoring.batch,
    evaltap.recorder.delivery.spool.forwarder,
    evaltap.recorder.delivery.event_queue,
    evaltap.recorder.delivery.retrying_writer,
    evaltap.schemas.log.local,
    evaltap.schemas.log.opening,
)
"""Every module on the simulated path that waits, or decides by the time."""


STAMPING: tuple[Any, ...] = (
    evaltap.evaluator.scoring.results.runs,
    evaltap.evaluator.store.database,
)
"""Every module that stamps rows with the time of day."""


class Clock:
    """Stands in for the module `time`; sleeping costs nothing."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.ahead = 0.0

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.seconds += seconds

    def set_wall_clock(self, ahead: float) -> None:
        """Put the time of day, not the passing of time, so many seconds ahead of the truth."""
        self.ahead = ahead

    def monotonic(self) -> float:
        """Return seconds since the simulation began."""
        return self.seconds

    def time(self) -> float:
        """Return Unix seconds."""
        return BEGIN.timestamp() + self.seconds + self.ahead

    def utc_now(self) -> datetime:
        """Return the time of day as the store stamps it."""
        return self.now().replace(tzinfo=None)

    def time_ns(self) -> int:
        """Return Unix nanoseconds."""
        return int(self.time() * 1e9)

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.advance(seconds)

    def now(self, zone: Any = UTC) -> datetime:
        """Return the time of day: the clock stands in for the class `datetime` too."""
        return (BEGIN + timedelta(seconds=self.seconds + self.ahead)).astimezone(zone)


class Signal:
    """Stands in for an event of threads where there is one thread: waiting lets time pass."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def wait(self, seconds: float) -> bool:
        """Let time pass."""
        self._clock.advance(seconds)
        return False

    def is_set(self) -> bool:
        """Say no: nobody stops a simulated process but its crash."""
        return False

    def set(self) -> None:
        """Do nothing."""

    def clear(self) -> None:
        """Do nothing."""


@contextmanager
def simulated(clock: Clock) -> Iterator[None]:
    """Give the product the simulation's time within the block."""
    given: list[tuple[Any, str, Any]] = [(module, "time", clock) for module in MODULES]
    given.append((evaltap.recorder.delivery.record_writer, "datetime", clock))
    given.append((evaltap.recorder.delivery.retrying_writer, "sleep", clock.sleep))
    given += [(module, "utc_now", clock.utc_now) for module in STAMPING]
    kept = [(module, name, getattr(module, name)) for module, name, _ in given]
    for module, name, value in given:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)
