"""Read an archive as a store: its tables are views over Parquet files, so nothing else need know about it."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from evaltap.evaluator.store.archives.manifest import (
    REMEDY,
    ArchivedFile,
    Manifest,
    check_sizes,
    read_manifest,
)
from evaltap.evaluator.store.archives.rows import Kinds, kinds_of, row_hash
from evaltap.evaluator.store.database import SCHEMA_VERSION, ReadingStore, Store
from evaltap.evaluator.store.errors import NoMemoryError, StorageError
from evaltap.evaluator.store.place import Place, place_of
from evaltap.evaluator.store.queries import StoreReader, sql_text


class ArchiveFiles(ReadingStore):
    """An empty store that may read and write the files of the archive in a folder or bucket.

    Raises StoreError for what is no archive, was written by a newer evaltap, or lacks a file.
    """

    def __init__(self, path: Path) -> None:
        self.place: Place = place_of(path)
        self.manifest: Manifest = read_manifest(self.place)
        check_sizes(self.place, self.manifest.files)
        self._folder = TemporaryDirectory(prefix="evaltap-")
        try:
            frame = Path(self._folder.name) / "archive.duckdb"
            Store(frame).close()
            super().__init__(frame)
        except BaseException:
            self._folder.cleanup()
            raise
        try:
            self.read_also(self.place)
        except BaseException:
            self.close()
            raise
        self.path = path

    def close(self) -> None:
        """Close the store and delete its own file."""
        super().close()
        self._folder.cleanup()


class ArchiveStore(ArchiveFiles):
    """The archive in a folder or bucket, read as a store.

    Raises the errors of ArchiveFiles, and StorageError for a file that cannot be decoded.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        try:
            for table in sorted({file.table for file in self.manifest.files}):
                rows = rows_of(self.place, self.manifest.of(table), kinds_of(self, table))
                self.execute(f"DROP TABLE {table}; CREATE VIEW {table} AS FROM {rows}")
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        try:
            with super()._asking() as connection:
                yield connection
        except duckdb.Error as error:
            if (trouble := _damage(self.path, error)) is None:
                raise
            raise trouble from None


def _damage(path: Path, error: duckdb.Error) -> StorageError | None:
    """Return the error to show if a file cannot be decoded; None for any other cause."""
    text = str(error).splitlines()[0]
    of_file = isinstance(error, (duckdb.IOException, duckdb.InvalidInputException))
    # What its reader of Parquet's metadata raises has no class of its own.
    if type(error) is not duckdb.Error and not (of_file and ".parquet" in text):
        return None
    return StorageError(
        f"{path}: a file cannot be read ({text}); `evaltap store archive --verify {path}` names it"
    )


def rows_of(place: Place, files: Sequence[ArchivedFile], kinds: Kinds) -> str:
    """Return a query for the rows of some files of a table, at least one, as the table has them now."""
    columns = ", ".join(kinds)
    if all(file.layout == SCHEMA_VERSION for file in files):
        return f"(SELECT {columns} FROM {_parquet(place, files)})"
    empty = ", ".join(f"NULL::{kind} AS {name}" for name, kind in kinds.items())
    by_layout = (
        _parquet(place, [file for file in files if file.layout == layout])
        for layout in sorted({file.layout for file in files})
    )
    parts = " UNION ALL BY NAME ".join(f"FROM {part}" for part in by_layout)
    return f"(SELECT {columns} FROM (SELECT {empty} WHERE false UNION ALL BY NAME {parts}))"


def _parquet(place: Place, files: Iterable[ArchivedFile]) -> str:
    paths = ", ".join(sql_text(place.root + file.path) for file in files)
    return f"read_parquet([{paths}], hive_partitioning = false)"


def fingerprint(reader: StoreReader, rows: str, hashed: str) -> tuple[int, str]:
    """Return the number of rows of a query and the sum of their hashes."""
    ((count, total),) = reader.large_rows(
        f"SELECT count(*), coalesce(sum({hashed}), 0)::VARCHAR FROM {rows}"
    )
    return count, total


def check_files(reader: Store, place: Place, files: Iterable[ArchivedFile]) -> None:
    """Read files again, as a store that may read the place; raise StorageError for one that has changed."""
    for file in files:
        kinds = kinds_of(reader, file.table)
        try:
            found = fingerprint(reader, rows_of(place, [file], kinds), row_hash(kinds))
        except (duckdb.Error, StorageError) as error:
            if isinstance(error, NoMemoryError):
                raise
            first = str(error).splitlines()[0]
            raise StorageError(f"{place}: {file.path} is damaged ({first}); {REMEDY}") from None
        if found != (file.rows, file.hash):
            raise StorageError(
                f"{place}: {file.path} has other rows than the manifest says ({found[0]:,} with hash"
                f" {found[1]}, not {file.rows:,} with hash {file.hash}); {REMEDY}"
            )
