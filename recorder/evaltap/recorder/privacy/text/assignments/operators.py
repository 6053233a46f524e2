"""Read the value behind an operator: `password = x`, `"api_key": "x"`, `PIN => 1234`."""

import re

from evaltap.recorder.privacy.text.names.secret_names import (
    Name,
    is_about_secret,
    is_address,
    kind_of_name,
)
from evaltap.recorder.privacy.text.sentences.values_after import (
    DIGITS,
    SHORT_NUMBERS,
    USER_AND,
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

OPERATOR = re.compile(
    r"(?:[ ]\d{1,2}(?=[ ]?[:=]))?[\"'`\])}*_~ ]{0,12}[ \t]{0,8}(?:[(\[][^()\[\]\n]{0,40}[)\]][ \t]?|</(?:b|strong|em|i|span|label)>[ \t]?|\{ ?get;[^{}\n]{0,24}\}[ ]?"
    r"|(?i:(?:as )?(?:text|n?varchar2?|char|string|clob)(?:\(\d{1,5}\))?[ ](?=:?=)))?"
    r"(=>|->|<-|(?<=\w)>(?=[ ]\S)|[→⇒➔➜]|\.{3,6}|…|:=|\?=|\|\|=|[!=]==?|=|::?|\|\|(?=[ ]?[\"'])|\?\?(?=[ ]?[\"'])|\|)[ \t]{0,16}[*_~]{0,2}[ \t]?"
)
_KEY = re.compile(r"\[[\"']([A-Za-z_]{1,40})[\"']\]")
"""Of `credentials["user"] = "bob"`: what has the value is not the secret."""
_UNDERSCORED = re.compile(r"[a-z]+(?:_[a-z]+)+(?![\w.!-])")
_NEXT_LINE = re.compile(
    r"[\"'`]?[ \t]{0,4}:[ \t]{0,4}(?:\n[ \t]{0,12}){1,2}([^\s:]{4,128})[ \t]{0,8}(?=\n|\Z)"
)
_FALLBACK = re.compile(
    r"(?:<%=?|\$?\{\{|os\.|ENV|process\.|System\.|env|input\(|sys\.|args\.|config|settings)[^\n]{0,80}?"
    r"(?:\|\||\?[?:]|\b(?:or|else)\b|default[( ]|,|\bdefault:|\)[ ]?\{)[ ]?[\"']([^\s\"']{4,128})[\"']"
)
"""What stands in for a variable that is not set: `ENV['X'] || 'x'`."""
_BLOCK = re.compile(r"[|>][+-]?[ \t]{0,4}\n[ \t]{1,32}([^\s:]{4,4096})[ \t]{0,8}(?=\n|\Z)")
"""A YAML block scalar of one word."""
_SECOND_WORD = re.compile(r"[^\W\d_]{2,24}[ ]([^\s\"'`&<>,;]{6,128})")
_TAGS = re.compile(
    r"(?:</?(?:code|b|strong|em|i|span|tt|kbd|pre|samp|mark|label)(?: [^<>\n]{0,80})?>[ \t]{0,4}){1,3}"
)
_ANNOTATION = re.compile(
    r"(?:&[\w-]{1,40}|!![a-z]{2,12})[ ](?=[^\s=])|\s{0,40}string\(\d{1,5}\) (?=\")"
)
"""YAML's anchors and tags, PHP's `var_dump`."""
_DESCRIBED = re.compile(
    r"(?i)(?:\n[ ]{1,40}(?:type|description|format|minlength|maxlength|title|required|sensitive|noecho|allowedpattern|constraintdescription):[^\n]{0,120}){1,6}"
    r"\n[ ]{1,40}(?:example|default|value):[ ]"
)
"""What a schema says of a field, up to its example."""
_ANNOTATED = re.compile(r"(?:[A-Za-z&?*][\w.\[\], |]{1,40}?)[ \t]{0,2}=[ \t]{0,2}(?=[\"'])")
_FOR_LOGINS = ("cred", "zugangsdaten", "anmeldedaten", "identifiant", "inloggegevens")


def behind_operator(text: str, match: re.Match[str], name: str, *, token: bool) -> Span | None:
    operator, at = match[1], match.end()
    key = _KEY.search(match[0])
    if key is not None and kind_of_name(key[1]) is Name.PLAIN:
        return None
    is_return = operator == "->" and ")" in match[0]
    if is_return or (operator == "->" and _UNDERSCORED.match(text, at) is not None):
        return None
    if operator == "=" and match[0][:3] == "] =" and _is_index(text, match.start() - len(name), at):
        return None
    for pattern in (_TAGS, _ANNOTATION, _DESCRIBED):
        if (skipped := pattern.match(text, at)) is not None:
            at = skipped.end()
    is_short = name.lower().endswith(("code", *SHORT_NUMBERS))
    if is_short and (digits := DIGITS.match(text, match.start())) is not None:
        return digits.span(1)
    if operator == "::" and _IDENTIFIER.match(text, at) is not None:
        return None
    if _ends_quoted(text, match.start() - len(name), at):
        return None
    if at >= len(text) or text[at] == "\n":
        return _on_next_line(text, match.start(), token=token)
    if operator == ":" and (block := _BLOCK.match(text, at)) is not None:
        return inside(block, token)
    if (fallback := _FALLBACK.match(text, at)) is not None:
        return fallback.span(1) if not is_placeholder(fallback[1]) else None
    if is_header(name):
        quoted = text[match.start() - len(name) - 1 : match.start() - len(name)] in ("'", '"', "`")
        return rest_of_header(text, at, cookie="ookie" in name.lower(), quoted=quoted)
    if operator == ":" and (annotated := _ANNOTATED.match(text, at)) is not None:
        at = annotated.end()
        operator = "="
    if (
        name.lower().endswith(("phrase", "mnemonic", "_words", "seedwords"))
        or name.lower() == "words"
    ):
        return word_list(text, at)
    if name.lower().startswith(_FOR_LOGINS) and (both := USER_AND.match(text, at)) is not None:
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
    found = _NEXT_LINE.match(text, at)
    if found is None:
        return None if token else answered(text, at)
    return None if found[1].isalpha() or is_placeholder(found[1]) else found.span(1)


def _second_word(text: str, at: int) -> Span | None:
    match = _SECOND_WORD.match(text, at)
    if match is None or not is_mixed(match[1]):
        return None
    return None if is_code(match[1]) or is_measure(match[1].strip("()")) else match.span(1)


_IDENTIFIER = re.compile(r"[A-Za-z]+(?:_\w{1,60}|::)|(?:[A-Z][a-z]{1,14}){2,8}(?!\w)")
"""What follows a name in a path of code: `password::tests::hash_roundtrip`."""


def _is_index(text: str, start: int, at: int) -> bool:
    """Return whether the name is a variable in a subscript: `generations[cookie_key] = generation`."""
    return text[start - 1 : start] == "[" and text[at : at + 1] not in ("'", '"')


def _ends_quoted(text: str, start: int, at: int) -> bool:
    """Return whether the quote here ends the text that the name began: `read -p "Password: " x`."""
    quote = text[start - 1 : start]
    return quote in ("'", '"') and text[at : at + 1] == quote and quote not in text[start:at]


def is_header(name: str) -> bool:
    return name.lower().endswith(("authorization", "cookie"))
