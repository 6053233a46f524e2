"""Rows passed to the database as Arrow columns are stored unchanged."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.store.arrow import ArrowTable, ColumnKinds, to_columns

KINDS: ColumnKinds = {
    "name": "text", "place": "whole", "score": "real", "at": "time", "models": "texts",
}  # fmt: skip
TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
ROWS = st.lists(
    st.tuples(
        st.none() | TEXT,
        st.none() | st.integers(-(2**63), 2**63 - 1),
        st.none() | st.floats(allow_nan=False),
        st.none() | st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
        st.none() | st.lists(TEXT, max_size=3),
    ),
    max_size=20,
)


def read(batches: Sequence[Sequence[Any]]) -> list[Any]:
    connection = duckdb.connect()
    connection.register("shown", ArrowTable(KINDS, [to_columns(KINDS, rows) for rows in batches]))
    first = connection.execute("FROM shown").fetchall()
    assert connection.execute("FROM shown").fetchall() == first, "a table can be read again"
    return first


@pytest.mark.slow
@given(st.lists(ROWS, max_size=3))
def test_batches_read_as_one_table(batches: list[list[Any]]) -> None:
    assert read(batches) == [row for rows in batches for row in rows]


def test_a_text_that_no_encoding_has_loses_only_that_character() -> None:
    rest = (1, 0.5, None, ["x"])
    assert read([[("a\ud800b", *rest), ("ü", *rest)]]) == [("a?b", *rest), ("ü", *rest)]


def test_a_number_beyond_64_bits_is_refused() -> None:
    with pytest.raises(OverflowError):
        to_columns(KINDS, [("a", 2**63, None, None, None)])
