"""An empty folder for commands, and a store that they read."""

from pathlib import Path

import pytest

from support.builders.cases import TRAJECTORY, make_records, write_log
from support.builders.command_files import case, write
from support.builders.commands import Evaltap


@pytest.fixture
def store(evaltap: Evaltap) -> str:
    write_log(Path("log.db"), make_records([case("a"), case("b", wrong=True)]))
    write("m.json", [TRAJECTORY])
    code, out, _ = evaltap(
        "consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle"
    )
    assert code == 1
    assert "2 turns landed, 0 duplicates, 0 dead letters, 2 cases scored" in out
    return "x.duckdb"
