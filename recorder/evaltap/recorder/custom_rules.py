"""Redaction rules of one's own: a name and a regular expression, checked before they are used.

They run in the agent's process on whatever the agent's tools return, so a pattern that could take
exponential time is refused here, not found out there.
"""

import re

# The parse tree is nobody's public interface; there is no other way to see a repeat in a repeat.
from re import _constants, _parser  # type: ignore[attr-defined]
from typing import Any

import orjson

from evaltap.recorder.sensitive_text import Rule
from evaltap.schemas.errors import ConfigurationError

_KIND = re.compile(r"[a-z][a-z_]{1,19}")
_LONGEST_PATTERN = 1_000
_MANY = 16
"""Repeats above this count as open-ended."""
_REPEATS = (_constants.MAX_REPEAT, _constants.MIN_REPEAT)


def custom_rule(name: str, pattern: str, kind: str | None = None) -> Rule:
    """Return a rule that replaces each match (or its last group) by `<kind:...>`.

    `kind` is the name unless given.  Raises ConfigurationError for a pattern that does not compile,
    matches nothing at all, or could take exponential time.
    """
    kind = name if kind is None else kind
    if not _KIND.fullmatch(kind):
        raise ConfigurationError(
            f"redaction rule {name!r}: kind {kind!r} cannot be used; expected 2 to 20 of a-z and _"
        )
    if not isinstance(pattern, str) or len(pattern) > _LONGEST_PATTERN:
        raise ConfigurationError(
            f"redaction rule {name!r}: expected a pattern of at most {_LONGEST_PATTERN} characters"
        )
    try:
        compiled = re.compile(pattern)
        tree = _parser.parse(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} is no regular expression: {error}"
        ) from error
    if compiled.search("") is not None:
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} matches an empty text; it must match something"
        )
    if _repeats_a_repeat(tree, within=False):
        raise ConfigurationError(
            f"redaction rule {name!r}: {pattern!r} repeats a repeat, which can take exponential time;"
            " bound the inner one to 16 or make it possessive (a++)"
        )
    return Rule(kind, compiled, _whole_or_group)


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of a JSON object: `{"order_number": "ORD-\\\\d{6}"}`.

    A value may also be `{"pattern": ..., "kind": ...}`.  Raises ConfigurationError.
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


def _repeats_a_repeat(tree: Any, *, within: bool) -> bool:  # Any: the private parse tree
    for operator, argument in tree:
        open_ended = operator in _REPEATS and argument[1] > _MANY
        if within and open_ended:
            return True
        inner = within or open_ended
        if any(_repeats_a_repeat(part, within=inner) for part in _parts(operator, argument)):
            return True
    return False


def _parts(operator: Any, argument: Any) -> list[Any]:  # Any: the private parse tree
    if operator in _REPEATS:
        return [argument[2]]
    if operator is _constants.SUBPATTERN:
        return [argument[3]]
    if operator is _constants.BRANCH:
        return list(argument[1])
    if operator in (_constants.ASSERT, _constants.ASSERT_NOT):
        return [argument[1]]
    return []
