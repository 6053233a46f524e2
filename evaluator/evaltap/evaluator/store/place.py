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
from typing import Final, Protocol

import duckdb

from evaltap.evaluator.store.errors import StorageError
from evaltap.schemas.files.private import private_file

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
    if (found := _URL.fullmatch(path.as_posix())) is None:
        return Folder(path)
    from evaltap.evaluator.store.bucket import Bucket  # an optional package: obstore

    return Bucket(found[1], found[2])


class Folder:
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
        return {
            (Path(folder) / name).relative_to(self._path).as_posix(): (Path(folder) / name)
            .stat()
            .st_size
            for folder, _, names in os.walk(self._path)
            for name in names
        }

    def read(self, name: str) -> bytes | None:
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
        with self._writing(name), (self._path / name).open("r+b") as file:
            (self._path / name).chmod(0o600)
            os.fsync(file.fileno())  # which Windows does for files that are open for writing
            return os.fstat(file.fileno()).st_size

    def delete(self, name: str) -> None:
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
