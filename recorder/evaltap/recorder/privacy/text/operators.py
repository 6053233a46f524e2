"""Read the value behind an operator: `password = x`, `"api_key": "x"`, `PIN => 1234`."""

import re

from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.secret_names import (
    Name,
    is_about_secret,
    is_address,
    kind_of_name,
)
from evaltap.recorder.privacy.text.sentences import (
    SHORT_NUMBERS,
    answered,
)
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_code, is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_measure
from evaltap.recorder.privacy.text.values import (
    inside,
    is_mixed,
    read_value,
    rest_of_header,
    word_list,
)

_RE = patterns("operators")
_SAID = patterns("sentences")

_FOR_LOGINS = ("cred", "zugangsdaten", "anmeldedaten", "identifiant", "inloggegevens")


def behind_operator(text: str, match: re.Match[str], name: str, *, token: bool) -> Span | None:
    operator, at = match[1], match.end()
    key = _RE.key.search(match[0])
    if key is not None and kind_of_name(key[1]) is Name.PLAIN:
        return None
    is_return = operator == "->" and ")" in match[0]
    if is_return or (operator == "->" and _RE.underscored.match(text, at) is not None):
        return None
    if operator == "=" and match[0][:3] == "] =" and _is_index(text, match.start() - len(name), at):
        return None
    for pattern in (_RE.tags, _RE.annotation, _RE.described):
        if (skipped := pattern.match(text, at)) is not None:
            at = skipped.end()
    is_short = name.lower().endswith(("code", *SHORT_NUMBERS))
    if is_short and (digits := _SAID.digits.match(text, match.start())) is not None:
        return digits.span(1)
    if operator == "::" and _RE.identifier.match(text, at) is not None:
        return None
    if _ends_quoted(text, match.start() - len(name), at):
        return None
    if at >= len(text) or text[at] == "\n":
        return _on_next_line(text, match.start(), token=token)
    if operator == ":" and (block := _RE.block.match(text, at)) is not None:
        return inside(block, token)
    if (fallback := _RE.fallback.match(text, at)) is not None:
        return fallback.span(1) if not is_placeholder(fallback[1]) else None
    if is_header(name):
        quoted = text[match.start() - len(name) - 1 : match.start() - len(name)] in ("'", '"', "`")
        return rest_of_header(text, at, cookie="ookie" in name.lower(), quoted=quoted)
    if operator == ":" and (annotated := _RE.annotated.match(text, at)) is not None:
        at = annotated.end()
        operator = "="
    if (
        name.lower().endswith(("phrase", "mnemonic", "_words", "seedwords"))
        or name.lower() == "words"
    ):
        return word_list(text, at)
    if (
        name.lower().startswith(_FOR_LOGINS)
        and (both := _SAID.user_and.match(text, at)) is not None
    ):
        at = both.end()
    span = read_value(text, at, token=token, sure=operator[-1] not in ":.…")
    if span is not None and text[span[1] : span[1] + 1] == " ":
        line_end = text.find("\n", span[1], span[1] + 200)
        if is_about_secret(text[span[0] : line_end if line_end >= 0 else span[1] + 200]):
            return None  # `contrasena.titulo=Cambiar contraseña`
    if span is None and not token:
        span = _second_word(text, at)
    if span is not None and match[0][1:2].isdigit() and not is_mixed(text[slice(*span)]):
        return None  # `pin 13: OUTPUT`
    if span is not None and is_address(name) and "@" not in text[span[0] : span[1]]:
        return None
    return span


def _on_next_line(text: str, at: int, *, token: bool) -> Span | None:
    found = _RE.next_line.match(text, at)
    if found is None:
        return None if token else answered(text, at)
    return None if found[1].isalpha() or is_placeholder(found[1]) else found.span(1)


def _second_word(text: str, at: int) -> Span | None:
    match = _RE.second_word.match(text, at)
    if match is None or not is_mixed(match[1]):
        return None
    return None if is_code(match[1]) or is_measure(match[1].strip("()")) else match.span(1)


def _is_index(text: str, start: int, at: int) -> bool:
    """Return whether the name is a variable in a subscript: `generations[cookie_key] = generation`."""
    return text[start - 1 : start] == "[" and text[at : at + 1] not in ("'", '"')


def _ends_quoted(text: str, start: int, at: int) -> bool:
    """Return whether the quote here ends the text that the name began: `read -p "Password: " x`."""
    quote = text[start - 1 : start]
    return quote in ("'", '"') and text[at : at + 1] == quote and quote not in text[start:at]


def is_header(name: str) -> bool:
    return name.lower().endswith(("authorization", "cookie"))
