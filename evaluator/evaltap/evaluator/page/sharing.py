"""Share answers that are the same for all readers: read once for all requests within a moment."""

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

_MOST_KEPT: Final = 64
PAST_SECONDS: Final = 60.0
"""How long, in seconds, data of a past span stays valid."""

T = TypeVar("T")


def of_the_past() -> "SharedAnswers[Any]":
    """Return a cache for answers about past spans, which hardly change."""
    return SharedAnswers(times_as_long=1_000_000, most_seconds=PAST_SECONDS)


@dataclass(slots=True)
class _Kept(Generic[T]):
    lock: threading.Lock = field(default_factory=threading.Lock)
    answer: T | None = None
    until: float = 0.0


class SharedAnswers(Generic[T]):
    """Caches each answer for a multiple of the time it took to read, up to some seconds.

    However many browsers show a page, reading it takes a twentieth of a processor, and the page of a small
    file is up to date immediately.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        times_as_long: float = 20,
        most_seconds: float = 5.0,
    ) -> None:
        self._clock = clock
        self._times_as_long = times_as_long
        self._most_seconds = most_seconds
        self._lock = threading.Lock()
        self._kept: dict[Hashable, _Kept[T]] = {}

    def get(
        self, key: Hashable, read: Callable[[], T], *, is_good: Callable[[T], bool] = lambda _: True
    ) -> T:
        """Return the cached answer for a key, or read it; answers that are not good are not cached."""
        with self._lock:
            kept = self._kept.pop(key, None) or _Kept[T]()
            self._kept[key] = kept  # moves the key to the end, which is the newest
            while len(self._kept) > _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        with kept.lock:  # concurrent requests wait for the same answer
            began = self._clock()
            if kept.answer is not None and began < kept.until:
                return kept.answer
            answer = read()
            if is_good(answer):
                ended = self._clock()
                kept.answer = answer
                kept.until = ended + min(self._times_as_long * (ended - began), self._most_seconds)
            return answer
