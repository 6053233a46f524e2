"""Rows handed to the database as Arrow columns come out as they went in."""

from collections.abc import Sequence
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.columns import ArrowTable, ColumnKinds, to_columns

KINDS: ColumnKinds = {"name": "text", "place": "whole", "score": "real"}
ROWS = st.lists(
    st.tuples(
        st.text(st.characters(codec="utf-8"), max_size=5),
        st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
    ),
    max_size=20,
)


def read(batches: Sequence[Sequence[Any]]) -> list[Any]:
    connection = duckdb.connect()
    connection.register("shown", ArrowTable(KINDS, [to_columns(KINDS, rows) for rows in batches]))
    first = connection.execute("FROM shown").fetchall()
    assert connection.execute("FROM shown").fetchall() == first, "a table can be read again"
    return first


@given(st.lists(ROWS, max_size=3))
def test_batches_read_as_one_table(batches: list[list[Any]]) -> None:
    assert read(batches) == [row for rows in batches for row in rows]


def test_a_text_that_no_encoding_has_loses_only_that_character() -> None:
    assert read([[("a\ud800b", 1, None), ("ü", 2, 0.5)]]) == [("a?b", 1, None), ("ü", 2, 0.5)]


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        to_columns(KINDS, [("a", 2**63, None)])
