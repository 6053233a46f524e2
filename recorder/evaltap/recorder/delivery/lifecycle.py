"""Process hooks for pipelines: fork, exit, end of a child process, SIGTERM.

They are installed once, when the first pipeline or forwarder is used, never on import.
"""

import atexit
import os
import signal
import sys
import threading
import weakref
from contextlib import suppress
from types import FrameType
from typing import Protocol

from evaltap.recorder.config import RecorderConfig

FORK_WAIT_SECONDS = 0.5
"""How long a fork may wait for the sink: SQLite's locks copied while held would stay locked."""


class Watched(Protocol):
    """A pipeline, as seen by the process hooks."""

    config: RecorderConfig

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Write everything in memory within the time; by default, the configured one."""
        ...

    def after_fork_in_child(self) -> None:
        """Reset: this is another process now."""

    def fork_lock(self) -> "threading.Lock | None":
        """Return the lock to hold across a fork, or None."""

    def warn_of_late_turns(self) -> None:
        """Log how many turns were recorded after `close`; called when the process ends."""


_pipelines: "weakref.WeakSet[Watched]" = weakref.WeakSet()
_strong: set[Watched] = set()
_fork_locks: "weakref.WeakSet[threading.Lock]" = weakref.WeakSet()
_held: "list[threading.Lock]" = []
_forever: list[object] = []
_hooked = False
_child = 0
"""The process that `close_at_end_of_child` has looked at."""
_FORKING = {"multiprocessing.popen_fork", "multiprocessing.forkserver"}
"""The modules of which multiprocessing loads one in a process that forks."""
_heard: tuple[int, int] | None = None
"""The ends of the pipe to which Python writes the numbers of the signals of a child process."""


def watch(pipeline: Watched) -> None:
    """Run the hooks for the pipeline from now on, until `forget`."""
    _pipelines.add(pipeline)
    # Strong reference: a pipeline that nobody else references still has turns to write.
    _strong.add(pipeline)
    _hook()
    if pipeline.config.drain_on_sigterm and not _is_child_of_multiprocessing():
        _handle_sigterm()


def lock_during_forks(lock: threading.Lock) -> None:
    """Make forks briefly wait for this lock, as for a pipeline's."""
    _fork_locks.add(lock)
    _hook()


def forget(pipeline: Watched) -> None:
    """Drop the reference to a closed pipeline."""
    _strong.discard(pipeline)


def keep_forever(item: object) -> None:
    """Keep an object from being finalized in this process."""
    _forever.append(item)


def close_at_end_of_child() -> None:
    """Close all pipelines when this child process ends, if that is without `atexit` or by SIGTERM.

    Children of multiprocessing and of billiard, its fork, run finalizers; those of Celery's pool only send a
    signal of Celery's before `os._exit`.
    """
    global _child
    if _child == os.getpid():
        return
    _child = os.getpid()
    if _is_child_of_multiprocessing():
        from multiprocessing import util

        util.Finalize(None, _close_all, exitpriority=0)
        if any(pipeline.config.drain_on_sigterm for pipeline in _strong) and _handle_sigterm():
            _hear_signals()
    if (util_of_billiard := sys.modules.get("billiard.util")) is not None:
        util_of_billiard.Finalize(None, _close_all, exitpriority=0)
    if (signals := sys.modules.get("celery.signals")) is not None:
        signals.worker_process_shutdown.connect(
            _close_at_shutdown, weak=False, dispatch_uid="evaltap"
        )


def repeat_unheard_sigterm() -> None:
    """Send this child of multiprocessing the SIGTERM again that its main thread has not noticed.

    Python runs a handler between two bytecodes.  If the signal comes just before the main thread waits in C,
    as a pool's worker does for work, nothing wakes it; but the pool sends the signal once, and then waits.
    """
    if _heard is None:
        return
    with suppress(BlockingIOError):
        numbers = os.read(_heard[0], 4096)
        unheard = signal.getsignal(signal.SIGTERM) is _on_sigterm
        if signal.SIGTERM in numbers and unheard and (main := threading.main_thread().ident):
            signal.pthread_kill(main, signal.SIGTERM)


def _is_child_of_multiprocessing() -> bool:
    if "multiprocessing.process" not in sys.modules:
        return False
    from multiprocessing import current_process

    # `parent_process` is None while a spawned child imports the program, which may create recorders.
    return current_process().name != "MainProcess"


def _hook() -> None:
    global _hooked
    if not _hooked:
        _hooked = True
        if hasattr(os, "register_at_fork"):  # Windows has no forks
            os.register_at_fork(
                before=_before_fork,
                after_in_parent=_after_fork_in_parent,
                after_in_child=_after_fork_in_child,
            )
        atexit.register(_close_all)


def _before_fork() -> None:
    for lock in [*(pipeline.fork_lock() for pipeline in list(_pipelines)), *_fork_locks]:
        if lock is not None and lock.acquire(timeout=FORK_WAIT_SECONDS):
            _held.append(lock)


def _after_fork_in_parent() -> None:
    while _held:
        _held.pop().release()


def _after_fork_in_child() -> None:
    _forever.append(list(_held))
    _held.clear()
    _forget_signals()
    for pipeline in list(_pipelines):
        pipeline.after_fork_in_child()


def _close_at_shutdown(**_: object) -> None:
    _close_all()


def _close_all(*, at_signal: bool = False) -> None:
    for pipeline in list(_strong):
        pipeline.close(pipeline.config.close_timeout_seconds if at_signal else None)
    for pipeline in list(_pipelines):
        pipeline.warn_of_late_turns()


def _handle_sigterm() -> bool:
    """Handle SIGTERM if it would kill the process, and return True; leave the program's own handler alone."""
    if threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        with suppress(ValueError):  # a subinterpreter, which receives no signals
            signal.signal(signal.SIGTERM, _on_sigterm)
            return True
    return False


def _hear_signals() -> None:
    """Let `repeat_unheard_sigterm` know of signals, unless the program, as asyncio does, wants to know."""
    global _heard
    if not hasattr(signal, "pthread_kill"):
        return
    _heard = os.pipe()
    for end in _heard:
        os.set_blocking(end, False)
    if (programs := signal.set_wakeup_fd(_heard[1], warn_on_full_buffer=False)) != -1:
        signal.set_wakeup_fd(programs)
        _close_ears()


def _forget_signals() -> None:
    """Do not hear for the parent; and let a child of multiprocessing die of SIGTERM until it records."""
    if _heard is not None:
        if (wakeup := signal.set_wakeup_fd(-1)) != _heard[1]:
            signal.set_wakeup_fd(wakeup)
        _close_ears()
    ours = signal.getsignal(signal.SIGTERM) is _on_sigterm
    if ours and not _FORKING.isdisjoint(sys.modules):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _close_ears() -> None:
    global _heard
    for end in _heard or ():
        os.close(end)
    _heard = None


def _on_sigterm(number: int, frame: FrameType | None) -> None:
    """Write everything, then die of the signal as the program would have without evaltap.

    The signal often arrives twice, for the process and for its group: the second one must not end the
    process while it writes, which takes no longer than `close_timeout_seconds`.
    """
    signal.signal(number, signal.SIG_IGN)
    _close_all(at_signal=True)
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
