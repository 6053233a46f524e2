"""Text, JSON, XML and final responses: pitfalls of the format, and laws for all values."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.cases.json_text import parse
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.criteria.content.json_value import RawJson, compile_json, difference
from evaltap.evaluator.scoring.criteria.content.text import compile_text, lower, search
from evaltap.evaluator.scoring.evaluators.final_response import FinalResponseMatcher, malformed
from evaltap.schemas.formats.metric import FinalResponseCriterion, JsonCriterion, TextCriterion

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "1", 1.5])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


def json_matches(actual: object, expected: object, **criterion: Any) -> bool:
    check = compile_json(JsonCriterion.model_validate(criterion))
    return check(actual, expected) is None


def text_matches(actual: str, expected: str, **criterion: Any) -> bool:
    return compile_text(TextCriterion.model_validate(criterion))(actual, expected) is None


# -- text ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        (r"\d+", "order ٣", False),  # ASCII digits only
        (r"b$", "ab\n", False),  # the very end
        (r"\pL", "é", True),
        (r"[[:alpha:]]", "x", True),
        (r"(?P<n>a)", "cab", True),
        (r"\Qa.b\E", "a.b", True),
        (r"a\z", "a", True),
        ("é", "caf\u00e9", True),
        ("x", "\ud800x", True),
    ],
)
def test_regular_expressions_are_those_of_re2(pattern: str, text: str, found: bool) -> None:
    assert search(pattern, text) is found


@pytest.mark.parametrize("pattern", [r"(?=a)", r"(a)\1", r"a\Z", "(", r"\pl", "a{1001}"])
def test_what_re2_does_not_know_is_a_mismatch_with_a_reason(
    pattern: str, capfd: pytest.CaptureFixture[str]
) -> None:
    check = compile_text(TextCriterion(match_strategy="regex"))

    reason = check("aa", pattern)

    assert reason is not None
    assert "invalid regex" in reason
    assert capfd.readouterr() == ("", "")


def test_case_insensitive_patterns_are_lower_cased_as_text() -> None:
    assert not text_matches("abc", r"^\D+$", matchStrategy="regex", caseInsensitive=True)
    assert text_matches("123", r"^\D+$", matchStrategy="regex", caseInsensitive=True)


def test_lower_casing_keeps_one_letter_one_letter() -> None:
    small_sigma = "\u03c3"
    assert lower("\u0130\u03a3A\u03a3") == f"i{small_sigma}a{small_sigma}"
    assert lower("\u212a") == "k"


@given(st.text())
def test_lower_casing_keeps_the_length(text: str) -> None:
    assert len(lower(text)) == len(text)


@given(st.text(), st.text())
def test_exact_implies_contains(one: str, other: str) -> None:
    if text_matches(one, other):
        assert text_matches(one, other, matchStrategy="contains")
    assert text_matches(one + other, other, matchStrategy="contains")


def test_strategy_names_are_case_sensitive() -> None:
    assert not text_matches("a", "a", matchStrategy="Exact")


def test_the_length_is_that_of_the_actual_text_also_when_nothing_else_is_compared() -> None:
    length = {"matchStrategy": "skip", "length": {"max": 2}}

    assert text_matches("ab", "longer", **length)
    assert not text_matches("abc", "", **length)


# -- JSON ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("actual", "expected", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        ("1", 1, False),
        (None, None, True),
        (None, {}, False),
        ({"a": None}, {}, False),
        ([1, 2], [2, 1], False),
        (0.1 + 0.2, 0.3, True),
        (2**53 + 1, 2**53, True),  # numbers are doubles
        (10**400, 10**400, True),
        (10**400, 10**400 + 1, False),
        ({"a": [True]}, {"a": [1]}, False),
    ],
)
def test_deep_comparison(actual: object, expected: object, same: bool) -> None:
    assert json_matches(actual, expected) is same


def test_tolerances() -> None:
    assert json_matches(1, 1, numberTolerance=0)
    assert not json_matches(1, 1.0000001, numberTolerance=0)
    assert not json_matches(1, 1, numberTolerance=-1)


@pytest.mark.parametrize(
    ("tree", "actual", "expected", "same"),
    [
        ({"t": True}, {"t": 1, "a": 1}, {"a": 1}, True),
        ({"t": False}, {"t": 1}, {"t": 2}, False),
        ({"t": 1}, {"t": 1}, {"t": 2}, False),
        ({"t": {"u": True}}, {"t": {"u": 1, "v": 2}}, {"t": {"v": 2}}, True),
        ({"t": {"u": True}}, {"t": [{"u": 1}]}, {"t": [{"u": 2}]}, False),
        ({"t": True}, [{"t": 1}], [{"t": 2}], False),
        ({"t": True}, 1, 1, True),
    ],
)
def test_ignored_keys(tree: Any, actual: object, expected: object, same: bool) -> None:
    assert json_matches(actual, expected, ignoreTree=tree) is same


@pytest.mark.parametrize(
    ("tree", "actual", "expected", "same"),
    [
        ({"a": True}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, True),
        ({"a": True}, {}, {}, False),
        ({"a": False}, {"a": 1}, {"a": 2}, True),
        ({"a": 1}, {"a": 1}, {"a": 1}, False),
        ({"a": "true"}, {"a": 1}, {"a": 1}, False),
        ({"a": {}}, {"a": {"x": 1}}, {"a": {"x": 2}}, True),
        ({"a": {}}, {"a": {}}, {}, False),
        ({"a": {"b": True}}, {"a": [{"b": 1, "c": 1}]}, {"a": [{"b": 1, "c": 2}]}, False),
        ({"a": True}, [1], [1], True),
    ],
)
def test_selected_keys(tree: Any, actual: object, expected: object, same: bool) -> None:
    assert json_matches(actual, expected, onlyTree=tree) is same


@given(VALUES)
def test_each_value_equals_itself(value: object) -> None:
    assert difference(value, json.loads(json.dumps(value)), 0.0) is None


@given(VALUES, VALUES)
def test_comparison_is_symmetric(one: object, other: object) -> None:
    assert (difference(one, other, 0.1) is None) == (difference(other, one, 0.1) is None)


@given(VALUES, VALUES)
def test_text_and_value_compare_alike(one: object, other: object) -> None:
    raw = json_matches(RawJson(json.dumps(one)), RawJson(json.dumps(other)))

    assert raw == json_matches(one, other)


@pytest.mark.parametrize(
    "text",
    ["", "NaN", "-Infinity", "1e400", "{} {}", "\ufeff{}", "'a'", "[1,]", "```json\n1\n```"],
)
@pytest.mark.parametrize("exact", [False, True])
def test_what_is_not_one_json_value_is_refused(text: str, exact: bool) -> None:
    if exact and text == "1e400":
        assert parse(text, exact=True) == 10**400
        return
    with pytest.raises(ValueError, match=r"."):
        parse(text, exact=exact)


def test_exact_reading_keeps_whole_numbers() -> None:
    assert parse("9007199254740993.0", exact=True) == 9007199254740993
    assert parse("0.5", exact=True) == 0.5
    assert parse("1e-999999999", exact=True) == 0
    with pytest.raises(ValueError, match="out of range"):
        parse("1e999999999", exact=True)


def test_a_lone_surrogate_becomes_the_replacement_character() -> None:
    assert parse('{"a": "\\ud800"}') == {"a": "\ufffd"}


def test_integers_beyond_all_doubles_are_read_exactly_or_not_at_all() -> None:
    digits = "1" * 400

    assert parse(digits, exact=True) == int(digits)
    with pytest.raises(ValueError, match=r"number 1{40} is out of range"):
        parse(digits)


def test_a_schema_never_fetches_anything() -> None:
    check = compile_json(
        JsonCriterion.model_validate(
            {"schema": {"$ref": "http://127.0.0.1:9/s.json"}, "matchStrategy": "skip"}
        )
    )

    assert "not in the schema" in (check({}, None) or "")


# -- XML -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        (" \n<a/>\n", True),
        ("<?xml version='1.0' encoding='UTF-8'?><!-- c --><a b='1'>x<![CDATA[<]]></a>", True),
        ("\n<?xml version='1.0'?><a/>", True),
        ("<a>&lt;&#65;</a>", True),
        ("<a/><b/>", False),
        ("text", False),
        ("<a/>text", False),
        ("<a b=1/>", False),
        ("<a>&nope;</a>", False),
        ("<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>", False),
        ("<?xml version='1.1'?><a/>", False),
        ("<?xml version='1.0' encoding='latin-1'?><a/>", False),
    ],
)
def test_xml_documents(text: str, valid: bool) -> None:
    assert (malformed(text) is None) is valid


# -- final responses and custom comparisons --------------------------------------------------------


def final(text: str | None) -> Turn:
    return Turn({} if text is None else {"finalResponse": {"role": "assistant", "content": text}})


def test_an_absent_expected_response_counts_as_empty() -> None:
    contains = FinalResponseMatcher(FinalResponseCriterion(text=TextCriterion(
        match_strategy="contains")))  # fmt: skip
    exact = FinalResponseMatcher(FinalResponseCriterion(text=TextCriterion()))

    assert contains.mismatch(final("a"), final(None)) is None
    assert exact.mismatch(final("a"), final(None)) is not None
    assert exact.mismatch(final(""), final(None)) is None
    assert exact.mismatch(final(None), final(None)) is None
    assert "nil" in (exact.mismatch(final(None), final("a")) or "")


def test_all_failing_parts_are_named_in_order() -> None:
    criterion = FinalResponseCriterion.model_validate(
        {
            "xml": {"matchStrategy": "skip", "valid": True},
            "rouge": {"rougeType": "rouge1", "threshold": {"f1": 0.5}},
            "text": {},
            "json": {},
        }
    )
    reason = FinalResponseMatcher(criterion).mismatch(final("no"), final("yes")) or ""

    places = [reason.index(f"{part} mismatch: ") for part in ("json", "text", "rouge", "xml")]
    assert places == sorted(places)
    assert "rouge1 f1=0.000000 precision=0.000000 recall=0.000000 f1=0.000000" in reason
