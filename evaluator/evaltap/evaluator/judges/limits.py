"""Limits on concurrent requests and requests per minute: one limiter for all that use the judge."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.contract.judge import Judge, JudgeReply, JudgeRequest, JudgeUnavailable
from evaltap.evaluator.judges.budget import worst_tokens
from evaltap.evaluator.judges.settings import NO_LIMITS, JudgeLimits
from evaltap.evaluator.waiting import Condition

WINDOW_SECONDS: Final = 60.0


@dataclass(slots=True)
class _Admitted:
    """A request, the tokens it is counted with, and whether it is in the last minute."""

    at: float
    tokens: int
    recent: bool = True


class Limiter:
    """Lets requests through so that no 60 seconds hold more of them, or of their tokens, than allowed.

    A request is counted with the most it can cost until its answer says what it did cost.  When a
    server asks to wait, nobody asks it before that time.  Used from several threads.
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
        """Wait until a request with at most that many tokens may be made, and count it."""
        # A request larger than a minute's tokens would wait for ever; it gets a minute of its own.
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
        """Note that a request is over, and its tokens where they are known."""
        with self._changed:
            self._under_way -= 1
            if tokens is not None and admitted.recent:
                self._tokens += tokens - admitted.tokens
                admitted.tokens = tokens
            self._changed.notify_all()

    def close_for(self, seconds: float) -> None:
        """Let nobody through for that long."""
        with self._changed:
            self._closed_until = max(self._closed_until, self._clock() + seconds)

    def _seconds_to_wait(self, tokens: int) -> float | None:
        """Return 0 to go now, seconds to look again after, None to wait for somebody to leave."""
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
    """Asks a judge no more than its limiter lets through."""

    def __init__(self, judge: Judge, limiter: Limiter) -> None:
        self._judge = judge
        self._limiter = limiter

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer, after waiting for a place; raise what the judge raises."""
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
