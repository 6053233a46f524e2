"""What answers a tool call for which nothing was recorded, and which calls count as recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from evaltap.schemas.data import Json

Match: TypeAlias = Literal["args", "fifo", "order"]
"""args: a call with equal arguments; fifo: the next call of the tool; order: the next call of the turn."""
OnMiss: TypeAlias = Literal["fail", "real", "llm", "closest"]
"""fail: the run ends; real: the tool runs; llm: a model invents a result; closest: the result that was
recorded for the nearest arguments."""


@dataclass(frozen=True, slots=True)
class MockPolicy:
    """How tool calls are answered; part of an experiment's configuration."""

    recorded: bool = True
    """Whether recorded results answer; otherwise only mocks that the case declares."""
    match: Match = "args"
    ignore: Mapping[str, Mapping[str, Json]] = field(default_factory=dict)
    """By tool: a tree of arguments that are not compared, `{"request_id": true}`."""
    on_miss: Mapping[str, OnMiss] = field(default_factory=dict)
    """By tool, for calls without a recording; the others fail."""
    real: bool = False
    """Whether every tool may run that has no recording."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The recorded name of a tool by the name that it has now."""
    latency: bool = False
    """Whether answers take as long as they took when they were recorded."""
    stop_off_script: bool = False
    """Whether a run ends after a turn whose calls are not those of the recording."""

    def missed(self, tool: str) -> OnMiss:
        """Return what becomes of a call of this tool without a recording."""
        return self.on_miss.get(tool, "real" if self.real or not self.recorded else "fail")

    @property
    def invents(self) -> bool:
        """Whether a model invents results."""
        return "llm" in self.on_miss.values()

    @property
    def may_run(self) -> list[str]:
        """The tools named for real runs."""
        return sorted(name for name, policy in self.on_miss.items() if policy == "real")
