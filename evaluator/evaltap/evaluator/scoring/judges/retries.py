"""Retry requests to an unavailable judge, with back-off and the delay that the server requests."""

import random
from collections.abc import Callable
from datetime import timedelta
from typing import Final

from evaltap.evaluator.scoring.contract.judge import (
    AnswerFormRefusedError,
    Judge,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
)
from evaltap.evaluator.scoring.waiting import sleep

FIRST_WAIT: Final = timedelta(seconds=0.5)
LONGEST_BACK_OFF: Final = timedelta(seconds=8)
LONGEST_WAIT: Final = timedelta(minutes=5)
"""If a server requests a longer delay, the request fails immediately: users do not wait that long for a
score."""


class ConnectionWentStale(JudgeUnavailable):
    """Report a persistent connection that the server had closed before it was reused."""


class RetryingJudge:
    """Repeats a request up to `retries` times while the judge is unavailable.

    Waits as long as the server requests (Retry-After), otherwise 0.5 s, 1 s, 2 s and so on up to 8 s, less a
    random quarter.  An unsupported form of answer is replaced by a simpler one, and a stale connection by a
    new one, once.  Both happen immediately and are not counted.
    """

    def __init__(
        self,
        judge: Judge,
        retries: int,
        *,
        sleep: Callable[[float], None] = sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        self._judge = judge
        self._retries = retries
        self._sleep = sleep
        self._chance = chance

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer of the first successful attempt; raise the error of the last attempt."""
        tries, reconnected = 0, False
        while True:
            try:
                return self._judge.answer(request)
            except AnswerFormRefusedError as refused:
                request = refused.simpler
            except JudgeUnavailable as error:
                if isinstance(error, ConnectionWentStale) and not reconnected:
                    reconnected = True
                    continue
                tries += 1
                wait = self._wait(error, tries)
                if tries > self._retries or wait > LONGEST_WAIT:
                    raise _given_up(error, tries, wait) from None
                self._sleep(wait.total_seconds())

    def _wait(self, error: JudgeUnavailable, tries: int) -> timedelta:
        if error.retry_after is not None:
            return error.retry_after
        # The exponent is bounded too, because a huge power of 2 overflows a duration.
        wait = min(FIRST_WAIT * (1 << min(tries - 1, 10)), LONGEST_BACK_OFF)
        return wait * (1 - 0.25 * self._chance())


def _given_up(error: JudgeUnavailable, tries: int, wait: timedelta) -> JudgeUnavailable:
    why = f"gave up after {tries} {'try' if tries == 1 else 'tries'}"
    if wait > LONGEST_WAIT:
        why += f", because the server requests a delay of {wait.total_seconds():.0f} s"
    return JudgeUnavailable(
        f"{error}; {why}", retry_after=error.retry_after, maybe_billed=error.maybe_billed
    )
