"""Torn and flipped DuckDB files: they open, or the damage is set aside, and the log heals the rest.

`EVALTAP_TEST_DAMAGES` sets how many copies of each kind are damaged (default 6).
"""

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos import victims
from chaos.consumption import look, write_input
from chaos.evidence import Ledger
from chaos.failpoints import consume_until

DAMAGES = int(os.environ.get("EVALTAP_TEST_DAMAGES", "6"))
SESSIONS = 40


class Killed:
    """A consumer's folder after its death: a database with a write-ahead log, and the recorder's log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ledger: Ledger = write_input(folder, SESSIONS)
        # A first life that ends in order leaves data in the main file, a second one in its journal.
        self.killed_at(32)
        self.journal = folder / "x.duckdb.wal"
        assert self.journal.stat().st_size > 1_000

    def killed_at(self, step: int) -> None:
        victim = victims.start(consume_until, self.folder, step)
        victim.join()
        assert victim.exitcode == -9


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    return Killed(tmp_path_factory.mktemp("killed"))


def torn(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def flipped(content: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(content)
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def zeroed(content: bytes, rng: random.Random) -> bytes:
    kept = rng.randrange(len(content))
    return content[:kept] + bytes(len(content) - kept)


Damage = Callable[[bytes, random.Random], bytes]


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("damage", [torn, flipped, zeroed])
def test_a_damaged_write_ahead_log_is_set_aside_and_the_log_heals_the_store(
    killed: Killed, tmp_path: Path, damage: Damage
) -> None:
    for number in range(DAMAGES):
        folder = tmp_path / f"{number}"
        shutil.copytree(killed.folder, folder, ignore=shutil.ignore_patterns("*.sock"))
        journal = folder / "x.duckdb.wal"
        journal.write_bytes(damage(journal.read_bytes(), random.Random(number)))

        restarted = victims.start(victims.consume, folder)
        restarted.join()

        said = (folder / "said.txt").read_text()
        assert restarted.exitcode == 1, said
        assert look(folder, killed.ledger) == [], f"damage {number}"
        assert "Traceback" not in said
        aside = list(folder.glob("x.duckdb.wal.bad-*"))
        assert bool(aside) == ("was set aside" in said)
        if damage is flipped:
            assert aside, "a flipped bit never passes"
        shutil.rmtree(folder)


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("damage", [torn, flipped, zeroed])
def test_a_damaged_database_file_is_named_with_a_remedy_that_works(
    killed: Killed, tmp_path: Path, damage: Damage
) -> None:
    refused = 0
    for number in range(DAMAGES):
        folder = tmp_path / f"{number}"
        shutil.copytree(killed.folder, folder, ignore=shutil.ignore_patterns("*.sock"))
        database = folder / "x.duckdb"
        database.write_bytes(damage(database.read_bytes(), random.Random(number)))

        restarted = victims.start(victims.consume, folder)
        restarted.join()

        said = (folder / "said.txt").read_text()
        assert "Traceback" not in said
        if restarted.exitcode != 1:
            refused += 1
            assert restarted.exitcode == 2, said
            assert "x.duckdb" in said
            for path in folder.glob("x.duckdb*"):
                path.rename(path.with_name(f"old-{path.name}"))
            again = victims.start(victims.consume, folder)
            again.join()
            assert again.exitcode == 1, (folder / "said.txt").read_text()
        assert look(folder, killed.ledger) == [], f"damage {number}"
        shutil.rmtree(folder)

    assert refused, "some damage must be seen"
