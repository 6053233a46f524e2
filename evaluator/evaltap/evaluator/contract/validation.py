"""Checks of criteria: unknown keys and missing parts are configuration errors."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from evaltap.evaluator.contract.errors import MetricError
from evaltap.schemas.formats.metric import Criterion, EvalMetric

Part = TypeVar("Part")


def reject_unknown(part: BaseModel, where: str) -> None:
    """Raise MetricError for a key that nothing reads: a typing error would change scores."""
    if part.model_extra:
        known = ", ".join(field.alias or name for name, field in type(part).model_fields.items())
        raise MetricError(f"{where} has the key '{next(iter(part.model_extra))}'; known: {known}")


def known_keys(part: BaseModel, where: str) -> None:
    """Raise MetricError for a key that nothing reads, at any depth but in other metrics."""
    reject_unknown(part, where)
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel) and not isinstance(one, EvalMetric):
                known_keys(one, f"{where}.{field.alias or name}")


def require(
    metric: EvalMetric, read: Callable[[Criterion], Part | None], key: str, *, closed: bool = False
) -> Part:
    """Return the part of the metric's criterion that `read` reads; MetricError when it is not given.

    A `closed` part may have no keys but the known ones.
    """
    part = read(metric.criterion) if metric.criterion else None
    if part is None:
        given = list(metric.criterion.model_dump(by_alias=True)) if metric.criterion else []
        raise MetricError(
            f"criterion.{key} not configured: found {', '.join(given) or 'no criterion'}; "
            f"add criterion.{key} to the metric",
            metric_name=metric.metric_name,
        )
    if closed and isinstance(part, BaseModel):
        known_keys(part, f"criterion.{key}")
    return part
