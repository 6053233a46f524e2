"""What lies on the spools in front of a broker, as an onlooker sees it: nothing is claimed or changed."""

import fcntl
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from evaltap.recorder.spool import CURSOR, LOCATION_FILE, lock_path, spool_place, topic_place
from evaltap.schemas.errors import InputError
from evaltap.schemas.local_log import open_log
from evaltap.schemas.log_location import KafkaLocation


@dataclass(frozen=True, slots=True)
class SpoolState:
    """One spool; `records` were taken and are not acknowledged, or were set aside for ever."""

    path: Path
    records: int
    owned: bool
    set_aside: bool
    trouble: str = ""


def spool_states(folder: Path) -> Sequence[SpoolState]:
    """Return the spools in a folder, and the logs of records that the broker never takes."""
    paths = [*folder.glob("*.log.db"), *folder.glob("*.rejected")] if folder.is_dir() else []
    return [_state(path) for path in sorted(paths)]


def damaged_spools(folder: Path) -> Sequence[Path]:
    """Return the spools in a folder that were set aside as the disk had broken them."""
    found = folder.glob("*.bad-*") if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.endswith(("-wal", "-shm", ".lock")))


def other_folders(location: KafkaLocation) -> Sequence[tuple[Path, str]]:
    """Return the folders of spools for a topic of this name whose brokers were named differently.

    With each the log that it was written for, empty where that is not known: before there was a folder
    for each cluster.
    """
    topic, own = topic_place(location), spool_place(location)
    folders = [path.parent for path in topic.glob("*/" + LOCATION_FILE) if path.parent != own]
    return [(topic, ""), *((folder, _written_for(folder)) for folder in sorted(folders))]


def _written_for(folder: Path) -> str:
    try:
        return (folder / LOCATION_FILE).read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _state(path: Path) -> SpoolState:
    set_aside = path.name.endswith(".rejected")
    owned = _is_owned(path)
    try:
        with closing(open_log(path, mode="read")) as log:
            first = log.cursor(CURSOR)
            ((records,),) = log.connection.execute(
                'SELECT count(*) FROM records WHERE "offset" >= ?', (first,)
            ).fetchall()
    except (InputError, sqlite3.Error) as error:
        return SpoolState(path, 0, owned, set_aside, str(error))
    return SpoolState(path, records, owned, set_aside)


def _is_owned(path: Path) -> bool:
    """Tell whether a living process holds the spool."""
    try:
        with lock_path(path).open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False
