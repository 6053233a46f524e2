"""What the stores in documents share: the documents, a clock and locks."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Generic, Protocol, TypeVar

from evaltap.experiments.stores.errors import required

Document = TypeVar("Document")


class Documents(Protocol[Document]):
    """Holds documents by app and name."""

    def read(self, app: str, name: str) -> Document | None:
        """Return a document that is the caller's own; None if there is none."""

    def write(self, app: str, name: str, document: Document) -> None:
        """Replace a document."""

    def remove(self, app: str, name: str) -> None:
        """Remove a document that is there."""

    def names(self, app: str) -> list[str]:
        """Return the names of the app's documents."""
        ...

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other processes from changing documents while the block lasts."""
        ...


class DocumentStore(Generic[Document]):
    """One document for each id; `now` gives the time in Unix seconds."""

    def __init__(
        self, documents: Documents[Document], *, now: Callable[[], float] = time.time
    ) -> None:
        self._documents = documents
        self._now = now
        self._lock = threading.RLock()

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let nobody else change a document between its reading and its writing."""
        with self._lock, self._documents.exclusive():
            yield

    def list(self, app: str) -> list[str]:
        """Return the ids of the app's documents."""
        required(app_name=app)
        with self._lock:
            return self._documents.names(app)

    def close(self) -> None:
        """Do nothing: documents are held open by nobody."""
