"""A recorder without queue and thread: what is handed over is processed at once, in place."""

from typing import Any, Protocol

from evaltap.recorder.assembler import Assembler
from evaltap.recorder.observation import Observation

LATER_NS = 4_000_000_000_000_000_000
"""A time after every time in these tests (the year 2096)."""


class Source(Protocol):
    """What the recorder asks of a registered source."""

    def process(self, item: Any) -> Any: ...

    def tick(self, now_ns: int) -> Any: ...

    def close(self) -> Any: ...


class InlineRecorder:
    """Collects observations and finished cases; `faults` names the callbacks that went wrong."""

    def __init__(self) -> None:
        self.assembler = Assembler()
        self.observations: list[Observation] = []
        self.cases: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.sources: list[Source] = []
        self.closed = False

    def register(self, source: Source) -> None:
        """Take part in flush and close."""
        self.sources.append(source)

    def submit(self, source: Source, item: Any) -> None:
        """Process one item of a source."""
        self._feed(source.process(item))

    def observe(self, observation: Observation) -> None:
        """Take one observation."""
        self._feed([observation])

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Note a fault that a callback swallowed."""
        self.faults.append(f"{where}: {error!r}")

    def flush(self, timeout_seconds: float = 0.0) -> bool:
        """Let the time pass that the sources wait for."""
        for source in self.sources:
            self._feed(source.tick(LATER_NS))
            self._feed(source.tick(LATER_NS + 10_000_000_000))
        return True

    def close(self, timeout_seconds: float = 0.0) -> None:
        """Close the sources and every run that is open."""
        for source in self.sources:
            self._feed(source.close())
        self.cases += self.assembler.close_all()
        self.closed = True

    def _feed(self, observations: Any) -> None:
        for observation in observations:
            self.observations.append(observation)
            self.cases += self.assembler.feed(observation)
