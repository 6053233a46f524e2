"""Archive a store: write what it holds as Parquet files that are read as a store.

A run adds the rows that the archive lacks.  A row that the store has lost since, to `prune`, stays in it.
Each file is read back when it is written, and becomes part of the archive with the manifest, which is
replaced when all tables are written: until then, also after an interruption, readers see the old archive.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Final

import duckdb
import msgspec

from evaltap.evaluator.store.archives.manifest import (
    ArchivedFile,
    Manifest,
    check_sizes,
    read_if_any,
    read_manifest,
    sweep,
    write_manifest,
)
from evaltap.evaluator.store.archives.reading import (
    ArchiveFiles,
    ArchiveStore,
    check_files,
    fingerprint,
    rows_of,
)
from evaltap.evaluator.store.archives.rows import COPIED, DATED, UNDATED, dated, kinds_of, row_hash
from evaltap.evaluator.store.database import SCHEMA_VERSION, ReadingStore, Store, utc_now
from evaltap.evaluator.store.errors import StorageError, StoreError
from evaltap.evaluator.store.file_type import MANIFEST, UNFINISHED
from evaltap.evaluator.store.place import Place, place_of
from evaltap.evaluator.store.queries import sql_text
from evaltap.schemas.errors import InputError

_PARQUET: Final = "FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE_BYTES '16MB'"


@dataclass(slots=True)
class Archived:
    """What a run has added to an archive, and what is in it now."""

    rows: dict[str, int] = field(default_factory=dict)
    """The number of new rows by table; of tables that are copied as they are, only if they have changed."""
    files: int = 0
    """The number of files in the archive."""
    bytes: int = 0
    """Their size."""


def archive(path: Path, to: Path, *, progress: Callable[[int], None] = lambda _: None) -> Archived:
    """Add what the archive `to` lacks of the store at `path`; `progress` gets the number of rows so far.

    Raises StoreError for a place that is another store's archive or was written by a newer evaltap, and for a
    store that another process has open; StorageError if a file cannot be written or is read back
    differently.
    """
    place = place_of(to)
    with ReadingStore(path) as store:
        run = _Run(store, place, _begun(store, place), progress)
        check_sizes(place, run.manifest.files)
        store.read_also(place)
        # Otherwise, a row group would be as large as its rows are.
        store.execute("SET preserve_insertion_order = false")
        for table in (*DATED, *UNDATED):
            run.add_new(table)
        for table in COPIED:
            run.copy(table)
        return run.end()


def _begun(store: Store, place: Place) -> Manifest:
    """Return the manifest to go on with: of the run that did not end, of the archive, or an empty one."""
    found = read_if_any(place, UNFINISHED) or read_if_any(place, MANIFEST)
    identity = store.identity()
    if found is None:
        return Manifest(store_id=identity, archived_at="")
    if found.store_id != identity:
        raise StoreError(
            f"{place}: is the archive of another store (id {found.store_id}, {store.path} has {identity});"
            " name another place"
        )
    return found


class _Run:
    def __init__(
        self, store: Store, place: Place, manifest: Manifest, progress: Callable[[int], None]
    ) -> None:
        self._store = store
        self._place = place
        self.manifest = self._noted = manifest
        self._progress = progress
        self._done = Archived()

    def add_new(self, table: str) -> None:
        """Write the rows of a table that no file has, one file for each day."""
        held = self.manifest.by_day(table)
        with dated(self._store, table) as rows:
            for day, count, total, first, last in self._store.rows(
                "SELECT day, count(*), sum(hashed)::VARCHAR, min(place), max(place)"
                f" FROM {rows} GROUP BY day ORDER BY day"
            ):
                files = held.get(day, ())
                if (count, total) == _sum_of(files):
                    continue
                of_day = f"(FROM {rows} WHERE {_is(day)} AND place BETWEEN {first} AND {last})"
                new = (count, total)
                if files:
                    kinds = kinds_of(self._store, table)
                    known = f"SELECT {row_hash(kinds)} FROM {rows_of(self._place, files, kinds)}"
                    of_day = f"(FROM {of_day} WHERE hashed NOT IN ({known}))"
                    new = fingerprint(self._store, of_day, "hashed")
                if new[0]:
                    self._write(table, day, of_day, new)
        self._note()

    def copy(self, table: str) -> None:
        """Write a table as it is now, if it has changed."""
        files = self.manifest.of(table)
        with dated(self._store, table) as rows:
            now = fingerprint(self._store, rows, "hashed")
            if now == _sum_of(files):
                return
            if now[0]:
                self._write(table, None, rows, now)
        self.manifest = self.manifest.changed(gone=files)
        self._note()

    def _write(self, table: str, day: date | None, rows: str, expected: tuple[int, str]) -> None:
        file = _written(self._store, self._place, self.manifest, table, day, rows, expected)
        self.manifest = self.manifest.changed([file])
        self._done.rows[table] = self._done.rows.get(table, 0) + file.rows
        self._progress(sum(self._done.rows.values()))

    def _note(self) -> None:
        """Note what is written, so that the next run goes on from here after an interruption."""
        if self.manifest is not self._noted:
            write_manifest(self._place, UNFINISHED, self.manifest)
            self._noted = self.manifest

    def end(self) -> Archived:
        """Make the files part of the archive."""
        before = read_if_any(self._place, MANIFEST)
        if before is None or before.files != self.manifest.files:
            now = f"{utc_now():%Y-%m-%dT%H:%M:%SZ}"
            self.manifest = msgspec.structs.replace(self.manifest, archived_at=now)
            write_manifest(self._place, MANIFEST, self.manifest)
        self._place.delete(UNFINISHED)
        sweep(self._place, self.manifest)
        self._done.files = len(self.manifest.files)
        self._done.bytes = sum(file.bytes for file in self.manifest.files)
        return self._done


def _written(
    store: Store,
    place: Place,
    manifest: Manifest,
    table: str,
    day: date | None,
    rows: str,
    expected: tuple[int, str],
) -> ArchivedFile:
    """Write the rows of a query as a new file; raise StorageError if it does not read back as `expected`."""
    path = manifest.next_path(table, day)
    place.prepare(path)
    target = sql_text(place.root + path)
    columns = ", ".join(kinds_of(store, table))
    options = f"{_PARQUET}, USE_TMP_FILE {place.renames}"
    try:
        store.execute(f"COPY (SELECT {columns} FROM {rows}) TO {target} ({options})")
    except (duckdb.Error, StorageError) as error:
        first = str(error.__cause__ or error).splitlines()[0]
        raise StorageError(
            f"{place}: cannot be written ({first}); make room and start again: what is whole is kept"
        ) from None
    size = place.settle(path)
    file = ArchivedFile(
        path=path,
        table=table,
        day=day,
        rows=expected[0],
        hash=expected[1],
        bytes=size,
        layout=SCHEMA_VERSION,
    )
    check_files(store, place, [file])
    return file


def remove_rows(
    store: ArchiveStore, doomed: Mapping[str, tuple[str, Mapping[str, object]]], *, dry_run: bool
) -> Mapping[str, int]:
    """Write the files of an archive again without some rows: by table, their condition and what it binds.

    Returns the number of these rows by table.  Raises StoreError if a run of `archive` did not end.
    """
    place, manifest = store.place, store.manifest
    if place.read(UNFINISHED) is not None:
        raise StoreError(
            f"{place}: a run of `evaltap store archive` did not end; run it again first"
        )
    removed: dict[str, int] = {}
    for table, (condition, given) in doomed.items():
        kinds = kinds_of(store, table)
        for file in manifest.of(table):
            rows = rows_of(place, [file], kinds)
            ((count,),) = store.rows(f"SELECT count(*) FROM {rows} WHERE {condition}", given)
            if not count:
                continue
            removed[table] = removed.get(table, 0) + count
            if dry_run:
                continue
            with store.scratch(
                f"FROM {rows} WHERE NOT coalesce({condition}, false)", given
            ) as left:
                kept = fingerprint(store, str(left), row_hash(kinds))
                new = (
                    [_written(store, place, manifest, table, file.day, str(left), kept)]
                    if kept[0]
                    else []
                )
            manifest = manifest.changed(new, [file])
    if removed and not dry_run:
        write_manifest(place, MANIFEST, manifest)
        sweep(place, manifest)
    return removed


def verify(archived: Path) -> tuple[int, int]:
    """Read all files of an archive again; return the numbers of files and rows.

    Raises StoreError for what is no archive or lacks a file, StorageError for a file whose rows have changed.
    """
    with ArchiveFiles(archived) as store:
        check_files(store, store.place, store.manifest.files)
        return len(store.manifest.files), sum(file.rows for file in store.manifest.files)


def restore(archived: Path, into: Path) -> None:
    """Write the rows of an archive into a DuckDB file, which must be new or without turns and scores.

    Raises the errors of ArchiveStore, and InputError for a file that holds others.
    """
    with Store(into) as store:
        if store.rows("SELECT 1 FROM turns UNION ALL SELECT 1 FROM scores LIMIT 1"):
            raise InputError(
                f"{into}: already contains turns or scores; name a new file for what is in {archived}"
            )
        place = place_of(archived)
        manifest = read_manifest(place)
        check_sizes(place, manifest.files)
        store.read_also(place)
        with store.limited_memory(), store.transaction():
            for table in sorted({file.table for file in manifest.files}):
                kinds = kinds_of(store, table)
                rows = rows_of(place, manifest.of(table), kinds)
                store.execute(f"INSERT INTO {table} ({', '.join(kinds)}) FROM {rows}")


class ArchiveCheck:
    """Whether an archive holds the rows that are about to be deleted from its store.

    Make it before the transaction, since the store is reopened.  Raises the errors of `archive`.
    """

    def __init__(self, store: Store, archived: Path) -> None:
        self._store = store
        self._place = place_of(archived)
        self._manifest = read_manifest(self._place)
        if self._manifest.store_id != store.identity():
            raise StoreError(
                f"{archived}: is not the archive of {store.path}, but of another store"
            )
        check_sizes(self._place, self._manifest.files)
        store.read_also(self._place)
        self._lacking: dict[str, int] = {}

    def look_for(self, table: str, condition: str, given: Mapping[str, object]) -> None:
        """Look for the rows of a table; raise StorageError if a file that should have them is damaged."""
        files = self._manifest.by_day(table)
        kinds = kinds_of(self._store, table)
        with (
            dated(self._store, table) as rows,
            self._store.scratch(
                f"SELECT day, hashed FROM {rows} WHERE {condition}", given
            ) as wanted,
        ):
            days = [day for (day,) in self._store.rows(f"SELECT DISTINCT day FROM {wanted}")]
            concerned = [file for day in days for file in files.get(day, ())]
            check_files(self._store, self._place, concerned)
            there = "SELECT NULL::UBIGINT WHERE false"
            if concerned:
                there = f"SELECT {row_hash(kinds)} FROM {rows_of(self._place, concerned, kinds)}"
            ((found,),) = self._store.rows(
                f"SELECT count(*) FROM {wanted} WHERE hashed IN ({there})"
            )
        ((all_,),) = self._store.rows(f"SELECT count(*) FROM {table} WHERE {condition}", given)
        if found < all_:
            self._lacking[table] = all_ - found

    def conclude(self) -> None:
        """Raise InputError if rows were not found; it says how many."""
        if self._lacking:
            rows = ", ".join(f"{table} {count:,}" for table, count in self._lacking.items())
            raise InputError(
                f"{self._place}: lacks rows that would be deleted ({rows}); nothing was deleted; run"
                f" `evaltap store archive {self._store.path} --to {self._place}` first"
            )


def _sum_of(files: Iterable[ArchivedFile]) -> tuple[int, str]:
    """Return the number of rows of files and the sum of their hashes."""
    files = [*files]
    return sum(file.rows for file in files), str(sum(int(file.hash) for file in files))


def _is(day: date | None) -> str:
    return "day IS NULL" if day is None else f"day = DATE '{day}'"
