"""Canonical JSON: equal to Go's output, and rejecting what Go rejects."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical

TEXT = st.text(st.characters(codec="utf-8"))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (1.0, "1"),
        (0.1, "0.1"),
        (-2.50, "-2.5"),
        (0.0, "0"),
        (-0.0, "-0"),
        (1e-6, "0.000001"),
        (1.5e-6, "0.0000015"),
        (9.9e-5, "0.000099"),
        (1e-7, "1e-7"),
        (1.5e-7, "1.5e-7"),
        (-1.5e-10, "-1.5e-10"),
        (1e16, "10000000000000000"),
        (1.234e17, "123400000000000000"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1.5e22, "1.5e+22"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
        (12345678901234567890, "12345678901234567000"),
    ],
)
def test_numbers_are_written_as_go_writes_a_float64(value: float, written: str) -> None:
    assert canonical.format_number(value) == written


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_written_float_reads_back_as_the_same_float(value: float) -> None:
    assert float(canonical.format_number(value)) == value


@given(JSON)
def test_what_is_written_reads_back_equal(value: object) -> None:
    text = canonical.dumps(value)

    assert as_float64(canonical.loads(text)) == as_float64(value)
    assert text.endswith(b"\n")


def as_float64(value: object) -> object:
    """Return JSON data with numbers as the format knows them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, list):
        return [as_float64(item) for item in value]
    if isinstance(value, dict):
        return {key: as_float64(item) for key, item in value.items()}
    return value


@given(JSON)
def test_indentation_is_that_of_the_standard_library(value: object) -> None:
    def floatless(item: object) -> object:
        if isinstance(item, float):
            return str(item)
        if isinstance(item, list):
            return [floatless(part) for part in item]
        if isinstance(item, dict):
            return {key: floatless(part) for key, part in item.items()}
        return item

    data = floatless(value)
    expected = json.dumps(data, indent=2, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        expected = expected.replace(character, f"\\u{ord(character):04x}")

    assert canonical.dumps(data).decode() == expected + "\n"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (b'{"a": NaN}', "NaN and Infinity are not JSON"),
        (b'{"a": -Infinity}', "NaN and Infinity are not JSON"),
        (b'{"a": 1', "ends too early"),
        (b'{"a": "x', "ends too early"),
        (b'{"watch": [}', "column 12: not valid JSON (found '}', expected a JSON value)"),
        ('{"é": [}'.encode(), "column 8: not valid JSON (found '}', expected a JSON value)"),
        (b"[1 2", "column 4: not valid JSON (found '2', expected ',' or ']')"),
        (b"[1,]", "column 3: not valid JSON (trailing comma is not allowed)"),
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b"{} {}", "more text after the JSON value"),
        (b'\xef\xbb\xbf{"a": 1}', "BOM"),
        (b'{"a": 1e400}', "infinity"),
        (b'{"a": "\xff"}', "UTF-8"),
        (b"{'a': 1}", "not valid JSON"),
        (b"[" * 5000 + b"]" * 5000, "depth"),
    ],
)
def test_what_go_refuses_is_refused_with_the_place(document: bytes, message: str) -> None:
    with pytest.raises(FormatError) as error:
        canonical.loads(document, path="f.json")

    assert message in str(error.value)
    assert str(error.value).startswith("f.json: line 1, column ")


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert canonical.loads(b'{"a": "x\\ud800y"}') == {"a": "x\ufffdy"}


def test_a_negative_zero_is_written_as_it_was_read() -> None:
    text = b'[\n  -0,\n  "-0 C",\n  {\n    "a": -0\n  }\n]\n'

    assert canonical.dumps(canonical.loads(text)) == text


def test_the_last_of_two_equal_keys_wins() -> None:
    assert canonical.loads(b'{"a": 1, "a": 2}') == {"a": 2}


def test_a_document_too_deep_to_write_is_an_error_and_no_traceback() -> None:
    value: object = 1
    for _ in range(5000):
        value = [value]

    with pytest.raises(FormatError, match="nested too deeply"):
        canonical.dumps(value)
