"""Observe every run twice: through a plugin and through the spans of the same run."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from opentelemetry.sdk.trace import TracerProvider

from evaltap.recorder.sources.span_processor import CaseSpanProcessor
from support.builders.inline_recorder import InlineRecorder
from support.builders.span_builders import intermediate, tools, words


class Witness:
    """Two recorders; the test gives `by_plugin` to a plugin and `provider` to an instrumentation.

    Without `exact_errors` both must only agree on what failed: some spans tell little of why.  On the
    facts named in `differ` they need not agree at all.
    """

    def __init__(self, *, exact_errors: bool = True, differ: Collection[str] = ()) -> None:
        self._exact_errors, self._differ = exact_errors, differ
        self.by_plugin, self.by_spans = InlineRecorder(), InlineRecorder()
        self.processor = CaseSpanProcessor(recorder=self.by_spans)
        self.provider = TracerProvider()
        self.provider.add_span_processor(self.processor)

    def turns(self, *, parallel: bool = False) -> list[dict[str, Any]]:
        """Return the facts of the plugin's turns, after comparing them with those of the spans.

        What is done in `parallel` begins in any order, and the two may see another one.
        """
        self.by_spans.flush()
        seen = facts_of(latest(self.by_plugin.cases), parallel=parallel)
        told = facts_of(latest(self.by_spans.cases), parallel=parallel)
        assert self._comparable(seen) == self._comparable(told), f"plugin: {seen}\n spans: {told}"
        assert self.by_plugin.faults == self.by_spans.faults == []
        return seen

    def _comparable(self, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
        found = [dict(turn) for turn in turns]
        for turn in found:
            if not self._exact_errors:
                turn["errors"] = [error is not None for error in turn["errors"]]
                turn["error"] = turn["error"] is not None
            for fact in self._differ:
                del turn[fact]
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


def facts_of(cases: Sequence[Mapping[str, Any]], *, parallel: bool = False) -> list[dict[str, Any]]:
    """Return what both ways must agree on, for each case in order of time.

    Of what happened in `parallel` only the sessions and the ids of the calls give an order.
    """
    found = [facts(case) for case in sorted(cases, key=lambda case: case["creationTimestamp"])]
    if parallel:
        found.sort(key=lambda turn: str(turn["session"]))
        for turn in found:
            _sort_calls(turn)
    return found


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
        "tokens": tuple(turn["telemetry"].get(key) for key in ("inputTokens", "outputTokens")),
    }


def latest(cases: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the last revision of each turn."""
    ids = ((case["evalId"], case["actualConversation"][0]["invocationId"]) for case in cases)
    return list(dict(zip(ids, cases, strict=True)).values())
