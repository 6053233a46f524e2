"""Redact JSON values: strings, keys of objects, and JSON inside strings, as their names demand.

A sensitive part becomes a stable pseudonym, so equal values stay equal. A value that cannot be
redacted becomes `[REDACTED:error]`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import orjson

from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.privacy.detectors import find, is_ordinary
from evaltap.recorder.privacy.findings import PSEUDONYM, Finding
from evaltap.recorder.privacy.lexicon import patterns
from evaltap.recorder.privacy.policy import WITHHELD
from evaltap.recorder.privacy.pseudonyms import Pseudonyms
from evaltap.recorder.privacy.rule_matching import Rule
from evaltap.recorder.privacy.structures import (
    begins_key,
    columns_of,
    is_schema,
    is_user_and_password,
    kinds_in_list,
    kinds_in_schema,
    kinds_of_held,
    kinds_of_rows,
    may_tell,
    secret_parts,
    values_of_label,
)
from evaltap.recorder.privacy.text.calm import calm_keys, is_calm
from evaltap.recorder.privacy.text.numbers import card_in, is_card_number, phone_in
from evaltap.recorder.privacy.text.secret_names import Name, is_postcode, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import is_message, is_token
from evaltap.recorder.privacy.text.values import says_other
from evaltap.schemas.data import JsonObject

_RE = patterns("redacted_values")

FAILED = "[REDACTED:error]"

_MAX_NESTED_JSON = 6
_MAX_PASSES = 4
_LONGEST_KNOWN_NAME = 64
_MAX_KNOWN_NAMES = 4_096
_SHORTEST_REMEMBERED = 64
MAX_CLEAN = 4_096
"""Digests in a generation of what is remembered as clean."""
_SMALLEST_NUMBER = 10**13
"""Smaller numbers are too short for a card."""


@dataclass(slots=True)
class RedactionReport:
    """What was done to one case: pseudonyms by kind, and values that could not be redacted."""

    replaced: Counter[str] = field(default_factory=Counter)
    failures: int = 0


class _CleanValues:
    """Digests of values that were found to be clean: prompts, and calls that a reference repeats.

    Bounded: of two generations the older goes when the younger is full.
    """

    def __init__(self) -> None:
        self._younger: set[bytes] = set()
        self._older: set[bytes] = set()

    def __contains__(self, digest: bytes) -> bool:
        if digest in self._younger:
            return True
        if digest in self._older:
            self.add(digest)
            return True
        return False

    def add(self, digest: bytes) -> None:
        if len(self._younger) >= MAX_CLEAN:
            self._older, self._younger = self._younger, set()
        self._younger.add(digest)


_USES = {kind: f"item {kind.name}".encode() for kind in Name}
_HARMLESS = (Name.PLAIN, Name.IDENTIFIER)
"""What names mean that say nothing secret about their values."""


def _document(value: Any) -> bytes:
    """Return an object or a list as JSON; nothing for other values and what is no JSON."""
    if not value or not isinstance(value, dict | list):
        return b""
    try:
        return orjson.dumps(value)
    except TypeError:  # such as a number of more than 64 bits
        return b""


def _digest(text: Any, use: bytes) -> bytes:
    """Return a digest of a text redacted for some use; nothing for one that is quickly redacted."""
    if not isinstance(text, str) or len(text) < _SHORTEST_REMEMBERED:
        return b""
    return _hashed(text.encode("utf-8", "surrogatepass"), use)


def _hashed(content: bytes, use: bytes) -> bytes:
    return blake2b(content, digest_size=16, person=use).digest()


class ValueRedactor:
    """Redacts the values of a case, one at a time, and counts what it did in a report."""

    def __init__(self, pseudonyms: Pseudonyms, *, rules: Sequence[Rule], entropy: bool) -> None:
        self._pseudonyms = pseudonyms
        self._rules = tuple(rules)
        self._entropy = entropy
        self._clean_names: dict[str, Name] = {}
        self._clean = _CleanValues()

    def item(self, name: str, value: Any, report: RedactionReport) -> Any:
        """Redact the value of a key, taking the key into account."""
        yield_to_agent()
        try:
            kind = kind_of_name(name)
            is_harmless = kind in _HARMLESS
            if is_harmless and not self._rules and _is_plain(value, kind is Name.IDENTIFIER):
                return value
            document, use = _document(value), _USES[kind]
            digest = _hashed(document, use + b"{") if document else _digest(value, use)
            if digest and digest in self._clean:
                return value
            if document and is_harmless and self._is_calm(document):
                self._clean.add(digest)
                return value
            failures = report.failures
            redacted = self._named(kind, value, report, nested=0)
            if digest and report.failures == failures and redacted == value:
                self._clean.add(digest)
            return redacted
        except Exception:
            # Whatever went wrong, the value must not leave: fail closed.
            report.failures += 1
            return FAILED

    def _is_calm(self, document: bytes) -> bool:
        """Return whether no rule can match a part of a document, whatever its place."""
        keys = None if self._rules else calm_keys(document)
        if keys is None or may_tell(keys):
            return False
        return all(kind_of_name(key) in _HARMLESS for key in keys)

    def _named(self, name: Name, value: Any, report: RedactionReport, *, nested: int) -> Any:
        if name in _HARMLESS:
            return self.value(value, report, identifier=name is Name.IDENTIFIER, nested=nested)
        if name is Name.SECRET:
            if is_schema(value):
                return self._object(value, report, nested, above=name)
            return self._secret(value, report)
        if name is Name.TOKEN:
            if is_token(value):
                return self._secret(value, report)
            if isinstance(value, dict):
                return self._object(value, report, nested, above=name)
            if isinstance(value, list) and is_user_and_password(value):
                user = self.value(value[0], report, identifier=False, nested=nested)
                return [user, self._secret(value[1], report)]
            return self.value(value, report, identifier=False, nested=nested)
        return self._named_number(name, value, report, nested=nested)

    def _named_number(self, name: Name, value: Any, report: RedactionReport, *, nested: int) -> Any:
        """Redact the value of a phone or card key, also a list or parts of one."""
        if isinstance(value, list):
            return [self._named_number(name, one, report, nested=nested) for one in value]
        if isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
            text = str(value)
            if name is Name.PHONE:
                digits, kind = phone_in(text), "phone"
            else:
                digits, kind = card_in(text, named=True), "card"
            if digits is not None:
                return self._token(kind, digits, report)
        if isinstance(value, dict) and nested < _MAX_NESTED_JSON:
            return {
                self._key(key, report): self._named_number(name, one, report, nested=nested + 1)
                if kind_of_name(key) is Name.PLAIN and not isinstance(one, dict | list)
                else self._named(kind_of_name(key), one, report, nested=nested)
                for key, one in value.items()
            }
        return self.value(value, report, identifier=False, nested=nested)

    def value(
        self, value: Any, report: RedactionReport, *, identifier: bool, nested: int
    ) -> object:
        kind = type(value)
        if kind is str or isinstance(value, str):
            return self._text(value, report, identifier=identifier, nested=nested)
        if kind is dict or isinstance(value, dict):
            return self._object(value, report, nested)
        if kind is list or isinstance(value, list):
            return self._list(value, report, identifier=identifier, nested=nested)
        if isinstance(value, int) and value > _SMALLEST_NUMBER:
            digits = str(value)
            if is_card_number(digits):
                return self._token("card", digits, report)
        return value

    def _object(
        self, value: JsonObject, report: RedactionReport, nested: int, *, above: Name = Name.PLAIN
    ) -> JsonObject:
        """Redact an object; the name `above` it tells what its keys for values hold."""
        redacted: JsonObject = {}
        kinds_by_key = self._kinds_in_object(value) if may_tell(value) else {}
        if above is not Name.PLAIN and not kinds_by_key:
            held = kinds_of_held if above is Name.TOKEN else kinds_in_schema
            kinds_by_key = {**held(value)}
        plain = not self._rules
        for name, one in value.items():
            kind = self._clean_names.get(name)
            if kind is None:
                known, kind = self._key(name, report), kind_of_name(name)
                if known != name and kind is not Name.SECRET:
                    kind = kind_of_name(known)  # as whoever redacts the result would read it
                while known in redacted:
                    known += "'"
            else:
                known = name
            if kinds_by_key and name in kinds_by_key:
                if isinstance(columns := kinds_by_key[name], dict):
                    redacted[known] = self._rows(one, columns, report, nested=nested)
                    continue
                kind = columns
            if kind in _HARMLESS:
                stays = plain and _is_plain(one, kind is Name.IDENTIFIER)
            else:
                stays = kind is Name.SECRET and _is_no_secret(name, one, value)
            redacted[known] = one if stays else self._named(kind, one, report, nested=nested)
        return redacted

    def _kinds_in_object(self, value: JsonObject) -> dict[str, Name | dict[int, Name]]:
        """Return what an object says about its own values: by a label, by columns, as a web key."""
        label, labelled = values_of_label(value)
        kinds_by_key: dict[str, Name | dict[int, Name]] = dict.fromkeys(labelled, label)
        rows, columns = columns_of(value)
        if columns:
            kinds_by_key[rows] = columns
        if "kty" in value:
            kinds_by_key.update(dict.fromkeys(secret_parts(value), Name.SECRET))
        return kinds_by_key

    def _list(
        self, items: list[Any], report: RedactionReport, *, identifier: bool, nested: int
    ) -> list[Any]:
        """Redact a list, using its own items as context: a command, pairs, rows under a header."""
        if items and isinstance(items[0], list):
            columns, are_pairs = kinds_of_rows(items)
            if columns:
                head = self.value(items[0], report, identifier=False, nested=nested)
                return [head, *self._rows(items[1:], columns, report, nested=nested)]
            if are_pairs:
                return [self._pair(row, report, nested=nested) for row in items]
        if kinds := kinds_in_list(items):
            return [
                self._named(kinds.get(index, Name.PLAIN), one, report, nested=nested)
                for index, one in enumerate(items)
            ]
        redacted: list[Any] = []
        in_key = False
        plain = not self._rules
        for one in items:
            if plain and not in_key and _is_plain(one):
                redacted.append(one)
            elif isinstance(one, str) and (in_key or begins_key(one)):
                in_key = "END " not in one
                redacted.append(self._secret(one, report))
            else:
                redacted.append(self.value(one, report, identifier=identifier, nested=nested))
        return redacted

    def _pair(self, row: list[Any], report: RedactionReport, *, nested: int) -> list[Any]:
        name = self.value(row[0], report, identifier=False, nested=nested)
        return [name, self._named(kind_of_name(row[0]), row[1], report, nested=nested)]

    def _rows(
        self, rows: list[Any], columns: dict[int, Name], report: RedactionReport, *, nested: int
    ) -> list[Any]:
        return [self._row(row, columns, report, nested=nested) for row in rows]

    def _row(
        self, row: Any, columns: dict[int, Name], report: RedactionReport, *, nested: int
    ) -> Any:
        if isinstance(row, list):
            return [
                self._named(columns.get(index, Name.PLAIN), one, report, nested=nested)
                for index, one in enumerate(row)
            ]
        if (
            isinstance(row, dict)
            and len(row) == 1
            and isinstance(cells := next(iter(row.values())), list)
        ):
            return {name: self._row(cells, columns, report, nested=nested) for name in row}
        return self.value(row, report, identifier=False, nested=nested)

    def _key(self, name: str, report: RedactionReport) -> str:
        """Redact an object's key; cached, since the keys of records recur."""
        known = self._text(name, report, identifier=False, nested=_MAX_NESTED_JSON)
        if known == name and type(name) is str and len(name) <= _LONGEST_KNOWN_NAME:
            if len(self._clean_names) >= _MAX_KNOWN_NAMES:
                self._clean_names.clear()
            self._clean_names[name] = kind_of_name(name)
        return known

    def _secret(self, value: Any, report: RedactionReport) -> object:
        """Replace a value whose key marks it as secret; keep empty ones and placeholders."""
        if value is None or isinstance(value, bool) or value in ("", {}, []):
            return value
        if isinstance(value, str):
            if PSEUDONYM.fullmatch(value) or value in (FAILED, WITHHELD):
                return value
            if says_other(value):
                return value
            return self._token("secret", value, report)
        if isinstance(value, list) and all(
            isinstance(one, str) and is_message(one) for one in value
        ):
            return value
        plain = orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()
        return self._token("secret", plain, report)

    def _text(self, text: str, report: RedactionReport, *, identifier: bool, nested: int) -> str:
        try:
            if text[:1] in _JSON_STARTS and nested < _MAX_NESTED_JSON and len(text) > 4:
                found = self._json_text(text, report, nested)
                if found is not None:
                    return found
            if ("\n{" in text or "\n[" in text) and nested < _MAX_NESTED_JSON:
                text = self._with_json_lines(text, report, nested)
            return self._plain_text(text, report, identifier=identifier)
        except Exception:
            # See _item: an unredacted string must never pass.
            report.failures += 1
            return FAILED

    def _json_text(self, text: str, report: RedactionReport, nested: int) -> str | None:
        """Return the text redacted as JSON, or None when it is not JSON."""
        try:
            parsed = orjson.loads(text)
        except ValueError:
            return None
        redacted = self.value(parsed, report, identifier=False, nested=nested + 1)
        written = orjson.dumps(parsed).decode()
        # A repeated key hides its first value from the parser, but not from a reader of the raw
        # text.
        if redacted == parsed and written.count('"') == text.count('"'):
            return text
        return orjson.dumps(redacted).decode()

    def _with_json_lines(self, text: str, report: RedactionReport, nested: int) -> str:
        """Redact JSON that starts on a line of its own: the rest of a text, or one line."""
        if (first := _RE.json_line.search(text)) is None:
            return text
        tail = text[first.start() : max(text.rfind("}"), text.rfind("]")) + 1]
        if (redacted := self._json_text(tail, report, nested)) is not None:
            return f"{text[: first.start()]}{redacted}{text[first.start() + len(tail) :]}"
        lines = text.split("\n")
        for index, line in enumerate(lines):
            if line[:1] in ("{", "["):
                redacted = self._json_text(line, report, nested)
                lines[index] = line if redacted is None else redacted
        return "\n".join(lines)

    def _plain_text(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        passes = _MAX_PASSES
        if "<" not in text:
            digest = _digest(text, b"identifier" if identifier else b"text")
            if digest and digest in self._clean:
                return text
            found = self._find(text, identifier)
            if not found:
                if digest:
                    self._clean.add(digest)
                return text
            text = self._with_tokens(text, found, report)
            passes -= 1
        # Replacing a part can leave a remainder that matches on its own: repeat.
        for _ in range(passes):
            redacted = self._one_pass(text, report, identifier=identifier)
            if redacted == text:
                break
            text = redacted
        return text

    def _one_pass(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        """Replace the findings between existing pseudonyms."""
        if "<" not in text:
            return self._replaced(text, report, identifier=identifier)
        parts: list[str] = []
        position = 0
        for known in PSEUDONYM.finditer(text):
            before = text[position : known.start()]
            parts += (self._replaced(before, report, identifier=identifier), known[0])
            position = known.end()
        return "".join((*parts, self._replaced(text[position:], report, identifier=identifier)))

    def _replaced(self, text: str, report: RedactionReport, *, identifier: bool) -> str:
        return self._with_tokens(text, self._find(text, identifier), report)

    def _with_tokens(self, text: str, found: list[Finding], report: RedactionReport) -> str:
        parts: list[str] = []
        position = 0
        for finding in found:
            token = self._token(finding.kind, finding.value, report)
            parts += (text[position : finding.start], token)
            position = finding.end
        return "".join((*parts, text[position:]))

    def _find(self, text: str, identifier: bool) -> list[Finding]:
        return find(text, identifier=identifier, custom=self._rules, entropy=self._entropy)

    def _token(self, kind: str, value: str, report: RedactionReport) -> str:
        report.replaced[kind] += 1
        return self._pseudonyms.token(kind, value)


def _is_no_secret(name: str, value: Any, beside: JsonObject) -> bool:
    """Return whether it is a number of passed tests or of secrets, or an Indian postcode."""
    if isinstance(value, int) and (name == "pass" or (value < 1_000 and _RE.counted.search(name))):
        return True
    return is_postcode(name, value, beside)


def _is_plain(value: Any, is_identifier: bool = False) -> bool:
    """Return whether no rule can match a value of this form."""
    kind = type(value)
    if kind is str:
        if is_ordinary(value):
            return True
        is_word = not is_identifier or value[0].isalpha()
        return is_word and len(value) < _SHORTEST_REMEMBERED and is_calm(value)
    if kind is int:
        return bool(value <= _SMALLEST_NUMBER)
    return value is None or kind is float or kind is bool


_JSON_STARTS = ("{", "[", '"', " ", "\n", "\t")
