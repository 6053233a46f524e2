"""Find personal data and secrets in text: what they look like, and nothing about what to do.

Every rule has cheap needles: plain substrings of which one must be present before the rule's
pattern runs, so ordinary text costs a few substring searches.  All patterns are linear: bounded
or possessive repetition, no nested quantifiers, so a hostile tool output cannot stall the agent.
Numbers are checked (Luhn, IBAN check digits, known lengths) to leave order ids and times alone.
"""

import base64
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from evaltap.recorder.checked_numbers import IBAN_LENGTHS, is_card_number, is_iban
from evaltap.recorder.pacing import breathe
from evaltap.recorder.secret_formats import SECRET_FORMATS
from evaltap.recorder.secret_values import assigned_value, is_opaque, rest_of_header

Place = tuple[int, int, str]
"""Where a sensitive value lies, and its normal form; empty: nothing there, go on at the end."""

PSEUDONYM = re.compile(r"<[a-z_]{2,20}:[0-9a-f]{12}>")
"""What stands for a value once it was replaced; never sensitive again."""


class Finding(NamedTuple):
    """A sensitive piece of a text: its kind, its place, its form without spelling."""

    kind: str
    start: int
    end: int
    value: str


def find(text: str, *, identifier: bool = False, custom: "Iterable[Rule]" = ()) -> list[Finding]:
    """Return the sensitive pieces of a text, left to right, without overlaps.

    In an identifier (a call id, a session id) digits are not taken for a card or a phone number
    unless all of it is an international phone number.
    """
    active: dict[Rule, None] = dict.fromkeys(custom)
    if len(text) < _SHORTEST and not active:
        return []
    words = " ".join(_LONG_WORD.findall(text))
    if words:
        active.update((rule, None) for needle, rule in _WORD_NEEDLES if needle in words)
    active.update((rule, None) for needle, rule in _ID_NEEDLES if needle in text)
    if identifier:
        active[_PHONE_ID] = None
    else:
        lowered = text.lower()
        active.update((rule, None) for needle, rule in _TEXT_NEEDLES if needle in lowered)
        if words:
            active[_ENCODED] = None
    found: list[Finding] = []
    for rule in active:
        breathe()
        found += rule.find(text)
    if not identifier:
        found += _numbers(text)
    return _without_overlaps(text, found) if len(found) > 1 else found


def _numbers(text: str) -> Iterable[Finding]:
    """Look for cards, accounts and phones where enough digits stand together."""
    last = 0
    for digits in _DIGITS.finditer(text):
        start, end = digits.span()
        last = end
        if (start == 0 or text[start - 1] != "+") and _too_few(digits[0]):
            continue
        for rule in _NUMBER_RULES:
            # Two characters around, so that the patterns see what the number stands next to.
            yield from rule.find(text, max(0, start - 2), end + 2)
    if last:
        lowered = text.lower()
        if any(word in lowered for word in _PHONE_WORDS):
            yield from _NAMED_PHONE.find(text)
    yield from _IBAN.find(text)


def _too_few(digits: str) -> bool:
    """Return whether digits without a plus are too few for a phone, or together, for a card."""
    if digits.isdigit():
        return len(digits) < _SHORTEST_CARD
    return len(digits) < 2 * _FEWEST_DIGITS and len(_digits(digits)) < _FEWEST_DIGITS


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A kind of sensitive value: a pattern, and a check that says which part of a match it is."""

    kind: str
    pattern: re.Pattern[str]
    check: Callable[[re.Match[str]], Place | None]
    needles: tuple[str, ...] = ()
    """One of them must occur in the text, else the pattern cannot match."""

    def find(self, text: str, start: int = 0, end: int = sys.maxsize) -> Iterable[Finding]:
        """Yield what the rule finds in a part of the text."""
        covered = 0
        for match in self.pattern.finditer(text, start, end):
            # A check may look beyond its match; without this, nested candidates cost the square.
            if match.start() < covered:
                continue
            place = self.check(match)
            if place is not None:
                covered = place[1]
                if place[2]:
                    yield Finding(self.kind, *place)


def _without_overlaps(text: str, found: list[Finding]) -> list[Finding]:
    """Keep the leftmost of overlapping findings, the longest of those that start together."""
    kept: list[Finding] = []
    for finding in sorted(found, key=lambda one: (one.start, -one.end)):
        if not kept or finding.start >= kept[-1].end:
            kept.append(finding)
        elif finding.end > kept[-1].end:
            # The later one sticks out: cover both, so that no tail of it stays readable.
            kept[-1] = kept[-1]._replace(end=finding.end, value="")
    return [one if one.value else one._replace(value=text[one.start : one.end]) for one in kept]


def _email(match: re.Match[str]) -> Place:
    return (*match.span(), match[0].replace("%40", "@").casefold())


def _whole(match: re.Match[str]) -> Place:
    return (*match.span(), match[0])


def _group(match: re.Match[str]) -> Place:
    group = match.lastindex or 0
    return (*match.span(group), match[group])


def _opaque_group(match: re.Match[str]) -> Place | None:
    return (*match.span(1), match[1]) if is_opaque(match[1]) else None


def _card(match: re.Match[str]) -> Place | None:
    digits = _digits(match[0])
    return (*match.span(), digits) if is_card_number(digits) else None


def _iban(match: re.Match[str]) -> Place | None:
    """Accept the country's number of characters from the start of the match, if they check out."""
    start = match.start() - 2
    length = IBAN_LENGTHS.get(match.string[start : start + 2].upper(), 0)
    compact = ""
    end = start
    while end < match.end() and len(compact) < length:
        character = match.string[end]
        end += 1
        if character.isalnum():
            compact += character.upper()
    after = match.string[end : end + 1]
    if after.isascii() and after.isalnum():
        return None
    return (start, end, compact) if is_iban(compact) else None


def _phone(match: re.Match[str]) -> Place | None:
    group = match.lastindex or 0
    digits = _digits(match[group])
    return (*match.span(group), digits) if 7 <= len(digits) <= 15 else None


def _national_phone(match: re.Match[str]) -> Place | None:
    digits = _digits(match[0])
    return (*match.span(), digits) if 9 <= len(digits) <= 12 else None


def _encoded(match: re.Match[str]) -> Place | None:
    """Accept base64 whose decoded text holds something sensitive."""
    plain = match[0].rstrip("=").replace("-", "+").replace("_", "/")
    if plain.isdigit() or (plain.isalpha() and plain.islower()):
        return None
    try:
        decoded = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True).decode()
    except ValueError:
        return None
    return (*match.span(), match[0]) if find(decoded) else None


def _digits(text: str) -> str:
    return "".join(filter(str.isdigit, text))


_SECRET_RULES = tuple(
    Rule("secret", re.compile(pattern), _group, tuple(needles.split()))
    for needles, pattern in SECRET_FORMATS
)
_JWT = Rule("jwt", re.compile(r"eyJ(?<![\w-]...)[\w-]{8,}+(?:\.[\w-]{8,}+){1,4}"), _whole, ("eyJ",))

_ID_RULES = (
    Rule(
        "private_key",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,5}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:[^-]|-(?!----)){0,20000}+(?:-----END [A-Z0-9 ]{1,60}-----)?"
        ),
        _whole,
        ("-----BEGIN",),
    ),
    Rule(
        "credentials",
        re.compile(r"://([^\s:@/\"'<>]{0,128}:[^\s/\"'<>]{1,256}(?=@))"),
        _group,
        ("://",),
    ),
    Rule(
        "email",
        re.compile(r"(?<![\w.+-])[\w.+-]{1,256}+(?:@|%40)(?:[\w-]{1,63}+\.){1,8}[^\W\d_]{2,24}"),
        _email,
        ("@", "%40"),
    ),
)
_PHONE_ID = Rule("phone", re.compile(r"\A(\+[1-9](?:[ .\-/()]{0,2}\d){7,14}+)\Z"), _phone)

_TEXT_RULES = (
    Rule(
        "secret",
        re.compile(r"(?i)\b(?:bearer|basic|ssws)[ \t]{1,4}([\w.~+/=-]{8,4096}+)"),
        _opaque_group,
        ("bearer", "basic", "ssws"),
    ),
    Rule(
        "cookie",
        re.compile(r"(?i)\bcookie[\\\"']{0,4}[ \t]{0,4}[:=][ \t]{0,4}"),
        rest_of_header,
        ("cookie",),
    ),
    Rule(
        "secret",
        re.compile(r"(?i)\bauthorization[\\\"']{0,4}[ \t]{0,4}[:=][ \t]{0,4}"),
        rest_of_header,
        ("authorization",),
    ),
    Rule(
        "secret",
        re.compile(
            r"(?i)(?:pass(?:wor[dt]|wd|phrase|code)|pwd|(?<![a-z])pw|kennwort|secret(?:[_-]?(?:access[_-]?)?key)?"
            r"|(?:api|access|account|private|encryption|signing)[_-]?key"
            r"|token|credential|(?:php|j)sessid|j?sessionid|connect\.sid)s?\d?"
            r"(?:[\\\"'\]]{0,6}[ \t]{0,4}(=>|[:=])[ \t]{0,4}|[ \t](is|was)[ \t:]{1,3}"
            r"|[ \t](?=[\"'`]\S))"
        ),
        assigned_value,
        (
            "pass",
            "pwd",
            "pw",
            "kennwort",
            "secret",
            "key",
            "token",
            "credential",
            "sess",
            "connect.sid",
        ),
    ),
    Rule(
        "secret",
        re.compile(
            r"(?i)--(?<!\S--)(?:[a-z]{1,12}-){0,4}(?:password|passwd|secret|token|api-?key)"
            r"[ \t]{1,2}([^\s\"'<-][^\s\"']{3,4096}+)"
        ),
        _group,
        ("--",),
    ),
)
_ENCODED = Rule(
    "encoded",
    re.compile(r"[A-Za-z0-9_+/-](?<![A-Za-z0-9_+/-].)[A-Za-z0-9_+/-]{23,65536}+={0,2}"),
    _encoded,
)

_NUMBER_RULES = (
    Rule(
        "card",
        re.compile(
            r"(?<!\w)(?<!\d\.)(?:\d{14,19}|\d{4}([ .\-\u00a0])\d{4}\1\d{4}\1\d{4}"
            r"|\d{4}[ -]\d{6}[ -]\d{4,5})(?!\w)(?!\.\d)"
        ),
        _card,
    ),
    Rule(
        "phone",
        re.compile(r"\+(?<![\w+]\+)[1-9](?:[ .\-/()\u00a0]{0,2}\d){7,14}+(?!\d)"),
        _phone,
    ),
    Rule(
        "phone",
        re.compile(
            r"(?<![\w+-])(?<!\d[.,])(?:1[ .-])?(?:\([2-9]\d{2}\) ?|[2-9]\d{2}[ .-])"
            r"\d{3}[ .-]\d{4}(?![\w-])"
        ),
        _phone,
    ),
    Rule(
        "phone",
        re.compile(
            r"(?<![\w+/-])(?<!\d[.,])(?:\(0\d{1,4}\)|0[1-9]\d{0,3}|00[1-9]\d{1,3})[ /-]{1,3}"
            r"\d{2,8}(?:[ -]\d{2,4}){0,4}(?![\w:-])"
        ),
        _national_phone,
    ),
    Rule(
        "ssn",
        re.compile(r"(?<![\w-])(?!000|666|9\d\d)\d{3}-(?!00)\d{2}-(?!0000)\d{4}(?![\w-])"),
        _whole,
    ),
)
_IBAN = Rule(
    "iban",
    re.compile(r"\d\d(?<=(?<![A-Za-z0-9])[A-Za-z]{2}\d\d)(?:[ \u00a0-]?[A-Za-z0-9]){11,30}+"),
    _iban,
)
_PHONE_WORDS = ("phone", "tel", "mobile", "cell", "fax", "whatsapp", "handy", "sms", "call me")
_NAMED_PHONE = Rule(
    "phone",
    re.compile(
        r"(?i)\b(?:(?:tele)?phone|tel|mobile|cell|fax|whatsapp|handy|sms|call me (?:at|on))"
        r"(?: (?:number|no|nr))?\.?[\\\"']{0,4}[ \t]{0,4}(?:is |[:=#])?[ \t\\\"']{0,6}"
        r"(\(?\d(?:[ .\-/()]{0,2}\d){6,14}+)(?!\d)"
    ),
    _phone,
)

_WORD_NEEDLES = [(needle, rule) for rule in (*_SECRET_RULES, _JWT) for needle in rule.needles]
_ID_NEEDLES = [(needle, rule) for rule in _ID_RULES for needle in rule.needles]
_TEXT_NEEDLES = [(needle, rule) for rule in _TEXT_RULES for needle in rule.needles]

_SHORTEST = 6
_SHORTEST_CARD = 14
_FEWEST_DIGITS = 9
_LONG_WORD = re.compile(r"[A-Za-z0-9_+/.=:&?%-]{20,}+")
"""Keys and encoded texts are long and without blanks; ordinary words are not."""
_DIGITS = re.compile(r"\d(?:[ .\-/()\u00a0]{0,3}\d){6,}+")
