"""Read a store outside the consumer's thread, so that long queries do not delay landing."""

import logging
import threading
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import BusyError, NoMemoryError, TooSlowError
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.readers import Session, shared_reader

LONGEST_SECONDS: Final = 600.0
"""A read that takes longer is cancelled, as is one under way when the consumer reopens the store."""
CANCEL_SECONDS: Final = 0.1
"""How often a read that has not begun is cancelled again."""
T = TypeVar("T")
log = logging.getLogger(__name__)


class BackgroundRead(Generic[T]):
    """Runs `read` with a reader of the store on a separate thread, one read at a time.

    Only the consumer's thread uses this object.  `take` raises what `read` raised, but only logs `failed` if
    memory or `seconds` did not suffice.
    """

    def __init__(
        self,
        store: Store,
        read: Callable[[StoreReader], T],
        name: str,
        failed: str,
        *,
        seconds: float = LONGEST_SECONDS,
    ) -> None:
        self._store = store
        self._read = read
        self._name = name
        self._failed = failed
        self._seconds = seconds
        self._thread: threading.Thread | None = None
        self._session: Session | None = None
        self._found: list[T] = []
        self._problem: Exception | None = None

    @property
    def runs(self) -> bool:
        """Whether a read is under way, or its result has not been taken yet."""
        return self._thread is not None

    def start(self) -> None:
        """Start reading what is committed now; must not be called while a read runs."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name=f"evaltap-{self._name}", daemon=True)
        self._thread.start()

    def take(self, *, wait: bool = False) -> list[T] | None:
        """Return the result in a list, empty if the read was ended or failed; None while it runs."""
        if self._thread is None or (self._thread.is_alive() and not wait):
            return None
        self._thread.join()
        self._thread = None
        found, self._found = self._found, []
        problem, self._problem = self._problem, None
        if isinstance(problem, NoMemoryError | TooSlowError):
            log.warning("%s: %s", self._failed, problem)
        elif problem is not None and not isinstance(problem, BusyError):
            raise problem
        return found

    def close(self) -> None:
        """Cancel the read under way, which may take minutes; the next start reads it again."""
        while self._thread is not None and self._thread.is_alive():
            if (session := self._session) is not None:
                session.cancel()
            self._thread.join(CANCEL_SECONDS)
        self._thread = None

    def _run(self) -> None:
        try:
            with shared_reader(self._store, self._seconds) as session:
                self._session = session
                try:
                    self._found = [self._read(session.reader)]
                except Exception as error:
                    reason = session.reason(error)
                    raise reason from (error if reason is not error else None)
        except Exception as problem:  # of any kind: `take` raises it in the consumer's thread
            self._problem = problem
        finally:
            self._session = None
