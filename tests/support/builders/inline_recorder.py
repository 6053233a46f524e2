"""A recorder without queue and thread: observations are processed immediately, in place."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.copying import thaw
from evaltap.recorder.observation import Observation, RunStarted, ToolCalled, ToolReturned, snapshot
from evaltap.recorder.protocols import ItemSource

LATER_NS = 4_000_000_000_000_000_000
"""A time after every time in these tests (the year 2096)."""
FIELD_MAX_BYTES = 1_000_000


class InlineRecorder:
    """Collects observations and finished cases; `faults` names the callbacks that went wrong."""

    def __init__(self) -> None:
        self.assembler = Assembler()
        self.observations: list[Observation] = []
        self.cases: list[dict[str, Any]] = []
        self.faults: list[str] = []
        self.sources: list[ItemSource] = []
        self.closed = False

    def register(self, source: ItemSource) -> None:
        """Take part in flush and close."""
        self.sources.append(source)

    def submit(self, source: ItemSource, item: Any) -> None:
        """Process one item of a source."""
        self._feed(source.process(item))

    def observe(self, observation: Observation) -> None:
        """Take one observation, copied at once as the recorder does."""
        self._feed([_thawed(snapshot(observation, FIELD_MAX_BYTES)[0])])

    def feedback(self, session_id: str, **given: Any) -> str:
        """Return the id of feedback; nothing keeps it."""
        return session_id

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Note a fault that a callback swallowed."""
        self.faults.append(f"{where}: {error!r}")

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Let the time pass that the sources wait for."""
        for source in self.sources:
            self._feed(source.tick(LATER_NS))
            self._feed(source.tick(LATER_NS + 10_000_000_000))
        return True

    def close(self, timeout_seconds: float | None = None) -> None:
        """Close the sources and every run that is open."""
        for source in self.sources:
            self._feed(source.close())
        self.cases += self.assembler.close_all()
        self.closed = True

    def _feed(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            self.observations.append(observation)
            self.cases += self.assembler.feed(observation)


def _thawed(observation: Observation) -> Observation:
    """Return the observation with its JSON values, so that tests can look at them."""
    if isinstance(observation, ToolCalled):
        return replace(observation, arguments=thaw(observation.arguments))
    if isinstance(observation, ToolReturned):
        return replace(observation, result=thaw(observation.result))
    if isinstance(observation, RunStarted) and observation.state is not None:
        return replace(observation, state=thaw(observation.state))
    return observation
