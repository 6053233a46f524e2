"""How far a worker is with one partition of jobs: what to commit, and which jobs end their workers.

Jobs finish out of order; committed is the offset before which all are done.  Beside it, in the metadata
of the commit, stand the jobs that were begun: when the worker dies, the next one reads there how often
each has been begun without an end.  So a job that kills its worker is found, by whatever worker has the
partition, and no other place has to remember it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MOST_TRIES: Final = 3
"""Starts without an end, until a job is not tried any more."""
ALONE_FROM: Final = MOST_TRIES - 1
"""So many starts without an end, and a job runs alone: the others are not to blame for its next one."""
_MOST_NAMED: Final = 200
"""Jobs in the metadata of a commit, of which a broker takes 4096 bytes."""


@dataclass(slots=True)
class JobProgress:
    """The jobs of one partition, by offset; `tries` are starts without an end, of workers before."""

    position: int
    tries: dict[int, int] = field(default_factory=dict)
    _begun: set[int] = field(default_factory=set)
    _open: dict[int, bool] = field(default_factory=dict)
    """Offsets that were read and are not done, in their order; the values mean nothing."""

    @classmethod
    def restored(cls, position: int, metadata: str) -> "JobProgress":
        """Return the progress that a commit tells of; metadata of others means nothing."""
        try:
            found = json.loads(metadata or "{}")["begun"]
            tries = {int(offset): int(count) for offset, count in found.items()}
        except (ValueError, KeyError, TypeError, AttributeError):
            tries = {}
        return cls(position, {at: count for at, count in tries.items() if at >= position})

    def read(self, offset: int) -> None:
        """Note a job that was read."""
        self._open[offset] = True
        self.position = offset + 1

    def begin(self, offset: int) -> None:
        """Note that a job is about to start; commit before it does."""
        self._begun.add(offset)

    def done(self, offset: int) -> None:
        """Note that a job's answer is safe."""
        self._open.pop(offset, None)
        self._begun.discard(offset)
        self.tries.pop(offset, None)

    def abandon(self) -> None:
        """Note that the jobs under way were left in good order: that says nothing against them."""
        self._begun.clear()

    def is_suspect(self, offset: int) -> bool:
        """Tell whether a job must run alone."""
        return self.tries.get(offset, 0) >= ALONE_FROM

    def is_hopeless(self, offset: int) -> bool:
        """Tell whether a job has ended too many workers."""
        return self.tries.get(offset, 0) >= MOST_TRIES

    def to_commit(self) -> tuple[int, str]:
        """Return the offset before which all is done, and the metadata beside it."""
        offset = next(iter(self._open), self.position)
        named: Mapping[int, int] = {
            at: self.tries.get(at, 0) + (at in self._begun)
            for at in sorted(self._begun | self.tries.keys())
            if at >= offset
        }
        some = dict(list(named.items())[:_MOST_NAMED])
        return offset, json.dumps({"begun": some}, separators=(",", ":")) if some else ""
