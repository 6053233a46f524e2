"""The JSON criterion: deep comparison of two values, with trees that select the compared keys.

Numbers are compared as doubles within an absolute tolerance; a boolean is not a number.  Neither tree applies
inside lists: a list below a tree node is compared as a whole.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evaltap.evaluator.cases.json_text import parse
from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.comparisons import Names, named
from evaltap.evaluator.scoring.criteria.content.text import always, matches
from evaltap.schemas.data import Json
from evaltap.schemas.formats.metric import JsonCriterion

DEFAULT_TOLERANCE = 1e-6
_NUMBERS = (int, float)

JsonCheck = Callable[[Json, Json], str | None]
"""Compares (actual, expected); returns None for a match, otherwise the reason of the mismatch."""


@dataclass(frozen=True, slots=True)
class RawJson:
    """The JSON text of a final response, not yet decoded."""

    text: str


def compile_json(criterion: JsonCriterion, names: Names | None = None) -> JsonCheck:
    """Return the check for a JSON criterion; raise MetricError for a comparison that `names` lacks."""
    if criterion.ignore:
        return matches
    if criterion.only_tree and criterion.ignore_tree:
        return always("onlyTree and ignoreTree cannot both be set; keep one of them")
    if criterion.compare_name:
        return _on_texts(named(names, "json", criterion.compare_name))
    validate = _compile_validation(criterion)
    compare = _compile_comparison(criterion)
    if validate is None:
        return compare

    def check(actual: Json, expected: Json) -> str | None:
        reason = validate(actual)
        return compare(actual, expected) if reason is None else reason

    return check


def accepts_itself(criterion: JsonCriterion | None) -> bool:
    """Return whether any value matches itself, so that equal bytes need no comparison."""
    if criterion is None or criterion.ignore:
        return True
    return (
        criterion.match_strategy in ("", "exact", "skip")
        and not criterion.compare_name
        and not criterion.only_tree
        and not criterion.valid
        and criterion.schema_ is None
        and not (criterion.number_tolerance is not None and criterion.number_tolerance < 0)
    )


def difference(actual: Json, expected: Json, tolerance: float) -> str | None:
    """Return where two JSON values differ; None if they are equal."""
    kind, other = type(actual), type(expected)
    if kind in _NUMBERS and other in _NUMBERS:
        return _numbers_differ(actual, expected, tolerance)
    if kind is not other:
        return _kinds_differ(actual, expected)
    if kind is dict:
        return _objects_differ(actual, expected, tolerance, None)
    if kind is list:
        return _lists_differ(actual, expected, tolerance)
    return None if actual == expected else _kinds_differ(actual, expected)


def _on_texts(check: JsonCheck) -> JsonCheck:
    """Give a comparison the text of what is not decoded yet."""

    def whole(actual: Json, expected: Json) -> str | None:
        given = (one.text if isinstance(one, RawJson) else one for one in (actual, expected))
        return check(*given)

    return whole


def _compile_validation(criterion: JsonCriterion) -> Callable[[Json], str | None] | None:
    if not criterion.valid and criterion.schema_ is None:
        return None
    from evaltap.evaluator.scoring.criteria.content.json_schema import compile_schema

    must_parse = criterion.valid
    check_schema = None if criterion.schema_ is None else compile_schema(criterion.schema_)

    def validate(actual: Json) -> str | None:
        raw = isinstance(actual, RawJson)
        if raw or (must_parse and isinstance(actual, str)):
            try:
                actual = parse(actual.text if raw else actual, exact=True)
            except ValueError as error:
                return f"parse actual raw json: {error}"
        return None if check_schema is None else check_schema(actual)

    return validate


def _compile_comparison(criterion: JsonCriterion) -> JsonCheck:
    if criterion.match_strategy == "skip":
        return matches
    if criterion.match_strategy not in ("", "exact"):
        return always(
            f"invalid match strategy {criterion.match_strategy}; expected one of exact, skip"
        )
    given = criterion.number_tolerance
    tolerance = DEFAULT_TOLERANCE if given is None else given
    ignore_tree, only_tree = criterion.ignore_tree, criterion.only_tree

    def check(actual: Json, expected: Json) -> str | None:
        try:
            if type(actual) is RawJson:
                actual = _parsed(actual, "actual")
            if type(expected) is RawJson:
                expected = _parsed(expected, "expected")
        except ValueError as error:
            return str(error)
        if only_tree:
            return _selected_differ(actual, expected, tolerance, only_tree)
        if ignore_tree:
            return _differ_except(actual, expected, tolerance, ignore_tree)
        return difference(actual, expected, tolerance)

    return check


def _parsed(raw: RawJson, side: str) -> Json:
    try:
        return parse(raw.text)
    except ValueError as error:
        raise ValueError(f"parse {side} raw json: {error}") from None


def _differ_except(
    actual: Json, expected: Json, tolerance: float, ignored: Mapping[str, object]
) -> str | None:
    """Compare all keys except those that the tree marks with true."""
    if type(actual) is dict and type(expected) is dict:
        return _objects_differ(actual, expected, tolerance, ignored)
    return difference(actual, expected, tolerance)


def _selected_differ(
    actual: Json, expected: Json, tolerance: float, selected: Mapping[str, object]
) -> str | None:
    """Compare only the keys that the tree selects, which both sides must have."""
    if type(actual) is not dict or type(expected) is not dict:
        return difference(actual, expected, tolerance)
    for key, rule in selected.items():
        if rule is False:
            continue
        if rule is not True and not isinstance(rule, dict):
            return f"onlyTree rule of {key} is {rule!r}; expected true, false or an object"
        for side, value in (("actual", actual), ("expected", expected)):
            if key not in value:
                return f"key {key} selected by onlyTree is missing in {side}"
        if rule is True:
            reason = difference(actual[key], expected[key], tolerance)
        else:
            reason = _selected_differ(actual[key], expected[key], tolerance, rule)
        if reason is not None:
            return f"compare {key}: {reason}"
    return None


def _objects_differ(
    actual: dict[str, Json],
    expected: dict[str, Json],
    tolerance: float,
    ignored: Mapping[str, object] | None,
) -> str | None:
    for key, value in actual.items():
        rule = ignored.get(key) if ignored else None
        if rule is True:
            continue
        if key not in expected:
            return f"key {key} is missing in expected"
        if isinstance(rule, dict):
            reason = _differ_except(value, expected[key], tolerance, rule)
        else:
            reason = difference(value, expected[key], tolerance)
        if reason is not None:
            return f"compare {key}: {reason}"
    for key in expected:
        if key not in actual and not (ignored and ignored.get(key) is True):
            return f"key {key} is missing in actual"
    return None


def _lists_differ(actual: list[Json], expected: list[Json], tolerance: float) -> str | None:
    if len(actual) != len(expected):
        return f"array length mismatch: actual({len(actual)}) != expected({len(expected)})"
    for index, (one, other) in enumerate(zip(actual, expected, strict=True)):
        if (reason := difference(one, other, tolerance)) is not None:
            return f"compare [{index}]: {reason}"
    return None


def _numbers_differ(actual: float, expected: float, tolerance: float) -> str | None:
    try:
        equal = abs(float(actual) - float(expected)) <= tolerance
    except OverflowError:  # an integer beyond the range of doubles can only be compared exactly
        equal = actual == expected and tolerance >= 0
    return None if equal else f"number mismatch: actual({actual}) != expected({expected})"


def _kinds_differ(actual: Json, expected: Json) -> str:
    if type(actual) is type(expected):
        return f"value mismatch: actual({_shown(actual)}) != expected({_shown(expected)})"
    return f"actual is {_kind(actual)}, expected is {_kind(expected)}"


def _shown(value: Json) -> str:
    return quoted(value) if isinstance(value, str) else repr(value)


def _kind(value: Json) -> str:
    names = {dict: "a map", list: "an array", str: "a string", bool: "a boolean"}
    return "null" if value is None else names.get(type(value), "a number")
