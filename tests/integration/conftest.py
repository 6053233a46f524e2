"""Fixtures for all integration tests."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what brokers have not taken in a folder of the test, not in that of the user."""
    monkeypatch.setenv("EVALTAP_SPOOL_DIR", str(tmp_path / "spool"))
