"""Announce the page of a DuckDB file in a file next to it, so that links lead to the running page."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from evaltap.evaluator.page.security.site import Site
from evaltap.schemas.files.private import private_file


@contextmanager
def announced(store: Path, site: Site) -> Iterator[None]:
    """Write the page's address to `<store>.page.json` while the block runs; the file contains no secret."""
    file = _file(store)
    with private_file(file) as written:
        written.write(json.dumps({"address": site.address, "process": os.getpid()}).encode())
    try:
        yield
    finally:
        file.unlink(missing_ok=True)


def running_address(store: Path) -> str:
    """Return the address of the running page of a file; empty if none is running."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(_file(store).read_text("utf-8"))
        os.kill(int(found["process"]), 0)  # raises if that process has ended
        return str(found["address"])
    return ""


def _file(store: Path) -> Path:
    return store.with_name(f"{store.name}.page.json")
