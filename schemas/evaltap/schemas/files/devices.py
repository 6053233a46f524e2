"""Reject devices where a file is expected: reading some of them never ends."""

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
