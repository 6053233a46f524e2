"""A `ValueCriterion` compiled to a tree: how the values at each path are compared."""

from collections.abc import Callable, Hashable
from typing import Any, Final

from evaltap.evaluator.criteria.text import search
from evaltap.evaluator.errors import MetricError
from evaltap.schemas.trajectory import PathRule, ValueCriterion

MODES: Final = ("exact", "ignore", "subset", "superset")
MATCHES: Final = ("exact", "regex", "set", "present")

_TRUE: Final = ("true",)
_FALSE: Final = ("false",)


class Comparison:
    """How the values at one path are compared; `parts` are the paths below it.

    With `by_key`, two values that are no objects are equal exactly when their `key`s are.  `whole`
    values are compared at once, without a look inside.
    """

    __slots__ = (
        "_default", "_only", "_tolerance", "by_key", "identity", "ignore", "key", "match", "mode",
        "outermost", "parts", "required", "weight", "whole",
    )  # fmt: skip

    def __init__(self, rule: PathRule, default: "Comparison | None" = None) -> None:
        self.weight = 1.0 if rule.weight is None else rule.weight
        self.ignore = rule.ignore
        self.required = rule.required
        self.match = rule.match or "exact"
        self.mode = "exact"
        self.outermost = False
        self.parts: dict[str, Comparison] = {}
        self.key, self.whole = _key_of(rule)
        # Tells values apart that any comparison could tell apart, so answers can be remembered.
        self.identity: Callable[[Any], Hashable] = _plain_key
        self._tolerance = rule.tolerance
        self.by_key = rule.tolerance is None and self.match != "regex"
        self._default = self if default is None else default
        self._only = False

    def part(self, key: str) -> "Comparison":
        """Return how the value at one more key is compared."""
        found = self.parts.get(key) or self.parts.get("*")
        if found is not None:
            return found
        return _IGNORED if self._only else self._default

    def equal(self, reference: Any, actual: Any) -> bool:
        """Tell whether two values are equal; raise ValueError for a pattern that is none."""
        if self.match == "regex" and isinstance(reference, str) and isinstance(actual, str):
            return search(reference, actual)
        if self._tolerance is not None:
            return self._close(reference, actual, self._tolerance)
        return self.key(reference) == self.key(actual)

    def _close(self, reference: Any, actual: Any, tolerance: float) -> bool:
        if _is_number(reference) and _is_number(actual):
            return bool(reference == actual or abs(reference - actual) <= tolerance)
        if type(reference) is list and type(actual) is list and self.match != "set":
            return len(reference) == len(actual) and all(
                self._close(one, other, tolerance)
                for one, other in zip(reference, actual, strict=True)
            )
        if type(reference) is dict and type(actual) is dict:
            return reference.keys() == actual.keys() and all(
                self._close(value, actual[key], tolerance) for key, value in reference.items()
            )
        return self.key(reference) == self.key(actual)

    def add(self, rule: PathRule, keys: list[str]) -> None:
        """Add a rule for a path below this one."""
        if len(keys) == 1:
            made = Comparison(rule, self._default)
            old = self.parts.get(keys[0])
            if old is not None:  # a deeper path was named first
                made.parts, made._only = old.parts, old._only
            self.parts[keys[0]] = made
            return
        inner = self.parts.get(keys[0])
        if inner is None:
            inner = self.parts[keys[0]] = self._blank()
        inner.add(rule, keys[1:])

    def keep_only(self, keys: list[str]) -> None:
        """Leave out every path but this one and others kept."""
        self._only = True
        inner = self.parts.get(keys[0])
        if inner is None:
            inner = self.parts[keys[0]] = self._blank()
        if len(keys) > 1:
            inner.keep_only(keys[1:])

    def _blank(self) -> "Comparison":
        """Return a node that compares as values without a rule are compared."""
        default = self._default
        blank = Comparison(PathRule(), default)
        blank.key, blank.whole, blank.match = default.key, default.whole, default.match
        blank._tolerance, blank.by_key = default._tolerance, default._tolerance is None
        return blank


def compile_comparison(criterion: ValueCriterion) -> Comparison:
    """Return the root of the tree; raise MetricError when the criterion makes no sense."""
    reject_unknown(criterion, "arguments, results or state")
    mode = criterion.mode or "exact"
    if mode not in MODES:
        raise MetricError(f"mode is '{mode}'; expected one of {', '.join(MODES)}")
    plain = PathRule(
        tolerance=criterion.tolerance, case_fold=criterion.case_fold, coerce=criterion.coerce
    )
    _check(plain, "tolerance")
    root = Comparison(plain, Comparison(plain))
    root.mode = mode
    for rule in criterion.paths:
        reject_unknown(rule, f"path '{rule.path}'")
        _check(rule, f"path '{rule.path}'")
        inherited = {
            "tolerance": criterion.tolerance if rule.tolerance is None else rule.tolerance,
            "case_fold": rule.case_fold or criterion.case_fold,
            "coerce": rule.coerce or criterion.coerce,
        }
        root.add(rule.model_copy(update=inherited), _keys(rule.path))
    for path in criterion.keys:
        root.keep_only(_keys(path))
    for part in root.parts.values():
        part.outermost = True
    return root


def reject_unknown(model: ValueCriterion | PathRule, where: str) -> None:
    """Raise MetricError for a key that nothing reads: a typing error would change scores."""
    if model.model_extra:
        known = ", ".join(field.alias or name for name, field in type(model).model_fields.items())
        raise MetricError(f"{where} has the key '{next(iter(model.model_extra))}'; known: {known}")


def _check(rule: PathRule, where: str) -> None:
    if rule.match and rule.match not in MATCHES:
        raise MetricError(f"{where}: match is '{rule.match}'; expected one of {', '.join(MATCHES)}")
    if rule.weight is not None and not 0 <= rule.weight < float("inf"):
        raise MetricError(f"{where}: weight is {rule.weight}; expected 0 or more")
    if rule.tolerance is not None and not rule.tolerance >= 0:
        raise MetricError(f"{where}: tolerance is {rule.tolerance}; expected 0 or more")


def _keys(path: str) -> list[str]:
    keys = path.removeprefix("$.").split(".")
    if not all(keys):
        raise MetricError(f"path is '{path}'; expected keys with dots between them, e.g. filter.date")
    return keys


def _key_of(rule: PathRule) -> tuple[Callable[[Any], Hashable], bool]:
    """Return the key of a value, and whether values are compared without a look inside."""
    key: Callable[[Any], Hashable] = _plain_key
    if rule.case_fold or rule.coerce:
        key = _folding_key(rule.case_fold, rule.coerce)
    if rule.match == "present":
        return (lambda _: None), True
    if rule.match == "set":
        return (lambda value: frozenset(map(key, value)) if type(value) is list else key(value)), True
    return key, rule.match == "regex"


def _plain_key(value: Any) -> Hashable:
    """Return something that equals the key of another value exactly when the two are equal."""
    kind = type(value)
    if kind is str or kind is int or kind is float or value is None:
        return value  # type: ignore[no-any-return]  # a scalar is hashable
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is list:
        return ("list", *map(_plain_key, value))
    return frozenset([(key, _plain_key(item)) for key, item in value.items()])


def _folding_key(fold: bool, coerce: bool) -> Callable[[Any], Hashable]:
    def key(value: Any) -> Hashable:
        kind = type(value)
        if kind is str:
            if coerce and (number := _number(value)) is not None:
                return number
            return value.casefold() if fold else value  # type: ignore[no-any-return]  # a text
        if kind is list:
            return ("list", *map(key, value))
        if kind is dict:
            return frozenset([(name, key(item)) for name, item in value.items()])
        return _plain_key(value)

    return key


def _number(text: str) -> float | int | None:
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if number - number == 0 else None


def _is_number(value: Any) -> bool:
    return type(value) is int or type(value) is float


_IGNORED: Final = Comparison(PathRule(ignore=True))
