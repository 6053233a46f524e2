"""A recorder reads the evaltap.toml that EVALTAP_CONFIG names."""

import logging
from pathlib import Path

import pytest

from evaltap.recorder import RecorderConfig


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "evaltap.toml"
    monkeypatch.setenv("EVALTAP_CONFIG", str(path))
    return path


def test_an_argument_wins_over_a_variable_and_a_variable_over_the_file(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(
        'log = "a.log.db"\n[recorder]\nsample_rate = 0.1\napp_name = "shop"\ntags = ["eu"]\n'
    )
    monkeypatch.setenv("EVALTAP_APP_NAME", "other")
    config = RecorderConfig(sample_rate=0.5)
    assert config.log == str(file.parent / "a.log.db")
    assert (config.sample_rate, config.app_name, config.tags) == (0.5, "other", "eu")


def test_a_file_that_cannot_be_used_switches_recording_off_and_says_why(
    file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file.write_text("[recorder]\ncapture_contnt = false\n")
    with caplog.at_level(logging.ERROR, "evaltap.recorder"):
        assert RecorderConfig().disabled
    assert "did you mean 'capture_content'?; nothing is recorded" in caplog.text


def test_the_working_folder_of_an_agent_is_not_searched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evaltap.toml").write_text('log = "elsewhere.log.db"\n')
    monkeypatch.chdir(tmp_path)
    assert RecorderConfig().log is None
