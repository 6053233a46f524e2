"""`evaltap run --engine ray`: the same rows as on this machine, also when an agent kills its process."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.store.database import Store
from support.worlds.running_agents import case, write_set

pytestmark = pytest.mark.slow
MAIN = "import sys; from evaltap.cli.main import main; sys.exit(main())"


def run(folder: Path, agent: str, *more: str) -> tuple[int, Any, str]:
    """Run in a process of its own, as Ray leaves threads behind."""
    arguments = ["run", "math.evalset.json", "--agent", agent, "--metrics", "metrics.json", "--db",
                 "x.duckdb", "--json", "--engine", "ray", "--ray-workers", "2", *more]  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", MAIN, *arguments], cwd=folder, env=os.environ,
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


def test_units_run_on_the_cluster_and_land_like_any(tmp_path: Path) -> None:
    write_set(tmp_path, [case(f"sum{number}", f"add {number} 3") for number in range(6)])

    code, found, said = run(tmp_path, "agents:answer", "--runs", "2")

    assert code == 0, said
    assert (found["units"]["scored"], found["agent_calls"]) == (12, 12)
    with Store(tmp_path / "x.duckdb") as store:
        rows = store.rows("SELECT count(*), count(DISTINCT eval_id) FROM latest_turns")
        calls = store.rows("SELECT count(*) FROM latest_tool_calls")
    assert (rows, calls) == ([(12, 6)], [(12,)])


def test_an_agent_that_kills_its_process_is_one_crashed_run(tmp_path: Path) -> None:
    write_set(
        tmp_path, [case("sum", "add 2 3"), case("product", "mul 6 7"), case("more", "add 1 1")]
    )

    code, found, said = run(tmp_path, "agents:half_kills_its_process")

    assert code == 1, said
    crashed = {one["eval_id"]: one["reasons"] for one in found["cases"] if one["crashed"]}
    assert crashed
    assert all("died on the cluster" in reasons[0] for reasons in crashed.values())
    assert found["units"]["scored"] + found["units"]["crashed"] == 3
    assert found["units"]["scored"] >= 1


def test_an_agent_that_cannot_be_imported_is_told_before_anything_runs(tmp_path: Path) -> None:
    write_set(tmp_path, [case("sum", "add 2 3")])

    code, _, said = run(tmp_path, "agents:nobody")

    assert code == 2
    assert "nobody" in said
