"""The criterion of the deterministic rule evaluator (evaltap's own part of a metric)."""

from typing import Annotated

from evaltap.schemas.base import AnyValue, Keep, WireModel


class Rule(WireModel):
    """One check of one text."""

    id: str = ""
    type: str = ""
    """exact | contains | regex | length | json | keywords."""
    value: AnyValue = None
    values: list[str] = []
    mode: str = ""
    case_insensitive: bool = False
    min: Annotated[float | None, Keep] = None
    max: Annotated[float | None, Keep] = None
    schema_: AnyValue = None
    weight: Annotated[float | None, Keep] = None


class RulesCriterion(WireModel):
    """Rules over one text of a turn; the turn's score is the weighted share of rules that hold."""

    target: str = ""
    rules: list[Rule] = []
