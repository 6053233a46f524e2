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
"""How long `closing` waits for readers before it interrupts them."""
_GRACE_SECONDS: Final = 1.0
"""How long interrupted readers have to finish before their cursors are closed."""
_AGAIN_SECONDS: Final = 0.02
"""How often an overdue reader is interrupted, as it may start another statement."""
_IDLE_SECONDS: Final = 5.0


@dataclass(eq=False)
class Lease:
    """A reader's cursor, valid until a time of the monotonic clock."""

    cursor: duckdb.DuckDBPyConnection
    until: float
    seconds: float
    ended: StoreError | None = None
    """Why the lease was ended."""


class Gate:
    """Grants leases, ends overdue ones, and lets the connection be closed while there are none."""

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
        """Lend a cursor for a number of seconds; wait as long while the connection is being closed.

        Raises TooSlowError if the block takes longer, BusyError if the file is closed meanwhile.
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
        """Whether there are readers now."""
        return bool(self._leases)

    def extend(self, lease: Lease, seconds: float) -> None:
        """Let a lease last for a number of seconds from now."""
        with self._changed:
            lease.until, lease.seconds = time.monotonic() + seconds, seconds
            self._changed.notify_all()

    def cancel(self, lease: Lease) -> None:
        """End a lease: interrupt its statement, and those that follow."""
        with self._changed:
            lease.ended = lease.ended or BusyError(
                f"{self._name}: was closed by the process that has it open; run the command again"
            )
            self._changed.notify_all()

    @contextmanager
    def closing(self, *, for_good: bool = False) -> Iterator[None]:
        """Run the block, which closes the connection, without readers; new readers wait until it ends.

        Current readers have two seconds to finish, then they are interrupted.
        """
        with self._changed:
            self._closing = True
            self._changed.wait_for(lambda: not self._leases, PATIENCE_SECONDS)
            for lease in self._leases:
                self.cancel(lease)
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
                # A thread that outlives the interpreter would keep DuckDB in memory.
                watcher.join(_GRACE_SECONDS)

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
        # A method of its own, since a loop variable in `_watch` would keep the last cursor alive.
        for lease in self._leases:
            if lease.ended is None and now >= lease.until:
                lease.ended = TooSlowError(
                    f"{self._name}: not read within {lease.seconds:g} s; narrow the query"
                )
            if lease.ended is not None:
                lease.cursor.interrupt()

    def _pause(self, now: float) -> float:
        """Return the time until a lease is due."""
        if any(lease.ended for lease in self._leases):
            return _AGAIN_SECONDS
        return max(min((lease.until - now for lease in self._leases), default=0.0), 0.0)
