"""A report without personal data: files that were scored may hold what a recorder would have redacted."""

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
        "kind",
        "metric_name",
        "rubric_id",
        "run_id",
        "started_at",
        "status",
    }
)
"""Fields that name things: reports are joined by them."""


def redacted(value: T, clean: Callable[[str], str]) -> T:
    """Return a report, or a part of one, with every recorded text put through `clean`.

    Names and figures stay.
    """
    found: Any = value
    if isinstance(value, str):
        found = clean(value)
    elif isinstance(value, tuple | list):
        items = [redacted(item, clean) for item in value]
        make = getattr(value, "_make", type(value))  # a named tuple takes its fields one by one
        found = make(items)
    elif is_dataclass(value) and not isinstance(value, type):
        changes = {
            field.name: redacted(getattr(value, field.name), clean)
            for field in fields(value)
            if field.init and field.name not in _NAMES
        }
        found = replace(value, **changes)
    return cast(T, found)
