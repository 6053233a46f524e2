"""The benchmark of agent patterns measures what its patterns do."""

import runpy
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "docs/benchmarks/agent_patterns.py"


@pytest.mark.slow
def test_each_pattern_makes_its_calls_and_the_same_seed_gives_the_same_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    program = runpy.run_path(str(PROGRAM))

    for _ in range(2):
        program["main"](["--cases", "4", "--runs", "1", "--seed", "3"])

    lines = capsys.readouterr().out.splitlines()
    first, second = lines[: len(lines) // 2], lines[len(lines) // 2 :]
    assert first == second
    calls = {row[1].strip(): float(row[4]) for row in (line.split("|") for line in first[2:])}
    assert (calls["single"], calls["pipeline"], calls["team"]) == (1, 3, 3)
    assert 2 <= calls["loop"] <= 5
    assert 2 <= calls["splitter"] <= 4 * 3
