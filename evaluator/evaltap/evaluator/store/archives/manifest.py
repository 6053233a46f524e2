"""The manifest of an archive: which files are part of it, and what is in them.

It is written last, as a whole.  A file that it does not name is not part of the archive: what a run has
written before it was interrupted is written over by the next.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Final

import msgspec

from evaltap.evaluator.store.archives.rows import DATED, SUMMARIES
from evaltap.evaluator.store.database import SCHEMA_VERSION, layout
from evaltap.evaluator.store.errors import StoreError
from evaltap.evaluator.store.file_type import MANIFEST, UNFINISHED
from evaltap.evaluator.store.place import Place

_FORMAT: Final = 1
_NO_DAY: Final = "__HIVE_DEFAULT_PARTITION__"
_PATH: Final = re.compile(r"[a-z_]+/(day=[0-9A-Z_-]+/)?part-\d{6,}\.parquet")


class ArchivedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file: rows of one table, of one day if the table is divided by days."""

    path: str
    table: str
    day: date | None = None
    rows: int
    hash: str
    """The sum of the hashes of its rows (`row_hash`), so that their order does not matter."""
    bytes: int
    layout: int
    """The layout of the store that the rows are from."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an archive, and where they are from."""

    format: int = _FORMAT
    store_id: str
    """The id of the store, in its `meta`."""
    archived_at: str
    last_number: int = 0
    """The number of the file that was written last; none is given twice."""
    files: tuple[ArchivedFile, ...] = ()

    def of(self, table: str) -> Sequence[ArchivedFile]:
        return [file for file in self.files if file.table == table]

    def by_day(self, table: str) -> Mapping[date | None, Sequence[ArchivedFile]]:
        """Return the files of a table by the day of their rows."""
        found: dict[date | None, list[ArchivedFile]] = defaultdict(list)
        for file in self.of(table):
            found[file.day].append(file)
        return found

    def changed(
        self, new: Iterable[ArchivedFile] = (), gone: Iterable[ArchivedFile] = ()
    ) -> "Manifest":
        """Return the manifest with other files."""
        added, left = (*new,), {*gone}
        return msgspec.structs.replace(
            self,
            last_number=self.last_number + len(added),
            files=(*(file for file in self.files if file not in left), *added),
        )

    def next_path(self, table: str, day: date | None) -> str:
        """Return the name of the next new file."""
        folder = f"{table}/" + (f"day={day or _NO_DAY}/" if table in DATED else "")
        return f"{folder}part-{self.last_number + 1:06}.parquet"


def read_manifest(place: Place) -> Manifest:
    """Return the manifest of an archive; raise StoreError if there is none, or if it cannot be used."""
    found = read_if_any(place, MANIFEST)
    if found is None:
        why = (
            "its first run did not end; run `evaltap store archive` again"
            if place.read(UNFINISHED) is not None
            else f"it has no {MANIFEST}; `evaltap store archive X.duckdb --to` makes one"
        )
        raise StoreError(f"{place}: no archive of evaltap: {why}")
    return found


def read_if_any(place: Place, name: str) -> Manifest | None:
    """Return a manifest, finished or not; None if there is none."""
    if (content := place.read(name)) is None:
        return None
    try:
        newest = msgspec.json.decode(content, type=_Versions)
        layouts = [file.layout for file in newest.files]
        if newest.format > _FORMAT or max(layouts, default=0) > SCHEMA_VERSION:
            raise StoreError(
                f"{place}: written by a newer evaltap (layout {max(layouts, default=0)}, this one knows"
                f" {SCHEMA_VERSION}); upgrade evaltap"
            )
        found = msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise StoreError(f"{place}: its {name} cannot be read ({error}); put a copy back") from None
    known = layout().tables - {*SUMMARIES}
    for file in found.files:
        if file.table not in known or not _PATH.fullmatch(file.path):
            raise StoreError(f"{place}: its {name} names {file.path!r}, which evaltap never writes")
    return found


class _Layout(msgspec.Struct):
    layout: int = 0


class _Versions(msgspec.Struct):
    """What of a manifest is read first: it decides whether the rest can be."""

    format: int
    files: tuple[_Layout, ...] = ()


def write_manifest(place: Place, name: str, manifest: Manifest) -> None:
    place.write(name, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")


def sweep(place: Place, manifest: Manifest) -> None:
    """Delete the files that the manifest no longer names, and what interrupted runs have left."""
    named = {file.path for file in manifest.files}
    for path in place.sizes():
        if path not in named and _PATH.fullmatch(path.replace("tmp_part", "part")):
            place.delete(path)


def check_sizes(place: Place, files: Iterable[ArchivedFile]) -> None:
    """Raise StoreError if a file of the manifest is missing or has another size."""
    sizes = place.sizes()
    for file in files:
        if (size := sizes.get(file.path)) != file.bytes:
            found = "missing" if size is None else f"{size:,} bytes long, not {file.bytes:,}"
            raise StoreError(f"{place}: {file.path} is {found}; {REMEDY}")


REMEDY: Final = (
    "put a copy of it back, or delete the archive and make it again from a store that has its rows"
)
