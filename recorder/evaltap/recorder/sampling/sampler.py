"""Tail sampling, turn by turn: keeps more of the failed, slow, costly and unusual runs.

`sessions` handles the rules that keep whole sessions.

A turn is kept when the position of its session is below the highest applicable probability: the
head rate, or the `keep` of a matching rule. So its inclusion probability is exactly that number,
all turns of a session share one draw, and repeating the decision gives the same result. A rate
limit samples further, by a second draw against the share that fits; that share is multiplied in. A
revised turn keeps the highest of its probabilities and the rate limit's decision.
"""

import hashlib
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.recorder.sampling.rules import HEAD, History, OutcomeRule, tool_names
from evaltap.schemas.data import CaseData, JsonObject

LIMITED: Final = "rate_limited"
"""Dropped by the draw against the share: kept turns are weighted to represent it."""
BURST: Final = "rate_limited:burst"
"""Dropped whatever the draw, because the last minute's quota is used up: not represented by weights."""
_RATE_SECONDS: Final = 30.0
"""Window for the average rate of turns."""
_LOW: Final = 0.25
"""Below this part of a minute's quota the share is lowered, down to a half."""


class RateLimit:
    """Samples by the share that fits the limit, and never passes more than a minute's quota at once."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._last = clock()
        self._rate = 0.0
        self._capacity = max(1.0, per_second * 60)
        self._tokens = self._capacity

    def share(self, arrivals: int = 1) -> float:
        """Count arrivals and return the share of them that fits the limit, independent of their draws."""
        now = self._clock()
        passed, self._last = max(0.0, now - self._last), now
        self._tokens = min(self._capacity, self._tokens + passed * self._per_second)
        # An exponentially decaying average of the rate.
        self._rate = self._rate * math.exp(-passed / _RATE_SECONDS) + arrivals / _RATE_SECONDS
        fits = min(1.0, self._per_second / self._rate)
        # Random fluctuations drain the bucket; it must refill, or a steady flow would empty it.
        left = self._tokens / (self._capacity * _LOW)
        return fits * min(1.0, max(0.5, left))

    def refuses(self, draw: float, share: float, arrivals: int = 1) -> str:
        """Return why arrivals with this draw are refused, empty if they pass."""
        if self._tokens < 1:
            return BURST
        if draw >= share:
            return LIMITED
        self.take(arrivals)
        return ""

    def take(self, arrivals: int) -> None:
        """Count arrivals that pass."""
        self._tokens = max(0.0, self._tokens - arrivals)


SAMPLED_OUT = "sampled_out"
MAX_REMEMBERED_TURNS = 10_000


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a turn is kept, by which rule, and with which probability.

    `reason` is `head` or the name of a rule; for a dropped turn it is the counted drop reason.
    """

    kept: bool
    reason: str
    probability: float


@dataclass(slots=True)
class _TurnState:
    """The best reason to keep a turn so far; `limited`: the rate limit's share and drop reason."""

    reason: str
    probability: float
    limited: tuple[float, str] | None = None


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
        self._history = History()
        self._limit = RateLimit(max_per_minute / 60, clock) if max_per_minute else None
        self._states: OrderedDict[tuple[str, str], _TurnState] = OrderedDict()
        self.is_idle = rate >= 1 and not self._rules and self._limit is None

    def note_negative(self, eval_id: str) -> None:
        """Record negative feedback; it applies to turns of the session that end from now on."""
        self._history.note_negative(eval_id)

    def decide(self, case: CaseData) -> Decision:
        """Return the decision on a case with one turn."""
        turn = case["actualConversation"][0]
        state = self._state(case, turn)
        for rule in self._rules:
            if rule.keep > state.probability and rule.holds(case, self._history):
                state.reason, state.probability = rule.name, rule.keep
        if not is_revision(case):
            self._history.add(tool_names(turn))
        reason, probability = state.reason, state.probability
        if not is_sampled(case["evalId"], probability):
            dropped = SAMPLED_OUT if reason == HEAD else f"{SAMPLED_OUT}:{reason}"
            return Decision(False, dropped, probability)
        if self._limit is None:
            return Decision(True, reason, probability)
        if state.limited is None:
            share = self._limit.share()
            draw = position(f"{case['evalId']}\0{turn.get('invocationId')}")
            state.limited = share, self._limit.refuses(draw, share)
        share, refused = state.limited
        return Decision(not refused, refused or reason, probability * share)

    def _state(self, case: CaseData, turn: JsonObject) -> _TurnState:
        """Return the turn's state from its last revision, or the initial state."""
        key = (case["evalId"], str(turn.get("invocationId")))
        if not is_revision(case) or key not in self._states:
            self._states[key] = _TurnState(HEAD, self._rate)
            if len(self._states) > MAX_REMEMBERED_TURNS:
                self._states.popitem(last=False)
        return self._states[key]


def is_revision(case: CaseData) -> bool:
    """Return whether the case revises an earlier one."""
    return bool((case.get("source") or {}).get("revision", 1) > 1)


_DOMAIN = b"evaltap session sample v1\0"
_BITS = 53
"""Bits of the hash to use: as many as a float represents exactly."""


def position(session_id: str) -> float:
    """Return the position of a session in [0, 1), uniform over sessions."""
    digest = hashlib.sha256(_DOMAIN + session_id.encode("utf-8", "replace")).digest()
    return (int.from_bytes(digest[:8]) >> (64 - _BITS)) / (1 << _BITS)


def is_sampled(session_id: str, rate: float) -> bool:
    """Return whether a session is sampled; a higher rate keeps everything a lower one does."""
    return rate >= 1 or position(session_id) < rate
