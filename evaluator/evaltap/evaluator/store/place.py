"""Where Parquet files lie that a store reads: a folder, or a prefix of an S3 bucket.

DuckDB reads and writes both by itself.  For a bucket it uses the client `obstore` (the extra `s3`), which
takes address, region and credentials from the variables `AWS_...`; DuckDB's own client would have to be
downloaded.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import duckdb

from evaltap.evaluator.store.errors import StorageError, StoreError
from evaltap.schemas.files.private import private_file

if TYPE_CHECKING:
    from obstore.store import ObjectStore

_URL: Final = re.compile(r"s3:/+([^/]+)/*(.*)")


class Place(Protocol):
    """A set of files, by names such as `turns/part-000001.parquet`.

    Its methods raise StoreError if it cannot be reached, and StorageError if it cannot be written.
    """

    @property
    def root(self) -> str:
        """What the address of each file starts with."""
        ...

    renames: bool
    """Whether a file can be renamed, so that it has its name only when it is whole."""

    def let_in(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Give a connection the means to read and write the files."""

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each file."""
        ...

    def read(self, name: str) -> bytes | None:
        """Return a small file; None if there is none."""
        ...

    def write(self, name: str, content: bytes) -> None:
        """Replace a small file as a whole."""

    def prepare(self, name: str) -> None:
        """Make the folder of a file that DuckDB writes next."""

    def settle(self, name: str) -> int:
        """Put a file that DuckDB has written on disk, for its owner only; return its size in bytes."""
        ...

    def delete(self, name: str) -> None:
        """Delete a file, which need not exist."""


def place_of(path: Path) -> Place:
    """Return the place that a path names; as a Path, `s3://bucket/prefix` has one slash less."""
    found = _URL.fullmatch(path.as_posix())
    return Folder(path) if found is None else Bucket(found[1], found[2])


class Folder:
    """A folder."""

    renames = True

    def __init__(self, path: Path) -> None:
        self._path = path

    def __str__(self) -> str:
        return str(self._path)

    @property
    def root(self) -> str:
        """What the address of each file starts with."""
        return f"{self._path}/"

    def let_in(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Do nothing: DuckDB reads folders."""

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each file."""
        return {
            (Path(folder) / name).relative_to(self._path).as_posix(): (Path(folder) / name)
            .stat()
            .st_size
            for folder, _, names in os.walk(self._path)
            for name in names
        }

    def read(self, name: str) -> bytes | None:
        """Return a small file; None if there is none."""
        try:
            return (self._path / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace a small file as a whole."""
        self.prepare(name)
        with self._writing(name), private_file(self._path / name) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def prepare(self, name: str) -> None:
        """Make the folder of a file that DuckDB writes next."""
        with self._writing(name):
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            for folder in [*Path(name).parents][-2::-1]:  # each, since parents get another mode
                (self._path / folder).mkdir(mode=0o700, exist_ok=True)

    def settle(self, name: str) -> int:
        """Put a file that DuckDB has written on disk, for its owner only; return its size in bytes."""
        with self._writing(name), (self._path / name).open("rb") as file:
            os.fchmod(file.fileno(), 0o600)
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size

    def delete(self, name: str) -> None:
        """Delete a file, which need not exist."""
        with suppress(FileNotFoundError):
            (self._path / name).unlink()

    @contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(
                f"{self._path / name}: cannot be written ({error.strerror or error})"
            ) from None


class Bucket:
    """A prefix of an S3 bucket; its objects are written as a whole."""

    renames = False

    def __init__(self, bucket: str, prefix: str) -> None:
        self.root = f"s3://{bucket}/{prefix}".rstrip("/") + "/"
        self._made: ObjectStore | None = None

    def __str__(self) -> str:
        return self.root.rstrip("/")

    def let_in(self, connection: duckdb.DuckDBPyConnection) -> None:
        """Register the client with a connection."""
        from obstore.fsspec import FsspecStore  # an optional package

        connection.register_filesystem(FsspecStore("s3"))

    def sizes(self) -> Mapping[str, int]:
        """Return the size in bytes of each object."""
        import obstore  # an optional package, here and below

        with self._reaching():
            return {one["path"]: one["size"] for some in obstore.list(self._store) for one in some}

    def read(self, name: str) -> bytes | None:
        """Return a small object; None if there is none."""
        import obstore

        with self._reaching():
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        """Replace an object."""
        import obstore

        with self._reaching():
            obstore.put(self._store, name, content)

    def prepare(self, name: str) -> None:
        """Do nothing: a bucket has no folders."""

    def settle(self, name: str) -> int:
        """Return the size of an object, which is stored if it exists."""
        import obstore

        with self._reaching():
            return int(obstore.head(self._store, name)["size"])

    def delete(self, name: str) -> None:
        """Delete an object, which need not exist."""
        import obstore

        with self._reaching(), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    @property
    def _store(self) -> "ObjectStore":
        if self._made is None:
            from obstore.store import from_url  # an optional package

            self._made = from_url(self.root)
        return self._made

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        from obstore.exceptions import BaseError  # an optional package

        try:
            yield
        except BaseError as error:
            first = str(error).splitlines()[0]
            raise StoreError(
                f"{self}: cannot be reached ({first}); check its name and the variables AWS_..."
            ) from None
