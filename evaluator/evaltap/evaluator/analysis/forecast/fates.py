"""What became of each turn of a replay: faithful, forked, off script, or invalid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

Fate: TypeAlias = Literal["faithful", "forked", "off_script", "invalid"]
"""faithful: the recording answered every call, here and in the turns before, which made the recorded calls;
forked: a call without a recorded result; off_script: after a fork, or after a turn with fewer calls, so that
the next user message is an answer to something else; invalid: evaltap's fault, such as a result that was not
recorded."""
_LOST: Final = ("result of ", "arguments of ", "state written by ", "decision on ")
_FORKS: Final = ("misses", "real", "invented", "closest")
"""The calls of a turn that its recording did not answer."""
_NOTHING: Final[Mapping[str, Any]] = {name: () for name in (*_FORKS, "unused")}
"""What the tools were asked in a turn of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Fork:
    """The call at which a session left its recording."""

    tool: str
    arguments: Any  # JSON
    why: str

    @property
    def is_lost(self) -> bool:
        """Whether the call was recorded, but not what its answer needs: this is no fork of the agent's."""
        return self.why.startswith(_LOST)

    @property
    def sentence(self) -> str:
        """Why the recording did not answer, with the tool."""
        return self.why if self.is_lost else f"{self.tool} {self.why}"


@dataclass(frozen=True, slots=True)
class TurnFate:
    fate: Fate
    fork: Fork | None = None
    """The call, in the turn that forked, or whose result was not recorded."""
    crashed: bool = False
    """Whether the agent crashed in this turn, of which perhaps nothing was recorded."""

    def verdict(self, seen: bool | None) -> bool | None:
        """Return the new verdict, if it is evidence about the new agent; `seen` is that in the store."""
        if not self.is_faithful:
            return None
        return False if self.crashed else seen

    @property
    def is_faithful(self) -> bool:
        """Whether the run of the turn is evidence about the new agent."""
        return self.fate == "faithful"


def fates(
    state: str | None, answers: Sequence[Mapping[str, Any]], turns: int
) -> Iterator[TurnFate]:
    """Yield what became of each recorded turn in a run.

    `state` is that of its unit (None: not run), `answers` what tools were asked, turn by turn.  An agent
    that did not start, or whose process died, has failed in the first one.
    """
    missed = any(turn["misses"] for turn in answers)
    if state is None or (state == "invalid" and not missed):
        yield from [TurnFate("invalid")] * turns
        return
    left = False
    crashes = _crashes(state, answers)
    answers = answers or [_NOTHING] * len(crashes)
    for place in range(turns):
        if left or place >= len(answers):
            yield TurnFate("off_script")
            continue
        turn = answers[place]
        fork = fork_of(turn)
        left = fork is not None or bool(turn["unused"])
        if fork is None:
            yield TurnFate("faithful", crashed=place in crashes)
        else:
            yield TurnFate("invalid" if fork.is_lost else "forked", fork)


def _crashes(state: str, answers: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the turns in which the agent crashed."""
    told = {place for place, turn in enumerate(answers) if turn.get("crashed")}
    return told or ({max(len(answers) - 1, 0)} if state == "crashed" else told)


def fork_of(turn: Mapping[str, Any]) -> Fork | None:
    """Return the first call of a turn that the recording did not answer."""
    found = (one for name in _FORKS for one in turn.get(name, ()))
    return next((Fork(one["tool"], one["arguments"], one["why"]) for one in found), None)
