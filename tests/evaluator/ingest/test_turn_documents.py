"""Turns are read in portions: the same turns in the same order, in pieces that fit into memory."""

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.ingest.landing.cases import (
    FIRST_TURNS,
    DocumentReader,
    LandedTurns,
    landed_cases,
)
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import Parameters, Rows
from evaltap.evaluator.store.shards import ShardedStore
from support.builders.cases import make_case, make_records, make_turn

POSITIONS = "SELECT app_name, eval_set_id, eval_id, landed_seq FROM turns ORDER BY landed_seq"


class CountingStore(Store):
    """A store that notes how many characters of turns each query returns."""

    def __init__(self) -> None:
        super().__init__(":memory:")
        self.read: list[int] = []

    def large_rows(self, query: str, parameters: Parameters = None) -> Rows:
        found = super().large_rows(query, parameters)
        self.read.append(sum(len(row[4]) for row in found))
        return found


def land(store: Store, sizes: Sequence[int], *, partition: int = 0, session: str = "") -> None:
    """Land turns with answers of these sizes, each in a session of its own unless one is named."""
    cases = [
        make_case(session or f"s-{partition}-{n}", [make_turn(f"t-{n}", "x" * size)])
        for n, size in enumerate(sizes)
    ]
    found = [
        SourceRecord(Partition("topic", partition), n, record)
        for n, record in enumerate(make_records(cases, producer_id=f"p-{partition}"))
    ]
    Lander(store).land(SourceBatch(tuple(found), {Partition("topic", partition): len(found)}))


def landed(store: Store) -> list[LandedTurns]:
    return [
        LandedTurns((app, name, eval_id), [at]) for app, name, eval_id, at in store.rows(POSITIONS)
    ]


@pytest.mark.slow
@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(0, 3_000), min_size=1, max_size=40),
    order=st.randoms(use_true_random=False),
    portion=st.integers(1, 20_000),
)
def test_turns_come_in_the_requested_order_whatever_their_sizes(
    sizes: list[int], order: Random, portion: int
) -> None:
    with Store(":memory:") as store:
        land(store, sizes)
        cases = landed(store)
        texts: dict[str, str] = dict(store.rows("SELECT eval_id, actual_json FROM turns"))
        order.shuffle(cases)

        read = list(DocumentReader(store, portion_bytes=portion).read(cases))

    assert [found.actual for found in read] == [[texts[case.case[2]]] for case in cases]
    assert [found.expected for found in read] == [[None]] * len(cases)


def test_portions_of_large_turns_hold_few() -> None:
    with CountingStore() as store:
        land(store, [5_000] * 400)

        list(DocumentReader(store, portion_bytes=100_000).read(landed(store)))

    first, *others = store.read
    assert first > 5_000 * FIRST_TURNS, "their size is not known yet"
    assert max(others) <= 100_000


def test_what_is_read_later_starts_with_the_size_that_is_known() -> None:
    with CountingStore() as store:
        land(store, [5_000] * 200)
        reader = DocumentReader(store, portion_bytes=100_000)
        list(reader.read(landed(store)[:100]))

        list(reader.read(landed(store)[100:]))

    assert max(store.read[1:]) <= 100_000


def test_a_session_that_is_larger_than_a_portion_is_read_whole() -> None:
    with CountingStore() as store:
        land(store, [5_000] * 20, session="long")
        cases = landed(store)
        turns = LandedTurns(cases[0].case, [at for _, (at,) in cases])

        (found,) = DocumentReader(store, portion_bytes=1).read([turns])

    assert len(found.actual) == 20


def test_no_cases_need_no_query() -> None:
    with CountingStore() as store:
        assert list(DocumentReader(store).read([])) == []
    assert store.read == []


@pytest.mark.slow
def test_turns_of_several_files_with_equal_positions_are_not_mixed_up(tmp_path: Path) -> None:
    paths = [tmp_path / f"shard-{number}.duckdb" for number in range(2)]
    for number, path in enumerate(paths):
        with Store(path) as store:
            land(store, [10, 20 + number], partition=number)

    with ShardedStore(paths) as store:
        cases = {case["evalId"]: case for case in landed_cases(store)}

    answers = {
        name: len(case["actualConversation"][0]["finalResponse"]["content"])
        for name, case in cases.items()
    }
    assert answers == {"s-0-0": 10, "s-0-1": 20, "s-1-0": 10, "s-1-1": 21}
