"""A release is built twice from one commit, compared, and listed with its hashes."""

import hashlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    subprocess.run(["git", "clone", "-q", str(ROOT), str(tmp_path / "clone")], check=True)
    return tmp_path / "clone"


def release(checkout: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(checkout / "deploy/release.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_two_builds_of_a_commit_are_the_same_and_the_hashes_are_theirs(checkout: Path) -> None:
    done = release(checkout)

    assert done.returncode == 0, done.stderr
    listed = [line.split() for line in (checkout / "dist/SHA256SUMS").read_text().splitlines()]
    assert [Path(name).suffix for _, name in listed] == [".whl", ".gz", ".json"]
    for digest, name in listed:
        assert hashlib.sha256((checkout / "dist" / name).read_bytes()).hexdigest() == digest


def test_a_tag_that_is_not_the_version_releases_nothing(checkout: Path) -> None:
    done = release(checkout, "--expect-tag", "v99.0.0")

    assert done.returncode == 2
    assert "the tag is v99.0.0, pyproject.toml says" in done.stderr
    assert not (checkout / "dist").exists()
