"""Detect personal data and secrets in text; replacing them happens elsewhere.

A text is normalized first (`spelling`), then each family of rules searches for its trigger
characters and works around them: known formats (`secret_formats`), values next to names
(`assignments`, `commands`, `tables`), numbers (`numbers`), e-mail (`addresses`), encoded parts
(`encodings`). All patterns are linear: repetition is bounded or possessive, and only a bounded part
around a trigger is read, so a hostile tool output cannot stall the agent.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.privacy.findings import Finding, matches_at
from evaltap.recorder.privacy.known_formats import formats
from evaltap.recorder.privacy.long_words import beside_services, random_words
from evaltap.recorder.privacy.rule_matching import Rule
from evaltap.recorder.privacy.text.addresses import addresses
from evaltap.recorder.privacy.text.assignments.named_values import assigned
from evaltap.recorder.privacy.text.commands.passwords import in_commands
from evaltap.recorder.privacy.text.encodings import MAX_DEPTH, decoded
from evaltap.recorder.privacy.text.fixed_phrases import in_phrases
from evaltap.recorder.privacy.text.names.name_places import names_in
from evaltap.recorder.privacy.text.names.secret_names import Name
from evaltap.recorder.privacy.text.normalization import lowered, plain_spelling
from evaltap.recorder.privacy.text.numbers import card_in, numbers, phone_in
from evaltap.recorder.privacy.text.secret_formats import KEY_BLOCKS
from evaltap.recorder.privacy.text.sentences.logins import in_logins
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_variable
from evaltap.recorder.privacy.text.tables import (
    Cell,
    in_copies,
    in_html_tables,
    in_inserts,
    in_tables,
)
from evaltap.recorder.privacy.text.value_kinds import is_opaque


def find(
    text: str,
    *,
    identifier: bool = False,
    custom: Iterable[Rule] = (),
    entropy: bool = False,
) -> list[Finding]:
    """Return the sensitive parts of a text, left to right, without overlaps.

    In an identifier (a call id, a session id) digits count as a card or phone number only if they
    make up all of it.
    """
    found = [finding for rule in custom for finding in rule.find(text)]
    if len(text) >= _SHORTEST and _ORDINARY.fullmatch(text) is None:
        found += _found(text, identifier=identifier, entropy=entropy, depth=0)
    return _without_overlaps(text, found) if len(found) > 1 else found


_SHORTEST = 5
_WORD = r"(?:[A-Z]?[a-z]{1,19}(?:[A-Z][a-z]{1,14}){0,3}|[A-Z]{1,15})"
_ORDINARY = re.compile(
    rf"(?![A-Za-z_./-]{{65}}){_WORD}(?>(?:[_./-]{{1,2}}(?:{_WORD}|\d{{1,2}}(?!\d)))*)\d{{0,3}}"
    r"|\d{4}-\d\d-\d\d[T ][\d:.]{5,18}(?:Z|[+-]\d\d:\d\d)?|\d{1,12}(?:\.\d{1,12})?"
)
"""Names, times and small numbers: most structured data, and never sensitive."""
_LONG_WORD = re.compile(r"[A-Za-z0-9_+/.=:&?%~$|-]{14,}+")
"""Keys and encoded texts are long and without spaces, unlike ordinary words."""
_SIGNS = re.compile(r"[0-9@=:\"'`<>%\\|&(_*#$^]| -[A-Za-z] |[^\x00-\x7f]|at[)\]}]| [dD][oO][tT] ")
"""Without any of these only a long word, or a cell of a table, can be sensitive."""
_HEAD = re.compile(r"[^\W\d][\w -]{0,40}+[,;\t][\w ,;\t-]{1,200}\n")


def _found(text: str, *, identifier: bool, entropy: bool, depth: int) -> list[Finding]:
    words = _LONG_WORD.findall(text)
    if not words and _SIGNS.search(text) is None and _HEAD.match(text) is None:
        return []
    seen = plain_spelling(text)
    found: list[Finding] = []
    if words:
        found += formats(seen, " ".join(words))
        yield_to_agent()
        if "BEGIN " in seen or "Private-Lines" in seen:
            found += (
                Finding("private_key", *match.span(), match[0])
                for block in KEY_BLOCKS
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
        found += _beside_names(seen, lower, entropy=entropy, words=bool(words))
    if depth < MAX_DEPTH:
        found += _encoded(seen, found, depth, words=bool(words))
    return [finding for finding in found if finding.end > finding.start]


_ONE_WORD = re.compile(r"[A-Za-z0-9_.,;/+-]*+")


def _beside_names(seen: str, lower: str, *, entropy: bool, words: bool) -> Iterator[Finding]:
    if _ONE_WORD.fullmatch(seen) is None:
        names = names_in(seen, lower)
        for start, end in chain(
            assigned(seen, names),
            in_phrases(seen, lower),
            in_logins(seen, lower),
            in_commands(seen, lower),
        ):
            yield Finding("secret", start, end, seen[start:end])
        for kind, start, end in _cells(seen, lower, names):
            yield from _cell(kind, start, end, seen[start:end])
        if "bearer" in lower or "basic" in lower or "ssws" in lower:
            for match in _SCHEME.finditer(seen):
                if is_opaque(match[1]) and "=" not in match[1].rstrip("="):
                    yield Finding("secret", *match.span(1), match[1])
    if words:
        yield from beside_services(seen, lower)
        if entropy:
            yield from random_words(seen)


_NUMBER_COLUMNS = ("phone", "mobil", "msisdn", "card", "tel", "fax", "cell", "contact")
_NUMBER_COLUMN = re.compile("|".join(_NUMBER_COLUMNS))


def _cells(seen: str, lower: str, names: Sequence[Span]) -> Iterator[Cell]:
    """Yield the cells of tables in columns with names of secrets, phones or cards."""
    if "\n" in seen:
        places = [start for start, _ in names]
        if any(one in lower for one in _NUMBER_COLUMNS):
            places += (match.start() for match in _NUMBER_COLUMN.finditer(lower))
        yield from in_tables(seen, places)
    if "<th" in lower:
        yield from in_html_tables(seen)
    if "copy " in lower and "stdin" in lower:
        yield from in_copies(seen)
    if "(" in seen and "values" in lower:
        yield from in_inserts(seen)


def _cell(kind: Name, start: int, end: int, value: str) -> Iterator[Finding]:
    digits = phone_in(value) if kind is Name.PHONE else None
    if kind is Name.CARD:
        digits = card_in(value, named=True)
    if digits is not None:
        yield Finding("phone" if kind is Name.PHONE else "card", start, end, digits)
    elif kind in (Name.SECRET, Name.TOKEN):
        yield Finding("secret", start, end, value)


_SCHEME = re.compile(
    r"(?i)\b(?:bearer|basic|ssws)(?:[ \t]{1,4}|[ ]?[\"'][ ]?[+.&][ ]?[\"'])([\w.~+/=-]{8,4096}+)"
)
_SCHEME_ENDS = ("://", ":\\/", ":/\\")
_CREDENTIALS = re.compile(
    r":\\?/\\?/([^\s:@/\"'<>]{0,128}:[^\s\"'<>@]{1,256}(?:@[^\s\"'<>@/]{1,128}(?=@))?(?=@))"
)
_USERS = ("user", "username", "usr", "login", "myuser")
_PASSWORDS = ("password", "pass", "passwd", "pw", "pwd", "mypassword")
"""Of `postgres://user:password@host`, as documentation writes it."""
_USER_ONLY = re.compile(r":\\?/\\?/([\w%.~+-]{20,256}+)(?=@)")


def _credentials(seen: str) -> Iterator[Finding]:
    for match in chain.from_iterable(matches_at(one, _CREDENTIALS, seen) for one in _SCHEME_ENDS):
        user, _, password = match[1].partition(":")
        if is_variable(password) or (user.lower() in _USERS and password.lower() in _PASSWORDS):
            continue
        if "/" not in match[1] or _may_hold_slash(match[1]):
            yield Finding("credentials", *match.span(1), match[1])
    for match in chain.from_iterable(matches_at(one, _USER_ONLY, seen) for one in _SCHEME_ENDS):
        if is_opaque(match[1]):
            yield Finding("credentials", *match.span(1), match[1])


def _may_hold_slash(credentials: str) -> bool:
    """Return whether `user:pass/word` before an @ is credentials, not port and path: `host:80/@x`."""
    return not credentials.partition(":")[2].partition("/")[0].isdigit()


def _whole_number(seen: str) -> Iterator[Finding]:
    """Yield an identifier that consists of a card or international phone number."""
    if seen[:1] == "+" and _PHONE_ID.fullmatch(seen):
        yield Finding("phone", 0, len(seen), "".join(filter(str.isdigit, seen)))
    elif (digits := card_in(seen, named=False)) is not None:
        yield Finding("card", 0, len(seen), digits)


_PHONE_ID = re.compile(r"\+[1-9](?>(?:[ .\-/()]{0,2}\d){7,14})")


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
