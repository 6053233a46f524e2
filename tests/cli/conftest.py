"""A store that commands read."""

from contextlib import chdir
from pathlib import Path

import pytest

from evaltap.cli.main import main
from support.builders.cases import TRAJECTORY, make_records, write_log
from support.builders.command_files import case, write
from support.builders.commands import Evaltap
from support.worlds.once import made_once

CONSUME = ("consume", "--log", "log.db", "--db", "x.duckdb", "--metrics", "m.json", "--until-idle")


@made_once
def consumed(folder: Path) -> Path:
    with chdir(folder):
        write_log(Path("log.db"), make_records([case("a"), case("b", wrong=True)]))
        write("m.json", [TRAJECTORY])
        assert main(CONSUME) == 1
    return folder / "x.duckdb"


@pytest.fixture
def store(evaltap: Evaltap, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The name of a store with two scored cases; the log and the metrics lie beside it."""
    consumed(tmp_path)
    capsys.readouterr()
    return "x.duckdb"
