"""Fuzzed messages over the real way in: each lands or is a dead letter, and its neighbours land.

`EVALTAP_TEST_FUZZ` sets their number (default 20,000), `EVALTAP_TEST_SEED` the seed of the first batch.
"""

import os
import random

import pytest

from chaos.fuzz import good, mutated
from evaltap.evaluator.ingest.landing.lander import LandedCounts, Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.database import Store
from evaltap.schemas.wire.record import WireRecord

MESSAGES = int(os.environ.get("EVALTAP_TEST_FUZZ", "20000"))
FIRST = int(os.environ.get("EVALTAP_TEST_SEED", "0"))
PER_STORE = 20_000
PER_BATCH = 1_000
PLACE = Partition("fuzzed")


def batch_of(seed: int, first: int) -> list[WireRecord]:
    """Return a batch: every fourth record is whole."""
    rng = random.Random(seed)
    return [
        good(first + number) if number % 4 == 0 else mutated(rng) for number in range(PER_BATCH)
    ]


def land(lander: Lander, first: int, records: list[WireRecord]) -> LandedCounts:
    placed = tuple(
        SourceRecord(PLACE, first + number, record) for number, record in enumerate(records)
    )
    return lander.land(SourceBatch(placed, {PLACE: first + len(records)}))


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_a_fuzzed_message_lands_or_is_a_dead_letter_and_its_neighbours_land() -> None:
    for start in range(0, MESSAGES, PER_STORE):
        with Store(":memory:") as store:
            lander = Lander(store)
            total = LandedCounts()
            values = []
            for first in range(0, min(PER_STORE, MESSAGES - start), PER_BATCH):
                seed = FIRST + (start + first) // PER_BATCH
                records = batch_of(seed, first)
                counts = land(lander, first, records)
                total.add(counts)
                values += [record.value for record in records]
                parts = (counts.turns, counts.duplicates, counts.dead_letters, counts.manifests,
                         counts.feedback)  # fmt: skip
                assert sum(parts) == counts.records, f"seed {seed}: {counts}"
            check(store, total, values)


def check(store: Store, total: LandedCounts, values: list[bytes | None]) -> None:
    letters = store.rows("SELECT record_offset, reason, detail, record_value FROM dead_letters")
    assert len(letters) == total.dead_letters == len({letter[0] for letter in letters})
    assert all(reason and detail for _, reason, detail, _ in letters)
    assert all((value or b"") == (values[offset] or b"") for offset, _, _, value in letters)
    assert not [offset for offset, *_ in letters if offset % 4 == 0], "a whole record was refused"
    assert store.rows("SELECT count(*) FROM turns") == [(total.turns,)]
    assert store.rows("SELECT count(*) FROM turns WHERE eval_id LIKE 'good-%' ") >= [
        (len(values) // 4,)
    ]
    assert store.rows("SELECT count(DISTINCT reason) FROM dead_letters")[0][0] >= 8
    assert 0.2 < total.dead_letters / len(values) < 0.75, "most of what is fuzzed is refused"
