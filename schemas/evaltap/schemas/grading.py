"""Criteria that a judge answers on a scale (evaltap's own part of a metric)."""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.base import Keep, Map, WireModel


class GradedCriterion(WireModel):
    """One question to the judge, the scale of its answer, and its share in the overall score."""

    id: str = ""
    text: str = ""
    scale: str = ""
    """Empty or `binary` (0 or 1), `likert5` (1 to 5), `numeric` (`min` to `max`), `pass_fail`,
    `custom` (one of `labels`)."""
    min: Annotated[float | None, Keep] = None
    """Of `numeric`: the lowest answer, 0 when not given."""
    max: Annotated[float | None, Keep] = None
    """Of `numeric`: the highest answer, 10 when not given."""
    labels: Annotated[dict[str, float], Map] = {}
    """Of `custom`: each answer that is allowed, and the score from 0 to 1 it stands for."""
    weight: Annotated[float | None, Keep] = None
    """Share in the score relative to the other criteria; 1 when not given."""


class GradingCriterion(WireModel):
    """Criteria with scales; the turn's score is the weighted mean of the normalised answers."""

    criteria: list[GradedCriterion] = Field(default_factory=list)
    with_reference: bool = False
    """Show the judge the expected final response as well."""
    with_tools: bool = False
    """Show the judge the tool calls as well."""
