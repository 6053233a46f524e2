"""Sampling decided when a run has ended: more of the errors, the slow, the costly, the odd.

A turn is kept when the position of its session is below the highest probability that applies: the
head rate, or the `keep` of a rule that holds.  So its inclusion probability is exactly that
number, all turns of a session share one draw, and asking twice gives one answer.  A rate limit
thins out further, by a second draw with the share that fits into it; that share is multiplied in.
A revised turn keeps the best of its probabilities and the rate limit's decision.
"""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaltap.recorder.sampling.rules import HEAD, History, OutcomeRule, tool_names

LIMITED = "rate_limited"
SAMPLED_OUT = "sampled_out"
_RATE_SECONDS = 30.0
"""Over how long the rate of turns is averaged."""
MAX_REMEMBERED_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a turn is kept, by which rule, and how likely that was.

    `reason` is `head` or the name of a rule; of a turn that is left out it is what is counted.
    """

    kept: bool
    reason: str
    probability: float


@dataclass(slots=True)
class _Standing:
    """The best reason to keep a turn so far; `limited` is the rate limit's decision: share, admitted."""

    reason: str
    probability: float
    limited: tuple[float, bool] | None = None


class OutcomeSampler:
    """Decides for each finished turn; used by one thread.

    `rate` is the head rate, `max_per_minute` the limit (0: none), `clock` monotonic seconds.
    """

    def __init__(
        self,
        rate: float,
        rules: Sequence[OutcomeRule] = (),
        *,
        max_per_minute: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._rules = tuple(rules)
        self._seen = History()
        self._limit = _RateLimit(max_per_minute / 60, clock) if max_per_minute else None
        self._standings: OrderedDict[tuple[str, str], _Standing] = OrderedDict()
        self.is_idle = rate >= 1 and not self._rules and self._limit is None

    def note_negative(self, eval_id: str) -> None:
        """Take note of negative feedback; it counts for the turns of the session that end from now on."""
        self._seen.note_negative(eval_id)

    def decide(self, case: Mapping[str, Any]) -> Decision:
        """Return the decision on a case with one turn."""
        turn = case["actualConversation"][0]
        standing = self._standing(case, turn)
        for rule in self._rules:
            if rule.keep > standing.probability and all(
                check(case, self._seen) for check in rule.checks
            ):
                standing.reason, standing.probability = rule.name, rule.keep
        if not _is_revision(case):
            self._seen.add(tool_names(turn))
        reason, probability = standing.reason, standing.probability
        if not is_sampled(case["evalId"], probability):
            left_out = SAMPLED_OUT if reason == HEAD else f"{SAMPLED_OUT}:{reason}"
            return Decision(False, left_out, probability)
        if self._limit is None:
            return Decision(True, reason, probability)
        if standing.limited is None:
            share = self._limit.share()
            draw = position(f"{case['evalId']}\0{turn.get('invocationId')}")
            standing.limited = share, self._limit.admits(draw, share)
        share, kept = standing.limited
        return Decision(kept, reason if kept else LIMITED, probability * share)

    def _standing(self, case: Mapping[str, Any], turn: Mapping[str, Any]) -> _Standing:
        """Return the state of the turn after its last revision, else the initial one."""
        key = (case["evalId"], str(turn.get("invocationId")))
        if not _is_revision(case) or key not in self._standings:
            self._standings[key] = _Standing(HEAD, self._rate)
            if len(self._standings) > MAX_REMEMBERED_TURNS:
                self._standings.popitem(last=False)
        return self._standings[key]


class _RateLimit:
    """Thins out by the share that fits the limit, and never lets a minute's worth pass at once."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._last = clock()
        self._rate = 0.0
        self._capacity = max(1.0, per_second * 60)
        self._tokens = self._capacity

    def share(self) -> float:
        """Note an arrival; return the share of arrivals that fits the limit."""
        now = self._clock()
        passed, self._last = max(0.0, now - self._last), now
        self._tokens = min(self._capacity, self._tokens + passed * self._per_second)
        # An average that forgets: each arrival adds its part of a rate, time takes it away.
        self._rate = self._rate * math.exp(-passed / _RATE_SECONDS) + 1 / _RATE_SECONDS
        return min(1.0, self._per_second / self._rate)

    def admits(self, draw: float, share: float) -> bool:
        """Return whether an arrival with this draw may pass."""
        if draw >= share or self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _is_revision(case: Mapping[str, Any]) -> bool:
    return bool((case.get("source") or {}).get("revision", 1) > 1)


_DOMAIN = b"evaltap session sample v1\0"
_BITS = 53
"""Bits of the hash that are used: as many as a float holds exactly."""


def position(session_id: str) -> float:
    """Return the position of a session in [0, 1), uniform over sessions."""
    digest = hashlib.sha256(_DOMAIN + session_id.encode("utf-8", "replace")).digest()
    return (int.from_bytes(digest[:8]) >> (64 - _BITS)) / (1 << _BITS)


def is_sampled(session_id: str, rate: float) -> bool:
    """Return whether a session is in the sample; a larger rate keeps all that a smaller one had."""
    return rate >= 1 or position(session_id) < rate
