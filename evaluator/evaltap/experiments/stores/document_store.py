"""What the stores in documents share: the documents, a clock and a lock for the threads of this process."""

import threading
import time
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from evaltap.experiments.stores.errors import required

Document = TypeVar("Document")


class Documents(Protocol[Document]):
    """Holds documents by app and name."""

    def read(self, app: str, name: str) -> Document | None:
        """Return a document that is the caller's own; None if there is none."""
        ...

    def write(self, app: str, name: str, document: Document) -> None:
        """Replace a document."""
        ...

    def remove(self, app: str, name: str) -> None:
        """Remove a document that is there."""
        ...

    def names(self, app: str) -> list[str]:
        """Return the names of the app's documents."""
        ...


class DocumentStore(Generic[Document]):
    """One document for each id; `now` gives the time in Unix seconds."""

    def __init__(
        self, documents: Documents[Document], *, now: Callable[[], float] = time.time
    ) -> None:
        self._documents = documents
        self._now = now
        self._lock = threading.RLock()

    def list(self, app: str) -> list[str]:
        """Return the ids of the app's documents."""
        required(app_name=app)
        with self._lock:
            return self._documents.names(app)

    def close(self) -> None:
        """Do nothing: documents are held open by nobody."""
