"""The ids of set and case as the user's functions give them, in place of the session id."""

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from evaltap.recorder.faults import LOG_INTERVAL_SECONDS, DropCaseError
from evaltap.schemas.data import CaseData

_LOG = logging.getLogger("evaltap.recorder")
_MOST_SESSIONS: Final = 10_000
"""Sessions whose ids are remembered, for feedback that comes later."""


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run when it has ended; texts are empty if they are unknown.

    >>> from evaltap.recorder import MemorySink, Recorder
    >>> sink = MemorySink()
    >>> with Recorder(sink=sink, eval_id=lambda run: f"{run.app_name}-{run.session_id}") as recorder:
    ...     with recorder.turn(session_id="s-1", app_name="shop", user="Hello") as turn:
    ...         turn.respond("Good morning.")
    >>> sink.cases[0]["evalId"]
    'shop-s-1'
    """

    session_id: str
    app_name: str = ""
    user_id: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)  # JSON
    """The session's state."""
    tags: Sequence[str] = ()


IdResolver: TypeAlias = Callable[[RunFacts], str]
"""Returns the id of the set or the case that a run belongs to.

Called by the background thread, once per turn and before sampling.  An exception or a blank id drops the turn
(`unresolved_id`), which is counted and logged.
"""


class CaseIds:
    """Gives cases the ids that the resolvers return; a run of an experiment keeps its own."""

    def __init__(self, eval_set_id: IdResolver | None, eval_id: IdResolver | None) -> None:
        self._resolvers = {"evalSetId": eval_set_id, "evalId": eval_id}
        self._known: OrderedDict[str, dict[str, str]] = OrderedDict()
        self._failed, self._told_at = 0, 0.0

    def named(self, case: CaseData, *, recalled: bool = False) -> CaseData:
        """Return the case with its ids; raises DropCaseError.

        `recalled`: as for the latest turn of the session, if there was one; for feedback.
        """
        if not any(self._resolvers.values()):
            return case
        source, session = case.get("source") or {}, case.get("sessionInput") or {}
        if "trial" in source:
            return case
        name = str(case["evalId"])
        ids = self._known.get(name) if recalled else None
        if ids is None:
            facts = RunFacts(
                name,
                session.get("appName") or "",
                session.get("userId") or "",
                session.get("state") or {},
                tuple(source.get("tags") or ()),
            )
            ids = {
                key: self._resolved(key, resolver, facts)
                for key, resolver in self._resolvers.items()
                if resolver is not None
            }
            self._known[name] = ids
            self._known.move_to_end(name)
            if len(self._known) > _MOST_SESSIONS:
                self._known.popitem(last=False)
        return {**case, **ids}

    def _resolved(self, key: str, resolver: IdResolver, facts: RunFacts) -> str:
        try:
            found: object = resolver(facts)
        except BaseException as error:  # of the user's function: see Worker.run
            self._tell(f"the resolver of {key} raised {type(error).__name__}")
            raise DropCaseError("unresolved_id") from error
        if not isinstance(found, str) or not found.strip():
            shown = "a blank id" if isinstance(found, str) else type(found).__name__
            self._tell(f"the resolver of {key} returned {shown}; expected a text")
            raise DropCaseError("unresolved_id")
        return found

    def _tell(self, what: str) -> None:
        """Log a failure, at most once a minute; the resolver's own text may be private."""
        self._failed += 1
        now = time.monotonic()
        if self._failed == 1 or now - self._told_at >= LOG_INTERVAL_SECONDS:
            _LOG.warning("%s: the turn is dropped (%d so far)", what, self._failed)
            self._told_at = now
