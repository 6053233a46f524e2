"""Validate criteria: unknown keys and missing parts are configuration errors."""

from collections.abc import Callable
from typing import TypeVar

from pydantic import BaseModel

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.schemas.formats.metric import Criterion, EvalMetric
from evaltap.schemas.text import did_you_mean

Part = TypeVar("Part")


def reject_unknown(part: BaseModel, where: str) -> None:
    """Raise MetricError for an unknown key: ignoring a typing error would change scores."""
    if part.model_extra:
        key = next(iter(part.model_extra))
        known = [field.alias or name for name, field in type(part).model_fields.items()]
        hint = did_you_mean(key, known) or f"known: {', '.join(known)}"
        raise MetricError(f"{where} has the unknown key '{key}'; {hint}")


def known_keys(part: BaseModel, where: str) -> None:
    """Raise MetricError for an unknown key at any depth, except inside nested metrics."""
    reject_unknown(part, where)
    for name, field in type(part).model_fields.items():
        value, place = getattr(part, name), f"{where}.{field.alias or name}"
        several = isinstance(value, list)
        for number, one in enumerate(value if several else [value]):
            if isinstance(one, BaseModel) and not isinstance(one, EvalMetric):
                known_keys(one, f"{place}[{number}]" if several else place)


def require(
    metric: EvalMetric, read: Callable[[Criterion], Part | None], key: str, *, closed: bool = False
) -> Part:
    """Return the part of the metric's criterion that `read` selects; raise MetricError if it is missing.

    A `closed` part may only have known keys.
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
