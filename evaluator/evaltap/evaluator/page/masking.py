"""Hide the texts of users and agents from readers who may only see figures."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, Final

from evaltap.evaluator.analysis.filters.language import Filter
from evaltap.evaluator.page.request import PageAnswer

HIDDEN: Final = "(hidden)"
CONTENTS: Final = frozenset(
    {
        "actual", "answer", "arguments", "changes", "comment", "correction", "detail", "distance", "error",
        "evidence", "example", "expected", "expected_answer", "message", "opening", "pattern", "raw",
        "reason", "result", "sentence", "user", "why",
    }
)  # fmt: skip
"""Fields that contain or may quote recorded text: questions, answers, arguments, reasons."""
CONTENTS_OF: Final[Mapping[str, frozenset[str]]] = {
    "Argument": frozenset({"value"}),
    "GateVerdict": frozenset({"feedback"}),
    "ReasonCount": frozenset({"text", "words"}),
}
"""Fields that contain such text only in these classes."""
_ASKS: Final = frozenset({"", "reason"})


def masked(shown: PageAnswer) -> PageAnswer:
    """Return a page without contents; its JSON contains none either."""
    return replace(shown, data=_walked(shown.data))


def without_words(found: Filter) -> tuple[Filter, list[str]]:
    """Return a filter that does not search contents, and notes on the removed terms.

    The number of cases that contain a word would reveal the content.
    """
    kept = tuple(term for term in found.terms if term.field not in _ASKS)
    if len(kept) == len(found.terms):
        return found, []
    return replace(found, terms=kept), [
        "content is hidden from viewers, so words and reason: match nothing"
    ]


def _walked(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        names = CONTENTS | CONTENTS_OF.get(type(value).__name__, frozenset())
        made = {
            one.name: _item(one.name, getattr(value, one.name), names)
            for one in fields(value)
            if one.init
        }
        return replace(value, **made)
    if isinstance(value, Mapping):
        return {name: _item(str(name), item, CONTENTS) for name, item in value.items()}
    if isinstance(value, tuple) and (named := getattr(value, "_fields", ())):
        names = CONTENTS | CONTENTS_OF.get(type(value).__name__, frozenset())
        return type(value)(
            *(_item(name, item, names) for name, item in zip(named, value, strict=True))
        )
    if isinstance(value, tuple | list):
        return type(value)(map(_walked, value))
    return value


def _item(name: str, value: Any, names: frozenset[str]) -> Any:
    if name not in names:
        return _walked(value)
    if isinstance(value, str):
        return HIDDEN if value else value
    if isinstance(value, Sequence):
        return type(value)(HIDDEN if isinstance(one, str) else _walked(one) for one in value)  # type: ignore[call-arg]
    return _walked(value)
