"""Criteria of what a run may cost and which tools it must use (evaltap's own parts of a metric)."""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.base import AnyValue, Keep, WireModel


class OperationsCriterion(WireModel):
    """Upper bounds, inclusive; each evaluator reads those it is named for."""

    max_cost_usd: Annotated[float | None, Keep] = None
    max_seconds: Annotated[float | None, Keep] = None
    max_tokens: Annotated[int | None, Keep] = None
    max_input_tokens: Annotated[int | None, Keep] = None
    max_output_tokens: Annotated[int | None, Keep] = None
    whole_case: bool = False
    """Bound the sum over all turns; otherwise each turn."""


class ToolUse(WireModel):
    """What is wanted of the calls to one tool."""

    name: str = ""
    optional: bool = False
    """It need not be called, but its calls must be as told."""
    arguments: AnyValue = None
    """Some call must have at least these arguments; with `optional` each call must."""
    min_calls: Annotated[int | None, Keep] = None
    max_calls: Annotated[int | None, Keep] = None


class ToolUseCriterion(WireModel):
    """Which tools a turn must use, and how."""

    tools: list[ToolUse] = Field(default_factory=list)
    no_others: bool = False
    """Calls to tools that are not named count as a fault."""
    attempts: str = ""
    """Empty or `successful`, `final`, `all`."""
