"""The filter of cases: it may report false positives, but never false negatives."""

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.cases.identity import CASE_KEY
from evaltap.evaluator.ingest.landing.lander import BloomFilter

NAMES = st.tuples(st.text(), st.text(), st.text())


@given(st.sets(NAMES))
def test_what_was_added_is_there(names: set[tuple[str, str, str]]) -> None:
    seen = BloomFilter()
    for name in names:
        seen.add(name)

    assert all(name in seen for name in names)


@pytest.fixture(scope="module")
def stored() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE cases (app_name TEXT, eval_set_id TEXT, eval_id TEXT)")
    return connection


@pytest.mark.slow
@given(names=st.sets(NAMES, min_size=1))
def test_what_is_stored_is_there(
    stored: duckdb.DuckDBPyConnection, names: set[tuple[str, str, str]]
) -> None:
    stored.execute("DELETE FROM cases")
    stored.executemany("INSERT INTO cases VALUES (?, ?, ?)", [*names])
    seen = BloomFilter()

    keys = stored.execute(f"SELECT {CASE_KEY} FROM cases").fetchall()
    seen.add_all([key for (key,) in keys])

    assert all(name in seen for name in names)
    assert ("not", "stored", "at all") not in seen


def test_what_was_not_added_is_hardly_ever_there() -> None:
    seen = BloomFilter()
    for number in range(50_000):
        seen.add(("app", f"s-{number}", f"s-{number}"))

    wrong = sum(("app", f"new-{number}", f"new-{number}") in seen for number in range(50_000))

    assert wrong < 50
