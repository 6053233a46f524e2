"""The crash-loop guard: a case that kills the process that scores it does not block the others for long.

If cases are scored in the process that holds the database, a file next to it names the cases in progress; it
stays behind if the process dies.  If they are scored in other processes, their owner notices when one dies.
After a death, the suspects are scored one at a time, and the file is updated before each.  A case that was
alone in progress at two deaths gets an error with this reason instead of a score.  Without a death, the guard
costs a small write for every two hundred cases.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

import orjson

from evaltap.schemas.files.private import private_file

CaseKey: TypeAlias = tuple[str, str, str]
"""App name, eval set id, eval id."""


class Keyed(Protocol):
    """An object that belongs to one case."""

    @property
    def key(self) -> CaseKey:
        """The name of the case."""
        ...


Watched = TypeVar("Watched", bound=Keyed)

GROUP: Final = 200
"""Cases that are written to the file together, and so suspected together."""
DEATHS: Final = 2
"""Deaths with nothing else in progress after which a case is given up; a single one may be an accident."""


def given_up_after(deaths: int) -> str | None:
    """Return why a case that was alone in progress at so many deaths is not tried again; None if it is."""
    if deaths < DEATHS:
        return None
    return (
        f"the process died {deaths} times while scoring only this case, so this run does not try it"
        " again (evaltap score --retry does)"
    )


class PartJournal:
    """The guard of a part that workers of a cluster score: the next one reads what the dead one left.

    A first attempt notes only that it began.  After a death, cases are scored one at a time, and each is
    noted before.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._deaths: Counter[int] = Counter()
        self.suspicious = path.exists()
        """Whether a worker died with this part."""
        if self.suspicious:
            attempts = path.read_text().split("began\n")[1:]
            self._deaths.update(int(lines.split()[-1]) for lines in attempts if lines.strip())
        self._note("began\n")

    def gives_up(self, place: int) -> str | None:
        """Return why the case at this place of the part is not tried again; None if it is."""
        return given_up_after(self._deaths[place])

    def begins(self, place: int) -> None:
        """Note that the case at this place is scored next, alone."""
        self._note(f"{place}\n")

    def done(self) -> None:
        """Forget the part: its rows are written."""
        self._path.unlink(missing_ok=True)

    def _note(self, text: str) -> None:
        with self._path.open("a") as file:
            file.write(text)


class CrashGuard:
    """Tracks the cases in progress at a death, for the process that holds the database.

    Without a file (`:memory:`), it only knows the deaths reported to `died`.
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
        """Cases that were in progress at a death and have not been scored since."""
        return frozenset(self._suspects)

    def died(self, under_way: Sequence[CaseKey], *, alone: bool) -> None:
        """Record that a process died with these cases in progress, or with a single one that ran `alone`."""
        for key in under_way:
            self._suspects[key] = self._suspects.get(key, 0) + alone

    def gives_up(self, key: CaseKey) -> str | None:
        """Return why a case is not tried again; None if it is."""
        return given_up_after(self._suspects.get(key, 0))

    def watched(self, cases: Sequence[Watched], ahead: int = 0) -> Iterator[Watched]:
        """Yield cases after noting them; up to `ahead` earlier cases may still be in progress."""
        try:
            for first in range(0, len(cases), GROUP):
                group = cases[first : first + GROUP]
                self._write([one.key for one in (*cases[max(0, first - ahead) : first], *group)])
                yield from group
        finally:
            self._watching = bool(cases)

    def done(self) -> None:
        """Record that nothing is in progress any more."""
        if self._watching:
            self._write(())
            self._watching = False

    def cleared(self, keys: Sequence[CaseKey]) -> None:
        """Record that the scores or errors of cases are in the database."""
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
        # A full or broken disk is reported when the database is written.
        with suppress(OSError), private_file(self._path) as file:
            file.write(orjson.dumps({"suspects": noted, "under_way": under_way}))

    def _left_behind(self) -> tuple[dict[CaseKey, int], list[CaseKey]]:
        """Return the suspects with their deaths so far, and the cases in progress at the last death."""
        if self._path is None:
            return {}, []
        try:
            found = orjson.loads(self._path.read_bytes())
            before = {(app, name, one): deaths for app, name, one, deaths in found["suspects"]}
            return before, [(app, name, one) for app, name, one in found["under_way"]]
        except (OSError, ValueError, TypeError, KeyError):
            # No file, or an incomplete one: no case is suspected.
            return {}, []
