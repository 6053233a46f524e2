"""The drift report: by tool, what was answered, what was not, and what was no longer asked."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from evaltap.evaluator.scoring.criteria.content.json_value import difference
from evaltap.experiments.mocks.tape import likeness

_EXAMPLES = 3
_ALIKE = 0.6


@dataclass(slots=True)
class ToolDrift:
    """The calls of one tool over many units."""

    hits: int = 0
    misses: int = 0
    real: int = 0
    """Calls that ran the tool."""
    invented: int = 0
    """Calls that a model has answered."""
    closest: int = 0
    """Calls that got the result of the closest recorded one."""
    unused: int = 0
    """Recorded calls that were not made."""
    changed: Counter[str] = field(default_factory=Counter)
    """How arguments differ from those recorded, for calls that missed while a recorded one was not made."""

    def data(self) -> dict[str, Any]:
        found = asdict(self)
        del found["changed"]
        most = self.changed.most_common(_EXAMPLES)
        return found | {
            "changed_arguments": [{"difference": text, "count": count} for text, count in most]
        }


def drift_of(units: Iterable[Mapping[str, Any] | None]) -> dict[str, ToolDrift]:
    """Return the drift by tool; `units` are what `Tape.data` returned."""
    of: defaultdict[str, ToolDrift] = defaultdict(ToolDrift)
    for unit in units:
        for turn in (unit or {}).get("turns", ()):
            for tool, count in turn["hits"].items():
                of[tool].hits += count
            for one in turn["real"]:
                of[one["tool"]].real += 1
            for one in turn["invented"]:
                of[one["tool"]].invented += 1
            for one in turn.get("closest", ()):  # earlier stores have none
                of[one["tool"]].closest += 1
            for one in () if turn["misses"] else turn["unused"]:  # a miss cuts the turn short
                of[one["tool"]].unused += 1
            for one in turn["misses"]:
                of[one["tool"]].misses += 1
                if text := _changed(one, turn["unused"]):
                    of[one["tool"]].changed[text] += 1
    return dict(sorted(of.items()))


def _changed(missed: Mapping[str, Any], unused: Iterable[Mapping[str, Any]]) -> str:
    if not (same := [one["arguments"] for one in unused if one["tool"] == missed["tool"]]):
        return ""
    nearest = max(same, key=lambda one: likeness(missed["arguments"], one))
    return difference(missed["arguments"], nearest, 0) or ""


def totals(units: Iterable[Mapping[str, Any] | None]) -> dict[str, Any]:
    """Return the sums over all tools and the drift by tool, as JSON data."""
    by_tool = drift_of(units)
    names = ("hits", "misses", "unused", "real", "invented", "closest")
    sums = {name: sum(getattr(one, name) for one in by_tool.values()) for name in names}
    return {**sums, "by_tool": {name: one.data() for name, one in by_tool.items()}}


def renamed(missed: Iterable[str], recorded: Sequence[str], asked: Sequence[str]) -> Iterator[str]:
    """Say of tools with missed calls that were not recorded which recorded name is most like theirs.

    `asked` are the names under which recorded calls were answered: those still are what they were.
    """
    gone = [one for one in recorded if one not in asked]
    for name in missed:
        old = max(gone, key=lambda one: likeness(name, one), default="")
        if old and name not in recorded and likeness(name, old) >= _ALIKE:
            yield f"{name} was not recorded; if {old} is its old name: --rename-tool {name}={old}"
