"""The command that adds an extra is that of the way in which evaltap was installed."""

from pathlib import Path
from typing import Any

import pytest

from evaltap.schemas.installation import install_command, install_command_of

WHEEL = "file:///tmp/evaltap-0.1.0-py3-none-any.whl"


@pytest.mark.parametrize(
    ("source", "file", "has_pip", "expected"),
    [
        ({}, "", True, "pip install 'evaltap[collect]'"),
        ({}, "", False, "uv pip install 'evaltap[collect]'"),
        ({}, "uv-receipt.toml", False, "uv tool install --force 'evaltap[collect]'"),
        ({}, "pipx_metadata.json", True, "pipx install --force 'evaltap[collect]'"),
        (
            {"url": "file:///home/a%20b/evaltap", "dir_info": {"editable": True}},
            "",
            True,
            "pip install -e '/home/a b/evaltap[collect]'",
        ),
        (
            {"url": "file:///src/evaltap", "dir_info": {}},
            "",
            True,
            "pip install '/src/evaltap[collect]'",
        ),
        (
            {"url": WHEEL, "archive_info": {}},
            "",
            True,
            f"pip install 'evaltap[collect] @ {WHEEL}'",
        ),
        (
            {"url": "https://git.example/evaltap", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            "uv-receipt.toml",
            False,
            "uv tool install --force 'evaltap[collect] @ git+https://git.example/evaltap@ab12'",
        ),
    ],
)
def test_the_command_fits_the_installation(
    tmp_path: Path, source: dict[str, Any], file: str, has_pip: bool, expected: str
) -> None:
    if file:
        (tmp_path / file).touch()

    assert install_command_of("collect", source, tmp_path, has_pip=has_pip) == expected


def test_the_command_of_this_environment_names_the_extra() -> None:
    assert "[collect]" in install_command("collect")
