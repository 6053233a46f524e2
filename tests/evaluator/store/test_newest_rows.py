"""The newest row of each key of a whole table is what sorting all rows by their keys finds."""

from collections.abc import Iterator

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.store.queries import newest_of

ROWS = st.lists(
    st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2), st.integers(0, 99)),
    max_size=12,
    unique_by=lambda row: row[2],
)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect() as opened:
        yield opened


@pytest.mark.slow
@settings(max_examples=60)
@given(ROWS)
def test_the_newest_rows_are_those_that_a_window_over_all_finds(
    connection: duckdb.DuckDBPyConnection, rows: list[tuple[str | None, int, int]]
) -> None:
    connection.execute("CREATE OR REPLACE TABLE t (name VARCHAR, part INTEGER, written INTEGER)")
    if rows:
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", rows)
    window = "FROM t QUALIFY row_number() OVER (PARTITION BY name, part ORDER BY written DESC) = 1"

    found = connection.execute(f"FROM {newest_of('t', 'name, part', 'written DESC')}").fetchall()

    assert sorted(map(repr, found)) == sorted(map(repr, connection.execute(window).fetchall()))
