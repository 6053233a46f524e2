"""Redacted reports: every recorded text cleaned, names and figures kept."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final, TypeVar, cast

T = TypeVar("T")

_NAMES: Final = frozenset(
    {
        "app_name",
        "cases_from",
        "database",
        "ended_at",
        "eval_id",
        "eval_ids",
        "eval_set_id",
        "evaltap_version",
        "evaluator_name",
        "evaluator_version",
        "example_id",
        "generated_at",
        "invocation_id",
        "figures",
        "kind",
        "metric",
        "metric_name",
        "name",
        "rubric_id",
        "run_id",
        "started_at",
        "outcome",
        "status",
    }
)
"""Fields that contain names, by which reports are joined."""


def redacted(value: T, clean: Callable[[str], str]) -> T:
    """Return a report, or a part of it, with `clean` applied to every recorded text.

    Names and figures are unchanged.
    """
    found: Any = value
    if isinstance(value, str):
        found = clean(value)
    elif isinstance(value, tuple | list):
        items = [redacted(item, clean) for item in value]
        make = getattr(value, "_make", type(value))  # a named tuple takes separate arguments
        found = make(items)
    elif is_dataclass(value) and not isinstance(value, type):
        changes = {
            field.name: redacted(getattr(value, field.name), clean)
            for field in fields(value)
            if field.init and field.name not in _NAMES
        }
        found = replace(value, **changes)
    return cast(T, found)
