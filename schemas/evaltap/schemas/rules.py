"""The criterion of the deterministic rule evaluator (evaltap's own part of a metric)."""

from typing import Annotated

from pydantic import Field

from evaltap.schemas.base import AnyValue, Keep, WireModel


class Rule(WireModel):
    """One check of one text; which fields it reads depends on its type.

    exact: `value`.  contains: `values` and `mode`.  regex: `value`, in RE2 syntax, anywhere.
    length: `min` and `max` in code points.  json: optionally `schema`.  keywords: `values`, as
    whole words, scored by the share that occurs.
    """

    id: str = ""
    type: str = ""
    """exact | contains | regex | length | json | keywords."""
    value: Annotated[str | None, Keep] = None
    values: list[str] = Field(default_factory=list)
    mode: str = ""
    """For contains: empty or `any`, `all`, `fraction` (the share of values that occur)."""
    case_insensitive: bool = False
    negate: bool = False
    """Turn the score round, for what must not be there."""
    min: Annotated[int | None, Keep] = None
    max: Annotated[int | None, Keep] = None
    schema_: AnyValue = Field(default=None, alias="schema")
    weight: Annotated[float | None, Keep] = None
    """Share in the score relative to the other rules; 1 when not given."""


class RulesCriterion(WireModel):
    """Rules over one text of a turn; the turn's score is the weighted mean of the rules' scores."""

    target: str = ""
    """Empty or `finalResponse`, `userContent`."""
    rules: list[Rule] = Field(default_factory=list)
