"""Detect personal data and secrets in text; replacing them happens elsewhere.

A text is normalized first (`spelling`), then each family of rules searches for its trigger
characters and works around them: known formats (`secret_formats`), values next to names
(`assignments`, `commands`, `tables`), numbers (`numbers`), e-mail (`addresses`), encoded parts
(`encodings`). All patterns are linear: repetition is bounded or possessive, and only a bounded part
around a trigger is read, so a hostile tool output cannot stall the agent.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import log2
from typing import NamedTuple

from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.privacy.text.addresses import addresses
from evaltap.recorder.privacy.text.assignments import assigned
from evaltap.recorder.privacy.text.commands import in_commands
from evaltap.recorder.privacy.text.encodings import MAX_DEPTH, decoded
from evaltap.recorder.privacy.text.fixed_phrases import in_phrases
from evaltap.recorder.privacy.text.logins import in_logins
from evaltap.recorder.privacy.text.name_places import names_in
from evaltap.recorder.privacy.text.normalization import listed, lowered, plain_spelling
from evaltap.recorder.privacy.text.numbers import card_in, numbers, phone_in
from evaltap.recorder.privacy.text.secret_formats import (
    KEY_BLOCKS,
    NEEDLED,
    SECRET_FORMATS,
    SERVICES,
)
from evaltap.recorder.privacy.text.secret_names import Name
from evaltap.recorder.privacy.text.tables import in_copies, in_html_tables, in_inserts, in_tables
from evaltap.recorder.privacy.text.value_kinds import is_opaque

PSEUDONYM = re.compile(r"<[a-z_]{2,20}:[0-9a-f]{12}>")
"""The token that replaced a value; never sensitive again."""

LOOKED_FOR = ("keys", "email", "phone", "card", "IBAN", "SSN")
NOT_LOOKED_FOR = "Names and postal addresses are not detected."


class Finding(NamedTuple):
    """A sensitive part of a text: its kind, its span, its normal form."""

    kind: str
    start: int
    end: int
    value: str


Place = tuple[int, int, str]
"""The span of a sensitive value, and its normal form."""


WINDOW = 128
"""Length of the stretch whose positions are searched in one step."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A kind of sensitive value: a pattern, and a check that selects the sensitive part of a match.

    `head` matches wherever the pattern may start and is at most `WINDOW` long. `longest` is how far a
    match is tried: matches up to that length are found whole, and so is one that only goes on in the
    same way. `run` matches the repeat the pattern starts with, if it starts with one without an upper
    bound.
    """

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], Place | None]
    head: re.Pattern[str]
    longest: int
    run: re.Pattern[str] | None = None

    def find(self, text: str) -> Iterator[Finding]:
        """Yield the rule's findings in a text, in time linear in its length."""
        at = 0
        while at < len(text):
            end = at + 2 * WINDOW
            start = self.head.search(text, at, end)
            yield_to_agent()
            if start is None or (start.start() >= at + WINDOW and end < len(text)):
                at += WINDOW
                continue
            match = self._match(text, start.start())
            if match is None:
                at = self._next_start(text, start.start())
                continue
            place = self.check(match)
            if place is not None and place[1] > place[0]:
                yield Finding(self.kind, *place)
            at = max(match.end(), match.start() + 1)

    def _match(self, text: str, start: int) -> re.Match[str] | None:
        """Return the match at an offset; one that reaches the limit is tried with a higher one."""
        limit = self.longest
        match = self.pattern.match(text, start, start + limit)
        while match is not None and match.end() == start + limit < len(text):
            limit *= 2
            match = self.pattern.match(text, start, start + limit)
        return match

    def _next_start(self, text: str, failed: int) -> int:
        """Return where to go on: what follows a run decides for all starts in it."""
        run = self.run.match(text, failed, failed + self.longest) if self.run else None
        if run is None:
            return failed + 1
        if run.end() - failed == self.longest:
            return failed + self.longest // 2
        return max(run.end(), failed + 1)


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


_SIGNS = re.compile(r"[0-9@=:\"'`<>%\\|&(]|[^\x00-\x7f]|at[)\]}]| [dD][oO][tT] ")
"""Without any of these only a long word can be sensitive."""


def _found(text: str, *, identifier: bool, entropy: bool, depth: int) -> list[Finding]:
    words = _LONG_WORD.findall(text)
    if not words and _SIGNS.search(text) is None:
        return []
    seen = plain_spelling(text)
    found: list[Finding] = []
    if words:
        found += _formats(seen, " ".join(words))
        yield_to_agent()
        if "BEGIN " in seen or "Private-Lines" in seen:
            found += (
                Finding("private_key", *match.span(), match[0])
                for block in KEY_BLOCKS
                for match in block.finditer(seen)
            )
    if "://" in seen or ":\\/" in seen:
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
        if names:
            for start, end in assigned(seen, names):
                yield Finding("secret", start, end, seen[start:end])
        for start, end in in_phrases(seen, lower):
            yield Finding("secret", start, end, seen[start:end])
        for start, end in in_logins(seen, lower):
            yield Finding("secret", start, end, seen[start:end])
        for start, end in in_commands(seen, lower):
            yield Finding("secret", start, end, seen[start:end])
        if "\n" in seen:
            places = [start for start, _ in names]
            if any(one in lower for one in _NUMBER_COLUMNS):
                places += (match.start() for match in _NUMBER_COLUMN.finditer(lower))
            for kind, start, end in in_tables(seen, places):
                yield from _cell(kind, start, end, seen[start:end])
        if "bearer" in lower or "basic" in lower or "ssws" in lower:
            for match in _SCHEME.finditer(seen):
                if is_opaque(match[1]):
                    yield Finding("secret", *match.span(1), match[1])
        if "<th" in lower:
            for kind, start, end in in_html_tables(seen):
                yield from _cell(kind, start, end, seen[start:end])
        if "copy " in lower and "stdin" in lower:
            for kind, start, end in in_copies(seen):
                yield from _cell(kind, start, end, seen[start:end])
        if "(" in seen and "values" in lower:
            for kind, start, end in in_inserts(seen):
                yield from _cell(kind, start, end, seen[start:end])
    if words:
        yield from _beside_services(seen, lower)
        if entropy:
            yield from _random_words(seen)


_NUMBER_COLUMNS = ("phone", "mobil", "msisdn", "card", "tel", "fax", "cell", "contact")
_NUMBER_COLUMN = re.compile("|".join(_NUMBER_COLUMNS))


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
_CREDENTIALS = re.compile(
    r":\\?/\\?/([^\s:@/\"'<>]{0,128}:[^\s\"'<>@]{1,256}(?:@[^\s\"'<>@/]{1,128}(?=@))?(?=@))"
)
_USER_ONLY = re.compile(r":\\?/\\?/([\w%.~+-]{20,256}+)(?=@)")


def _credentials(seen: str) -> Iterator[Finding]:
    for match in _CREDENTIALS.finditer(seen):
        if "/" not in match[1] or _may_hold_slash(match[1]):
            yield Finding("credentials", *match.span(1), match[1])
    for match in _USER_ONLY.finditer(seen):
        if is_opaque(match[1]):
            yield Finding("credentials", *match.span(1), match[1])


def _may_hold_slash(credentials: str) -> bool:
    """Return whether `user:pass/word` before an @ is credentials, not port and path: `host:80/@x`."""
    return not credentials.partition(":")[2].partition("/")[0].isdigit()


_START = r"(?<![A-Za-z0-9_])"
_BLANKS = {ord(sign): " " for sign in "_+/.=:&?%~$|-"}


_PrefixRule = tuple[tuple[str, ...], re.Pattern[str]]


def _prefix_rules() -> dict[str, list[_PrefixRule]]:
    """Return the rules by the prefix of the words that they match."""
    rules: dict[str, list[_PrefixRule]] = {}
    for prefixes, pattern in SECRET_FORMATS:
        compiled = re.compile(_START + "(?:" + pattern + ")")
        for start in {_beginning(one) for one in prefixes.split()}:
            needles = tuple(one for one in prefixes.split() if _beginning(one) == start)
            rules.setdefault(start, []).append((needles, compiled))
    return rules


def _beginning(prefix: str) -> str:
    return prefix.translate(_BLANKS).split()[0][:2]


_BY_BEGINNING = _prefix_rules()
_NEEDLED = tuple((needle, re.compile(pattern)) for needle, pattern in NEEDLED)
_SHORTEST_OF_THREE = 57
_THREE_PARTS = re.compile(
    r"[MNO](?<![\w.-].)[A-Za-z][\w-]{21,27}\.[\w-]{6}\.(?=[\w-]{0,44}\d)[\w-]{27,45}(?![\w-])"
)
"""Discord's tokens: an id in base64, a time, a signature."""
_JWT = re.compile(r"eyJ(?<![\w-]...)[\w-]{8,}+(?:\.[\w-]{0,}+){1,4}")


def _formats(seen: str, words: str) -> Iterator[Finding]:
    """Yield keys of known formats; a rule runs where a word has its prefix."""
    beginnings = {part[:2] for part in words.translate(_BLANKS).split()}
    for beginning in beginnings & _BY_BEGINNING.keys():
        for needles, pattern in _BY_BEGINNING[beginning]:
            if any(needle in words for needle in needles):
                for match in pattern.finditer(seen):
                    yield Finding("secret", *match.span(), match[0])
    for needle, pattern in _NEEDLED:
        if needle in words:
            for match in pattern.finditer(seen):
                group = match.lastindex or 0
                yield Finding("secret", *match.span(group), match[group])
    if len(words) > _SHORTEST_OF_THREE and _THREE_PARTS.search(words) is not None:
        for match in _THREE_PARTS.finditer(seen):
            yield Finding("secret", *match.span(), match[0])
    if "eyJ" in words:
        for match in _JWT.finditer(seen):
            if match[0].count(".") and len(match[0]) > 24:
                yield Finding("jwt", *match.span(), match[0].rstrip("."))


_NEAR = re.compile(
    r"(?:"
    + "|".join(SERVICES)
    + r"|key|token|secret|credential|passwor[dt]|clave|schl[üu]ssel|clé|chave)"
    r"(?![a-z]{0,3}(?:board|ring|note))[\w.-]{0,30}[\"'\s]{0,3}(?:[\w ]{0,24}[ ](?:is|was|=|use|ist)[ ]|[=>:|?,]{1,3}|[ ])[\"'`\s=>]{0,5}\Z"
)
_NEAR_WORDS = frozenset(
    listed("""
linked co new message private key keys apikey token tokens secret secrets credential credentials
""")
).union(SERVICES, ("password", "passwort", "clave", "chave", "schlüssel", "schlussel", "clé"))
_LOWER_WORD = re.compile(r"[^\W_]+")
_NO_KEY = re.compile(
    r"(?<![a-z])(?:commit|revision|sha\d*|md5|digest|hash|checksum|trace|span|request|etag|uuid|guid|version|build|branch|tag"
    r"|cache|public|idempot\w*|partition|primary|file|path|image|url|run|job|host|name|region|model|bucket|channel|id|ids)"
    r"[\w-]{0,8}[\"'\s]{0,3}[=:|>,]{0,3}[\"'\s]{0,4}\Z"
)
_CANDIDATE = re.compile(r"[A-Za-z0-9_+/=.:-](?<![A-Za-z0-9_+/=.:-].)[A-Za-z0-9_+/=:-]{13,512}+")


def _beside_services(seen: str, lower: str) -> Iterator[Finding]:
    """Yield long words next to the name of a service, or the word key."""
    for match in _CANDIDATE.finditer(seen):
        begin = match.start()
        value = match[0]
        name, sign, rest = value.partition("=")
        if sign and len(rest) >= 14 and _NAME.fullmatch(name):
            begin, value = begin + len(name) + 1, rest
        value = value.rstrip(".:")
        before = lower[max(0, begin - 72) : begin]
        if _NEAR_WORDS.isdisjoint(_LOWER_WORD.findall(before)) or not _is_random(value):
            continue
        if _NEAR.search(before) and not _NO_KEY.search(before):
            yield Finding("secret", begin, begin + len(value), value)


_NAME = re.compile(r"[A-Za-z][A-Za-z_.-]{1,40}\d?")
_HEX_ONLY = re.compile(r"[0-9a-fA-F-]+")


def _is_random(value: str) -> bool:
    digits = sum(map(str.isdigit, value))
    if (
        not digits
        or digits == len(value)
        or value.count("/") > 2
        or value.startswith(("http", "/"))
    ):
        return False
    return _entropy(value) >= (
        2.5 if _HEX_ONLY.fullmatch(value) else 3.0
    ) and not _is_made_of_words(value)


def _is_made_of_words(value: str) -> bool:
    """Return whether it is a name with numbers: `gpt-4o-mini-2024-07-18`, `v1.2.3-rc4`."""
    parts = re.split(r"[-_./:]", value)
    return len(parts) > 2 and all(
        part.isalpha() or part.isdigit() or len(part) < 5 for part in parts
    )


def _entropy(value: str) -> float:
    total = len(value)
    return -sum(n / total * log2(n / total) for n in Counter(value).values())


_RANDOM_WORD = re.compile(
    r"[A-Za-z0-9_+/=-](?<![A-Za-z0-9_+/=.-].)[A-Za-z0-9_+/=-]{19,512}+(?![\w.]*\.[a-z]{2,4}\b)"
)
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def _random_words(seen: str) -> Iterator[Finding]:
    """Yield words that look random: an opt-in rule."""
    for match in _RANDOM_WORD.finditer(seen):
        value = match[0]
        if _UUID.fullmatch(value) or not _is_random(value):
            continue
        hexadecimal = _HEX_ONLY.fullmatch(value) is not None
        if len(value) >= 32 if hexadecimal else _entropy(value) >= 3.7:
            yield Finding("opaque", *match.span(), value)


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
