"""What a log says about the turns told to it."""

import json
from pathlib import Path

from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import CASE_TYPE, MANIFEST_TYPE


def landed_and_dropped(path: Path) -> tuple[int, int]:
    """Return how many turns are on the log, and how many its manifests count as dropped."""
    log = open_log(path, mode="read")
    records = log.read(log.start_offset(), 100_000)
    log.close()
    dropped: dict[str | None, int] = {}
    for _, record in records:
        if record.header("ce_type") == MANIFEST_TYPE:
            drops = json.loads(record.value or b"")["drops"]
            dropped[record.header("producer_id")] = sum(drops.values())
    written = sum(record.header("ce_type") == CASE_TYPE for _, record in records)
    return written, sum(dropped.values())
