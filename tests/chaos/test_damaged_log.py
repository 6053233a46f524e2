"""Flipped and zeroed local logs: damaged records are never landed as if they were intact.

A record's content is guarded by its hash, and SQLite by the shape of its pages: a record lands unchanged, is
a dead letter, or the file as a whole is refused with a remedy.  `EVALTAP_TEST_DAMAGES` sets the number of
damaged copies of each kind, times fifty (default 6).
"""

import os
import random
import sqlite3
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from chaos.consumption import write_input
from chaos.evidence import Record, read_log_file
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError

DAMAGES = 50 * int(os.environ.get("EVALTAP_TEST_DAMAGES", "6"))
SESSIONS = 30


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole")
    write_input(folder, SESSIONS)
    with sqlite3.connect(folder / "log.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    return folder / "log.db"


def flip(content: bytearray, rng: random.Random) -> None:
    content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)


def zero(content: bytearray, rng: random.Random) -> None:
    page = rng.randrange(len(content) // 4096) * 4096
    content[page : page + 4096] = bytes(4096)


def cut(content: bytearray, rng: random.Random) -> None:
    del content[rng.randrange(len(content)) :]


@pytest.mark.chaos
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("damage", [flip, zero, cut])
def test_nothing_damaged_lands_as_if_it_were_whole(
    whole: Path, tmp_path: Path, damage: Callable[[bytearray, random.Random], None]
) -> None:
    records = read_log_file(whole)
    refused = letters = landed = 0
    with Store(":memory:") as store:
        for number in range(DAMAGES):
            path = tmp_path / "log.db"
            content = bytearray(whole.read_bytes())
            damage(content, random.Random(number))
            path.write_bytes(content)
            for table in ("turns", "tool_calls", "cases", "dead_letters", "offsets"):
                store.execute(f"TRUNCATE {table}")

            counts = land(path, store)

            assert_as_written(store, records)
            refused += counts is None
            if counts is not None:
                letters += counts[1]
                landed += counts[0]
            for ending in ("", "-wal", "-shm"):
                path.with_name(path.name + ending).unlink(missing_ok=True)

    assert refused, "a broken page is seen"
    assert damage is not flip or letters, "a flipped bit in a turn is seen by its hash"
    assert damage is cut or landed


def land(path: Path, store: Store) -> tuple[int, int] | None:
    """Land a log; return turns and dead letters, None when the file was refused."""
    lander, turns, letters = Lander(store), 0, 0
    try:
        source = LocalLogSource(path)
        try:
            while (batch := source.poll(1_000, 0)).records:
                counts = lander.land(batch)
                turns, letters = turns + counts.turns, letters + counts.dead_letters
        finally:
            source.close()
    except InputError as error:
        told = str(error)
    else:
        return turns, letters
    assert str(path) in told, "says which file"
    return None


def assert_as_written(store: Store, records: list[Record]) -> None:
    turns = {
        (case["evalId"], turn["invocationId"]): turn
        for record in records
        for case in [orjson.loads(record.value)]
        for turn in case["actualConversation"]
    }
    for eval_id, invocation_id, text in store.rows(
        "SELECT eval_id, invocation_id, actual_json FROM turns"
    ):
        assert orjson.loads(text) == turns[eval_id, invocation_id]
    assert store.rows("SELECT count(*) FROM dead_letters WHERE reason = '' OR detail = ''") == [
        (0,)
    ]
