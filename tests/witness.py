"""Sees every run twice: through a plugin and through the spans of the same run."""

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from evaltap.recorder.spans import CaseSpanProcessor
from inline_recorder import InlineRecorder
from span_builders import intermediate, tools, words


class Witness:
    """Two recorders; the test gives `by_plugin` to a plugin and `provider` to an instrumentation.

    Without `exact_errors` both must only agree on what failed: some spans tell little of why; and
    without `agents` not on who made a call.
    """

    def __init__(self, *, exact_errors: bool = True, agents: bool = True) -> None:
        self._exact_errors, self._agents = exact_errors, agents
        self.by_plugin, self.by_spans = InlineRecorder(), InlineRecorder()
        self.processor = CaseSpanProcessor(recorder=self.by_spans)
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.processor)

    def turns(self, *, parallel: bool = False) -> list[dict[str, Any]]:
        """Return the facts of the plugin's turns, after comparing them with those of the spans.

        Calls in `parallel` threads begin in any order, and the two may see another one.
        """
        self.by_spans.flush()
        seen = facts_of(self.by_plugin.cases)
        told = facts_of(self.by_spans.cases)
        if parallel:
            for turn in (*seen, *told):
                _sort_calls(turn)
        assert self._comparable(seen) == self._comparable(told), f"plugin: {seen}\n spans: {told}"
        assert self.by_plugin.faults == self.by_spans.faults == []
        return seen

    def _comparable(self, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [dict(turn) for turn in turns]
        for turn in found:
            if not self._exact_errors:
                turn["errors"] = [error is not None for error in turn["errors"]]
                turn["error"] = turn["error"] is not None
            if not self._agents:
                del turn["agents"]
        return found

    def turn(self, *, parallel: bool = False) -> dict[str, Any]:
        """Return the facts of the only turn."""
        (turn,) = self.turns(parallel=parallel)
        return turn


def _sort_calls(turn: dict[str, Any]) -> None:
    """Put what is told of each call in the order of the calls' ids."""
    order = sorted(range(len(turn["tools"])), key=lambda place: turn["tools"][place][0])
    for fact in ("tools", "errors", "agents", "parents"):
        turn[fact] = [turn[fact][place] for place in order]


def facts_of(cases: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what both ways must agree on, for each case in order of time."""
    return [facts(case) for case in sorted(cases, key=lambda case: case["creationTimestamp"])]


def facts(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return what both ways must agree on for one turn."""
    (turn,) = case["actualConversation"]
    calls = turn.get("tools", [])
    return {
        "session": case["evalId"],
        "user": words(turn, "userContent"),
        "final": words(turn, "finalResponse"),
        "tools": tools(turn),
        "errors": [tool.get("error") for tool in calls],
        "agents": [tool.get("agent") for tool in calls],
        "parents": [tool.get("parentId") for tool in calls],
        "intermediate": intermediate(turn),
        "status": turn["telemetry"]["status"],
        "error": turn["telemetry"].get("error"),
    }
