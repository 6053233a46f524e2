"""An empty folder for commands, and a store that they read."""

from pathlib import Path

import pytest

from support.builders.cases import TRAJECTORY, make_records, write_log
from support.builders.command_files import case, write
from support.builders.commands import Evaltap, runner


@pytest.fixture
def evaltap(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Evaltap:
    """Run a command in an empty folder; return its exit code, its output and its errors."""
    monkeypatch.chdir(tmp_path)
    for name in ("BASE_URL", "MODEL", "API_KEY"):
        monkeypatch.delenv(f"EVALTAP_JUDGE_{name}", raising=False)

    return runner(capsys)


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
