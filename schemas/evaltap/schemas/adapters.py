"""Criteria of evaluators that live outside of evaltap (evaltap's own parts of a metric)."""

from evaltap.schemas.base import WireModel


class FunctionCriterion(WireModel):
    """A Python function that scores one turn."""

    path: str = ""
    """`package.module:function`; the module is imported, so it can do whatever you can."""
