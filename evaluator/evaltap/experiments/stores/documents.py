"""Stores, and the documents in memory and in files that two kinds of them are made of.

Files are replaced atomically.  Who changes one holds a lock of the base folder, so that several processes may
share it; on Windows, only the threads of one.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from copy import deepcopy
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from evaltap.experiments.stores.databases import database_at, is_database
from evaltap.experiments.stores.eval_sets import EvalSetStore, EvalSetStoring
from evaltap.experiments.stores.locator import EVAL_SET_FILES, METRICS_FILES, RESULT_FILES, Locator
from evaltap.experiments.stores.metrics import MetricStore, MetricStoring
from evaltap.experiments.stores.results import ResultStore, ResultStoring
from evaltap.experiments.stores.tables import EvalSetTables, MetricTables, ResultTables, Tables
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import read_bytes
from evaltap.schemas.files.documents import read_eval_set, read_metrics, read_result, write_document
from evaltap.schemas.formats.case import EvalSet
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.result import EvalSetResult

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows

Document = TypeVar("Document", EvalSet, list[EvalMetric], EvalSetResult)


class Stores(NamedTuple):
    """The stores of an evaluation."""

    sets: EvalSetStoring
    metrics: MetricStoring
    results: ResultStoring


def memory_stores() -> Stores:
    """Return stores in this process's memory; what they return and take is copied."""
    return Stores(
        EvalSetStore(MemoryDocuments[EvalSet]()),
        MetricStore(MemoryDocuments[list[EvalMetric]]()),
        ResultStore(MemoryDocuments[EvalSetResult]()),
    )


def file_stores(
    base: str | Path = ".",
    *,
    sets: Locator = EVAL_SET_FILES,
    metrics: Locator = METRICS_FILES,
    results: Locator = RESULT_FILES,
) -> Stores:
    """Return stores in files below a folder, at the places that the locators name."""
    return Stores(
        EvalSetStore(FileDocuments(base, sets, read_eval_set)),
        MetricStore(FileDocuments(base, metrics, _metrics)),
        ResultStore(FileDocuments(base, results, read_result)),
    )


def database_stores(where: str) -> Stores:
    """Return stores in a database, named by its URL or the path of a DuckDB file (see `databases`).

    Tables that are not there are created.  Raises ConfigurationError for a URL that cannot be used, or a
    driver that is not installed, and DatabaseError if the database cannot be reached.
    """
    tables = Tables(database_at(where), time.time)
    return Stores(EvalSetTables(tables), MetricTables(tables), ResultTables(tables))


def stores_at(where: str) -> Stores:
    """Return the stores in a database or a folder."""
    return database_stores(where) if is_database(where) else file_stores(where)


class MemoryDocuments(Generic[Document]):
    """Documents in memory; see `Documents`."""

    def __init__(self) -> None:
        self._held: dict[str, dict[str, Document]] = {}

    def read(self, app: str, name: str) -> Document | None:
        return deepcopy(self._held.get(app, {}).get(name))

    def write(self, app: str, name: str, document: Document) -> None:
        self._held.setdefault(app, {})[name] = deepcopy(document)

    def remove(self, app: str, name: str) -> None:
        del self._held[app][name]

    def names(self, app: str) -> list[str]:
        """Return names in the order in which the documents came."""
        return [*self._held.get(app, {})]

    def exclusive(self) -> AbstractContextManager[None]:
        """Do nothing: no other process has this memory."""
        return nullcontext()


class FileDocuments(Generic[Document]):
    """Documents in files, read each time; raises FormatError for a broken one."""

    def __init__(
        self, base: str | Path, locator: Locator, read: Callable[[Path], Document]
    ) -> None:
        self._base = str(base)
        self._locator = locator
        self._read: Callable[[Path], Document] = read

    def read(self, app: str, name: str) -> Document | None:
        path = self._path(app, name)
        return self._read(path) if path.exists() else None

    def write(self, app: str, name: str, document: Document) -> None:
        write_document(self._path(app, name), document)

    def remove(self, app: str, name: str) -> None:
        self._path(app, name).unlink()

    def names(self, app: str) -> list[str]:
        """Return the names of the files in byte order."""
        return self._locator.list(self._base, app)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of the folder, where there are locks."""
        folder = -1
        with suppress(OSError):  # what keeps it from being opened keeps files from being written
            os.makedirs(self._base, exist_ok=True)
            folder = os.open(self._base, os.O_RDONLY)
            if fcntl is not None:
                fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            yield
        finally:
            if folder >= 0:
                os.close(folder)

    def _path(self, app: str, name: str) -> Path:
        return Path(self._locator.build(self._base, app, name))


def _metrics(path: Path) -> list[EvalMetric]:
    """Return the metrics of a file; `null` means none."""
    try:
        if canonical.loads(read_bytes(path), path=str(path)) is None:
            return []
    except FormatError:
        pass  # read_metrics says where it is broken
    return read_metrics(path)
