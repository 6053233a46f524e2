"""DuckDB's memory limit while records land: as much as a checkpoint of the latest rows needs."""

import random
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.pipeline.live.consumer import MOST_MEGABYTES, LandingMemory
from evaltap.evaluator.store.database import LANDING_MEMORY, Store
from evaltap.evaluator.store.turn_sizes import COMPRESSED_MEGABYTES
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records, make_turn


def batch(count: int, size: int) -> SourceBatch:
    record = SourceRecord(Partition("t"), 0, WireRecord(None, b"x" * size))
    return SourceBatch((record,) * count)


def of_an_empty_store() -> LandingMemory:
    with Store(":memory:") as store:
        return LandingMemory(store)


def test_small_turns_need_the_least_however_many_land() -> None:
    memory = of_an_empty_store()

    assert not any(memory.rises(batch(1_000, 10_000)) for _ in range(100))
    assert memory.megabytes == LANDING_MEMORY


def test_single_large_turns_among_small_ones_need_no_more() -> None:
    memory = of_an_empty_store()

    for _ in range(20):
        assert not memory.rises(batch(999, 3_000))
        assert not memory.rises(batch(1, 900_000))


def test_many_large_turns_raise_the_limit_to_what_the_latest_four_thousand_take() -> None:
    memory = of_an_empty_store()

    raised = [memory.rises(batch(500, 40_000)) for _ in range(20)]

    assert sum(raised) == 2
    assert memory.megabytes == 4 * LANDING_MEMORY  # 4,500 x 40 KB: 172 MB


def test_the_limit_has_a_limit_and_does_not_fall() -> None:
    memory = of_an_empty_store()

    for _ in range(20):
        memory.rises(batch(500, 900_000))
    memory.rises(batch(10_000, 10))

    assert memory.megabytes == MOST_MEGABYTES


@pytest.mark.slow
def test_stored_turns_count_after_a_restart(tmp_path: Path) -> None:
    records = make_records(
        [make_case(f"s-{n}", [make_turn("t", "x" * 500_000)]) for n in range(200)]
    )
    with Store(tmp_path / "x.duckdb") as store:
        found = [SourceRecord(Partition("t"), n, record) for n, record in enumerate(records)]
        Lander(store).land(SourceBatch(tuple(found)))

        assert LandingMemory(store).megabytes == 2 * LANDING_MEMORY


@pytest.mark.parametrize(
    ("megabytes", "compression"),
    [
        (LANDING_MEMORY, "ZSTD"),
        (COMPRESSED_MEGABYTES, "ZSTD"),
        (2 * COMPRESSED_MEGABYTES, "Uncompressed"),
    ],
)
def test_large_turns_are_not_compressed_as_reading_one_would_decompress_two_thousand(
    tmp_path: Path, megabytes: int, compression: str
) -> None:
    texts = (random.Random(n).randbytes(25_000).hex() for n in range(50))
    records = make_records(
        [make_case(f"s-{n}", [make_turn("t", text)]) for n, text in enumerate(texts)]
    )
    with Store(tmp_path / "x.duckdb") as store, store.limited_memory(megabytes):
        found = [SourceRecord(Partition("t"), n, record) for n, record in enumerate(records)]
        Lander(store).land(SourceBatch(tuple(found)))
        store.execute("CHECKPOINT")

        used = store.column(
            "SELECT compression FROM pragma_storage_info('turns') WHERE column_name = 'actual_json'"
        )

    assert compression in used
