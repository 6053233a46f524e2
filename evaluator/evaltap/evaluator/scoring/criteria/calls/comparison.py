"""A `ValueCriterion` compiled to a tree: how the values at each path are compared."""

from collections.abc import Callable, Hashable
from typing import Final

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.validation import reject_unknown
from evaltap.evaluator.scoring.criteria.content.text import search
from evaltap.schemas.data import Json
from evaltap.schemas.formats.criteria import PathRule, ValueCriterion
from evaltap.schemas.text import did_you_mean_one_of

MODES: Final = ("exact", "ignore", "subset", "superset")
MATCHES: Final = ("exact", "regex", "set", "present")

_TEXT: Final = {str}
PLAIN: Final = frozenset({str, int, bool, type(None)})

_TRUE: Final = ("true",)
_FALSE: Final = ("false",)


class Comparison:
    """The comparison of the values at one path; `parts` are the comparisons below it.

    Two values are equal if their `key`s are, unless `match` or `tolerance` applies.  `whole` values are
    compared as a whole, not part by part.
    """

    __slots__ = (
        "_inherited",
        "_only",
        "default",
        "ignore",
        "key",
        "match",
        "mode",
        "parts",
        "plain",
        "required",
        "tolerance",
        "weight",
        "whole",
    )

    def __init__(self, rule: PathRule, *, leaf: bool = False) -> None:
        self.weight = 1.0 if rule.weight is None else rule.weight
        self.ignore = rule.ignore
        self.required = rule.required
        self.match = rule.match or "exact"
        self.tolerance = rule.tolerance
        self.mode = "exact"
        self.parts: dict[str, Comparison] = {}
        self.key, self.whole = _key_of(rule)
        self.plain = self.key is identity and self.match == "exact" and rule.tolerance is None
        """Whether two values of one kind in PLAIN are compared as in Python."""
        self._inherited = PathRule(
            tolerance=rule.tolerance, case_fold=rule.case_fold, coerce=rule.coerce
        )
        self.default = self if leaf else Comparison(self._inherited, leaf=True)
        self._only: set[str] = set()

    @property
    def differs(self) -> bool:
        """Whether the values below are not all compared alike."""
        return bool(self.parts or self._only)

    def part(self, key: str) -> "Comparison":
        """Return how the value under a key is compared."""
        if self._only and key not in self._only and "*" not in self._only:
            return _IGNORED
        return self.parts.get(key) or self.parts.get("*") or self.default

    def equal(self, reference: Json, actual: Json) -> bool:
        """Return whether two values are equal; raise ValueError for an invalid pattern."""
        if self.match == "regex" and isinstance(reference, str) and isinstance(actual, str):
            return search("(?i)" * self._inherited.case_fold + reference, actual)
        if self.tolerance is not None and self.match not in ("set", "present"):
            return self._close(reference, actual, self.tolerance)
        if self.plain and type(reference) is list and type(actual) is list:
            if {*map(type, reference), *map(type, actual)} == _TEXT:
                return bool(reference == actual)
            return len(reference) == len(actual) and all(map(_same, reference, actual))
        return self.key(reference) == self.key(actual)

    def number(self, value: Json) -> float | None:
        """Return the number that a value is, or that its text contains if texts are coerced."""
        found = self.key(value) if type(value) is str else value
        return found if type(found) is int or type(found) is float else None

    def _close(self, reference: Json, actual: Json, tolerance: float) -> bool:
        one, other = self.number(reference), self.number(actual)
        if one is not None and other is not None:
            return within(one, other, tolerance)
        if type(reference) is list and type(actual) is list:
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
        """Add a rule for a path below this one; settings that the rule omits are inherited."""
        if len(keys) > 1:
            self._below(keys[0]).add(rule, keys[1:])
            return
        here = self._inherited
        inherited = {
            "tolerance": here.tolerance if rule.tolerance is None else rule.tolerance,
            "case_fold": rule.case_fold or here.case_fold,
            "coerce": rule.coerce or here.coerce,
        }
        self.parts[keys[0]] = Comparison(rule.model_copy(update=inherited))

    def keep_only(self, keys: list[str]) -> None:
        """Ignore every path except this one and others selected by this method."""
        self._only.add(keys[0])
        if len(keys) > 1:
            self._below(keys[0]).keep_only(keys[1:])

    @property
    def selects_below(self) -> bool:
        """Whether a path given to `keep_only` has several keys."""
        return any(part._only for part in self.parts.values())

    def selected(self, value: Json) -> Json:
        """Return an object without the keys below which there is no path to keep; None if none is left."""
        if not self._only:
            return value
        if type(value) is list:
            places = {"*", *map(str, range(len(value)))}
            return None if self._only.isdisjoint(places) else value
        if type(value) is not dict:
            return None
        kept = {}
        for key, item in value.items():
            part = self.part(key)
            inner = part.selected(item)
            if not part.ignore and (inner is not None or not part._only):
                kept[key] = inner
        return kept or None

    def _below(self, key: str) -> "Comparison":
        found = self.parts.get(key)
        if found is None:
            found = self.parts[key] = Comparison(self._inherited)
        return found


def compile_comparison(criterion: ValueCriterion) -> Comparison:
    """Return the root of the tree; raise MetricError if the criterion is invalid."""
    reject_unknown(criterion, "arguments, results or state")
    mode = criterion.mode or "exact"
    if mode not in MODES:
        raise MetricError(f"mode is '{mode}'; {did_you_mean_one_of(mode, MODES)}")
    plain = PathRule(
        tolerance=criterion.tolerance, case_fold=criterion.case_fold, coerce=criterion.coerce
    )
    _check(plain, "tolerance")
    root = Comparison(plain)
    root.mode = mode
    # Outer paths first, so that inner ones inherit from them.
    for rule in sorted(criterion.paths, key=lambda rule: rule.path.count(".")):
        reject_unknown(rule, f"path '{rule.path}'")
        _check(rule, f"path '{rule.path}'")
        root.add(rule, _keys(rule.path))
    kept = [_keys(path) for path in criterion.keys]
    for keys in kept:
        if not any(keys[:outer] in kept for outer in range(1, len(keys))):
            root.keep_only(keys)
    return root


def _check(rule: PathRule, where: str) -> None:
    if rule.match and rule.match not in MATCHES:
        raise MetricError(
            f"{where}: match is '{rule.match}'; {did_you_mean_one_of(rule.match, MATCHES)}"
        )
    if rule.weight is not None and not 0 <= rule.weight < float("inf"):
        raise MetricError(f"{where}: weight is {rule.weight}; expected 0 or more")
    if rule.tolerance is not None and not rule.tolerance >= 0:
        raise MetricError(f"{where}: tolerance is {rule.tolerance}; expected 0 or more")


def _keys(path: str) -> list[str]:
    keys = path.removeprefix("$.").split(".")
    if not all(keys):
        raise MetricError(
            f"path is '{path}'; expected keys with dots between them, e.g. filter.date"
        )
    return keys


def _key_of(rule: PathRule) -> tuple[Callable[[Json], Hashable], bool]:
    """Return the key of a value, and whether values are compared as a whole."""
    key: Callable[[Json], Hashable] = identity
    if rule.case_fold or rule.coerce:
        key = _folding_key(rule.case_fold, rule.coerce)
    if rule.match == "present":
        return (lambda _: None), True
    if rule.match == "set":
        return (
            lambda value: ("set", frozenset(map(key, value))) if type(value) is list else key(value)
        ), True
    return key, rule.match == "regex"


def identity(value: Json) -> Hashable:
    """Return a value that equals another value's key exactly if the two values are equal.

    Fractions that differ only by rounding are equal, such as 0.1 + 0.2 and 0.3.
    """
    kind = type(value)
    if kind is float and not value.is_integer():
        return float(f"{value:.12g}")
    if kind is str or kind is int or kind is float or value is None:
        return value  # type: ignore[no-any-return]  # a scalar is hashable
    if kind is bool:
        return _TRUE if value else _FALSE
    if kind is list:
        return ("list", *map(identity, value))
    return frozenset([(key, identity(item)) for key, item in value.items()])


def _same(one: Json, other: Json) -> bool:
    """Return whether the identities of two values are equal."""
    kind = type(one)
    if kind in PLAIN and kind is type(other):
        return bool(one == other)
    return identity(one) == identity(other)


def _folding_key(fold: bool, coerce: bool) -> Callable[[Json], Hashable]:
    def key(value: Json) -> Hashable:
        kind = type(value)
        if kind is str:
            if coerce and (number := _number(value)) is not None:
                return identity(number)
            return value.casefold() if fold else value  # type: ignore[no-any-return]  # a string
        if kind is list:
            return ("list", *map(key, value))
        if kind is dict:
            return frozenset([(name, key(item)) for name, item in value.items()])
        return identity(value)

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


def within(one: float, other: float, tolerance: float) -> bool:
    """Return whether two numbers differ by at most the tolerance."""
    if one == other:
        return True
    try:
        return abs(one - other) <= tolerance
    except OverflowError:  # an integer beyond the range of doubles
        return False


_IGNORED: Final = Comparison(PathRule(ignore=True))
