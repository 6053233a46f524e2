"""When the next turn of an agent may begin: so many a minute, and later after a provider's refusal."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

_FIRST_PAUSE: Final = 1.0
_LONGEST_PAUSE: Final = 60.0
_TOO_MANY: Final = 429


class Pace:
    """The pace of all units of a process: a refusal for too many requests slows all of them down.

    Each refusal doubles the pause, unless the provider says how long to wait; a turn that succeeds ends it.
    """

    def __init__(self, turns_per_minute: float = 0.0) -> None:
        self._between = 60 / turns_per_minute if turns_per_minute else 0.0
        self._next = 0.0
        self._pause = 0.0

    async def turn(self) -> None:
        """Wait until the next turn may begin."""
        while (wait := self._next - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        self._next = max(self._next, time.monotonic() + self._between)

    def refused(self, error: BaseException) -> None:
        """Pause after a provider's refusal."""
        self._pause = min(max(_FIRST_PAUSE, 2 * self._pause), _LONGEST_PAUSE)
        pause = min(_asked_for(error) or self._pause, _LONGEST_PAUSE)
        self._next = max(self._next, time.monotonic() + pause)

    def succeeded(self) -> None:
        """Forget the refusals."""
        self._pause = 0.0


def is_refusal(error: BaseException) -> bool:
    """Return whether a provider refused for too many requests: status 429, or an error of that name.

    SDKs have retried by then; the agent is not to blame.
    """
    return any(
        _TOO_MANY in (getattr(one, "status_code", None), getattr(one, "code", None))
        or "RateLimit" in type(one).__name__
        for one in _causes(error)
    )


def _asked_for(error: BaseException) -> float | None:
    """Return the seconds of a Retry-After header."""
    for one in _causes(error):
        headers = getattr(getattr(one, "response", None), "headers", None)
        try:
            return float(headers["retry-after"]) if headers else None
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    found: BaseException | None = error
    while found is not None and found not in seen:
        seen.append(found)
        yield found
        found = found.__cause__ or found.__context__
