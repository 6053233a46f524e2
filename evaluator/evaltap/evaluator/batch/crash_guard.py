"""The crash-loop guard: a case that kills the process that scores it does not block the others for long.

If cases are scored in the process that holds the database, a file next to it names the cases in progress,
and stays behind if the process dies.  If they are scored in other processes, their owner sees them die.
After a death, the suspects are scored one at a time, each noted before it starts.  A case that was alone in
progress at two deaths gets an error with this reason instead of a score.  Without a death, the guard costs
a small write for every two hundred cases.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

from evaltap.schemas.files.private import private_file

CaseKey: TypeAlias = tuple[str, str, str]
"""App name, eval set id, eval id."""


class Keyed(Protocol):
    """Something that is about one case."""

    @property
    def key(self) -> CaseKey:
        """Which case."""
        ...


Watched = TypeVar("Watched", bound=Keyed)

GROUP: Final = 200
"""Cases that are noted at a time, and so suspected together."""
DEATHS: Final = 2
"""Deaths with nothing else under way, after which a case is given up; one may be an accident."""


class CrashGuard:
    """Knows which cases were under way at a death; for the one process that holds the database.

    Without a file (`:memory:`) it only knows the deaths that it is told about.
    """

    def __init__(self, database: Path) -> None:
        self._path = None if str(database) == ":memory:" else Path(f"{database}.scoring")
        self._watching = False
        self._suspects: dict[CaseKey, int] = {}
        before, under_way = self._left_behind()
        self._suspects.update(before)
        self.died(under_way, alone=len(under_way) == 1)

    @property
    def suspects(self) -> frozenset[CaseKey]:
        """Cases that were under way at a death and have no score since."""
        return frozenset(self._suspects)

    def died(self, under_way: Sequence[CaseKey], *, alone: bool) -> None:
        """Learn that a process died while it scored these cases, or one that was `alone`."""
        for key in under_way:
            self._suspects[key] = self._suspects.get(key, 0) + alone

    def gives_up(self, key: CaseKey) -> str | None:
        """Return why a case is not tried again, None when it is."""
        deaths = self._suspects.get(key, 0)
        if deaths < DEATHS:
            return None
        return (
            f"the process died {deaths} times while scoring only this case, so this run does not try it"
            " again (evaltap score --retry does)"
        )

    def watched(self, cases: Sequence[Watched], ahead: int = 0) -> Iterator[Watched]:
        """Yield cases, each noted before; `ahead` are under way at a time beside the last one yielded."""
        try:
            for first in range(0, len(cases), GROUP):
                group = cases[first : first + GROUP]
                self._write([one.key for one in (*cases[max(0, first - ahead) : first], *group)])
                yield from group
        finally:
            self._watching = bool(cases)

    def done(self) -> None:
        """Learn that nothing is under way any more."""
        if self._watching:
            self._write(())
            self._watching = False

    def cleared(self, keys: Sequence[CaseKey]) -> None:
        """Learn that cases have their scores, or their errors, in the database."""
        for key in keys:
            self._suspects.pop(key, None)
        self._write(())

    def _write(self, under_way: Sequence[CaseKey]) -> None:
        if self._path is None:
            return
        if not under_way and not self._suspects:
            self._path.unlink(missing_ok=True)
            return
        noted = [[*key, deaths] for key, deaths in self._suspects.items()]
        # A disk that does not take it has other ways to say so.
        with suppress(OSError), private_file(self._path) as file:
            file.write(json.dumps({"suspects": noted, "under_way": list(under_way)}).encode())

    def _left_behind(self) -> tuple[dict[CaseKey, int], list[CaseKey]]:
        """Return the suspects with their deaths so far, and what was under way at the last death."""
        if self._path is None:
            return {}, []
        try:
            found = json.loads(self._path.read_text())
            before = {(app, name, one): deaths for app, name, one, deaths in found["suspects"]}
            return before, [(app, name, one) for app, name, one in found["under_way"]]
        except (OSError, ValueError, TypeError, KeyError):
            # Nothing, or half of a note: then nobody is suspected.
            return {}, []
