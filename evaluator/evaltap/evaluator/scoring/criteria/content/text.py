"""The text criterion: exact, contains or regular expression, and bounds for the length.

Two pitfalls of the format are preserved deliberately: case-insensitive matching lower-cases the *pattern* as
text (so `\\D` becomes `\\d`), and lower-casing maps each letter to exactly one letter.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.comparisons import Names, named
from evaltap.schemas.formats.metric import LengthCriterion, TextCriterion

TextCheck = Callable[[str, str], str | None]
"""Compares (actual, expected); returns None for a match, otherwise the reason of the mismatch."""


def compile_text(criterion: TextCriterion, names: Names | None = None) -> TextCheck:
    """Return the check for a text criterion; raise MetricError for a comparison that `names` lacks."""
    if criterion.ignore:
        return matches
    if criterion.compare_name:
        return named(names, "text", criterion.compare_name)
    compare = _STRATEGIES.get(criterion.match_strategy)
    if compare is None:
        known = ", ".join(name for name in _STRATEGIES if name)
        reason = f"invalid match strategy {criterion.match_strategy}; expected one of {known}"
        compare = always(reason)
    if criterion.case_insensitive and compare is not matches:
        compare = _lowered(compare)
    if criterion.length is not None and not criterion.length.ignore:
        return _bounded(compile_length(criterion.length), compare)
    return compare


def accepts_itself(criterion: TextCriterion | None) -> bool:
    """Return whether any text matches itself, so that equal texts need no comparison."""
    if criterion is None or criterion.ignore:
        return True
    if criterion.compare_name:
        return False
    measured = criterion.length is not None and not criterion.length.ignore
    return not measured and criterion.match_strategy in ("", "exact", "contains", "skip")


def is_exact(criterion: TextCriterion | None) -> bool:
    """Return whether two texts match if they are equal, and only then."""
    return (
        criterion is not None
        and not criterion.ignore
        and accepts_itself(criterion)
        and not criterion.case_insensitive
        and criterion.match_strategy in ("", "exact")
    )


def compile_length(criterion: LengthCriterion) -> Callable[[str], str | None]:
    """Return the check of a text's length in code points; the bounds are inclusive."""
    low, high = criterion.min, criterion.max
    if criterion.ignore:
        return lambda _: None
    if low is None and high is None:
        return lambda _: "length criterion has neither min nor max; give at least one"
    if (low is not None and low < 0) or (high is not None and high < 0):
        return lambda _: f"length bounds must not be negative: min {low}, max {high}"
    if low is not None and high is not None and low > high:
        return lambda _: f"length min {low} is greater than max {high}"
    start = "(-inf" if low is None else f"[{low}"
    span = start + (", +inf)" if high is None else f", {high}]")

    def check(text: str) -> str | None:
        length = len(text)
        if low is not None and length < low:
            return f"length mismatch: {length} is less than min {low}, expected range {span}"
        if high is not None and length > high:
            return f"length mismatch: {length} is greater than max {high}, expected range {span}"
        return None

    return check


def lower(text: str) -> str:
    """Lower-case each letter to one letter, unlike `str.lower` (they differ for İ and final Σ)."""
    if "İ" in text or "Σ" in text:
        return "".join(letter.lower()[0] for letter in text)
    return text.lower()


def search(pattern: str, text: str) -> bool:
    """Return whether the RE2 `pattern` occurs in `text`; raise ValueError for an invalid pattern."""
    found: bool = compile_pattern(encodable(pattern)).search(encodable(text)) is not None
    return found


def matches(_actual: object, _expected: object) -> str | None:
    """Return that anything matches."""
    return None


def always(reason: str) -> Callable[[object, object], str | None]:
    """Return a check that nothing passes."""
    return lambda _actual, _expected: reason


def _lowered(compare: TextCheck) -> TextCheck:
    return lambda actual, expected: compare(lower(actual), lower(expected))


def _bounded(length: Callable[[str], str | None], compare: TextCheck) -> TextCheck:
    def check(actual: str, expected: str) -> str | None:
        reason = length(actual)
        return compare(actual, expected) if reason is None else reason

    return check


def _exact(actual: str, expected: str) -> str | None:
    if actual == expected:
        return None
    return f"source {quoted(actual)} and target {quoted(expected)} do not match"


def _contains(actual: str, expected: str) -> str | None:
    if expected in actual:
        return None
    return f"source {quoted(actual)} does not contain target {quoted(expected)}"


def _regex(actual: str, expected: str) -> str | None:
    try:
        found = search(expected, actual)
    except ValueError as error:
        return f"invalid regex {quoted(expected)}: {error}"
    return None if found else f"source {quoted(actual)} does not match regex {quoted(expected)}"


# The names are case-sensitive.
_STRATEGIES: dict[str, TextCheck] = {
    "": _exact,
    "exact": _exact,
    "contains": _contains,
    "regex": _regex,
    "skip": matches,
}


@lru_cache(maxsize=1024)
def compile_pattern(pattern: str) -> Any:  # google-re2 has no types
    """Return an RE2 pattern, whose searches take linear time; raise ValueError if it is invalid."""
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode(errors="replace") if isinstance(detail, bytes) else str(detail)
        raise ValueError(text) from None


def encodable(text: str) -> str:
    """Return a text in a form that RE2 accepts."""
    # RE2 works on UTF-8, which cannot represent half of a surrogate pair.
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
