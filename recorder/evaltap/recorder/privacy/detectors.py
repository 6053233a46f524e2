"""Detect personal data and secrets in text; replacing them happens elsewhere.

A text is normalized first (`normalization`), then each family of rules searches for its trigger characters
and works around them: keys (`keys`), values next to names (`named_values`, `sentences`, `commands`,
`tables`), fixed forms (`phrases`), numbers (`numbers`), e-mail (`addresses`), encoded parts (`encodings`).
Words and patterns are rows of tables (`lexicon`). All patterns are linear: repetition is bounded or
possessive, and only a bounded part around a trigger is read, so a hostile tool output cannot stall the agent.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain

from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.privacy.findings import Finding, Span, matches_at
from evaltap.recorder.privacy.keys import (
    beside_services,
    formats,
    has_digit,
    long_words,
    random_words,
)
from evaltap.recorder.privacy.lexicon import each, patterns
from evaltap.recorder.privacy.rule_matching import Rule
from evaltap.recorder.privacy.text.addresses import addresses
from evaltap.recorder.privacy.text.calm import has_sign, looked_at, triggers_in
from evaltap.recorder.privacy.text.commands import in_commands
from evaltap.recorder.privacy.text.encodings import MAX_DEPTH, decoded, text_in_hex
from evaltap.recorder.privacy.text.name_places import names_in
from evaltap.recorder.privacy.text.named_values import assigned
from evaltap.recorder.privacy.text.normalization import lowered, plain_spelling
from evaltap.recorder.privacy.text.numbers import card_in, numbers, phone_in
from evaltap.recorder.privacy.text.phrases import in_phrases
from evaltap.recorder.privacy.text.secret_names import Name
from evaltap.recorder.privacy.text.sentences import in_logins
from evaltap.recorder.privacy.text.tables import (
    NUMBER_COLUMNS,
    Cell,
    in_copies,
    in_html_tables,
    in_inserts,
    in_tables,
)
from evaltap.recorder.privacy.text.value_kinds import is_opaque, is_variable

_RE = patterns("detectors")


def find(
    text: str, *, identifier: bool = False, custom: Iterable[Rule] = (), entropy: bool = False
) -> list[Finding]:
    """Return the sensitive parts of a text, left to right, without overlaps.

    In an identifier (a call id, a session id) digits count as a card or phone number only if they
    make up all of it.
    """
    found = [finding for rule in custom for finding in rule.find(text)]
    if not is_ordinary(text):
        found += _found(text, identifier=identifier, entropy=entropy, depth=0)
    return _without_overlaps(text, found) if len(found) > 1 else found


def is_ordinary(text: str) -> bool:
    """Return whether a text is a name, a time or a small number: most structured data, never sensitive."""
    length = len(text)
    if length < _SHORTEST or (length < _LONGEST_WORD and text.isalpha()):
        return True
    return _RE.ordinary.fullmatch(text) is not None


_SHORTEST, _LONGEST_WORD = 5, 20
"""A shorter text, and letters only of less than the other, match no rule."""


def _found(text: str, *, identifier: bool, entropy: bool, depth: int) -> list[Finding]:
    if identifier and _is_random(text):
        return []
    # An identifier that starts with a letter is no number.
    calm, triggers = looked_at(text) if not identifier or text[0].isalpha() else (False, None)
    if calm:
        return []
    return found_by_rules(
        text, identifier=identifier, entropy=entropy, depth=depth, triggers=triggers
    )


def _is_random(identifier: str) -> bool:
    """Return whether it is hexadecimal ids whose bytes are no text, as those of few random ones are."""
    if (ids := _RE.random_ids.fullmatch(identifier)) is None:
        return False
    return not any(text_in_hex(one.replace("-", "")) for one in ids.groups() if one)


def found_by_rules(
    text: str,
    *,
    identifier: bool,
    entropy: bool,
    depth: int = 0,
    triggers: Collection[str] | None = None,
) -> list[Finding]:
    """Return what the rules find in a text, also of one that is calm."""
    words = long_words(text)
    if not words and not has_sign(text) and _RE.head.match(text) is None:
        return []
    seen = plain_spelling(text)
    found: list[Finding] = []
    if words:
        found += formats(seen, words)
        yield_to_agent()
        if "BEGIN " in seen or "Private-Lines" in seen:
            found += (
                Finding("private_key", *match.span(), match[0])
                for block in each("keys", "block")
                for match in block.finditer(seen)
            )
    if "@" in seen and any(one in seen for one in _SCHEME_ENDS):
        found += _credentials(seen)
    lower = lowered(seen)
    found += (Finding("email", *one) for one in addresses(seen, lower))
    yield_to_agent()
    if identifier:
        found += _whole_number(seen)
    else:
        found += (Finding(*one) for one in numbers(seen, lower))
        yield_to_agent()
        if triggers is None:
            triggers = triggers_in(lower.encode("utf-8", "replace"))
        found += _beside_names(seen, lower, triggers)
        if words:
            if seen is not text or has_digit(words):
                found += beside_services(seen, lower)
            if entropy:
                found += random_words(seen)
    if depth < MAX_DEPTH:
        found += _encoded(seen, found, depth, words=bool(words))
    return [finding for finding in found if finding.end > finding.start]


def _beside_names(seen: str, lower: str, triggers: Collection[str]) -> Iterator[Finding]:
    if _RE.one_word.fullmatch(seen) is not None:
        return
    names = names_in(seen, lower, triggers)
    for start, end in chain(
        assigned(seen, names),
        in_phrases(seen, lower, triggers),
        in_logins(seen, lower, triggers),
        in_commands(seen, lower, triggers),
    ):
        yield Finding("secret", start, end, seen[start:end])
    for kind, start, end in _cells(seen, lower, names, triggers):
        yield from _cell(kind, start, end, seen[start:end])
    if not _SCHEMES.isdisjoint(triggers):
        for match in _RE.scheme.finditer(seen):
            if is_opaque(match[1]) and "=" not in match[1].rstrip("="):
                yield Finding("secret", *match.span(1), match[1])


_SCHEMES = frozenset(("bearer", "basic", "ssws"))


def _cells(
    seen: str, lower: str, names: Sequence[Span], triggers: Collection[str]
) -> Iterator[Cell]:
    """Yield the cells of tables in columns with names of secrets, phones or cards."""
    if "\n" in seen:
        places = [start for start, _ in names]
        if any(one in lower for one in NUMBER_COLUMNS):
            places += (match.start() for match in _RE.number_column.finditer(lower))
        yield from in_tables(seen, places)
    if "<th" in lower:
        yield from in_html_tables(seen)
    if "stdin" in triggers and "copy " in lower:
        yield from in_copies(seen)
    if "values" in triggers and "(" in seen:
        yield from in_inserts(seen)


def _cell(kind: Name, start: int, end: int, value: str) -> Iterator[Finding]:
    digits = phone_in(value) if kind is Name.PHONE else None
    if kind is Name.CARD:
        digits = card_in(value, named=True)
    if digits is not None:
        yield Finding("phone" if kind is Name.PHONE else "card", start, end, digits)
    elif kind in (Name.SECRET, Name.TOKEN):
        yield Finding("secret", start, end, value)


_USERS = ("user", "username", "usr", "login", "myuser")
_PASSWORDS = ("password", "pass", "passwd", "pw", "pwd", "mypassword")
"""Of `postgres://user:password@host`, as documentation writes it."""

_SCHEME_ENDS = ("://", ":\\/", ":/\\")


def _credentials(seen: str) -> Iterator[Finding]:
    for match in _at_scheme_ends(_RE.credentials, seen):
        user, _, password = match[1].partition(":")
        if is_variable(password) or (user.lower() in _USERS and password.lower() in _PASSWORDS):
            continue
        if "/" not in match[1] or _may_hold_slash(match[1]):
            yield Finding("credentials", *match.span(1), match[1])
    for match in _at_scheme_ends(_RE.user_only, seen):
        if is_opaque(match[1]):
            yield Finding("credentials", *match.span(1), match[1])


def _at_scheme_ends(pattern: re.Pattern[str], seen: str) -> Iterator[re.Match[str]]:
    return chain.from_iterable(matches_at(one, pattern, seen) for one in _SCHEME_ENDS)


def _may_hold_slash(credentials: str) -> bool:
    """Return whether `user:pass/word` before an @ is credentials, not port and path: `host:80/@x`."""
    return not credentials.partition(":")[2].partition("/")[0].isdigit()


def _whole_number(seen: str) -> Iterator[Finding]:
    """Yield an identifier that consists of a card or international phone number."""
    if seen[:1] == "+" and _RE.phone_id.fullmatch(seen):
        yield Finding("phone", 0, len(seen), "".join(filter(str.isdigit, seen)))
    elif (digits := card_in(seen, named=False)) is not None:
        yield Finding("card", 0, len(seen), digits)


def _encoded(seen: str, found: list[Finding], depth: int, *, words: bool) -> Iterator[Finding]:
    """Yield the encoded parts with sensitive content, except those already found."""
    parts: list[str] = []
    at = 0
    for one in sorted(found, key=lambda one: one.start):
        if one.end > at:
            parts += (seen[at : one.start], " " * (one.end - max(at, one.start)))
            at = one.end
    done = 0
    for start, end, meaning in decoded("".join((*parts, seen[at:])), words=words):
        yield_to_agent()
        if start >= done and _found(meaning, identifier=False, entropy=False, depth=depth + 1):
            done = end
            yield Finding("encoded", start, end, seen[start:end])


def _without_overlaps(text: str, found: list[Finding]) -> list[Finding]:
    """Keep the leftmost of overlapping findings, the longest of those with the same start."""
    kept: list[Finding] = []
    for finding in sorted(found, key=lambda one: (one.start, -one.end)):
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
        elif finding.end > kept[-1].end:
            # The later one extends further: cover both, so that its tail does not stay readable.
            kept[-1] = kept[-1]._replace(end=finding.end, value="")
    return [one if one.value else one._replace(value=text[one.start : one.end]) for one in kept]
