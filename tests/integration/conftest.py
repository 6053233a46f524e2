"""Fixtures for all integration tests."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaltap.cli.main import main
from support.builders.estimated import Estimate, Traffic, land, make_traffic


@pytest.fixture(autouse=True)
def _own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what brokers have not taken in a folder of the test, not in that of the user."""
    monkeypatch.setenv("EVALTAP_SPOOL_DIR", str(tmp_path / "spool"))


@pytest.fixture
def estimate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Estimate:
    """Run the command on the test's file and return its rows."""

    def run(*arguments: str, code: int = 0) -> list[dict[str, Any]]:
        capsys.readouterr()
        assert main(["estimate", str(tmp_path / "x.duckdb"), "--json", *arguments]) == code
        found: list[dict[str, Any]] = json.loads(capsys.readouterr().out)
        return found

    return run


@pytest.fixture(scope="session")
def _landed_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Traffic]:
    folder = tmp_path_factory.mktemp("landed")
    traffic = make_traffic(np.random.default_rng(4), sessions=60)
    land(folder, traffic)
    return folder, traffic


@pytest.fixture
def landed(_landed_once: tuple[Path, Traffic], tmp_path: Path) -> Traffic:
    """Sampled, scored traffic of 60 sessions in a file of the test's own."""
    folder, traffic = _landed_once
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    return traffic
