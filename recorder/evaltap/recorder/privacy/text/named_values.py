"""Find secrets next to their names in text: `password = x`, `"api_key": "x"`, `<pin>x</pin>`.

`name_places` finds the names; only a name that means a secret triggers a search for its value: in
markup, in a cell, behind an operator, in a call here, in a sentence in `sentences`. Every step reads a
bounded part of the text, so the cost grows linearly with its length.
"""

import re
from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.findings import Span
from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.text.name_places import kind_at
from evaltap.recorder.privacy.text.secret_names import (
    Name,
    is_about_secret,
    is_address,
    is_postcode,
    kind_of_name,
)
from evaltap.recorder.privacy.text.sentences import (
    SHORT_NUMBERS,
    answered,
    other_said,
    said,
    value_before,
)
from evaltap.recorder.privacy.text.value_kinds import (
    is_code,
    is_likely_password,
    is_measure,
    is_placeholder,
    is_token,
)
from evaltap.recorder.privacy.text.values import (
    inside,
    is_mixed,
    read_value,
    rest_of_header,
    word_list,
)

_RE = patterns("named_values")
_SAID = patterns("sentences")


def assigned(text: str, names: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans of values next to those of the names that belong to a secret."""
    done = header_end = 0
    for start, end in names:
        if start < done:
            continue
        kind = kind_at(text, start, end)
        if kind not in (Name.SECRET, Name.TOKEN):
            continue
        if text[start - 1 : start] in ("$", "{", ":", " ", "-") and _is_reference(text, start, end):
            continue
        if _is_header(text[start:end]):
            # The rest of the line is its value: header names inside do not count.
            if start < header_end:
                continue
            line_end = text.find("\n", end, end + 4096)
            header_end = line_end if line_end >= 0 else end + 4096
        span = _value_after(text, start, end, token=kind is Name.TOKEN)
        if span is None and kind is Name.SECRET:
            span = value_before(text, start, end)
        if span is not None and not _is_postcode_in_text(text, start, end, span):
            done = max(end, span[1])
            yield span
            if kind is Name.SECRET and (other := other_said(text, span[1])) is not None:
                done = other[1]
                yield other


def _value_after(text: str, start: int, end: int, *, token: bool) -> Span | None:
    name, before = text[start:end], text[start - 1 : start]
    if (
        before in (" ", "", "\n", "(")
        and text[end : end + 1] == " "
        and text[end + 1 : end + 2].isalpha()
    ):
        return _in_prose(text, start, end, token=token)
    applies, span = _in_markup(text, start, end, token=token)
    if applies:
        return span
    if before in "\"'`" and before:
        applies, span = _after_quoted(text, start, end, token=token)
        if applies:
            return span
    elif (match := _RE.pair_line.match(text, end) or _RE.reported.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=True)
    if (match := _RE.next_cell.match(text, end) or _RE.next_input.match(text, end)) is not None:
        return inside(match, token)
    applies, span = _aligned(text, start, end, token=token)
    if applies:
        return span
    if (match := _RE.operator.match(text, end)) is not None:
        if match[1] == "|":
            return _next_cell(text, start, end, token=token)
        return _behind_operator(text, match, name, token=token)
    if before == "-" and (match := _RE.flag.match(text, end)) is not None:
        return _of_flag(text, match, name, token=token)
    if (match := _RE.call.match(text, end)) is not None:
        if _RE.getter.match(name) is not None or _RE.method.search(name) is not None:
            return None
        return read_value(text, match.end(), token=token, sure=True)
    if not token:
        applies, span = _in_other_form(text, start, end)
        if applies:
            return span
    return said(text, start, end, token=token)


def _in_prose(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value of a name among words: no form with a sign applies."""
    if (match := _RE.operator.match(text, end)) is not None:
        return _behind_operator(text, match, text[start:end], token=token)
    may_be_listed = text.endswith(("name: ", "key: "), 0, start)
    if not token and (may_be_listed or text.startswith(_VERBS, end)):
        applies, span = _in_other_form(text, start, end)
        if applies:
            return span
    return said(text, start, end, token=token)


_VERBS = (" ha", " with", " contains", " got", " rejected", " invalid", " bad", " actual", " given")
"""How what is between a name and `value: x` begins."""


def _of_flag(text: str, match: re.Match[str], name: str, *, token: bool) -> Span | None:
    """Return the value behind a command's option."""
    if "$" in name or _RE.no_value_of_flag.match(text, match.end()) is not None:
        return None
    # `--secret-id` may be that of Vault, or only a name; `--tag-key Project` is none.
    span = read_value(text, match.end(), token=token and name[-2:] == "id", sure=True)
    return span if span is None or not token or is_mixed(text[slice(*span)]) else None


def _in_markup(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether the name is that of an element or on a line of its own, and the value."""
    if _is_tag(text, start):
        return True, inside(_RE.element.match(text, end), token)
    if text[start - 1 : start] == ">" and (match := _RE.plist.match(text, end)) is not None:
        return True, inside(match, token)
    span = _below(text, start, end)
    return span is not None, span


def _is_tag(text: str, start: int) -> bool:
    """Return whether a name is that of a tag, `<ns:password>`, or what it holds, `<parameter=password>`."""
    before = text[start - 1 : start]
    if before == ":":
        return _RE.prefixed_tag.search(text, max(0, start - 44), start) is not None
    if before == "=":
        return _RE.tag_of.search(text, max(0, start - 44), start) is not None
    return before == "<"


def _in_other_form(text: str, start: int, end: int) -> tuple[bool, Span | None]:
    """Return whether a secret's name has its value in a call, in brackets or on the line before."""
    before, name = text[start - 1 : start], text[start:end]
    if before == "[" and (match := _RE.in_brackets.match(text, end)) is not None:
        return True, match.span(1) if is_likely_password(match[1]) else None
    if before == " " and (match := _RE.line_in_front.search(text, max(0, start - 300), start)):
        return True, match.span(1)
    is_constant = name.isupper() and "_" in name
    for pattern in (
        _RE.in_call,
        _RE.has_value,
        _RE.default,
        *((_RE.of_constant,) if is_constant else ()),
    ):
        if (match := pattern.match(text, end)) is not None:
            span = read_value(text, match.end(), token=False, sure=True)
            return True, span if span and is_mixed(text[slice(*span)]) else None
    return False, None


_BETWEEN = (
    "pair",
    "with_value",
    "has_value",
    "bound",
    "numbered",
    "form_field",
    "default",
    "object",
)
"""What may be between a name in quotes and its value."""


def _after_quoted(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether a form of a quoted name applies, and its value."""
    in_tuple = text[start - 2 : start - 1] in ("(", "[", "{", " ")
    for name in _BETWEEN:
        if name == "form_field" and not text.startswith("name=", start - 6):
            continue
        if (match := getattr(_RE, name).match(text, end)) is not None:
            return True, read_value(text, match.end(), token=token, sure=True)
    if in_tuple and (match := _RE.tuple.match(text, end)) is not None:
        return True, _in_tuple(text, start, match, token=token)
    if (match := _RE.held.match(text, end)) is not None:
        return True, inside(match, token)
    first = max(0, start - 300)
    if (match := _RE.value_of.search(text, first, start)) is not None and is_mixed(match[1]):
        return True, match.span(1)
    match = _RE.value_in_front.search(text, first, start) or _RE.line_in_front.search(
        text, first, start
    )
    return (False, None) if match is None else (True, match.span(1))


def _in_tuple(text: str, start: int, match: re.Match[str], *, token: bool) -> Span | None:
    """Return the value behind a name in a tuple; of many names in a row none is the value of another."""
    span = read_value(text, match.end(), token=token, sure=True)
    is_pair = text[start - 2] in "([" and text[match.end(1) :][:1] in (")", "]")
    return span if span is not None and (is_pair or is_mixed(text[slice(*span)])) else None


def _aligned(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether the name is the first of two columns, and the value in the second."""
    match = _RE.aligned.match(text, end)
    if match is None or _RE.line_start.search(text, max(0, start - 24), start) is None:
        return False, None
    if _is_in_cell(match[1], token=token):
        return True, match.span(1)
    is_record = not token and _RE.record.search(text, max(0, start - 2_000), start) is not None
    return True, inside(match, token) if is_record else None


def _is_in_cell(value: str, *, token: bool) -> bool:
    """Return whether a cell beside a secret's name holds the secret, not its algorithm or type."""
    if not is_mixed(value) or _RE.algorithm.fullmatch(value) or is_code(value):
        return False
    return not is_placeholder(value) and (not token or is_token(value))


def _below(text: str, start: int, end: int) -> Span | None:
    """Return the word on a line of its own under a name on a line of its own."""
    match = _RE.below.match(text, end)
    if match is None or _RE.on_a_line.search(text, max(0, start - 32), start) is None:
        return None
    return match.span(1) if is_likely_password(match[1]) else None


def _next_cell(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in a row of a Markdown table, `| password | x |`."""
    if _RE.first_cell.search(text, max(0, start - 80), start) is None:
        return None
    match = _RE.next_row_cell.match(text, end)
    if match is None or _RE.rule_below.match(text, end) is not None:
        return None
    value = match[1].rstrip("*_")
    if not _is_in_cell(value, token=token):
        return None
    return match.start(1), match.start(1) + len(value)


def _is_reference(text: str, start: int, end: int) -> bool:
    """Return whether a name is that of a variable that is read here, or part of an ARN."""
    before = text[start - 1]
    if before == ":":
        return text[start - 13 : start - 1].isdigit()
    if text[start:end].strip("-") == "secret" and text[end : end + 1] == "=":
        # What `gcloud` is given is a name.
        return "gcloud " in text[max(0, start - 160) : start]
    if before == "$":
        return _RE.referred.match(text, end) is None
    if text[start - 2 : start] == "${" and text[end : end + 2] in (":?", ":+"):
        return True
    return (
        "}" in text[end : end + 84]
        and _RE.rest_of_template.match(text, end) is not None
        and _RE.in_template.search(text, max(0, start - 44), start) is not None
    )


def _is_postcode_in_text(text: str, start: int, end: int, span: Span) -> bool:
    """Return whether a value is a postcode by its name, or by the words of an address around it."""
    value = text[slice(*span)]
    if not value[:1].isdigit() or "pin" not in text[max(0, start - 4) : end].lower():
        return False
    around = text[max(0, start - 120) : start] + text[span[1] : span[1] + 80]
    is_parted = "code" in (text[start:end].lower(), text[end + 1 : end + 5].lower())
    name = "pin code" if is_parted else text[start:end]
    return is_postcode(name, value, _RE.around.findall(around.lower()))


_FOR_LOGINS = ("cred", "zugangsdaten", "anmeldedaten", "identifiant", "inloggegevens")


def _behind_operator(text: str, match: re.Match[str], name: str, *, token: bool) -> Span | None:
    at = match.end()
    if _assigns_nothing(text, match, name):
        return None
    for pattern in (_RE.tags, _RE.annotation, _RE.described):
        if (skipped := pattern.match(text, at)) is not None:
            at = skipped.end()
    is_short = name.lower().endswith(("code", *SHORT_NUMBERS))
    if is_short and (digits := _SAID.digits.match(text, match.start())) is not None:
        return digits.span(1)
    if match[1] == "::" and _RE.identifier.match(text, at) is not None:
        return None
    if _ends_quoted(text, match.start() - len(name), at):
        return None
    if at >= len(text) or text[at] == "\n":
        return _on_next_line(text, match.start(), token=token)
    return _assigned(text, match, name, at, token=token)


def _assigns_nothing(text: str, match: re.Match[str], name: str) -> bool:
    """Return whether an operator gives the name no value: a return type, an index, another key."""
    key = _RE.key.search(match[0])
    if key is not None and kind_of_name(key[1]) is Name.PLAIN:
        return True
    if match[1] == "->":
        return ")" in match[0] or _RE.underscored.match(text, match.end()) is not None
    is_index = match[1] == "=" and match[0][:3] == "] ="
    return is_index and _is_index(text, match.start() - len(name), match.end())


def _assigned(text: str, match: re.Match[str], name: str, at: int, *, token: bool) -> Span | None:
    """Return the value behind an operator, on its line."""
    operator, lower = match[1], name.lower()
    if operator == ":" and (block := _RE.block.match(text, at)) is not None:
        return inside(block, token)
    if (fallback := _RE.fallback.match(text, at)) is not None:
        return fallback.span(1) if not is_placeholder(fallback[1]) else None
    if _is_header(name):
        quoted = text[match.start() - len(name) - 1 : match.start() - len(name)] in ("'", '"', "`")
        return rest_of_header(text, at, cookie="ookie" in lower, quoted=quoted)
    if operator == ":" and (annotated := _RE.annotated.match(text, at)) is not None:
        at = annotated.end()
        operator = "="
    if lower.endswith(("phrase", "mnemonic", "_words", "seedwords")) or lower == "words":
        return word_list(text, at)
    if lower.startswith(_FOR_LOGINS) and (both := _SAID.user_and.match(text, at)) is not None:
        at = both.end()
    span = read_value(text, at, token=token, sure=operator[-1] not in ":.…")
    if span is not None and _is_talked_about(text, span):
        return None  # `contrasena.titulo=Cambiar contraseña`
    if span is None and not token:
        span = _second_word(text, at)
    return span if span is not None and _may_be_of(name, match, text[slice(*span)]) else None


def _is_talked_about(text: str, span: Span) -> bool:
    if text[span[1] : span[1] + 1] != " ":
        return False
    line_end = text.find("\n", span[1], span[1] + 200)
    return is_about_secret(text[span[0] : line_end if line_end >= 0 else span[1] + 200])


def _may_be_of(name: str, match: re.Match[str], value: str) -> bool:
    if match[0][1:2].isdigit() and not is_mixed(value):
        return False  # `pin 13: OUTPUT`
    return "@" in value or not is_address(name)


def _on_next_line(text: str, at: int, *, token: bool) -> Span | None:
    if (found := _RE.next_line.match(text, at)) is None:
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


def _is_header(name: str) -> bool:
    return name.lower().endswith(("authorization", "cookie"))
