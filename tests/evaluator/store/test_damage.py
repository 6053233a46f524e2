"""Damaged DuckDB files: repairable damage is repaired and reported, other damage is named with a remedy."""

import logging
import shutil
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import StoreError
from support.builders.cases import make_case, make_records

PLACE = Partition("topic")


@pytest.fixture
def crashed(tmp_path: Path) -> Path:
    """Return a file as a dead process left it: five turns, each landed by itself, in its journal."""
    store = Store(tmp_path / "x.duckdb")
    lander = Lander(store)
    for number, record in enumerate(make_records([make_case(f"s-{n}") for n in range(5)])):
        lander.land(SourceBatch((SourceRecord(PLACE, number, record),), {PLACE: number + 1}))
    left = tmp_path / "left"
    left.mkdir()
    for name in ("x.duckdb", "x.duckdb.wal"):
        shutil.copy(tmp_path / name, left / name)
    store.close()
    return left / "x.duckdb"


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_what_stands_before_the_damage_of_a_journal_is_kept_and_offsets_go_back_with_rows(
    crashed: Path, caplog: pytest.LogCaptureFixture
) -> None:
    journal = crashed.with_name("x.duckdb.wal")
    whole = journal.read_bytes()
    flip(journal, len(whole) * 3 // 4)
    damaged = journal.read_bytes()

    with Store(crashed) as store, caplog.at_level(logging.WARNING):
        turns = store.rows("SELECT count(*) FROM turns")[0][0]
        (offset,) = Lander(store).offsets().values()

    assert 0 < turns < 5
    assert offset == turns
    (aside,) = crashed.parent.glob("x.duckdb.wal.bad-*")
    assert aside.read_bytes() == damaged
    with Store(crashed) as store:
        assert store.rows("SELECT count(*) FROM turns") == [(turns,)]


def test_a_journal_that_says_nothing_of_its_damage_is_set_aside_as_a_whole(crashed: Path) -> None:
    journal = crashed.with_name("x.duckdb.wal")
    flip(journal, 10)

    with Store(crashed) as store:
        assert store.rows("SELECT count(*) FROM turns") == [(0,)]


def test_a_damaged_file_is_an_error_that_says_what_to_do(
    crashed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    content = crashed.read_bytes()
    crashed.write_bytes(content[: len(content) // 2])

    with pytest.raises(StoreError, match=r"damaged .* put a copy back, or move it"):
        Store(crashed)

    assert main(["runs", str(crashed)]) == 2
    assert "put a copy back" in capsys.readouterr().err


def test_an_interrupted_query_is_an_interrupt() -> None:
    with pytest.raises(KeyboardInterrupt), translated(Path("x.duckdb")):
        raise RuntimeError("Query interrupted")  # what DuckDB raises instead
    with pytest.raises(RuntimeError), translated(Path("x.duckdb")):
        raise RuntimeError("something else")
