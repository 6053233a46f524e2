"""The catalogue of evaluators: what each measures and needs, with an example for the metrics file."""

import json
import shutil
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.resources import files
from typing import Final

import orjson

from evaltap.evaluator.scoring.contract.evaluator import Registry

GROUPS: Final = {
    "what happened": "what happened (no reference needed)",
    "expected": "against expected turns (--references)",
    "judge": "scored by a judge (a model)",
    "own": "your own, and several as one",
    "installed": "from other packages",
}
"""The groups of evaluators, by what the user has to provide."""


@dataclass(frozen=True, slots=True)
class Description:
    """An evaluator as it appears in a list."""

    name: str
    group: str
    """A key of GROUPS."""
    measures: str
    needs: str
    """The evidence that the evaluator reads."""
    example: dict[str, object] | None
    """A metric that uses the evaluator, as in a metrics file; None for evaluators of other packages."""

    def data(self) -> dict[str, object]:
        return asdict(self)


@cache
def reference_free() -> frozenset[str]:
    """Return the evaluators that read nothing but what happened: references do not change their scores."""
    return frozenset(one.name for one in _own() if one.group == "what happened")


def _own() -> list[Description]:
    text = files("evaltap.evaluator.scoring.evaluators").joinpath("catalogue.json").read_bytes()
    return [Description(**entry) for entry in orjson.loads(text)]


def described(registry: Registry | None = None) -> list[Description]:
    """Return the installed evaluators: evaltap's in the order of the catalogue, then all others."""
    registry = registry or Registry()
    ours = _own()
    others = set(registry.names()) - {one.name for one in ours}
    return ours + [
        Description(name, "installed", registry.summary(name), "what its package says", None)
        for name in sorted(others)
    ]


def listed(found: Sequence[Description]) -> str:
    """Return the evaluators as text, by group."""
    width = max(len(one.name) for one in found)
    columns = shutil.get_terminal_size().columns
    lines = []
    for group, title in GROUPS.items():
        if members := [one for one in found if one.group == group]:
            lines += ["", f"{title}:"]
            for one in members:
                lines += textwrap.wrap(
                    f"  {one.name:<{width}}  {one.measures}",
                    columns,
                    subsequent_indent=" " * (width + 4),
                )
    lines += ["", "evaltap metrics NAME shows what an evaluator needs, with an example"]
    return "\n".join(lines[1:])


def description_text(one: Description) -> str:
    lines = [one.name, f"  measures  {one.measures}", f"  needs     {one.needs}"]
    if one.example is not None:
        text = json.dumps([one.example], indent=2, ensure_ascii=False)
        lines += ["  example metrics file:", *(f"    {line}" for line in text.splitlines())]
    return "\n".join(lines)
