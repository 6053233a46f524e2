"""Tables that grow by a row per batch are compacted without changing their meaning."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.landing.seq_ranges import compact, merged
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.database import Store
from support.builders.cases import make_case, make_records

LOG = Partition("evaltap.cases", 0)
LARGEST = (1 << 63) - 1
RANGES = "SELECT first_seq, last_seq FROM consumed_ranges WHERE producer_id = 'p' ORDER BY ALL"


def test_batches_of_one_record_leave_one_offset_and_one_range() -> None:
    with Store(":memory:") as store:
        lander = Lander(store)
        for at, record in enumerate(make_records([make_case(f"s-{n}") for n in range(20)])):
            lander.land(SourceBatch((SourceRecord(LOG, at, record),), {LOG: at + 1}))

        compact(store)

        assert store.rows("SELECT next_offset FROM offsets") == [(20,)]
        assert store.rows("SELECT first_seq, last_seq FROM consumed_ranges") == [(1, 20)]
        assert lander.offsets() == {LOG: 20}


def test_the_offset_that_was_written_last_stays_though_a_higher_one_was_before() -> None:
    with Store(":memory:") as store:
        lander = Lander(store)
        for upto in (5, 9, 2):
            lander.land(SourceBatch((), {LOG: upto, Partition("other", 1): upto}))

        compact(store)

        assert store.rows("SELECT topic, next_offset FROM offsets ORDER BY ALL") == [
            ("evaltap.cases", 2),
            ("other", 2),
        ]


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    """One store for all examples: making one costs more than an example."""
    with Store(":memory:") as opened:
        yield opened


@pytest.mark.slow
@given(
    found=st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 5))
        | st.tuples(st.integers(LARGEST - 9, LARGEST), st.just(0)),
        max_size=20,
    )
)
def test_merged_ranges_hold_the_same_numbers(store: Store, found: list[tuple[int, int]]) -> None:
    ranges = [(first, first + more) for first, more in found]
    now = store.now()
    with store.transaction():
        store.execute("DELETE FROM consumed_ranges")
        store.append("consumed_ranges", [("p", *one, now) for one in ranges])
        store.append("consumed_ranges", [("q", 3, 4, now)])

    for _ in range(2):
        compact(store)

        assert store.rows(RANGES) == merged(ranges)
        assert store.rows("SELECT count(*) FROM consumed_ranges WHERE producer_id = 'q'") == [(1,)]
