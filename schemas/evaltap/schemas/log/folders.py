"""Local folders that belong to a topic: its spool, and its pseudonymization key."""

import hashlib
import os
from pathlib import Path

from evaltap.schemas.files.private import private_file
from evaltap.schemas.log.location import KafkaLocation

SPOOL_VARIABLE = "EVALTAP_SPOOL_DIR"
LOCATION_FILE = "log.txt"
"""The file with the URL of the log that a folder's spools belong to."""


def spool_folder(location: KafkaLocation) -> Path:
    """Return the spool folder for a topic of a cluster, created if absent (mode 0700).

    It is below EVALTAP_SPOOL_DIR, or the user's state folder. A file in it names the location, for
    `evaltap doctor`. Raises OSError when it cannot be created.
    """
    topic_folder(location)
    folder = spool_path(location)
    folder.mkdir(mode=0o700, exist_ok=True)
    named = folder / LOCATION_FILE
    if not named.exists():
        with private_file(named) as file:
            file.write(f"{location}\n".encode())
    return folder


def spool_path(location: KafkaLocation) -> Path:
    """Return the spool folder for a topic of a cluster; it need not exist.

    The cluster is identified by the given broker names, in any order: a spool must not be sent to
    another cluster's topic of the same name.
    """
    brokers = ",".join(sorted(broker.lower() for broker in location.brokers))
    return topic_path(location) / hashlib.sha256(brokers.encode()).hexdigest()[:12]


def topic_folder(location: KafkaLocation) -> Path:
    """Return the folder of a topic, whatever its cluster, created if absent (mode 0700)."""
    folder = topic_path(location)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def topic_path(location: KafkaLocation) -> Path:
    """Return the parent folder of all topics with this name, one per cluster."""
    given = os.environ.get(SPOOL_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    place = Path(given) if given else Path(state) / "evaltap" / "spool"
    return place / "-".join(location.topics)
