"""Writing in the background: DuckDB needs no interpreter for most of the work of a commit."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

MOST_WAITING: Final = 2
"""Steps that may wait: a checkpoint takes as long as several commits."""


class BackgroundWriter:
    """Runs steps in order on a thread of its own; after one that failed it runs none until `join`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._steps: deque[Future[None]] = deque()
        self._failed = False

    def run(self, step: Callable[[], None]) -> None:
        """Run a step soon; wait while too many are waiting, and raise what the oldest of them raised."""
        if len(self._steps) >= MOST_WAITING:
            self._finish_step()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaltap-store")
        self._steps.append(self._pool.submit(self._run, step))

    def join(self) -> None:
        """Wait until all steps are done; raise what the first that failed raised.

        Within a step it returns at once, so that a step may use what waits for steps.
        """
        if threading.get_ident() != self._thread:
            while self._steps:
                self._finish_step()

    def close(self) -> None:
        """End the thread, once the steps are done."""
        if self._pool is not None:
            self._pool.shutdown()

    def _finish_step(self) -> None:
        try:
            self._steps.popleft().result()
        except BaseException:
            wait(self._steps)
            self._steps.clear()
            self._failed = False
            raise

    def _run(self, step: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        if self._failed:
            return  # nothing is written after what is missing
        try:
            step()
        except BaseException:
            self._failed = True
            raise
