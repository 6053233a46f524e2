"""Read-only state of the spools in front of a broker: changes nothing and holds no lock for long."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from evaltap.recorder.delivery.spool.lock import try_lock
from evaltap.recorder.delivery.spool.spool import CURSOR, lock_path
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.folders import LOCATION_FILE, spool_path, topic_path
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.location import KafkaLocation


@dataclass(frozen=True, slots=True)
class SpoolState:
    """One spool; `records` are not yet acknowledged, or were permanently refused."""

    path: Path
    records: int
    owned: bool
    is_rejected: bool
    trouble: str = ""


def spool_states(folder: Path) -> Sequence[SpoolState]:
    """Return the spools in a folder, and the logs of refused records."""
    paths = [*folder.glob("*.log.db"), *folder.glob("*.rejected")] if folder.is_dir() else []
    return [_state(path) for path in sorted(paths)]


def damaged_spools(folder: Path) -> Sequence[Path]:
    """Return the damaged spools that were quarantined in a folder."""
    found = folder.glob("*.bad-*") if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.endswith(("-wal", "-shm", ".lock")))


def other_folders(location: KafkaLocation) -> Sequence[tuple[Path, str]]:
    """Return other spool folders for the same topic name, written for differently named brokers.

    Each comes with the log it was written for, empty if unknown: before there was a folder per
    cluster.
    """
    topic, own = topic_path(location), spool_path(location)
    folders = [path.parent for path in topic.glob("*/" + LOCATION_FILE) if path.parent != own]
    return [(topic, ""), *((folder, _written_for(folder)) for folder in sorted(folders))]


def _written_for(folder: Path) -> str:
    try:
        return (folder / LOCATION_FILE).read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _state(path: Path) -> SpoolState:
    is_rejected = path.name.endswith(".rejected")
    owned = _is_owned(path)
    try:
        with closing(open_log(path, mode="read")) as log:
            first = log.cursor(CURSOR)
            ((records,),) = log.connection.execute(
                'SELECT count(*) FROM records WHERE "offset" >= ?', (first,)
            ).fetchall()
    except (InputError, sqlite3.Error) as error:
        return SpoolState(path, 0, owned, is_rejected, str(error))
    return SpoolState(path, records, owned, is_rejected)


def _is_owned(path: Path) -> bool:
    """Return whether a living process holds the spool."""
    try:
        with lock_path(path).open("rb") as lock:
            return not try_lock(lock, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True
