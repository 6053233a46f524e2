"""Find where a text has names that may be those of secrets: stems, words before a sign.

Stems of secrets' names are searched as substrings; `secret_names` classifies the full name around
each. Only a bounded part of the text is read around a stem, so the cost grows linearly.
"""

from collections.abc import Collection
from functools import lru_cache

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import lists, patterns, words
from evaltap.recorder.privacy.text.normalization import folded
from evaltap.recorder.privacy.text.secret_names import (
    HEADS,
    MODIFIERS,
    NO_SECRETS,
    Name,
    bare,
    is_word_for_keyword,
    kind_of_name,
)

_RE = patterns("places")
_WORDS = lists("places")

STEMS = words("places.stems")
"""Stems of secrets' names in sentences, commands and markup; before a sign any name is read."""
SHORT_STEMS = ("pw", "pin", "otp", "cvv", "cvc", "mdp")
"""Parts of many ordinary words: they count only at the start or end of one."""
_ANY_STEM = frozenset((*STEMS, *SHORT_STEMS))
_FOREIGN_STEMS = words("places.foreign_stems")
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-$"
_LONGEST_NAME = 64


def names_in(text: str, lower: str, triggers: Collection[str]) -> list[Span]:
    """Return the spans of words that may be, or may end, the name of a secret."""
    found = names_before_signs(text)
    if "</" in text:
        for tag in _RE.tag.finditer(text):
            if kind_of_name(tag[1]) in _TELLING:
                found[tag.start(1)] = tag.end(1)
    for stem in triggers:
        if stem in _ANY_STEM:
            _collect(text, lower, stem, found, short=stem in SHORT_STEMS)
    if not text.isascii():
        for stem in _FOREIGN_STEMS:
            if stem in lower:
                _collect(text, lower, stem, found, short=False)
    return sorted(found.items())


def names_before_signs(text: str) -> dict[int, int]:
    """Return the start and end of words before a colon, equals sign or dash that may end such a name."""
    found: dict[int, int] = {}
    signs = _RE.sign if " - " not in text else _RE.sign_or_dash
    for sign in signs.finditer(text):
        at = sign.start()
        if text[at - 1 : at].isdigit() and text[at + 1 : at + 2].isdigit():
            continue  # a time
        match = _RE.backwards.match(text[at - 40 if at > 40 else 0 : at][::-1])
        if match is None:
            continue
        name = match[1][::-1]
        if _may_tell(name):
            start = at - match.end()
            found[start] = start + len(name)
    return found


_TELLING = (Name.SECRET, Name.TOKEN)


@lru_cache(maxsize=8192)
def _may_tell(name: str) -> bool:
    """Return whether a name is that of a secret, or can end one of several words."""
    # Cached, since names before signs recur.
    word = name.lower()
    return (
        kind_of_name(name) in _TELLING
        or word in _WORDS.ends_of_phrases
        or _plain(word) in _PHRASE_WORDS
    )


_PHRASE_WORDS = HEADS | MODIFIERS


def _plain(word: str) -> str:
    return word if word.isascii() else bare(folded(word))


def _collect(text: str, lower: str, stem: str, found: dict[int, int], *, short: bool) -> None:
    at = lower.find(stem)
    while at >= 0:
        behind = at + len(stem)
        if short and lower[at - 1 : at].isalpha() and lower[behind : behind + 1].isalpha():
            at = lower.find(stem, behind)
            continue
        before = text[max(0, at - _LONGEST_NAME) : at]
        if stem.isascii() or stem > "\u2e80":
            start = at - len(before) + len(before.rstrip(_NAME_CHARACTERS))
            if start and "\u00c0" <= text[start - 1] < "\u2e80" and stem < "\u2e80":
                latin = _RE.latin.match(before[::-1])  # `Bestätigungscode`
                start = at - latin.end() if latin else start
        else:
            backwards = _RE.name_rest.match(before[::-1])
            start = at - (backwards.end() if backwards else 0)
        # In languages without spaces, a name ends with its stem.
        rest = None if stem > "\u2e80" else _RE.name_rest.match(text, behind)
        end = rest.end() if rest else behind
        while end > behind and text[end - 1] in ".-$":
            end -= 1
        while start < at and text[start] in ".-$":
            start += 1
        if stem in _WORDS.head_stems:
            end = _with_modifier(text, start, end)
        found[start] = max(end, found.get(start, 0))
        at = lower.find(stem, end)


def _with_modifier(text: str, start: int, end: int) -> int:
    """Return the end of a name together with the modifier that follows its head."""
    if _plain(text[start:end].lower()) in HEADS:
        match = _RE.and_modifier.match(text, end)
        if match is not None and _plain(match[1].lower()) in MODIFIERS:
            return match.end()
    elif text[start:end].lower() in _WORDS.before_two_words:
        match = _RE.two_words.match(text, end)
        if match is not None and kind_of_name(text[start : match.end()]) is Name.SECRET:
            return match.end()
    return end


def _names_something_else(text: str, start: int, end: int) -> bool:
    """Return whether a word for key or code names no secret with the next: `clave primaria`."""
    if _plain(text[start:end].lower()) not in _AMBIGUOUS:
        return False
    following = _RE.following.match(text, end)
    return following is not None and folded(following[1]).lower() in NO_SECRETS


_AMBIGUOUS = HEADS | {"parola", "sifre"}


def _kind_in_run(text: str, start: int, end: int) -> Name:
    """Classify a name in a language without spaces: with the characters before its stem."""
    run = _RE.ideograms.search(text, max(0, start - 6), end)
    return kind_of_name(run[0] if run else text[start:end])


def kind_at(text: str, start: int, end: int) -> Name:
    name = text[start:end]
    kind = kind_of_name(name)
    if name > "\u2e80" and kind is not Name.SECRET:
        kind = _kind_in_run(text, start, end)
    if kind is Name.SECRET and _names_something_else(text, start, end):
        return Name.PLAIN
    if _RE.joins_words.match(text, start - 2 if start > 1 else 0) is None:
        return kind
    # "security code", "mot de passe", but "palabra clave": the preceding words belong to the name.
    first = start - 40 if start > 40 else 0
    other = _RE.other_phrase.match(text, first, start - 1)
    tail = text[other.end() if other else first : start - 1]
    if "'" in tail:
        tail = _RE.quote.split(tail)[-1]
    before = tail.replace("-", " ").split()[-3:]
    if kind is Name.SECRET or kind is Name.TOKEN:
        is_keyword = bool(before) and is_word_for_keyword(before[-1] + name)
        return Name.PLAIN if is_keyword else kind
    return kind_of_name(" ".join((*before, name))) if before else kind
