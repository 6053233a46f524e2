"""Sampling of whole sessions: a rule that matches one turn keeps all of them, including earlier ones.

A session is kept when its position, a hash of its id, is below the highest applicable probability:
the head rate, or the `keep` of a rule that matched any of its turns. Its turns are held until the
session has been idle for a while, or the probability cannot rise further. A turn is recorded with
its session's probability at the time of the decision. That depends on what happened, never on the
draw, so its inverse is the right weight, also for turns that follow the decision.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from evaltap.recorder.sampling.rules import HEAD, History, OutcomeRule, tool_names
from evaltap.recorder.sampling.sampler import (
    SAMPLED_OUT,
    Decision,
    RateLimit,
    is_revision,
    position,
)
from evaltap.schemas.data import CaseData

MAX_WAITING_SESSIONS: Final = 20_000
"""Maximum undecided sessions; beyond it the one waiting the longest is decided."""
MAX_REMEMBERED_SESSIONS: Final = 10_000
LONGEST_WAITS: Final = 6
"""A session that is never idle is decided after this many idle periods."""


@dataclass(slots=True)
class Session:
    """What is known of a session that may be kept."""

    eval_id: str
    position: float
    reason: str
    probability: float
    if_negative: tuple[str, float]
    """Reason and probability after negative feedback."""
    first_at: float
    """Monotonic seconds; of the held turns."""
    last_at: float
    turns: int = 0
    """Turns so far."""
    waiting: int = 0
    dropped: int = 0
    """Turns finally dropped."""
    limited: tuple[float, str] | None = None
    """The rate limit's decision: share, and drop reason; empty: admitted."""

    @property
    def is_kept(self) -> bool:
        """Whether it would be kept now, apart from a rate limit."""
        return self.position < self.probability


class SessionSampler:
    """Decides for sessions; used by one thread. `clock` is monotonic seconds."""

    def __init__(
        self,
        rate: float,
        rules: Sequence[OutcomeRule],
        *,
        quiet_seconds: float,
        max_per_minute: float = 0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate = rate
        self._rules = tuple(rules)
        self._quiet = quiet_seconds
        self._clock = clock
        self._limit = RateLimit(max_per_minute / 60, clock) if max_per_minute else None
        self._history = History()
        self._highest = max([rate, *(rule.keep for rule in rules)])
        self._highest_of_sessions = max([rate, *(one.keep for one in rules if one.whole)])
        self._waiting: OrderedDict[str, Session] = OrderedDict()
        """Ordered by idle time, the longest first."""
        self._decided: OrderedDict[str, Session] = OrderedDict()
        self._next_scan = 0.0

    @property
    def is_full(self) -> bool:
        """Whether too many sessions are undecided."""
        return len(self._waiting) > MAX_WAITING_SESSIONS

    def note(self, case: CaseData) -> tuple[Session | None, Decision]:
        """Record a case with one turn; return its session and the turn's own best probability.

        Without a session nothing can ever keep the turn, and the decision gives the drop reason.
        """
        eval_id = case["evalId"]
        drawn = position(eval_id)
        whole = self._best(case, whole=True)
        own = self._best(case, whole=False)
        is_new = not is_revision(case)
        if is_new:
            self._history.add(tool_names(case["actualConversation"][0]))
        if drawn >= self._highest:
            reason = max(whole, own, key=lambda one: one[1])[0]
            return None, Decision(False, drop_reason(reason), 0.0)
        session = self._session(eval_id, drawn)
        session.turns += is_new
        if whole[1] > session.probability:
            session.reason, session.probability = whole
        negative = self._if_negative(case)
        if negative[1] > session.if_negative[1]:
            session.if_negative = negative
        return session, Decision(True, *own)

    def note_negative(self, eval_id: str) -> Session | None:
        """Record negative feedback; return its session if it is undecided."""
        self._history.note_negative(eval_id)
        session = self._waiting.get(eval_id)
        if session is not None and session.if_negative[1] > session.probability:
            session.reason, session.probability = session.if_negative
        return session

    def is_final(self, session: Session) -> bool:
        """Return whether nothing can change the decision on a session any more."""
        most = self._highest_of_sessions
        return session.probability >= most or session.position >= most or self._quiet <= 0

    def due(self) -> Iterator[Session]:
        """Yield the sessions to decide now: idle long enough, waiting too long, or too many."""
        now = self._clock()
        while self._waiting:
            session = next(iter(self._waiting.values()))
            if not (self.is_full or now - session.last_at >= self._quiet):
                break
            yield session
        if now < self._next_scan:
            return
        self._next_scan = now + 1.0
        longest = self._quiet * LONGEST_WAITS
        yield from [one for one in self._waiting.values() if now - one.first_at >= longest]

    def oldest(self) -> Session | None:
        """Return the session idle for the longest, or None."""
        return next(iter(self._waiting.values()), None)

    def settle(self, session: Session) -> None:
        """Decide a session; `decision` then gives the outcome of its held turns."""
        self._waiting.pop(session.eval_id, None)
        self._decided[session.eval_id] = session
        self._decided.move_to_end(session.eval_id)
        if len(self._decided) > MAX_REMEMBERED_SESSIONS:
            self._decided.popitem(last=False)
        if session.is_kept and self._limit is not None:
            self._apply(self._limit, session)
        session.waiting = 0

    @staticmethod
    def _apply(limit: RateLimit, session: Session) -> None:
        """Apply the limit to a session once; later turns need no new decision, but count."""
        share = limit.share(session.waiting)
        if session.limited is None:
            draw = position(f"{session.eval_id}\0limit")
            session.limited = share, limit.refuses(draw, share, session.waiting)
        elif not session.limited[1]:
            limit.take(session.waiting)

    def decision(self, session: Session, own: tuple[str, float]) -> Decision:
        """Return the decision on a turn of a settled session; `own` is its own best probability."""
        mine = (session.reason, session.probability)
        reason, probability = own if own[1] > mine[1] else mine
        if session.position >= probability:
            return Decision(False, drop_reason(reason), probability)
        share, refused = session.limited or (1.0, "")
        return Decision(not refused, refused or reason, probability * share)

    def _session(self, eval_id: str, drawn: float) -> Session:
        now = self._clock()
        session = self._waiting.get(eval_id)
        if session is None:
            head = (HEAD, self._rate)
            session = self._decided.pop(eval_id, None) or Session(
                eval_id, drawn, *head, head, now, now
            )
            session.first_at = now
            self._waiting[eval_id] = session
        session.last_at = now
        self._waiting.move_to_end(eval_id)
        return session

    def _best(self, case: CaseData, *, whole: bool) -> tuple[str, float]:
        """Return the rule with the highest probability, among those for the session or only the turn."""
        best = (HEAD, self._rate)
        for rule in self._rules:
            if rule.whole is whole and rule.keep > best[1] and rule.holds(case, self._history):
                best = rule.name, rule.keep
        return best

    def _if_negative(self, case: CaseData) -> tuple[str, float]:
        with self._history.as_negative(case["evalId"]):
            return self._best(case, whole=True)


def drop_reason(reason: str) -> str:
    """Return the drop reason to count for a turn that the draw dropped."""
    return SAMPLED_OUT if reason == HEAD else f"{SAMPLED_OUT}:{reason}"
