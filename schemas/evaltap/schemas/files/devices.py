"""Reject devices and pipes where a file is expected: reading some of them never ends."""

import stat
from pathlib import Path

from evaltap.schemas.errors import InputError


def refuse_device(path: Path) -> None:
    """Raise InputError for a device other than a terminal, such as `/dev/zero`; OSError without a file."""
    if not stat.S_ISCHR(path.stat().st_mode):
        return
    with path.open("rb", buffering=0) as device:
        if not device.isatty():
            raise InputError(f"{path}: is a device; expected a file")


def regular_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files in a folder and below that match a pattern, sorted; pipes and devices are left out."""
    return sorted(path for path in folder.rglob(pattern) if path.is_file())
