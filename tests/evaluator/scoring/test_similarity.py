"""Similarity of values: numbers, modes, weighted paths, and equality of the fast and the defining
computation."""

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.schemas.formats.criteria import ValueCriterion


def similarity(**criterion: Any) -> Similarity:
    return Similarity(ValueCriterion.model_validate(criterion))


@pytest.mark.parametrize(
    ("reference", "actual", "score"),
    [
        ({}, {}, 1),
        (None, {}, 1),
        ({"n": 1}, {"n": 1.0}, 1),
        ({"n": 1}, {"n": True}, 0),
        ({"n": 0}, {"n": False}, 0),
        ({"n": [1, [True]]}, {"n": [1, [1]]}, 0),
        ({"n": 1}, {"n": "1"}, 0),
        ({"n": 2**53}, {"n": float(2**53)}, 1),
        ({"n": 2**53 + 1}, {"n": float(2**53)}, 0),
        ({"n": 2**53}, {"n": 2**53 + 1}, 1),
        ({"n": 1152921504606847000}, {"n": 2**60 + 1}, 1),
        ({"n": [{"m": -1152921504606847000}]}, {"n": [{"m": -(2**60) - 1}]}, 1),
        ({"n": 1152921504606847000, "a": 1}, {"n": 2**60 + 1, "a": 2}, 1 / 2),
        ({"n": 1152921504606847000}, {"n": 2**60 + 1000}, 0),
        ({"n": 2**60 + 1}, {"n": 2**60 + 2}, 0),
        ({"n": 1e21}, {"n": 10**21 + 1}, 1),
        ({"n": None}, {}, 0),
        ({"n": "a"}, {"n": "A"}, 0),
        ({"n": [1, 2]}, {"n": [2, 1]}, 0),
        ({"a": 1, "b": 2}, {"a": 1}, 1 / 2),
        ({"a": 1, "b": 2}, {"a": 1, "c": 2}, 1 / 3),
        ({"o": {"x": 1, "y": 2}, "n": 1}, {"o": {"x": 1, "y": 3}, "n": 1}, 3 / 4),
        ({"o": {}}, {"o": []}, 0),
        ("raw text", "raw text", 1),
        ("raw text", {"a": 1}, 0),
        ([1, 2], [1, 2], 1),
    ],
)
def test_without_settings_keys_share_equally(reference: Any, actual: Any, score: float) -> None:
    assert similarity().pair(reference, actual) == pytest.approx(score)
    assert similarity().matrix([reference] * 4, [actual] * 4)[0][0] == pytest.approx(score)


@pytest.mark.parametrize(
    ("mode", "reference", "actual", "score"),
    [
        ("superset", {"a": 1}, {"a": 1, "b": 2}, 1),
        ("superset", {"a": 1, "b": 2}, {"a": 1}, 1 / 2),
        ("subset", {"a": 1, "b": 2}, {"a": 1}, 1),
        ("subset", {"a": 1}, {"a": 1, "b": 2}, 1 / 2),
        ("superset", {"o": {"x": 1}}, {"o": {"x": 1, "y": 2}}, 1 / 2),
        ("ignore", {"a": 1}, {"b": 2}, 1),
        ("exact", {"a": 1}, {"a": 1, "b": 2}, 1 / 2),
    ],
)
def test_modes_say_which_side_may_have_more(
    mode: str, reference: Any, actual: Any, score: float
) -> None:
    assert similarity(mode=mode).pair(reference, actual) == pytest.approx(score)
    assert similarity(mode=mode).matrix([reference] * 4, [actual] * 4)[0][0] == pytest.approx(score)


NO_IDS = {"paths": [{"path": "l.*.id", "ignore": True}]}
RULES: list[tuple[dict[str, Any], Any, Any, float]] = [
    ({"paths": [{"path": "a", "weight": 3}]}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, 3 / 4),
    ({"paths": [{"path": "a", "weight": 0}]}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, 1),
    ({"paths": [{"path": "a", "ignore": True}]}, {"a": 1, "b": 1}, {"b": 1}, 1),
    ({"paths": [{"path": "a", "required": True}]}, {"a": 1, "b": 1}, {"a": 2, "b": 1}, 0),
    ({"paths": [{"path": "a", "required": True}]}, {"a": 1, "b": 1}, {"b": 1}, 0),
    ({"paths": [{"path": "a", "required": True}]}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, 1 / 2),
    ({"paths": [{"path": "o.x", "required": True}]}, {"o": {"x": 1}}, {"o": {"x": 2}}, 0),
    ({"paths": [{"path": "o.x", "weight": 3}]}, {"o": {"x": 1, "y": 1}}, {"o": {"x": 1, "y": 2}}, 3 / 4),
    ({"paths": [{"path": "$.o.x", "ignore": True}]}, {"o": {"x": 1}}, {"o": {"x": 2}}, 1),
    ({"paths": [{"path": "n", "tolerance": 0.5}]}, {"n": 1}, {"n": 1.5}, 1),
    ({"paths": [{"path": "n", "tolerance": 0.5}]}, {"n": 1}, {"n": 1.6}, 0),
    ({"paths": [{"path": "n", "tolerance": 5}]}, {"n": 1}, {"n": True}, 0),
    ({"tolerance": 0.1}, {"n": [1, {"m": 2}]}, {"n": [1.05, {"m": 1.95}]}, 1),
    ({"paths": [{"path": "q", "match": "regex"}]}, {"q": "^b.r$"}, {"q": "bar"}, 1),
    ({"paths": [{"path": "q", "match": "regex"}]}, {"q": "^b.r$"}, {"q": "^b.r$"}, 0),
    ({"caseFold": True, "paths": [{"path": "q", "match": "regex"}]}, {"q": "^b.r$"}, {"q": "BAR"}, 1),
    ({"paths": [{"path": "q", "match": "set"}]}, {"q": ["a", "b"]}, {"q": ["b", "a", "b"]}, 1),
    ({"paths": [{"path": "q", "match": "set"}]}, {"q": ["a", "b"]}, {"q": ["a"]}, 0),
    ({"paths": [{"path": "q", "match": "set"}]}, {"q": []}, {"q": {}}, 0),
    ({"paths": [{"path": "q", "match": "present"}]}, {"q": 1}, {"q": "any"}, 1),
    ({"paths": [{"path": "q", "match": "present"}]}, {"q": 1}, {}, 0),
    ({"paths": [{"path": "q", "caseFold": True}]}, {"q": "Straße"}, {"q": "STRASSE"}, 1),
    ({"caseFold": True}, {"q": ["A", {"x": "B"}]}, {"q": ["a", {"x": "b"}]}, 1),
    ({}, {"n": 0.3}, {"n": 0.1 + 0.2}, 1),
    ({}, {"n": [{"m": 3}]}, {"n": [{"m": 2.9999999999999996}]}, 1),
    ({}, {"n": 0.3}, {"n": 0.300000001}, 0),
    ({"coerce": True}, {"n": 0.3}, {"n": "0.30000000000000004"}, 1),
    ({"coerce": True}, {"n": 1}, {"n": "1.0"}, 1),
    ({"coerce": True}, {"n": "nan"}, {"n": "nan"}, 1),
    ({"coerce": True}, {"n": True}, {"n": "1"}, 0),
    ({"coerce": True, "tolerance": 0.1}, {"n": "1.0"}, {"n": 1.05}, 1),
    ({"coerce": True, "tolerance": 0.1}, {"n": [1, "2"]}, {"n": ["1.05", "2.2"]}, 0),
    (NO_IDS, {"l": [{"id": 1, "v": 1}]}, {"l": [{"id": 2, "v": 1}]}, 1),
    (NO_IDS, {"l": [{"id": 1}, {"v": 1}]}, {"l": [{"id": 2}]}, 1 / 2),
    ({"paths": [{"path": "o", "caseFold": True}]}, {"o": {"x": "A"}}, {"o": {"x": "a"}}, 1),
    ({"paths": [{"path": "o", "tolerance": 1.0}, {"path": "o.x", "tolerance": 0}]},
     {"o": {"x": 1, "y": 1}}, {"o": {"x": 2, "y": 2}}, 1 / 2),
    ({"tolerance": 0.5}, {"n": 10**400}, {"n": 1.5}, 0),
    ({"keys": ["a", "o.x"]}, {"a": 1, "o": {"x": 1, "y": 1}, "b": 1}, {"a": 1, "o": {"x": 1}}, 1),
    ({"keys": ["a"]}, {"b": 1}, {"b": 2}, 1),
    ({"keys": ["a"], "paths": [{"path": "*", "caseFold": True}]}, {"a": "X", "b": 1}, {"a": "x", "b": 2}, 1),
    ({"keys": ["a"], "paths": [{"path": "b", "weight": 2}]}, {"a": 1, "b": 1}, {"a": 1, "b": 2}, 1),
    ({"keys": ["o.x", "o"]}, {"o": {"x": 1, "y": 1}}, {"o": {"x": 1, "y": 2}}, 1 / 2),
    ({"keys": ["l.0"]}, {"l": [1, 2]}, {"l": [1, 3]}, 1),
    ({"keys": ["a", "o.x"]}, {"a": 1}, {"a": 1, "o": {"y": 1}}, 1),
    ({"keys": ["a", "o.x"]}, {"a": 1, "o": {"p": {"y": 1}}}, {"a": 1, "o": None}, 1),
    ({"keys": ["a", "o.p.x"]}, {"a": 1, "o": {"p": {"y": 1}}}, {"a": 1}, 1),
    ({"keys": ["a", "o.p.x"]}, {"a": 1, "o": {"p": {"x": 1}}}, {"a": 1}, 1 / 2),
    ({"keys": ["a", "*.x"]}, {"a": {"x": 1}, "b": 1}, {"a": {"x": 1}, "c": 2}, 1),
    ({"keys": ["o.1"]}, {"o": [1]}, {"o": [2]}, 1),
    ({"keys": ["o.x"]}, {"o": 1}, {"o": 2}, 1),
    ({"keys": ["o.x"]}, "paid", "refused", 0),
    ({"paths": [{"path": "l.1", "ignore": True}]}, {"l": [1, 2]}, {"l": [1, 3]}, 1),
    ({"paths": [{"path": "l.0", "weight": 3}]}, {"l": [1, 2]}, {"l": [1, 3]}, 3 / 4),
    ({"paths": [{"path": "l.1", "required": True}]}, {"l": [1, 2], "m": 1}, {"l": [1], "m": 1}, 0),
    ({"mode": "superset", "paths": [{"path": "a", "required": True}]}, {}, {"a": 1}, 1),
    ({"mode": "subset", "paths": [{"path": "a", "required": True}]}, {"a": 1}, {}, 1),
]  # fmt: skip


@pytest.mark.parametrize(("criterion", "reference", "actual", "score"), RULES)
def test_rules_for_paths(
    criterion: dict[str, Any], reference: Any, actual: Any, score: float
) -> None:
    compiled = similarity(**criterion)

    assert compiled.pair(reference, actual) == pytest.approx(score)
    assert compiled.matrix([reference] * 4, [actual] * 4)[0][0] == pytest.approx(score)
    assert bool(compiled.changes(reference, actual)) == (score < 1)


def test_a_text_that_is_a_number_is_as_close_as_the_number() -> None:
    compiled = similarity(coerce=True, tolerance=0.1)

    rows = compiled.matrix([{"n": "1"}, {"n": 1}] * 4, [{"n": 1.05}, {"n": "1.0"}, {"n": True}])

    assert rows == [[1, 1, 0], [1, 1, 0]] * 4


def test_a_fraction_that_differs_only_by_rounding_counts_once() -> None:
    rows = similarity(tolerance=0.5).matrix(
        [{"n": 0.1 + 0.2, "m": 1}] * 4, [{"n": 0.3, "m": 9}] * 4
    )

    assert rows == [[0.5] * 4] * 4


def test_an_empty_group_of_required_keys_is_not_a_difference() -> None:
    compiled = similarity(paths=[{"path": "a", "required": True}])

    assert compiled.matrix([{"b": 1}] * 4, [{"b": 1}] * 4) == [[1.0] * 4] * 4


def test_changes_name_the_paths() -> None:
    changes = similarity().changes({"o": {"x": 1, "y": 2}, "z": 1}, {"o": {"x": 9, "y": 2}, "w": 0})

    assert changes == [("o.x", 1, 9), ("z", 1, ...), ("w", ..., 0)]


@pytest.mark.parametrize(
    ("criterion", "told"),
    [
        ({"mode": "loose"}, "mode is 'loose'; expected one of exact, ignore, subset, superset"),
        ({"paths": [{"path": "a", "match": "glob"}]}, "match is 'glob'"),
        ({"paths": [{"path": "a", "weight": -1.0}]}, "weight is -1.0; expected 0 or more"),
        ({"paths": [{"path": "a", "tolerance": -1.0}]}, "tolerance is -1.0"),
        ({"paths": [{"path": "a..b"}]}, "expected keys with dots"),
        (
            {"paths": [{"path": "a", "wieght": 2}]},
            "has the unknown key 'wieght'; did you mean 'weight'?",
        ),
        ({"ignroe": ["a"]}, "has the unknown key 'ignroe'"),
    ],
)
def test_a_criterion_that_makes_no_sense_is_refused(criterion: dict[str, Any], told: str) -> None:
    with pytest.raises(MetricError, match=told):
        similarity(**criterion)


def test_a_reference_that_is_no_pattern_is_an_error_and_not_a_difference() -> None:
    with pytest.raises(ValueError, match="missing"):
        similarity(paths=[{"path": "q", "match": "regex"}]).pair({"q": "("}, {"q": "x"})


SCALARS = st.sampled_from(
    [None, True, False, 0, 1, 1.0, 2, 1.4, 0.3, 0.1 + 0.2, "", "a", "A", "1", "b"]
)
LEAVES = SCALARS | st.lists(SCALARS, max_size=2)
OBJECTS = st.dictionaries(st.sampled_from("abc"), LEAVES, max_size=3)
VALUES = st.dictionaries(st.sampled_from("abc"), LEAVES | OBJECTS, max_size=3)
PATHS = st.sampled_from(["a", "b", "a.b", "a.*", "*", "b.a", "c"])
RULE = st.fixed_dictionaries(
    {"path": PATHS},
    optional={
        "weight": st.sampled_from([0.0, 0.5, 2.0, 1 / 3]),
        "ignore": st.booleans(),
        "required": st.booleans(),
        "match": st.sampled_from(["set", "present", "exact", "regex"]),
        "tolerance": st.sampled_from([0.0, 0.5]),
        "caseFold": st.booleans(),
        "coerce": st.booleans(),
    },
)
CRITERIA = st.fixed_dictionaries(
    {},
    optional={
        "mode": st.sampled_from(["exact", "subset", "superset", "ignore"]),
        "paths": st.lists(RULE, max_size=3),
        "keys": st.lists(PATHS, max_size=2),
        "tolerance": st.just(0.5),
        "coerce": st.booleans(),
    },
)


@pytest.mark.slow
@settings(max_examples=500)
@given(CRITERIA, st.lists(VALUES, max_size=4), st.lists(VALUES, max_size=4))
def test_the_matrix_holds_the_likeness_of_each_pair(
    criterion: dict[str, Any], references: list[Any], actuals: list[Any]
) -> None:
    compiled = similarity(**criterion)
    references, actuals = references * 3, actuals * 4  # enough to be compared by columns

    rows = compiled.matrix(references, actuals)

    for reference, row in zip(references, rows, strict=True):
        for actual, score in zip(actuals, row, strict=True):
            one = compiled.pair(reference, actual)
            assert score == pytest.approx(one, abs=1e-12)
            assert (score == 1) == (one == 1)
            assert 0 <= score <= 1


@pytest.mark.slow
@given(CRITERIA, VALUES)
def test_a_value_is_like_itself(criterion: dict[str, Any], value: Any) -> None:
    # Not as a pattern: that need not match itself.
    assume(not any(rule.get("match") == "regex" for rule in criterion.get("paths", ())))

    assert similarity(**criterion).pair(value, value) == 1


@given(VALUES, VALUES)
def test_without_settings_likeness_is_symmetric_and_1_means_equal(one: Any, other: Any) -> None:
    compiled = similarity()

    assert compiled.pair(one, other) == pytest.approx(compiled.pair(other, one))
    assert (compiled.pair(one, other) == 1) == (not compiled.changes(one, other))
