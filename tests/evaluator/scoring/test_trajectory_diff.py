"""The difference of two trajectories as data: every call appears once, in a readable order."""

from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.scoring.criteria.calls.diff import (
    Change,
    DiffRow,
    difference,
    trajectory_diff,
)
from evaltap.evaluator.scoring.criteria.calls.pairs import CallPairs, CallSimilarity


def compared(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> CallPairs:
    return CallPairs(expected, actual, CallSimilarity())


def diff(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> list[DiffRow]:
    return trajectory_diff(compared(actual, expected))


def call(name: str, **arguments: object) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def test_each_kind_of_row() -> None:
    expected = [call("a"), call("gone"), call("b", n=1, m=2), call("c")]
    actual = [call("c"), call("a"), call("new"), call("b", n=1, m=3)]

    assert diff(actual, expected) == [
        DiffRow("moved", "c", 3, 0, 1.0),
        DiffRow("same", "a", 0, 1, 1.0),
        DiffRow("extra", "new", None, 2, 0.0),
        DiffRow("missing", "gone", 1, None, 0.0),
        DiffRow("changed", "b", 2, 3, 0.5, (Change("m", 2, 3),)),
    ]


def test_a_call_with_nothing_else_in_common_is_still_the_same_tool() -> None:
    row = diff([call("a", n=1)], [call("a", n=2)])[0]

    assert (row.kind, row.similarity, str(row)) == (
        "changed",
        0,
        "changed a (n: expected 2, found 1)",
    )


def test_long_differences_are_cut_for_reading() -> None:
    text = difference(compared([call("x") for _ in range(11)], []))

    assert text == "; ".join(["extra x"] * 8) + "; and 3 more"


CALLS = st.lists(
    st.builds(lambda name, n: call(name, n=n), st.sampled_from("abc"), st.integers(0, 1)),
    max_size=6,
)


@given(CALLS, CALLS)
def test_every_call_is_in_one_row(
    actual: list[dict[str, Any]], expected: list[dict[str, Any]]
) -> None:
    rows = diff(actual, expected)

    assert [row.actual for row in rows if row.actual is not None] == [*range(len(actual))]
    found = sorted(row.expected for row in rows if row.expected is not None)
    assert found == [*range(len(expected))]
    assert (difference(compared(actual, expected)) == "") == (actual == expected)
    for row in rows:
        both = row.expected is not None and row.actual is not None
        assert both == (row.kind in ("same", "changed", "moved"))
        if row.expected is not None and row.actual is not None:
            assert actual[row.actual]["name"] == expected[row.expected]["name"] == row.name
    unmatched = Counter(row.name for row in rows if row.kind == "missing")
    assert not unmatched & Counter(row.name for row in rows if row.kind == "extra")
