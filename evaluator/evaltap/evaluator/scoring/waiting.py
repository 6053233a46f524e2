"""Hundreds of blocking waits on one thread: blocking code run as greenlets over an asyncio loop.

Hundreds of threads that wait for judges spend more time handing over the interpreter lock than working
(docs/benchmarks/judge_load.py).  So `Together` runs functions as greenlets over the asyncio loop of one
thread, and this module's waits let other greenlets continue.  Outside `Together`, they block as usual.
"""

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:  # only `Together` needs it, and imports it
    import asyncio

Parameters = ParamSpec("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS_EACH: Final = 4
"""Threads for `in_thread` per running function, which may run several calls at once."""


class _Greenlet(greenlet):
    """A function that `Together` runs; its parent awaits what it switches up."""

    def __init__(self, function: Callable[[], object], loop: "asyncio.AbstractEventLoop") -> None:
        super().__init__(function)
        self.loop = loop


def together() -> bool:
    """Return whether this code shares its thread with other greenlets and so must not block."""
    return isinstance(getcurrent(), _Greenlet)


def sleep(seconds: float) -> None:
    loop = _loop()
    if loop is None:
        time.sleep(seconds)
    else:
        _within(loop.create_future(), seconds)


def in_thread(
    function: Callable[Parameters, Result], *args: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call a function that may block, on another thread if greenlets share this one; return its result."""
    if (loop := _loop()) is None:
        return function(*args, **named)
    return _result_of(loop.run_in_executor(None, partial(function, *args, **named)))


def wait_for_socket(sock: socket.socket, seconds: float, *, writable: bool = False) -> bool:
    """Wait until a socket is readable or writable; return False after the timeout."""
    loop, seconds = _loop(), max(seconds, 0.0)
    if loop is None:
        return poll_socket(sock, seconds, writable=writable)
    descriptor, ready = sock.fileno(), loop.create_future()
    add, remove = (
        (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
    )
    add(descriptor, _wake, ready)
    try:
        return _within(ready, seconds)
    finally:
        remove(descriptor)


def poll_socket(sock: socket.socket, seconds: float, *, writable: bool = False) -> bool:
    """Wait on this thread until a socket is readable or writable; return False after the timeout."""
    if not hasattr(select, "poll"):  # Windows, whose `select` takes sockets of any number
        reading, writing = ([], [sock]) if writable else ([sock], [])
        return any(select.select(reading, writing, [], seconds))
    poll = select.poll()
    poll.register(sock, select.POLLOUT if writable else select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Condition(threading.Condition):
    """A condition that both threads and greenlets can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._futures: list[asyncio.Future[bool]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; return False after the timeout."""
        if (loop := _loop()) is None:
            return super().wait(timeout)
        woken = loop.create_future()
        self._futures.append(woken)
        self.release()
        try:
            return _within(woken, timeout)
        finally:
            self.acquire()

    def notify_all(self) -> None:
        """Wake all waiting threads and greenlets."""
        super().notify_all()
        futures, self._futures = self._futures, []
        for woken in futures:
            woken.get_loop().call_soon_threadsafe(_wake, woken)


def map_together(
    work: Callable[[Item], Result], items: Sequence[Item], most: int | None = None
) -> list[Result]:
    """Return the results in the order of the items; `most` (default: one per processor) run at once."""
    most = min(most or os.cpu_count() or 1, len(items))
    if most <= 1:
        return [work(item) for item in items]
    loop = _loop()
    if loop is None:
        with ThreadPoolExecutor(most, thread_name_prefix="evaltap-judge") as pool:
            return list(pool.map(work, items))
    futures: list[Future[Result]] = [Future() for _ in items]
    waiting = deque(zip(futures, items, strict=True))

    async def worked() -> None:
        while waiting:
            future, item = waiting.popleft()
            await _settled(future, partial(work, item), loop)

    for task in [loop.create_task(worked()) for _ in range(most)]:
        _result_of(task)
    return [future.result() for future in futures]


class Together(Generic[Result]):
    """Runs functions on one separate thread, at most `most` at once.  Leaving the block waits for them."""

    def __init__(self, most: int, name: str) -> None:
        import asyncio  # nothing else needs it in most runs

        self._most = most
        self._loop = asyncio.SelectorEventLoop()  # the usual one of Windows has no `add_reader`
        self._threads = ThreadPoolExecutor(most * THREADS_EACH, thread_name_prefix=name)
        self._loop.set_default_executor(self._threads)
        self._waiting: deque[tuple[Future[Result], Callable[[], Result]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._called = self._leaving = False
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving = True
        self._loop.call_soon_threadsafe(self._begin)
        self._thread.join()
        self._threads.shutdown()
        self._loop.close()

    def submit(self, function: Callable[[], Result]) -> Future[Result]:
        """Queue a function; it is called unless its future is cancelled first."""
        future: Future[Result] = Future()
        self._waiting.append((future, function))
        if not self._called:  # one callback starts everything submitted until it runs
            self._called = True
            self._loop.call_soon_threadsafe(self._begin)
        return future

    def _begin(self) -> None:
        self._called = False
        while self._waiting and len(self._under_way) < self._most:
            future, function = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                task = self._loop.create_task(_settled(future, function, self._loop))
                self._under_way.add(task)
                task.add_done_callback(self._next)
        if self._leaving and not self._under_way:
            self._loop.stop()

    def _next(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._begin()


def _loop() -> "asyncio.AbstractEventLoop | None":
    """Return the loop of `Together` if this code shares its thread with other greenlets."""
    current = getcurrent()
    return current.loop if isinstance(current, _Greenlet) else None


def _result_of(awaitable: Awaitable[Result]) -> Result:
    """Switch to the loop to await something; return its result."""
    loop = getcurrent().parent
    assert loop is not None  # checked by `_loop`
    found: Result = loop.switch(awaitable)
    return found


async def _settled(
    future: Future[Result], function: Callable[[], Result], loop: "asyncio.AbstractEventLoop"
) -> None:
    """Run a function as a greenlet, awaiting what it switches up, and give its result to the future."""
    runner = _Greenlet(function, loop)
    try:
        step: Any = runner.switch()  # the next awaitable, finally the function's result
        while not runner.dead:
            try:
                found = await step
            except BaseException as error:  # for the function to handle
                step = runner.throw(error)
            else:
                step = runner.switch(found)
        future.set_result(step)
    except BaseException as error:  # for whoever takes the result
        future.set_exception(error)


def _within(future: "asyncio.Future[bool]", seconds: float | None) -> bool:
    """Return whether a future completed in time.  `asyncio.wait_for` takes three times as long."""
    late = None if seconds is None else future.get_loop().call_later(seconds, _wake, future, False)
    try:
        return _result_of(future)
    finally:
        if late is not None:
            late.cancel()


def _wake(future: "asyncio.Future[bool]", woken: bool = True) -> None:
    if not future.done():
        future.set_result(woken)
