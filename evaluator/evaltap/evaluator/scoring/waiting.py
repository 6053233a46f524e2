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
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, ParamSpec, Self, TypeVar

from greenlet import getcurrent, greenlet

if TYPE_CHECKING:  # only greenlets need it, so the functions that they run in import it
    import asyncio

Parameters = ParamSpec("Parameters")
Item = TypeVar("Item")
Result = TypeVar("Result")

THREADS_EACH: Final = 4
"""Threads for `in_thread` per running function, which may run several calls at once."""


class _Greenlet(greenlet):
    """A function that `Together` runs; its parent awaits what it switches up."""


def together() -> bool:
    """Return whether this code shares its thread with other greenlets and so must not block."""
    return isinstance(getcurrent(), _Greenlet)


def sleep(seconds: float) -> None:
    """Wait for a number of seconds."""
    if together():
        import asyncio

        _result_of(asyncio.sleep(seconds))
    else:
        time.sleep(seconds)


def in_thread(
    function: Callable[Parameters, Result], *args: Parameters.args, **named: Parameters.kwargs
) -> Result:
    """Call a function that may block, on another thread if greenlets share this one; return its result."""
    if not together():
        return function(*args, **named)
    import asyncio

    call = partial(function, *args, **named)
    return _result_of(asyncio.get_running_loop().run_in_executor(None, call))


def wait_for_socket(sock: socket.socket, seconds: float, *, writable: bool = False) -> bool:
    """Wait until a socket is readable or writable; return False after the timeout."""
    if together():
        return _result_of(_socket_ready(sock.fileno(), max(seconds, 0.0), writable=writable))
    poll = select.poll()
    poll.register(sock, select.POLLOUT if writable else select.POLLIN)
    return bool(poll.poll(max(seconds, 0.0) * 1000))


class Condition(threading.Condition):
    """A condition that both threads and greenlets can wait for."""

    def __init__(self) -> None:
        super().__init__()
        self._futures: list[asyncio.Future[None]] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for a notification; return False after the timeout."""
        if not together():
            return super().wait(timeout)
        import asyncio

        woken = asyncio.get_running_loop().create_future()
        self._futures.append(woken)
        self.release()
        try:
            return _result_of(_within(woken, timeout))
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
    if together():
        return _result_of(_gathered(work, items, most))
    with ThreadPoolExecutor(most, thread_name_prefix="evaltap-judge") as pool:
        return list(pool.map(work, items))


class Together(Generic[Result]):
    """Runs functions on one separate thread, at most `most` at once.  Leaving the block waits for them."""

    def __init__(self, most: int, name: str) -> None:
        import asyncio

        self._most = most
        self._name = name
        self._loop = asyncio.new_event_loop()
        self._threads = ThreadPoolExecutor(most * THREADS_EACH, thread_name_prefix=name)
        self._waiting: deque[tuple[Future[Result], Callable[[], Result]]] = deque()
        self._under_way: set[asyncio.Task[None]] = set()
        self._called = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        import asyncio

        asyncio.run_coroutine_threadsafe(self._ended(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
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

    def _run(self) -> None:
        import asyncio

        asyncio.set_event_loop(self._loop)
        self._loop.set_default_executor(self._threads)
        self._loop.run_forever()

    def _begin(self) -> None:
        self._called = False
        while self._waiting and len(self._under_way) < self._most:
            future, function = self._waiting.popleft()
            if future.set_running_or_notify_cancel():
                task = self._loop.create_task(_settled(future, function))
                self._under_way.add(task)
                task.add_done_callback(self._next)

    def _next(self, task: "asyncio.Task[None]") -> None:
        self._under_way.discard(task)
        self._begin()

    async def _ended(self) -> None:
        import asyncio

        self._begin()
        while self._under_way:
            await asyncio.wait(self._under_way)


def _result_of(awaitable: Awaitable[Result]) -> Result:
    """Switch to the loop to await something; return its result."""
    loop = getcurrent().parent
    assert loop is not None  # checked by `together`
    found: Result = loop.switch(awaitable)
    return found


async def _in_greenlet(function: Callable[[], Result]) -> Result:
    """Run a function as a greenlet, awaiting the awaitables that it switches up."""
    runner = _Greenlet(function)
    step: Any = runner.switch()  # the next awaitable, finally the function's result
    while not runner.dead:
        try:
            found = await step
        except BaseException as error:  # for the function to handle
            step = runner.throw(error)
        else:
            step = runner.switch(found)
    result: Result = step
    return result


async def _settled(future: Future[Result], function: Callable[[], Result]) -> None:
    try:
        future.set_result(await _in_greenlet(function))
    except BaseException as error:  # for whoever takes the result
        future.set_exception(error)


async def _gathered(
    work: Callable[[Item], Result], items: Sequence[Item], most: int
) -> list[Result]:
    import asyncio

    places = asyncio.Semaphore(most)

    async def one(item: Item) -> Result:
        async with places:
            return await _in_greenlet(partial(work, item))

    found = await asyncio.gather(*map(one, items), return_exceptions=True)
    results: list[Result] = []
    for result in found:
        if isinstance(result, BaseException):
            raise result
        results.append(result)
    return results


async def _socket_ready(descriptor: int, seconds: float, *, writable: bool) -> bool:
    import asyncio

    loop = asyncio.get_running_loop()
    ready = loop.create_future()
    add, remove = (
        (loop.add_writer, loop.remove_writer) if writable else (loop.add_reader, loop.remove_reader)
    )
    add(descriptor, _wake, ready)
    try:
        return await _within(ready, seconds)
    finally:
        remove(descriptor)


async def _within(future: "asyncio.Future[None]", seconds: float | None) -> bool:
    """Return whether a future completed in time.  `asyncio.wait_for` takes three times as long."""
    import asyncio

    late = None if seconds is None else future.get_loop().call_later(seconds, future.cancel)
    try:
        await future
    except asyncio.CancelledError:
        return False
    finally:
        if late is not None:
            late.cancel()
    return True


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)
