"""The criterion of the trajectory suite (evaltap's own part of a metric).

What each evaluator of the suite reads of it is told in `docs/reference/evaluators`.
"""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.base import Keep, Map, WireModel
from evaltap.schemas.case import Tool


class PathRule(WireModel):
    """How the value at one path is compared, and what it weighs among its siblings.

    A path names keys from the outside in, with dots between them: `filter.date`.  `*` stands for any
    key, or for each item of a list.
    """

    path: str = ""
    weight: Annotated[float | None, Keep] = None
    """Share in the score of the enclosing object, relative to the other keys; 1 when not given."""
    ignore: bool = False
    required: bool = False
    """When this path differs, the whole value scores 0."""
    match: str = ""
    """Empty or `exact`, `regex` (the reference is an RE2 pattern), `set` (a list without order and
    repetition), `present` (any value)."""
    tolerance: Annotated[float | None, Keep] = None
    """Largest absolute difference of two equal numbers."""
    case_fold: bool = False
    coerce: bool = False
    """A text that is a number equals that number."""


class ValueCriterion(WireModel):
    """How alike two JSON values are: the arguments of two calls, two results, two states."""

    mode: str = ""
    """Empty or `exact`, `ignore`, `subset` (the actual value may lack keys of the reference),
    `superset` (it may have more)."""
    keys: list[str] = Field(default_factory=list)
    """Only these paths are compared; all when empty."""
    paths: list[PathRule] = Field(default_factory=list)
    tolerance: Annotated[float | None, Keep] = None
    case_fold: bool = False
    coerce: bool = False


class EditCosts(WireModel):
    """What the steps of an edit script cost; 1 each when not given, and no swaps."""

    insert: Annotated[float | None, Keep] = None
    delete: Annotated[float | None, Keep] = None
    substitute: Annotated[float | None, Keep] = None
    """For calls to different tools; one to the same tool costs 1 minus the likeness."""
    swap: Annotated[float | None, Keep] = None
    """For two neighbours in the wrong order; without it there are no swaps."""


class TrajectoryReference(WireModel):
    """One trajectory that would have been right."""

    tools: list[Tool] = Field(default_factory=list)


class TrajectoryCriterion(WireModel):
    """What the evaluators of the trajectory suite are told; each reads the part it needs."""

    arguments: ValueCriterion | None = None
    tool_arguments: Annotated[dict[str, ValueCriterion], Map] = Field(default_factory=dict)
    """Takes the place of `arguments` for calls to the named tool."""
    results: ValueCriterion | None = None
    state: ValueCriterion | None = None
    ordered: bool = False
    attempts: str = ""
    """`all`, `successful` or `final`; each evaluator has its own default."""
    agents: str = ""
    """Empty or `flattened`, `per_agent`."""
    references: list[TrajectoryReference] = Field(default_factory=list)
    """Trajectories that are right besides the expected turn's own; the best one counts."""
    costs: EditCosts | None = None
    forbidden: list[str] = Field(default_factory=list)
    required_tools: list[str] = Field(default_factory=list)
    max_calls: Annotated[int | None, Keep] = None
    max_calls_per_tool: Annotated[dict[str, int], Map] = Field(default_factory=dict)
    optimal_steps: Annotated[int | None, Keep] = None
    repeats: Annotated[int | None, Keep] = None
    """From how many repetitions on it is a loop; 3 when not given."""
    max_period: Annotated[int | None, Keep] = None
    """Longest sequence of calls whose repetition is looked for; 4 when not given."""
    unchanged_retries: bool = False
    """Count a repetition with the same arguments as a recovery, too."""
    max_states: Annotated[int | None, Keep] = None
    """How many ways to go on the search over partial orders tries for each call; 5000 when not given."""
