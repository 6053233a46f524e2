"""Find secrets next to their names in text: `password = x`, `"api_key": "x"`, `<pin>x</pin>`.

`name_places` finds the names; only a name that means a secret triggers a search for its value: after
a sign here, in a sentence in `sentences`. Every step reads a bounded part of the text, so the cost
grows linearly with its length.
"""

import re
from collections.abc import Iterator, Sequence

from evaltap.recorder.privacy.text.names.name_places import kind_at
from evaltap.recorder.privacy.text.names.secret_names import Name, is_address, is_postcode
from evaltap.recorder.privacy.text.sentences.values_after import (
    DIGITS,
    SHORT_NUMBERS,
    USER_AND,
    answered,
    other_said,
    said,
)
from evaltap.recorder.privacy.text.sentences.values_before import value_before
from evaltap.recorder.privacy.text.span import Span
from evaltap.recorder.privacy.text.stand_ins import is_code, is_placeholder
from evaltap.recorder.privacy.text.value_kinds import is_likely_password, is_measure, is_token
from evaltap.recorder.privacy.text.values import (
    inside,
    is_mixed,
    read_value,
    rest_of_header,
    word_list,
)


def assigned(text: str, names: Sequence[Span]) -> Iterator[Span]:
    """Yield the spans of values next to those of the names that belong to a secret."""
    done = header_end = 0
    for start, end in names:
        if start < done:
            continue
        kind = kind_at(text, start, end)
        if kind is not Name.SECRET and kind is not Name.TOKEN:
            continue
        if text[start - 1 : start] in ("$", "{", ":", " ") and _is_reference(text, start, end):
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
        if span is not None and not _is_postcode(text, start, end, span):
            done = max(end, span[1])
            yield span
            if kind is Name.SECRET and (other := other_said(text, span[1])) is not None:
                done = other[1]
                yield other


_IN_TEMPLATE = re.compile(r"(?:\{\{|\$\{)[^{}\n]{0,40}\Z")
_REST_OF_TEMPLATE = re.compile(r"[\w.]{0,40}[ ]?(?:\|[^{}\n|]{1,40})?\}")
_REFERRED = re.compile(r"[\w./-]{0,60}[^\w\s:=]?[ ]{0,2}(?:[:=]|-|\?\?|\|\|)")


def _is_reference(text: str, start: int, end: int) -> bool:
    """Return whether a name is that of a variable that is read here, or part of an ARN."""
    before = text[start - 1]
    if before == ":":
        return text[start - 13 : start - 1].isdigit()
    if before == "$":
        return _REFERRED.match(text, end) is None
    if text[start - 2 : start] == "${" and text[end : end + 2] in (":?", ":+"):
        return True
    return (
        "}" in text[end : end + 84]
        and _REST_OF_TEMPLATE.match(text, end) is not None
        and _IN_TEMPLATE.search(text, max(0, start - 44), start) is not None
    )


_AROUND = re.compile(r"[a-z]{3,}")


def _is_postcode(text: str, start: int, end: int, span: Span) -> bool:
    """Return whether a value is a postcode by its name, or by the words of an address around it."""
    value = text[slice(*span)]
    if not value[:1].isdigit() or "pin" not in text[max(0, start - 4) : end].lower():
        return False
    around = text[max(0, start - 120) : start] + text[span[1] : span[1] + 80]
    is_parted = "code" in (text[start:end].lower(), text[end + 1 : end + 5].lower())
    name = "pin code" if is_parted else text[start:end]
    return is_postcode(name, value, _AROUND.findall(around.lower()))


_OPERATOR = re.compile(
    r"[\"'`\])}*_~ ]{0,12}[ \t]{0,8}(?:[(\[][^()\[\]\n]{0,40}[)\]][ \t]?|</(?:b|strong|em|i|span|label)>[ \t]?|\{ ?get;[^{}\n]{0,24}\}[ ]?"
    r"|(?i:(?:as )?(?:text|n?varchar2?|char|string|clob)(?:\(\d{1,5}\))?[ ](?=:?=)))?"
    r"(=>|->|<-|[→⇒➔➜]|\.{3,6}|…|:=|\?=|\|\|=|[!=]==?|=|::?|\|\|(?=[ ]?[\"'])|\?\?(?=[ ]?[\"'])|\|)[ \t]{0,16}[*_~]{0,2}[ \t]?"
)
_NEXT_LINE = re.compile(
    r"[\"'`]?[ \t]{0,4}:[ \t]{0,4}(?:\n[ \t]{0,12}){1,2}([^\s:]{4,128})[ \t]{0,8}(?=\n|\Z)"
)
_CALL = re.compile(r"[({][ \t]{0,4}(?=[\"'`])")
_PAIR = re.compile(
    r"[\"'`]?(?:[^<>{}\[\]=:\n]{0,4}|[ \t,;]{1,4}[^<>{}=:]{1,24}[=:][ \t]?[\"'][^\"'<>{}]{0,60}[\"'])"
    r"[ \t,;]{0,4}\n?[ \t-]{0,24}[\"'`]?(?i:value|val|content|text|default|data)[\"'`]?[ \t]{0,3}(?:=>|[=:])"
    r"[ \t]{0,3}(?=\S)"
)
_HELD = re.compile(
    r"[\"'][^<>\n]{0,60}>\s{0,8}(?:<[\w:]{0,40}(?i:value|string|text)(?: [^<>\n]{0,80})?>\s{0,8})?([^<>\s][^<>]{0,4095}+)</"
)
_DEFAULT = re.compile(
    r"\"?[ \t]{0,4}\{[^{}]{0,400}?\b(?:default|value)[ \t]{0,16}=[ \t]{0,4}(?=\")"
)
"""What is between the name of a Terraform variable and its default."""
_FALLBACK = re.compile(
    r"(?:<%=?|\$?\{\{|os\.|ENV|process\.|System\.|env)[^\n]{0,80}?(?:\|\||\?[?:]|\bor\b|default\(|,|\bdefault:)[ ]?[\"']([^\s\"']{4,128})[\"']"
)
"""What stands in for a variable that is not set: `ENV['X'] || 'x'`."""
_OBJECT = re.compile(
    r"[\"'][ \t]{0,4}:[ \t]{0,4}\{[^{}]{0,400}?[\"'](?:value|plaintext|plainText|data)[\"'][ \t]{0,4}:[ \t]{0,4}(?=[\"'])"
)
_BLOCK = re.compile(r"[|>][+-]?[ \t]{0,4}\n[ \t]{1,32}([^\s:]{4,4096})[ \t]{0,8}(?=\n|\Z)")
"""A YAML block scalar of one word."""
_FORM_FIELD = re.compile(r"[\"']\r?\n(?:[\w-]{1,40}:[^\r\n]{0,128}\r?\n){0,4}\r?\n")
"""What is between the name of a multipart form's field and its value."""
_REPORTED = re.compile(r"(?::|[ \t]{0,2}\n)[^\n]{0,200}?\binput_value=(?=[\"'])")
_ELEMENT = re.compile(
    r"[^<>\n]{0,120}>\s{0,8}(?:<(?i:value|string|text)>\s{0,8})?(?:<!\[CDATA\[)?((?:(?!\]\]>)[^<>]){1,4096}+)(?:\]\]>)?</?"
)
_NUMBERED = re.compile(r"[\"']\n[ ]{0,4}\d{1,3}\)[ ](?=[\"'])")
"""What is between name and value in the answer of a Redis client."""
_PLIST = re.compile(
    r"</[\w:]{1,40}>\s{0,16}<[\w:]{0,40}(?:string|data|value|val|text|content)>\s{0,16}([^<>]{1,4096}+)</"
)
_TUPLE = re.compile(r"[\"'`][ \t]?,[ \t]{0,16}(?=[\"'`][^\"'`]{1,4096}[\"'`][ \t]?[,)\]}])")
_FLAG = re.compile(r"[ \t]{1,4}(?:\\?\n[ \t]{0,16})?")
_SECOND_WORD = re.compile(r"[^\W\d_]{2,24}[ ]([^\s\"'`&<>,;]{6,128})")
_NEXT_CELL = re.compile(
    r":?[ ]?</(?:td|th|dt|label|b|strong|span|div)>(?:\s|&nbsp;){0,40}<(?:td|dd|span|code|div|p|b|strong|em|i)(?: [^<>\n]{0,120})?>\s{0,8}(?:<(?:code|b|span|strong|em|i|pre|tt|kbd)(?: [^<>\n]{0,80})?>){0,2}([^<>\s][^<>]{0,4095}+)</"
)
_WITH_VALUE = re.compile(r"[\"'`][ ](?:with|has|to|is)(?: the)?(?: value)?[ ](?=[\"'`])")
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
_NEXT_INPUT = re.compile(
    r":?[ ]?</(?:td|th|dt|label|b|strong|span|div)>\s{0,40}(?:<(?:td|dd|div|span)(?: [^<>\n]{0,120})?>\s{0,8})?"
    r"<input [^<>\n]{0,200}?\bvalue=[\"']([^\"'<>\n]{1,256}+)[\"']"
)
_IN_CALL = re.compile(
    r"(?:[\]'\"`]{1,3}|(?<=#password))(?:\){1,3}\.\w{2,20}\([ ]?|[ ]?,[ ]?)(?=[\"'`])"
)
_TAG_OF = re.compile(r"<[\w.-]{1,40}=\Z")
_PREFIXED_TAG = re.compile(r"<[\w.-]{1,40}:\Z")
_VALUE_IN_FRONT = re.compile(
    r"(?i)[\s{,\"'](?:value|content|val)[\"']?[ ]{0,2}[=:][ ]{0,2}[\"']([^\"'<>]{3,256})[\"'][^<>{}]{0,120}\Z"
)
_ANNOTATED = re.compile(r"(?:[A-Za-z&?*][\w.\[\], |]{1,40}?)[ \t]{0,2}=[ \t]{0,2}(?=[\"'])")


_BOUND = re.compile(r"[\"'] to [\w.]{1,60}:\s{1,8}(?:Property: \S{1,80}\s{1,8})?Value: (?=\S)")
"""What Spring says of a property that it cannot bind."""
_HAS_VALUE = re.compile(
    r"[\"'`]?(?:[ ](?:has|had|with|contains|got)(?:[ ][a-z]{2,12}){0,3}|[:,;]?[ ](?:rejected|invalid|bad|actual|given))[ ]value:?[ ](?:\[(?=\S)|(?=[\"'`]))"
)
_VALUE_OF = re.compile(
    r"[\"']([^\"'\n]{4,128})[\"'][ ](?:at|for|of|in|as|(?:is|was) not (?:a )?valid(?: value)? for)[ ][\"'`]?\Z"
)
"""What an error says of a value, before its name: `Value 'x' at 'password'`."""
_LINE_IN_FRONT = re.compile(
    r"(?:\A|\n)[ \t-]{0,40}(?:value|val):[ ][\"']?([^\s\"'{}]{3,256})[\"']?[ ]{0,4}\n[ \t]{0,40}(?:name|key):[ ][\"']?\Z"
)
_IN_BRACKETS = re.compile(r"\][ ]{1,4}([^\s\"'<>]{6,64})(?=\s|\Z)")
_OF_CONSTANT = re.compile(r",[ ]{0,4}(?=[\"'])")
"""Of `curl_setopt($c, CURLOPT_USERPWD, 'bob:x')`."""
_AFTER_QUOTED = (_WITH_VALUE, _HAS_VALUE, _BOUND, _NUMBERED, _FORM_FIELD, _DEFAULT, _OBJECT)
"""What may be between a name in quotes and its value."""


def _after_quoted(text: str, start: int, end: int, *, token: bool) -> tuple[bool, Span | None]:
    """Return whether a form of a quoted name applies, and its value."""
    in_tuple = text[start - 2 : start - 1] in ("(", "[", "{", " ")
    for pattern in (_PAIR, *((_TUPLE,) if in_tuple else ()), *_AFTER_QUOTED):
        if (match := pattern.match(text, end)) is not None:
            return True, read_value(text, match.end(), token=token, sure=True)
    if (match := _HELD.match(text, end)) is not None:
        return True, inside(match, token)
    first = max(0, start - 300)
    if (match := _VALUE_OF.search(text, first, start)) is not None and is_mixed(match[1]):
        return True, match.span(1)
    match = _VALUE_IN_FRONT.search(text, first, start) or _LINE_IN_FRONT.search(text, first, start)
    return match is not None, match.span(1) if match is not None else None


def _is_tag(text: str, start: int) -> bool:
    """Return whether a name is that of a tag, `<ns:password>`, or of what a tag holds, `<parameter=password>`."""
    before = text[start - 1 : start]
    if before == ":":
        return _PREFIXED_TAG.search(text, max(0, start - 44), start) is not None
    if before == "=":
        return _TAG_OF.search(text, max(0, start - 44), start) is not None
    return before == "<"


def _value_after(text: str, start: int, end: int, *, token: bool) -> Span | None:
    before = text[start - 1 : start]
    if _is_tag(text, start):
        return inside(_ELEMENT.match(text, end), token)
    if before == ">" and (match := _PLIST.match(text, end)) is not None:
        return inside(match, token)
    if (span := _below(text, start, end)) is not None:
        return span
    name = text[start:end]
    if before in "\"'`" and before:
        applies, span = _after_quoted(text, start, end, token=token)
        if applies:
            return span
    elif (match := _PAIR_LINE.match(text, end) or _REPORTED.match(text, end)) is not None:
        return read_value(text, match.end(), token=token, sure=True)
    if (match := _NEXT_CELL.match(text, end) or _NEXT_INPUT.match(text, end)) is not None:
        return inside(match, token)
    if (match := _ALIGNED.match(text, end)) is not None and _LINE_START.search(
        text, max(0, start - 24), start
    ):
        if _is_in_cell(match[1], token=token):
            return match.span(1)
        is_record = not token and _RECORD.search(text, max(0, start - 2_000), start) is not None
        return inside(match, token) if is_record else None
    if (match := _OPERATOR.match(text, end)) is not None:
        if match[1] == "|":
            return _next_cell(text, start, end, token=token)
        return _behind_operator(text, match, name, token=token)
    if before == "-" and (match := _FLAG.match(text, end)) is not None:
        if "$" in name or _NO_VALUE_OF_FLAG.match(text, match.end()) is not None:
            return None
        # `--secret-id` may be that of Vault, or only a name.
        return read_value(text, match.end(), token=token and name[-2:] == "id", sure=True)
    if (match := _CALL.match(text, end)) is not None:
        if _GETTER.match(name) is not None:
            return None
        return read_value(text, match.end(), token=token, sure=True)
    if token:
        return said(text, start, end, token=True)
    if before == "[" and (match := _IN_BRACKETS.match(text, end)) is not None:
        return match.span(1) if is_likely_password(match[1]) else None
    if before == " " and (match := _LINE_IN_FRONT.search(text, max(0, start - 300), start)):
        return match.span(1)
    is_constant = name.isupper() and "_" in name
    for pattern in (_IN_CALL, _HAS_VALUE, _DEFAULT, *((_OF_CONSTANT,) if is_constant else ())):
        if (match := pattern.match(text, end)) is not None:
            span = read_value(text, match.end(), token=False, sure=True)
            return span if span and is_mixed(text[slice(*span)]) else None
    return said(text, start, end, token=False)


_NO_VALUE_OF_FLAG = re.compile(r"(?:id|type|src)=")
"""What `docker build --secret id=npmrc` is given."""
_GETTER = re.compile(
    r"(?i)(?:.{0,40}[._])?(?:get|prompt|read|ask|has|find|load|fetch|is|check)[_A-Z]"
)
_LINE_START = re.compile(r"(?:\A|\n)[ \t]{0,16}\Z")
_RECORD = re.compile(r"-\[ RECORD \d{1,9} \]")
"""Above the columns of a row that psql prints one below the other."""
_ALIGNED = re.compile(
    r"(?:[ ]{2,40}|[ ]{0,40}\|[ ])([^\s|]{4,256})[ \t]*(?=\n|\Z)(?!\n[-+=| ]{4,})"
)
"""The value in the second of two columns, at the end of its line."""


def _is_in_cell(value: str, *, token: bool) -> bool:
    """Return whether a cell beside a secret's name holds the secret, not its algorithm or type."""
    if not is_mixed(value) or _ALGORITHM.fullmatch(value) or is_code(value):
        return False
    return not is_placeholder(value) and (not token or is_token(value))


_BELOW = re.compile(
    r"[ \t]{0,4}\n(?:[-=~]{3,80}\n)?[ \t]{0,8}([^\s\"'<>]{4,128})[ \t]{0,4}(?=\n|\Z)"
)


def _below(text: str, start: int, end: int) -> Span | None:
    """Return the word on a line of its own under a name on a line of its own."""
    match = _BELOW.match(text, end) if text[start - 1 : start] in ("", "\n") else None
    return match.span(1) if match is not None and is_likely_password(match[1]) else None


_FIRST_CELL = re.compile(r"(?:^|\n)[ \t]{0,8}\|[ \t]{0,64}[^|\n]{0,24}\Z")
_NEXT_ROW_CELL = re.compile(
    r"[\"'`*_]{0,3}[ \t]{0,64}\|[ \t]{0,64}[\"'`*_]{0,3}([^\s|\"'`]{6,512})"
)
_RULE_BELOW = re.compile(r"[^\n]{0,512}\n[ \t]{0,8}\|[ \t]{0,8}:?--")
_ALGORITHM = re.compile(
    r"(?i)(?:sha|md|rs|hs|es|aes|utf|rsa|gpio|base|bcrypt)[_-]?\d.*|oauth\S*|x509"
)


def _next_cell(text: str, start: int, end: int, *, token: bool) -> Span | None:
    """Return the value in a row of a Markdown table, `| password | x |`."""
    if _FIRST_CELL.search(text, max(0, start - 80), start) is None:
        return None
    match = _NEXT_ROW_CELL.match(text, end)
    if match is None or _RULE_BELOW.match(text, end) is not None:
        return None
    value = match[1].rstrip("*_")
    if not _is_in_cell(value, token=token):
        return None
    return match.start(1), match.start(1) + len(value)


_FOR_LOGINS = ("cred", "zugangsdaten", "anmeldedaten", "identifiant", "inloggegevens")
_PAIR_LINE = re.compile(
    r"(?i:[ \t]{0,4}\n[ \t]{0,24}|[ ]?[,;|][ \t]{1,4})(?i:(?:new )?(?:value|content|default|data))(?::[ \t]{1,4}|=)(?=\S)"
)


def _behind_operator(text: str, match: re.Match[str], name: str, *, token: bool) -> Span | None:
    operator, at = match[1], match.end()
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
        found = _NEXT_LINE.match(text, match.start())
        if found is None:
            return None if token else answered(text, match.start())
        if found[1].isalpha() or is_placeholder(found[1]):
            return None
        return found.span(1)
    if operator == ":" and (block := _BLOCK.match(text, at)) is not None:
        return inside(block, token)
    if (fallback := _FALLBACK.match(text, at)) is not None:
        return fallback.span(1) if not is_placeholder(fallback[1]) else None
    if _is_header(name):
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
    if span is None and not token and (second := _SECOND_WORD.match(text, at)) is not None:
        span = (
            second.span(1)
            if is_mixed(second[1])
            and not is_code(second[1])
            and not is_measure(second[1].strip("()"))
            else None
        )
    if span is not None and is_address(name) and "@" not in text[span[0] : span[1]]:
        return None
    return span


_IDENTIFIER = re.compile(r"[A-Za-z]+(?:_\w{1,60}|::)")
"""What follows a name in a path of code: `password::tests::hash_roundtrip`."""


def _ends_quoted(text: str, start: int, at: int) -> bool:
    """Return whether the quote here ends the text that the name began: `read -p "Password: " x`."""
    quote = text[start - 1 : start]
    return quote in ("'", '"') and text[at : at + 1] == quote and quote not in text[start:at]


def _is_header(name: str) -> bool:
    return name.lower().endswith(("authorization", "cookie"))
