"""Rows are stored unchanged, however many of them are appended at once."""

import random
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import Struct

from evaltap.evaluator.ingest.landing.row_types import (
    CaseRow,
    DeadLetterRow,
    FeedbackRow,
    ManifestRow,
)
from evaltap.evaluator.scoring.results.rows import CallRow, VoteRow
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import NoMemoryError
from support.builders.cases import NOON

TEXT: Final = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "VARCHAR": TEXT,
    "JSON": st.sampled_from(
        ["1e400", '{"a":[1,"ü\\u0000"]}', "null", '"x"', "12345678901234567890"]
    ),
    "INTEGER": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.integers(-9, 9) | st.floats(allow_nan=False),
    "TIMESTAMP": st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31)),
    "VARCHAR[]": st.lists(TEXT, max_size=2),
    "BOOLEAN": st.booleans(),
    "BLOB": st.binary(max_size=3),
}
TABLES: Final = ("turns", "tool_calls", "cases", "consumed_ranges", "dead_letters")


@pytest.mark.slow
@pytest.mark.parametrize("table", TABLES)
@given(st.data())
@settings(max_examples=10)
def test_many_rows_are_stored_as_each_of_them_alone(table: str, data: st.DataObject) -> None:
    with Store(":memory:") as store:
        columns = store.rows(f"DESCRIBE {table}")
        row = st.tuples(
            *(
                VALUES[kind] if null == "NO" else st.none() | VALUES[kind]
                for _, kind, null, *_ in columns
            )
        )
        rows = data.draw(st.lists(row, min_size=1, max_size=5))
        many = rows * (Store.FEWEST_AS_COLUMNS // len(rows) + 1)

        for one in rows:
            store.append(table, [one])
        alone = store.rows(f"FROM {table}")
        store.append(table, many)

        assert store.rows(f"FROM {table} OFFSET {len(rows)}") == alone * (len(many) // len(rows))


@pytest.mark.parametrize(
    ("table", "row"),
    [
        ("cases", CaseRow),
        ("manifests", ManifestRow),
        ("feedback", FeedbackRow),
        ("dead_letters", DeadLetterRow),
        ("rubric_votes", VoteRow),
        ("judge_calls", CallRow),
    ],
)
def test_the_fields_of_a_row_are_the_columns_of_its_table(table: str, row: type[Struct]) -> None:
    with Store(":memory:") as store:
        columns = [name for name, *_ in store.rows(f"DESCRIBE {table}")]

    assert list(row.__struct_fields__) == columns


def test_many_rows_of_which_one_lacks_what_it_must_have_are_refused_as_a_whole() -> None:
    with Store(":memory:") as store:
        good = ("producer", 1, 2, datetime(2026, 11, 22))
        bad = (None, *good[1:])

        with pytest.raises(duckdb.ConstraintException, match="NOT NULL"), store.transaction():
            store.append("consumed_ranges", [good] * Store.FEWEST_AS_COLUMNS + [bad])

        assert store.rows("FROM consumed_ranges") == []


@pytest.mark.slow
def test_rows_too_large_for_the_memory_that_is_allowed_are_read_once_it_is_asked_for(
    tmp_path: Path,
) -> None:
    with Store(tmp_path / "x.duckdb") as store:
        for number in range(100):
            value = random.Random(number).randbytes(1_000_000)
            store.append(
                "dead_letters", [("t", 0, number, "r", "d", False, None, None, value, NOON)]
            )
    query = "SELECT record_value FROM dead_letters WHERE record_offset = 7"

    with Store(tmp_path / "x.duckdb") as store, store.limited_memory(64):
        ((found,),) = store.large_rows(query)
        with pytest.raises(NoMemoryError):
            store.rows(query)

    assert found == random.Random(7).randbytes(1_000_000)
