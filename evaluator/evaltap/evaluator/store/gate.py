"""The gate of a store: readers hold leases, and the connection is closed only while there are none."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import duckdb

from evaltap.evaluator.store.errors import BusyError, StoreError, TooSlowError

PATIENCE_SECONDS: Final = 2.0
"""How long closing the connection waits for readers before it interrupts them."""
_GRACE_SECONDS: Final = 1.0
"""How long interrupted readers have to let go before their cursors are closed."""
_AGAIN_SECONDS: Final = 0.02
"""How often a reader whose time is over is interrupted: it may begin another statement."""
_IDLE_SECONDS: Final = 5.0


@dataclass(eq=False)
class Lease:
    """A cursor that somebody reads with, until a moment of the monotonic clock."""

    cursor: duckdb.DuckDBPyConnection
    until: float
    seconds: float
    ended: StoreError | None = None
    """Why it may not go on."""


class Gate:
    """Hands out leases, ends those whose time is over, and has the connection closed between them."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()
        self._leases: set[Lease] = set()
        self._closing = False
        self._closed = False
        self._watcher: threading.Thread | None = None

    @contextmanager
    def lease(
        self, open_cursor: Callable[[], duckdb.DuckDBPyConnection], seconds: float
    ) -> Iterator[Lease]:
        """Lend a cursor for so many seconds; wait as long while the connection is being closed.

        Raises TooSlowError when the block took longer, BusyError when the file was closed meanwhile.
        """
        lease = self._lend(open_cursor, seconds)
        try:
            yield lease
        except duckdb.Error as error:
            if lease.ended is not None:
                raise lease.ended from error
            raise
        finally:
            with self._changed:
                self._end(lease)

    def _lend(self, open_cursor: Callable[[], duckdb.DuckDBPyConnection], seconds: float) -> Lease:
        with self._changed:
            if not self._changed.wait_for(lambda: self._closed or not self._closing, seconds):
                raise BusyError(
                    f"{self._name}: is being reopened; run the command again in a moment"
                )
            if self._closed:
                raise BusyError(f"{self._name}: is closed; the process that had it open has ended")
            lease = Lease(open_cursor(), time.monotonic() + seconds, seconds)
            self._leases.add(lease)
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="evaltap-readers", daemon=True
                )
                self._watcher.start()
            self._changed.notify_all()
            return lease

    @property
    def is_read(self) -> bool:
        """Whether somebody reads just now."""
        return bool(self._leases)

    def extend(self, lease: Lease, seconds: float) -> None:
        """Let a lease last for so many seconds from now."""
        with self._changed:
            lease.until, lease.seconds = time.monotonic() + seconds, seconds
            self._changed.notify_all()

    @contextmanager
    def closing(self, *, for_good: bool = False) -> Iterator[None]:
        """Have no readers in the block, which closes the connection; new ones wait until it ends.

        Readers have two seconds to finish, and are interrupted then.
        """
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._leases, PATIENCE_SECONDS)
            for lease in self._leases:
                lease.ended = lease.ended or BusyError(
                    f"{self._name}: was closed by the process that has it open; run the command again"
                )
            self._changed.notify_all()
            self._changed.wait_for(lambda: not self._leases, _GRACE_SECONDS)
            for lease in [*self._leases]:
                self._end(lease)
        try:
            yield
        finally:
            with self._changed:
                self._closing, self._closed = False, self._closed or for_good
                watcher = self._watcher
                self._changed.notify_all()
            if for_good and watcher is not None:
                watcher.join(
                    _GRACE_SECONDS
                )  # one that outlives the interpreter would keep DuckDB in memory

    def _end(self, lease: Lease) -> None:
        lease.cursor.close()
        self._leases.discard(lease)
        self._changed.notify_all()

    def _watch(self) -> None:
        with self._changed:
            while not self._closed and (self._leases or self._changed.wait(_IDLE_SECONDS)):
                now = time.monotonic()
                self._interrupt_late(now)
                self._changed.wait(self._pause(now))
            self._watcher = None

    def _interrupt_late(self, now: float) -> None:
        # Not in the loop that waits: its variable would keep the last cursor until the process ends.
        for lease in self._leases:
            if lease.ended is None and now >= lease.until:
                lease.ended = TooSlowError(
                    f"{self._name}: not read within {lease.seconds:g} s; narrow the query"
                )
            if lease.ended is not None:
                lease.cursor.interrupt()

    def _pause(self, now: float) -> float:
        """Return how long nothing is due."""
        if any(lease.ended for lease in self._leases):
            return _AGAIN_SECONDS
        return max(min((lease.until - now for lease in self._leases), default=0.0), 0.0)
