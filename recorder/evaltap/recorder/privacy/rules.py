"""Custom redaction rules: a name and a regular expression, checked before use.

They run in the agent's process on whatever its tools return, so the worst-case cost of a pattern is
computed here, and an expensive one is rejected up front. From each position where a match may start,
a rule reads as far as `_MAX_STEPS` allow (`rule_matching.Rule`), so time grows linearly with the text.
"""

import re
from bisect import bisect_right

# The parse tree is private, but nothing else reveals a pattern's cost.
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple

import orjson

from evaltap.recorder.privacy.rule_matching import WINDOW, Rule
from evaltap.schemas.errors import ConfigurationError

_KIND = re.compile(r"[a-z][a-z_]{1,19}")
_LONGEST_PATTERN = 1_000
_MAX_STEPS = 4_000
"""Steps per position of a text: a window of 256 characters then takes a few milliseconds at worst."""
_SHORTEST_LIMIT, _HIGHEST_LIMIT = 2 * WINDOW, 1 << 16
"""Bounds of the length up to which a match is tried from one position."""
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
        tree = _parser.parse(pattern)
        longest = _longest_match(tree, bool(compiled.flags & re.IGNORECASE))
        head, run = _compiled(tree, _head(list(tree), WINDOW)), _leading_run(tree)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} is not a regular expression: {error}"
        ) from error
    if compiled.search("") is not None:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} matches an empty text;"
            " it must match at least one character"
        )
    if longest < _SHORTEST_LIMIT:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} can match in too many ways and"
            " may take more than linear time; let each repeat end before the next part can begin,"
            " bound it ({1,8}) or make it possessive (a++)"
        )
    if tree.getwidth()[0] > longest:
        raise ConfigurationError(
            f"redaction rule {name!r}: the shortest match has {tree.getwidth()[0]} characters; expected"
            f" at most {longest}, which can be read in linear time: match only the start"
        )
    return Rule(kind, compiled, _whole_or_group, head, longest, run)


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


def _longest_match(tree: Any, folds: bool) -> int:
    """Return up to what length a match can be tried with `_MAX_STEPS`; less than the shortest limit: none."""

    def steps(longest: int) -> int:
        return _cost(list(tree), frozenset(), _Scope(folds, longest)).steps

    above = bisect_right(range(_SHORTEST_LIMIT, _HIGHEST_LIMIT + 1), _MAX_STEPS, key=steps)
    return _SHORTEST_LIMIT + above - 1


_ONE_CHARACTER = (_constants.LITERAL, _constants.NOT_LITERAL, _constants.IN, _constants.ANY)


def _head(nodes: list[Any], room: int) -> list[Any]:
    """Return nodes that match, within `room` characters, wherever a sequence may start."""
    head: list[Any] = []
    for operator, argument in nodes:
        if operator in _ONE_CHARACTER and room > 0:
            head.append((operator, argument))
            room -= 1
        elif operator is _constants.AT and not head:
            head.append((operator, argument))
        elif operator in (*_REPEATS, _constants.POSSESSIVE_REPEAT):
            low, high, part = argument
            times = min(low, room // max(1, part.getwidth()[1]))
            if times > 0:
                head.append((_constants.MAX_REPEAT, (times, times, part)))
                room -= times * part.getwidth()[1]
            if times < low or low < high:
                break
        else:
            if operator is _constants.SUBPATTERN and not any(argument[1:3]):
                head += _head(list(argument[3]), room)
            break
    return head


def _leading_run(tree: Any) -> re.Pattern[str] | None:
    """Return the repeat of one character without an upper bound that a pattern starts with."""
    nodes = list(tree)
    while (
        nodes and nodes[0][0] is _constants.SUBPATTERN and not any(nodes[0][1][1:3])
    ):  # without flags of its own
        nodes = list(nodes[0][1][3])
    if not nodes or nodes[0][0] not in (*_REPEATS, _constants.POSSESSIVE_REPEAT):
        return None
    _, high, part = nodes[0][1]
    if high is not _constants.MAXREPEAT or len(part) != 1 or part[0][0] not in _ONE_CHARACTER:
        return None
    return _compiled(tree, [(_constants.MAX_REPEAT, (0, high, part))])


def _compiled(tree: Any, nodes: list[Any]) -> re.Pattern[str]:
    part = _parser.SubPattern(tree.state, nodes)
    found: re.Pattern[str] = _compiler.compile(part, tree.state.flags)
    return found


class _Scope(NamedTuple):
    """What holds for a whole pattern: whether case is ignored, and how far a match is tried."""

    folds: bool
    longest: int


class _Cost(NamedTuple):
    """In how many ways a part can match from one position, and the steps to try them all."""

    ways: int
    steps: int


_LARGEST = 1 << 40
_Characters = frozenset[str]


# Any, below: nodes of the private parse tree.
def _cost(nodes: list[Any], follow: _Characters, scope: _Scope) -> _Cost:
    """Return the cost of a sequence that is preceded by anything and followed by one of `follow`."""
    ways, steps = 1, 0
    for index, node in enumerate(nodes):
        behind = _first(nodes[index + 1 :], follow, scope.folds)
        one = _node_cost(node, behind, scope)
        steps = min(_LARGEST, steps + ways * one.steps)
        ways = min(_LARGEST, ways * one.ways)
    return _Cost(ways, steps)


def _node_cost(node: Any, behind: _Characters, scope: _Scope) -> _Cost:
    operator, argument = node
    if operator in _REPEATS:
        return _repeat_cost(argument, behind, scope)
    if operator is _constants.SUBPATTERN:
        return _cost(list(argument[3]), behind, scope)
    if operator is _constants.BRANCH:
        parts = [_cost(list(part), behind, scope) for part in argument[1]]
        firsts = [_first(list(part), behind, scope.folds) for part in argument[1]]
        apart = sum(map(len, firsts)) == len(frozenset().union(*firsts))
        ways = max(one.ways for one in parts) if apart else sum(one.ways for one in parts)
        return _Cost(ways, sum(one.steps for one in parts))
    if operator in (_constants.ASSERT, _constants.ASSERT_NOT):
        return _Cost(1, _cost(list(argument[1]), frozenset(), scope).steps)
    if operator is _constants.ATOMIC_GROUP:
        return _Cost(1, _cost(list(argument), frozenset(), scope).steps)
    if operator is _constants.POSSESSIVE_REPEAT:
        steps = _cost(list(argument[2]), frozenset(), scope).steps
        return _Cost(1, min(argument[1], scope.longest) * steps)
    known = (*_ONE_CHARACTER, _constants.AT)
    return _Cost(1, 1 if operator in known else scope.longest)


def _repeat_cost(argument: Any, behind: _Characters, scope: _Scope) -> _Cost:
    high, part = min(argument[1], scope.longest), list(argument[2])
    low = min(argument[0], high)
    first = _first(part, frozenset(), scope.folds)
    inner = _cost(part, behind | first, scope)
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
    f"CATEGORY_{negated}{name}": re.compile("\\" + (sign.upper() if negated else sign))
    for name, sign in (("DIGIT", "d"), ("SPACE", "s"), ("WORD", "w"))
    for negated in ("", "NOT_")
}
