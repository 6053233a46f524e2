"""SIGKILL before every step of writing, one after the other, until a run completes."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from chaos import victims
from chaos.checker import check
from chaos.consumption import look, write_input
from chaos.evidence import Evidence, Ledger, Turn, read_log_file
from chaos.failpoints import consume_until, record_until
from chaos.simulated_evaluator import poison_records

SESSIONS = 6


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_consumer_that_is_killed_at_any_step_of_writing_goes_on_where_it_was(
    tmp_path: Path,
) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    ledger = write_input(whole, SESSIONS, poison=poison_records(5))
    deadly, died, where = 0, True, set()
    while died:
        deadly += 1
        folder = tmp_path / "killed"
        shutil.copytree(whole, folder)
        first = victims.start(consume_until, folder, deadly)
        first.join()
        died = first.exitcode == -9
        if died:
            where.add((folder / "died.txt").read_text())
            second = victims.start(victims.consume, folder)
            second.join()
            assert second.exitcode == 1, (folder / "said.txt").read_text()
        assert look(folder, ledger) == [], f"killed at step {deadly}"
        shutil.rmtree(folder)

    assert {"begin", "commit", "after the commit", "append turns", "append offsets",
            "append dead_letters"} <= where  # fmt: skip
    assert len([one for one in where if "INSERT" in one or "insert" in one or "Move" in one])


@pytest.mark.chaos
@pytest.mark.timeout(1800)
def test_a_recorder_that_is_killed_at_any_statement_has_what_it_said_it_has(
    tmp_path: Path,
) -> None:
    deadly, died, numbers = 0, True, list[int]()
    while died:
        deadly += 1
        folder = tmp_path / f"killed-{deadly}"
        folder.mkdir()
        victim = victims.start(record_until, folder, deadly)
        victim.join()
        died = victim.exitcode == -9
        said = folder / "ledger.txt"
        numbers = [int(one) for one in said.read_text().split()] if said.exists() else []
        ledger = Ledger([Turn(f"s-{n}", f"t-{n}", f"answer {n}", tools=1) for n in numbers])
        log = folder / "log.db"
        records = read_log_file(log) if log.exists() else []
        assert check(Evidence(ledger, log=records)) == [], f"killed at statement {deadly}"
        if log.exists():
            with sqlite3.connect(log) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            connection.close()

    assert deadly > 25, "each append has several statements"
    assert len(numbers) == 10
