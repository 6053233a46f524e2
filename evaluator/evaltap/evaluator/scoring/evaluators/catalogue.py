"""The catalogue of evaluators: what each measures and needs, with an example for the metrics file."""

from dataclasses import asdict, dataclass
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
        """Return the description as JSON data."""
        return asdict(self)


def described(registry: Registry | None = None) -> list[Description]:
    """Return the installed evaluators: evaltap's in the order of the catalogue, then all others."""
    registry = registry or Registry()
    text = files("evaltap.evaluator.scoring.evaluators").joinpath("catalogue.json").read_bytes()
    ours = [Description(**entry) for entry in orjson.loads(text)]
    others = set(registry.names()) - {one.name for one in ours}
    return ours + [
        Description(name, "installed", registry.summary(name), "what its package says", None)
        for name in sorted(others)
    ]
