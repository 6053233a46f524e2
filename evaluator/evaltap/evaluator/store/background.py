"""Write in the background: DuckDB does most of a commit's work without the interpreter lock."""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Final

MOST_WAITING: Final = 2
"""Steps that may be queued: a checkpoint takes as long as several commits."""


class BackgroundWriter:
    """Runs steps in order on a separate thread; after a failed step, it runs none until `join`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._steps: deque[Future[None]] = deque()
        self._failed = False

    def run(self, step: Callable[[], None]) -> None:
        """Queue a step; if too many are queued, wait for the oldest and raise its error."""
        if len(self._steps) >= MOST_WAITING:
            self._finish_step()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaltap-store")
        self._steps.append(self._pool.submit(self._run, step))

    def join(self) -> None:
        """Wait until all steps are done; raise the error of the first that failed.

        Returns immediately when called within a step, so that steps may use methods that join.
        """
        if threading.get_ident() != self._thread:
            while self._steps:
                self._finish_step()

    def close(self) -> None:
        """End the thread after its steps."""
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
            return  # writing later steps would leave a gap
        try:
            step()
        except BaseException:
            self._failed = True
            raise
