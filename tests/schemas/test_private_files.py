"""Files that only their owner can read."""

import os
from pathlib import Path

import pytest

from evaltap.schemas.files.private import private_file


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_file_is_its_owners_and_a_replaced_one_keeps_its_mode(tmp_path: Path) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    old.write_bytes(b"before")
    old.chmod(0o640)

    for path in (new, old):
        with private_file(path) as file:
            file.write(b"after")

    assert (new.read_bytes(), old.read_bytes()) == (b"after", b"after")
    assert (mode(new), mode(old)) == (0o600, 0o640)


def test_a_file_that_is_not_finished_leaves_the_old_one_and_no_trace(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"before")

    def write_half() -> None:
        with private_file(path) as file:
            file.write(b"half")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_half()

    assert os.listdir(tmp_path) == ["x"]
    assert path.read_bytes() == b"before"


def test_a_link_that_waits_beside_the_file_is_not_written_through(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "x.tmp").symlink_to(victim)

    with private_file(tmp_path / "x") as file:
        file.write(b"new")

    assert victim.read_bytes() == b"mine"
