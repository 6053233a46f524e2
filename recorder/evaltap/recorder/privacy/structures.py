"""Names and values in separate JSON fields: `{"name": "password", "value": "x"}`, rows under columns.

Each function determines the kind of value in the parts of an object or list, as a key's name does
for its own value. Most objects and lists need none of this, which a quick check detects.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from evaltap.recorder.privacy.lexicon import lists, patterns, words
from evaltap.recorder.privacy.text.commands import in_arguments
from evaltap.recorder.privacy.text.secret_names import Name, kind_of_name
from evaltap.recorder.privacy.text.value_kinds import (
    is_likely_password,
    is_placeholder,
    is_token,
    may_be_password,
)

_RE = patterns("structures")
_WORDS = lists("structures")

_LABELS = words("structures.labels")
_PREFIXES = words("structures.prefixes")


def _spellings(words: Iterable[str], endings: tuple[str, ...]) -> frozenset[str]:
    """Return words, also in capitals, and those that say of what: `ParameterKey`, `header_name`."""
    all_words = {*words, *(f"{one}{end}" for one in _PREFIXES for end in endings)}
    return frozenset(
        spelt for one in all_words for spelt in (one, one[:1].upper() + one[1:], one.upper())
    )


_ANY_LABEL = _spellings(_LABELS, ("Key", "Name", "Label", "Id", "_key", "_name", "_label", "_id"))
_BOTH = _spellings(_WORDS.values, ("Value", "Values", "_value", "_values"))
_COLUMNS = frozenset(words("structures.columns"))
_ROWS = ("rows", "data", "values", "records", "items", "results")
_TELLING = (Name.SECRET, Name.TOKEN, Name.PHONE, Name.CARD)
_ALONE = _COLUMNS | {"kty"}
_BESIDE_REFERENCE = _WORDS.references | frozenset(words("structures.beside_reference"))
_EXAMPLES = ("value", "default", "Default", "example", "const")


def may_tell(keys: Collection[str]) -> bool:
    """Return whether an object with some of these keys may say what its own values hold."""
    if not _ALONE.isdisjoint(keys):
        return True
    return not _BOTH.isdisjoint(keys) and not _TELLS.isdisjoint(keys)


def values_of_label(value: Mapping[str, Any]) -> tuple[Name, frozenset[str]]:
    """Return what the label of `{"name": ..., "value": ...}` means, and the keys that hold the value."""
    if len(value) > 16:
        return Name.PLAIN, frozenset()
    if not (held := _BOTH.intersection(value)):
        return Name.PLAIN, frozenset()
    for label in _ANY_LABEL.intersection(value):
        name = value[label]
        if not isinstance(name, str):
            name = _inner_label(name)
        if 0 < len(name) <= _LONGEST_LABEL:
            kind = _kind_of_path(name) if "/" in name else kind_of_name(name)
            if kind in _TELLING:
                values = held - {label}
                return kind, frozenset(one for one in values if not _is_prose(one, value[one]))
    return _typed(value, held)


def _inner_label(label: Any) -> str:
    """Return the last part of a label: `{"loc": ["body", "password"]}`, `{"target": {"name": "pin"}}`."""
    if isinstance(label, list):
        label = label[-1] if label else ""
    elif isinstance(label, dict):
        label = label.get("name")
    return label if isinstance(label, str) else ""


_LONGEST_LABEL = 128
_ANY_TEXT = _spellings(("content", "text", "body", "data", "input", "answer", "response"), ())


def _is_prose(key: str, value: Any) -> bool:
    """Return whether it is what a tool named `reset_password` said or did, not a password."""
    if key in _WORDS.moves and isinstance(value, str) and not may_be_password(value):
        return True
    return key in _ANY_TEXT and isinstance(value, str) and len(value.split(maxsplit=2)) > 2


_TELLS = _ANY_LABEL | _WORDS.controls


def _kind_of_path(name: str) -> Name:
    """Classify a label that is a path: `/live/db/password`, `https://v/secrets/db-password/3`."""
    kind = kind_of_name(name)
    above, _, last = name.rpartition("/")
    is_version = kind not in _TELLING and any(map(str.isdigit, last))
    return kind_of_name(above.rpartition("/")[2]) if is_version else kind


def _typed(value: Mapping[str, Any], held: frozenset[str]) -> tuple[Name, frozenset[str]]:
    """Return what is typed into a form's field: `{"selector": "#password", "value": "x"}`."""
    for control in _WORDS.controls.intersection(value):
        name = value[control]
        if isinstance(name, str) and len(name) <= _LONGEST_LABEL:
            kind = kind_of_name(_RE.control.sub("", name))
            if kind in _TELLING:
                words = (one for one in held - {control} if _is_word(one, value[one]))
                return kind, frozenset(words)
    return Name.PLAIN, frozenset()


def _is_word(key: str, value: Any) -> bool:
    """Return whether one word is typed; what only stands beside a control must look like a password."""
    if not isinstance(value, str) or len(value.split()) != 1:
        return False
    return may_be_password(value) or (key.lower() == "value" and not is_placeholder(value))


def kinds_of_held(value: Mapping[str, Any]) -> dict[str, Name]:
    """Return what the values of an object under a token's name are: `{"token": {"value": "x"}}`."""
    return {
        key: Name.SECRET if may_be_password(one) and len(one) > 5 else Name.TOKEN
        for key in _WORDS.held.intersection(value)
        if isinstance(one := value[key], str)
    }


def is_user_and_password(value: Sequence[Any]) -> bool:
    """Return whether a list under a name such as `auth` is `["bob", "x"]`."""
    return (
        len(value) == 2
        and all(isinstance(one, str) for one in value)
        and is_likely_password(value[1])
    )


def columns_of(value: Mapping[str, Any]) -> tuple[str, dict[int, Name]]:
    """Return the key of an object's rows, and what its columns mean.

    Recognizes objects such as `{"columns": [...], "rows": [...]}`.
    """
    for label in sorted(_COLUMNS.intersection(value)):
        if isinstance(names := value.get(label), list) and 0 < len(names) <= 256:
            kinds = _kinds([_column_name(one) for one in names])
            rows = next(
                (key for key in _ROWS if key != label and isinstance(value.get(key), list)), ""
            )
            return (rows, kinds) if kinds and rows else ("", {})
    return "", {}


def _column_name(column: Any) -> str:
    if isinstance(column, dict):
        column = column.get("name") or column.get("field") or column.get("key")
    return column if isinstance(column, str) else ""


def _kinds(names: Sequence[Any]) -> dict[int, Name]:
    return {
        index: kind
        for index, name in enumerate(names)
        if isinstance(name, str)
        and 0 < len(name) <= 64
        and (kind := kind_of_name(name)) in _TELLING
    }


def kinds_in_list(items: Sequence[Any]) -> dict[int, Name]:
    """Return what a list means for its own items: a command's words, or a pair of name and value."""
    if len(items) < 2 or not isinstance(items[0], str) or len(items) > 256:
        return {}
    found = _kinds_of_flags(items)
    if all(isinstance(item, str) for item in items):
        found.update((index, Name.SECRET) for index, _, _ in in_arguments(items))
    if not found and len(items) > 3 and len(items) % 2 == 0:
        found = _kinds_in_turn(items)
    if len(items) == 2 and not found and isinstance(items[1], str) and not items[1].isalpha():
        kind = kind_of_name(items[0][:64])
        if kind in _TELLING:
            found[1] = kind
    return found


def _kinds_of_flags(items: Sequence[Any]) -> dict[int, Name]:
    """Return what options say of the words behind them."""
    found: dict[int, Name] = {}
    for index, item in enumerate(items[:-1]):
        if isinstance(item, str) and item[:1] == "-" and _RE.flag.fullmatch(item):
            kind, value = kind_of_name(item.lstrip("-")), items[index + 1]
            if not isinstance(value, str) or value[:1] == "-":
                continue
            if kind is Name.SECRET or (kind is Name.TOKEN and is_token(value)):
                found[index + 1] = kind
    return found


def _kinds_in_turn(items: Sequence[Any]) -> dict[int, Name]:
    """Return what a list says that has names and values in turn, as Node's `rawHeaders`."""
    return {
        index + 1: kind
        for index, name in enumerate(items[:-1])
        if index % 2 == 0
        and isinstance(name, str)
        and (kind := kind_of_name(name[:64])) in (Name.SECRET, Name.TOKEN)
        and is_token(items[index + 1])
    }


def kinds_of_rows(items: Sequence[Any]) -> tuple[dict[int, Name], bool]:
    """Return what the first of a list of rows means for the columns, and False.

    If all rows are pairs and some start with a significant name, return nothing and True.
    """
    if len(items) < 1 or not isinstance(items[0], list) or not items[0]:
        return {}, False
    first = items[0]
    if all(isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) for row in items):
        heads = [row for row in items if kind_of_name(row[0][:64]) in _TELLING]
        is_head = len(items) > 1 and len(_kinds(first)) == 2
        if heads and not is_head and not _is_heading(heads, items):
            return {}, True
    are_names = len(items) > 1 and all(isinstance(one, str) for one in first)
    if are_names and all(isinstance(row, list) and len(row) == len(first) for row in items[1:]):
        return _kinds(first), False
    return {}, False


def _is_heading(heads: Sequence[Any], items: Sequence[Any]) -> bool:
    """Return whether only the first row has a significant name, next to another name: a header."""
    return len(heads) == 1 and heads[0] is items[0] and _is_head(items)


def _is_head(items: Sequence[Any]) -> bool:
    first = items[0]
    if any(row[0].lower() in _WORDS.fields for row in items[1:]):
        return False
    return len(items) > 1 and isinstance(first[1], str) and first[1].replace("_", "").isalpha()


def is_schema(value: Any) -> bool:
    """Return whether the object under a secret's name describes a field, or refers to a secret.

    As `{"type": "string"}` and `{"secretName": "shop-tls"}` do.
    """
    if not isinstance(value, dict):
        return False
    if not _WORDS.references.isdisjoint(value) and _BESIDE_REFERENCE.issuperset(value):
        return True
    if _WORDS.form.issuperset(value):
        return True
    kind = value.get("type") or value.get("Type")
    return "$ref" in value or (isinstance(kind, str) and kind.lower() in _WORDS.schema_types)


def kinds_in_schema(value: Mapping[str, Any]) -> dict[str, Name]:
    """Return what the parts of a secret field's description are: `{"type": "string", "value": "x"}`."""
    return {
        key: Name.SECRET
        for key in _EXAMPLES
        if isinstance(one := value.get(key), str) and (key == "value" or may_be_password(one))
    }


def begins_key(text: str) -> bool:
    """Return whether a line in a list of lines starts a private key that ends in another."""
    return _RE.begin.search(text) is not None and "END " not in text


def secret_parts(value: dict[str, Any]) -> frozenset[str]:
    """Return the keys of a JSON web key whose values are private."""
    return _WORDS.jwk_parts if isinstance(value.get("kty"), str) else frozenset()
