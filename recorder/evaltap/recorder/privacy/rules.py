"""Custom redaction rules: a name and a regular expression, checked before use.

They run in the agent's process on whatever its tools return, so the worst-case cost of a pattern is
computed here, and an expensive one is rejected up front. A rule searches a text in windows of `2 *
WINDOW` characters (`detectors.Rule`), so time grows linearly with the text.
"""

import re

# The parse tree is private, but nothing else reveals a pattern's cost.
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import orjson

from evaltap.recorder.privacy.detectors import WINDOW, Rule
from evaltap.schemas.errors import ConfigurationError

_KIND = re.compile(r"[a-z][a-z_]{1,19}")
_LONGEST_PATTERN = 1_000
_MAX_STEPS = 4_000
"""Steps per position of a text: a window of 256 characters then takes a few milliseconds at worst."""
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)
_ALPHABET = frozenset(map(chr, range(256))) | set("\u0391\u0431\u4e2d\u0661\u2003\U0001f600")
"""Samples of every kind of character, to test whether two sets intersect."""


def custom_rule(name: str, pattern: str, kind: str | None = None) -> Rule:
    """Return a rule that replaces each match (or its last group) by `<kind:...>`.

    `kind` defaults to the name. Raises ConfigurationError for a pattern that does not compile,
    matches the empty text, or could take more than linear time.
    """
    kind = name if kind is None else kind
    if not _KIND.fullmatch(kind):
        raise ConfigurationError(
            f"redaction rule {name!r}: kind {kind!r} is invalid; expected 2 to 20 of a-z and _"
        )
    if not isinstance(pattern, str) or len(pattern) > _LONGEST_PATTERN:
        raise ConfigurationError(
            f"redaction rule {name!r}: expected a pattern of at most {_LONGEST_PATTERN} characters"
        )
    try:
        compiled = re.compile(pattern)
        cost = _cost(
            list(_parser.parse(pattern)), frozenset(), bool(compiled.flags & re.IGNORECASE)
        )
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} is not a regular expression: {error}"
        ) from error
    if compiled.search("") is not None:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} matches an empty text; it must match at least one character"
        )
    if cost.steps > _MAX_STEPS:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} can match in too many ways and"
            " may take more than linear time; let each repeat end before the next part can begin,"
            " bound it ({1,8}) or make it possessive (a++)"
        )
    return Rule(kind, compiled, _whole_or_group)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Parse a JSON object of rules: `{"order_number": "ORD-\\\\d{6}"}`.

    A value may also be `{"pattern": ..., "kind": ...}`. Raises ConfigurationError.
    """
    try:
        found = orjson.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"redaction rules: {error}; expected a JSON object") from error
    if not isinstance(found, dict):
        raise ConfigurationError("redaction rules: expected a JSON object of name and pattern")
    return tuple(
        custom_rule(name, one.get("pattern", ""), one.get("kind"))
        if isinstance(one, dict)
        else custom_rule(name, one)
        for name, one in found.items()
    )


def _whole_or_group(match: re.Match[str]) -> tuple[int, int, str]:
    group = match.lastindex or 0
    return (*match.span(group), match[group])


class _Cost(NamedTuple):
    """In how many ways a part can match from one position, and the steps to try them all."""

    ways: int
    steps: int


_LARGEST = 1 << 40
_Characters = frozenset[str]


# Any, below: nodes of the private parse tree.
def _cost(nodes: list[Any], follow: _Characters, folds: bool) -> _Cost:
    """Return the cost of a sequence that is preceded by anything and followed by one of `follow`."""
    ways, steps = 1, 0
    for index, node in enumerate(nodes):
        behind = _first(nodes[index + 1 :], follow, folds)
        one = _node_cost(node, behind, folds)
        steps = min(_LARGEST, steps + ways * one.steps)
        ways = min(_LARGEST, ways * one.ways)
    return _Cost(ways, steps)


def _node_cost(node: Any, behind: _Characters, folds: bool) -> _Cost:
    operator, argument = node
    if operator in _REPEATS:
        return _repeat_cost(argument, behind, folds)
    if operator is _constants.SUBPATTERN:
        return _cost(list(argument[3]), behind, folds)
    if operator is _constants.BRANCH:
        parts = [_cost(list(part), behind, folds) for part in argument[1]]
        firsts = [_first(list(part), behind, folds) for part in argument[1]]
        apart = sum(map(len, firsts)) == len(frozenset().union(*firsts))
        ways = max(one.ways for one in parts) if apart else sum(one.ways for one in parts)
        return _Cost(ways, sum(one.steps for one in parts))
    if operator in (_constants.ASSERT, _constants.ASSERT_NOT):
        return _Cost(1, _cost(list(argument[1]), frozenset(), folds).steps)
    if operator is _constants.ATOMIC_GROUP:
        return _Cost(1, _cost(list(argument), frozenset(), folds).steps)
    if operator is _constants.POSSESSIVE_REPEAT:
        steps = _cost(list(argument[2]), frozenset(), folds).steps
        return _Cost(1, min(argument[1], 2 * WINDOW) * steps)
    known = (
        _constants.LITERAL,
        _constants.NOT_LITERAL,
        _constants.IN,
        _constants.ANY,
        _constants.AT,
    )
    return _Cost(1, 1 if operator in known else 2 * WINDOW)


def _repeat_cost(argument: Any, behind: _Characters, folds: bool) -> _Cost:
    low, high, part = argument[0], min(argument[1], 2 * WINDOW), list(argument[2])
    first = _first(part, frozenset(), folds)
    inner = _cost(part, behind | first, folds)
    if inner.ways > 1:
        ways = min(_LARGEST, inner.ways ** min(high, 64))
        return _Cost(ways, min(_LARGEST, ways * inner.steps))
    # It can end only where what follows can start: one position, if the two sets are disjoint.
    ends = 1 if first.isdisjoint(behind) else high - low + 1
    return _Cost(ends, high * inner.steps)


def _first(nodes: list[Any], follow: _Characters, folds: bool) -> _Characters:
    """Return the characters a sequence can start with; includes `follow` if it can be empty."""
    found: set[str] = set()
    for node in nodes:
        characters, may_be_empty = _node_first(node, folds)
        found |= characters
        if not may_be_empty:
            return frozenset(found)
    return frozenset(found) | follow


def _node_first(node: Any, folds: bool) -> tuple[_Characters, bool]:
    operator, argument = node
    if operator in (*_REPEATS, _constants.POSSESSIVE_REPEAT):
        return _first(list(argument[2]), frozenset(), folds), argument[0] == 0
    if operator in (_constants.SUBPATTERN, _constants.ATOMIC_GROUP):
        part = argument[3] if operator is _constants.SUBPATTERN else argument
        return _first(list(part), frozenset(), folds), part.getwidth()[0] == 0
    if operator is _constants.BRANCH:
        parts = argument[1]
        firsts = frozenset[str]().union(*(_first(list(part), frozenset(), folds) for part in parts))
        return firsts, any(part.getwidth()[0] == 0 for part in parts)
    if operator in (_constants.AT, _constants.ASSERT, _constants.ASSERT_NOT):
        return frozenset(), True
    return _characters(node, folds), False


def _characters(node: Any, folds: bool) -> _Characters:
    """Return the characters that a single-character node matches."""
    operator, argument = node
    if operator is _constants.LITERAL:
        found = frozenset((chr(argument),))
    elif operator is _constants.NOT_LITERAL:
        return _ALPHABET - {chr(argument)}
    elif operator is _constants.IN:
        items = list(argument)
        negated = bool(items) and items[0][0] is _constants.NEGATE
        found = frozenset[str]().union(*map(_item, items[1:] if negated else items))
        if negated:
            return _ALPHABET - found
    else:
        return _ALPHABET
    return found | {one.swapcase() for one in found} if folds else found


def _item(item: Any) -> _Characters:
    operator, argument = item
    if operator is _constants.LITERAL:
        return frozenset((chr(argument),))
    if operator is _constants.RANGE:
        low, high = argument
        return frozenset(map(chr, range(low, min(high, low + 512) + 1))) | {
            one for one in _ALPHABET if low <= ord(one) <= high
        }
    pattern = _CATEGORIES.get(str(argument))
    return frozenset(filter(pattern.match, _ALPHABET)) if pattern else _ALPHABET


_CATEGORIES = {
    f"CATEGORY_{name}": re.compile(pattern)
    for name, pattern in (
        ("DIGIT", r"\d"), ("NOT_DIGIT", r"\D"), ("SPACE", r"\s"), ("NOT_SPACE", r"\S"), ("WORD", r"\w"),
        ("NOT_WORD", r"\W"),
    )
}  # fmt: skip
