"""A prefix of an S3 bucket, by the client `obstore` (the extra `s3`); imported only if a store is in one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import duckdb
import obstore
from obstore.exceptions import BaseError
from obstore.fsspec import FsspecStore
from obstore.store import ObjectStore, from_url

from evaltap.evaluator.store.errors import StoreError


class Bucket:
    """A prefix of an S3 bucket; its objects are written as a whole."""

    renames = False

    def __init__(self, bucket: str, prefix: str) -> None:
        self.root = f"s3://{bucket}/{prefix}".rstrip("/") + "/"
        self._made: ObjectStore | None = None

    def __str__(self) -> str:
        return self.root.rstrip("/")

    def let_in(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.register_filesystem(FsspecStore("s3"))

    def sizes(self) -> Mapping[str, int]:
        with self._reaching():
            return {one["path"]: one["size"] for some in obstore.list(self._store) for one in some}

    def read(self, name: str) -> bytes | None:
        with self._reaching():
            try:
                return bytes(obstore.get(self._store, name).bytes())
            except FileNotFoundError:
                return None

    def write(self, name: str, content: bytes) -> None:
        with self._reaching():
            obstore.put(self._store, name, content)

    def prepare(self, name: str) -> None:
        """Do nothing: a bucket has no folders."""

    def settle(self, name: str) -> int:
        """Return the size of an object, which is stored if it exists."""
        with self._reaching():
            return int(obstore.head(self._store, name)["size"])

    def delete(self, name: str) -> None:
        with self._reaching(), suppress(FileNotFoundError):
            obstore.delete(self._store, name)

    @property
    def _store(self) -> ObjectStore:
        if self._made is None:
            self._made = from_url(self.root)
        return self._made

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            first = str(error).splitlines()[0]
            raise StoreError(
                f"{self}: cannot be reached ({first}); check its name and the variables AWS_..."
            ) from None
