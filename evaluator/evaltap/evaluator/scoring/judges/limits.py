"""Limits on concurrent requests and requests per minute; all users of a judge share one limiter."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.scoring.contract.judge import (
    Judge,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
)
from evaltap.evaluator.scoring.judges.budget import worst_tokens
from evaltap.evaluator.scoring.judges.settings import NO_LIMITS, JudgeLimits
from evaltap.evaluator.scoring.waiting import Condition

WINDOW_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Admitted:
    """An admitted request, the tokens counted for it, and whether it is in the last minute."""

    at: float
    tokens: int
    recent: bool = True


class Limiter:
    """Admits requests so that no 60 seconds contain more requests, or tokens, than allowed.

    A request counts with its maximum tokens until its answer reports the actual number.  If a server requests
    a delay, no requests are admitted before it ends.  Used from several threads concurrently.
    """

    def __init__(
        self,
        limits: JudgeLimits = NO_LIMITS,
        *,
        clock: Callable[[], float] = time.monotonic,
        wait: Callable[[Condition, float | None], object] = Condition.wait,
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._wait = wait
        self._changed = Condition()
        self._recent: deque[_Admitted] = deque()
        self._tokens = 0
        self._under_way = 0
        self._closed_until = 0.0

    def enter(self, tokens: int) -> _Admitted:
        """Wait until a request with at most that many tokens may be sent, and count it."""
        # A request larger than a minute's tokens would wait indefinitely; it gets a whole minute
        # for itself.
        tokens = min(tokens, self._limits.tokens_per_minute or tokens)
        with self._changed:
            while (seconds := self._seconds_to_wait(tokens)) != 0:
                self._wait(self._changed, seconds)
            admitted = _Admitted(self._clock(), tokens)
            self._recent.append(admitted)
            self._tokens += tokens
            self._under_way += 1
            return admitted

    def leave(self, admitted: _Admitted, tokens: int | None) -> None:
        """Record that a request has ended, and its tokens if they are known."""
        with self._changed:
            self._under_way -= 1
            if tokens is not None and admitted.recent:
                self._tokens += tokens - admitted.tokens
                admitted.tokens = tokens
            self._changed.notify_all()

    def close_for(self, seconds: float) -> None:
        """Admit no requests for that many seconds."""
        with self._changed:
            self._closed_until = max(self._closed_until, self._clock() + seconds)

    def _seconds_to_wait(self, tokens: int) -> float | None:
        """Return 0 to proceed now, the seconds until the next check, or None to wait until a request ends."""
        limits, now = self._limits, self._clock()
        while self._recent and self._recent[0].at <= now - WINDOW_SECONDS:
            oldest = self._recent.popleft()
            oldest.recent = False
            self._tokens -= oldest.tokens
        if now < self._closed_until:
            return self._closed_until - now
        if limits.concurrency is not None and self._under_way >= limits.concurrency:
            return None
        many = limits.requests_per_minute is not None and (
            len(self._recent) >= limits.requests_per_minute
        )
        much = (
            limits.tokens_per_minute is not None
            and bool(self._recent)
            and (self._tokens + tokens > limits.tokens_per_minute)
        )
        if many or much:
            return max(self._recent[0].at + WINDOW_SECONDS - now, 0.001)
        return 0


class LimitedJudge:
    """Calls a judge only as often as its limiter allows."""

    def __init__(self, judge: Judge, limiter: Limiter) -> None:
        self._judge = judge
        self._limiter = limiter

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer, after waiting for admission; raise the judge's errors."""
        admitted = self._limiter.enter(sum(worst_tokens(request)))
        used: int | None = None
        try:
            reply = self._judge.answer(request)
            if reply.input_tokens is not None and reply.output_tokens is not None:
                used = reply.input_tokens + reply.output_tokens
            return reply
        except JudgeUnavailable as error:
            if error.retry_after is not None:
                self._limiter.close_for(error.retry_after.total_seconds())
            raise
        finally:
            self._limiter.leave(admitted, used)
