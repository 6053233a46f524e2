"""SIGKILL of `evaltap consume` at random moments: every turn is landed and scored exactly once.

`EVALTAP_TEST_KILLS` sets the number of kills (default 25).
"""

import os
import random
import time
from pathlib import Path

import duckdb
import pytest

from chaos import victims
from chaos.consumption import look, write_input

KILLS = int(os.environ.get("EVALTAP_TEST_KILLS", "25"))
SESSIONS = 500


@pytest.mark.chaos
@pytest.mark.timeout(7200)
def test_every_turn_is_scored_exactly_once_whenever_the_consumer_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    seconds = 0.0
    for name in ("warm", "whole"):
        (tmp_path / name).mkdir()
        ledger = write_input(tmp_path / name, SESSIONS)
        began = time.monotonic()
        victims.start(victims.consume, tmp_path / name).join()
        seconds = time.monotonic() - began
        assert look(tmp_path / name, ledger) == []
    kills = logs = 0
    while kills < KILLS:
        # A log may be consumed before the first kill comes.
        logs += 1
        folder = tmp_path / f"log-{logs}"
        folder.mkdir()
        ledger = write_input(folder, SESSIONS)
        while True:
            process = victims.start(victims.consume, folder)
            process.join(rng.uniform(0.0, seconds * 1.1) if kills < KILLS else None)
            if process.exitcode is not None:
                break
            process.kill()
            process.join()
            kills += 1
        assert process.exitcode == 1, "the run must end with the verdict on the failing cases"
        assert look(folder, ledger) == []
        assert "Traceback" not in (folder / "said.txt").read_text()


@pytest.mark.chaos
@pytest.mark.parametrize(
    "damage",
    [
        "INSERT INTO turn_scores SELECT * FROM turn_scores LIMIT 1",
        "DELETE FROM turn_scores WHERE eval_id = 's-5'",
        "DELETE FROM turns WHERE eval_id = 's-5'",
        "INSERT INTO scores SELECT * FROM scores LIMIT 1",
        "DELETE FROM scores WHERE eval_id = 's-5'",
        "UPDATE turn_scores SET status = 'passed' WHERE eval_id = 's-3'",
        "UPDATE scores SET score = NULL WHERE eval_id = 's-3'",
        "UPDATE turns SET actual_json = replace(actual_json, 'answer 7', 'answer 8')",
        "DELETE FROM tool_calls WHERE eval_id = 's-2'",
        "DELETE FROM cases WHERE eval_id = 's-2' AND revision = 3",
        "INSERT INTO cases SELECT * FROM cases LIMIT 1",
        "DELETE FROM offsets",
        "UPDATE offsets SET next_offset = next_offset + 1",
        "INSERT INTO dead_letters SELECT topic, 0, 1, '', 'x', false, NULL, NULL, 'x', landed_at"
        " FROM offsets LIMIT 1",
    ],
)
def test_the_checker_sees_planted_damage(tmp_path: Path, damage: str) -> None:
    ledger = write_input(tmp_path, 10)
    victims.start(victims.consume, tmp_path).join()
    assert look(tmp_path, ledger) == []
    with duckdb.connect(str(tmp_path / "x.duckdb")) as store:
        store.execute(damage)

    assert look(tmp_path, ledger) != []
