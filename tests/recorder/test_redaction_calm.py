"""A text that is calm holds nothing for any rule, so redaction may skip it."""

import base64
import pickle
import re

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.recorder.privacy.detectors import find, found_by_rules
from evaltap.recorder.privacy.lexicon import rows
from evaltap.recorder.privacy.pseudonyms import Pseudonyms
from evaltap.recorder.privacy.redacted_values import MAX_CLEAN, RedactionReport, ValueRedactor
from evaltap.recorder.privacy.structures import may_tell
from evaltap.recorder.privacy.text.calm import calm_keys, is_calm
from support.corpora.redaction_corpus import entries, harmless

TEXTS = [text for one in entries(1) if isinstance(text := one.value, str)]
PIECES = sorted(
    {piece for text in TEXTS for piece in re.findall(r"\w+|[^\w\s]+|\s+", text) if len(piece) < 14}
    | {sign for needs, *_ in rows("phrases") for sign in re.split("[&|]", needs)}
    | {command for command, *_ in rows("commands")}
    | {
        " ",
        ". ",
        ": ",
        "\n",
        "dot",
        "4111 1111 1111 1111",
        "DE89 3704 0044",
        "6d 79 20 70 61 73 73",
    }
)


def rules_find_nothing(text: str, *, identifier: bool = False) -> bool:
    return not found_by_rules(text, identifier=identifier, entropy=True)


def test_no_text_of_the_corpus_with_something_to_redact_is_calm() -> None:
    lines = {line for text in [*TEXTS, *harmless()] for line in (text, *text.split("\n"))}

    calm = [line for line in lines if is_calm(line)]

    assert len(calm) > 200
    assert [line for line in calm if not rules_find_nothing(line)] == []


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), min_size=2, max_size=12))
def test_no_mixture_of_the_corpus_that_the_rules_would_redact_is_calm(pieces: list[str]) -> None:
    text = "".join(pieces)

    assert not is_calm(text) or rules_find_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "Order 123456 was shipped on 3 May; it's due on Monday (see item 4).",
        "The price is 49.90 EUR: 10 pieces, 2 of them blue.\nThanks!",
        "ord-000123",
        "The password is sent to you, log in, and the key stays the same.",
    ],
)
def test_prose_with_small_numbers_or_without_any_is_calm(text: str) -> None:
    assert is_calm(text)


@pytest.mark.parametrize(
    "text",
    [
        "the pin is 4711",
        "call me on 0170 1234567",
        "bob at example dot com",
        "-----BEGIN PRIVATE KEY-----",
        "curl -u bob x",
        "name, phone\nBob, 1234567",
        "GB29 NWBK AAAA BBBB CCCC DD",
        "x" * 14,
        "word " * 2_000,
    ],
)
def test_a_trigger_a_long_word_or_a_long_text_is_not_calm(text: str) -> None:
    assert not is_calm(text)


@pytest.mark.parametrize("text", ["call-0-0-1", "item 4 of bob"])
def test_an_identifier_that_is_calm_is_no_number(text: str) -> None:
    assert is_calm(text)
    assert rules_find_nothing(text, identifier=True)


KEYS = [
    *("id", "note", "rows", "label", "items", "order_id", "status"),
    *("sqlpwd", "pin", "phone", "card", "name", "value", "columns", "kty", "psk", "at_"),
    *("role", "content"),
]
DOCUMENTS = st.recursive(
    st.lists(st.sampled_from(PIECES), max_size=4).map("".join)
    | st.sampled_from(["pin", "Order 123456 was late.", "user_at_example", "4711", " 12", ": x"])
    | st.integers(-(10**7), 10**17)
    | st.floats()
    | st.sampled_from([None, True, False]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(KEYS) | st.sampled_from(PIECES), inner, max_size=4)
    ),
    max_leaves=8,
)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(st.sampled_from(["note", "order_id"]), DOCUMENTS)
def test_a_document_that_is_calm_as_a_whole_is_what_part_by_part_redaction_leaves(
    name: str, document: object
) -> None:
    by_parts = values().value(document, RedactionReport(), identifier=name == "order_id", nested=0)

    assert repr(values().item(name, document, RedactionReport())) == repr(by_parts)


@pytest.mark.parametrize(
    ("document", "keys"),
    [
        ({"rows": [{"id": 1, "label": "Late 502013."}, {"id": 2.5}]}, {"rows", "id", "label"}),
        ({"password": None, "rows": [1]}, {"password", "rows"}),
        ({"note": "The key is on a page, the code is not.", "n": 1}, {"note", "n"}),
        ({"note": "bob at example dot com"}, None),
        ({"note": "the pin is 4711"}, None),
        ({"note": "user_at_example dot com"}, None),
        ({"note": "0170 1234567"}, None),
        ({"note": 'a "b"'}, None),
        ({"words": ["curl", "x"]}, None),
        ({"note": "x" * 14}, None),
        ({"notes": [{"a": 1}] * 10_000}, None),
    ],
)
def test_only_a_document_without_a_trigger_is_calm(document: object, keys: set[str] | None) -> None:
    assert calm_keys(orjson.dumps(document)) == keys


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"role", "content"}, False),
        ({"name", "title"}, False),
        ({"name", "content"}, True),
        ({"columns", "rows"}, True),
        ({"kty", "d"}, True),
    ],
)
def test_only_an_object_with_a_label_and_a_value_or_with_columns_tells_of_its_values(
    keys: set[str], told: bool
) -> None:
    assert may_tell(keys) is told


@pytest.mark.parametrize(
    "hidden", ["", "pass: hunter2!ok", "4111111111111111", "\0" * 13 + "a\x0b\xb8"]
)
@given(
    st.sampled_from((8, 12, 16)).flatmap(lambda size: st.binary(min_size=size, max_size=size)),
    st.sampled_from(["{}", "{}-{}", "{}-00f067aa0ba902b7"]),
)
def test_an_id_of_random_bytes_holds_what_the_rules_find(
    hidden: str, content: bytes, form: str
) -> None:
    text = form.format(hidden.encode().hex() or content.hex(), content[:8].hex())
    expected = found_by_rules(text, identifier=True, entropy=False)

    assert find(text, identifier=True) == expected


@pytest.mark.parametrize("end", ["", "\0"])
def test_a_secret_in_wide_characters_is_found_also_if_it_ends_in_a_zero(end: str) -> None:
    wide = f"password=hunter2!Xq9{end}".encode("utf-16-le")

    assert find(f"x {wide.hex()}")
    assert find(f"x {base64.b64encode(wide).decode()}")


PROSE = "The parcel was handed over to the neighbour; nothing else is known about this delivery."


def values() -> ValueRedactor:
    return ValueRedactor(Pseudonyms(b"k" * 32), rules=(), entropy=False)


def test_a_value_that_was_found_clean_is_still_secret_under_another_name() -> None:
    redact, report = values(), RedactionReport()

    for name in ("note", "note", "password", "note"):
        found = redact.item(name, {"said": PROSE}, report)
        assert (found == {"said": PROSE}) is (name == "note")


def test_a_text_with_a_secret_is_replaced_each_time() -> None:
    redact, report = values(), RedactionReport()
    text = f"{PROSE} Write to bob@example.org."

    found = {redact.item("note", text, report) for _ in range(3)}

    assert len(found) == 1
    assert "bob@" not in found.pop()
    assert report.replaced["email"] == 3


def test_what_is_remembered_are_digests_of_clean_values_and_bounded() -> None:
    redact, report = values(), RedactionReport()

    for number in range(3 * MAX_CLEAN):
        redact.item("note", f"{PROSE} {number}", report)
    redact.item("note", f"{PROSE} bob@example.org", report)

    kept = pickle.dumps(redact._clean)
    assert len(kept) < 2 * MAX_CLEAN * 32
    assert b"parcel" not in kept
    assert b"bob" not in kept
