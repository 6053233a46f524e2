"""What can be wrong with a DuckDB file on disk, and what is done about it.

DuckDB replays its write-ahead log when it opens a file.  A log that was torn or flipped cannot be replayed
as a whole: it is set aside, and what stands before the damage is kept.  Rows and offsets go back together,
so the consumer reads again from the log of the recorder what the file has lost.
"""

import re
from datetime import datetime
from pathlib import Path

from evaltap.schemas.errors import EvaltapError

_DAMAGE_AT = re.compile(r"entry at byte position (\d+)")
_DAMAGED = ("Corrupt database file", "Could not read enough bytes", "Corrupted", "corrupt")
_NO_MEMORY = ("Out of Memory", "failed to pin block", "failed to allocate")
_NO_SPACE = ("No space left", "Could not write", "Read-only file system", "File too large")


class StorageTrouble(EvaltapError):
    """Report a DuckDB file that the disk has damaged, or cannot take."""


def set_log_aside(path: Path, error: str, *, keep: bool) -> str | None:
    """Set a write-ahead log that cannot be replayed aside; return what to tell, None for other errors.

    With `keep` the part in front of the damage stays, where the error says where that is.
    """
    log = path.with_name(path.name + ".wal")
    if "replaying WAL" not in error or not log.exists():
        return None
    aside = _free_name(log)
    log.rename(aside)
    found = _DAMAGE_AT.search(error) if keep else None
    part = int(found[1]) if found else 0
    if part:
        with aside.open("rb") as whole:
            log.write_bytes(whole.read(part))
    return (
        f"{path}: its write-ahead log is damaged and was set aside as {aside.name}; rows that were written"
        " last are gone, and their offsets with them: what came from a log lands again, what was scored"
        " from files must be scored again"
    )


def explained(error: BaseException, path: Path | None = None) -> StorageTrouble | None:
    """Return what an error of DuckDB means for its user, None when it is no fault of the disk."""
    text = str(error).splitlines()[0] if str(error) else ""
    if type(error).__module__.rpartition(".")[2] not in ("duckdb", "_duckdb"):
        return None
    where = f"{path}: " if path else ""
    if any(sign in text for sign in _NO_SPACE):
        return StorageTrouble(
            f"{where}cannot be written ({text}); make room and start again: what was written stays, and the"
            " rest is still where it came from"
        )
    if any(sign in text for sign in _NO_MEMORY):
        return StorageTrouble(
            f"{where}DuckDB had not enough memory ({text}); give it more, or smaller cases: what was"
            " written stays, and the rest is still where it came from"
        )
    if any(sign in text for sign in _DAMAGED):
        return StorageTrouble(
            f"{where}the database file is damaged ({text}); put a copy back, or move it and its .wal away"
            " and consume again: all that is still on the log lands and is scored again"
        )
    return None


def _free_name(log: Path) -> Path:
    stamp = f"{datetime.now():%Y%m%dT%H%M%S}"
    aside = log.with_name(f"{log.name}.bad-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = log.with_name(f"{log.name}.bad-{stamp}-{number}")
    return aside
