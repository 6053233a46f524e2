"""What redaction looks for: words, formats, phrases and commands as rows of tables.

The tables are the `.tsv` files beside this module: a header, then a row a line. In a pattern `(?&name)`
stands for what the row, or the list of words, of that name in the same family says. A pattern is compiled
when a text first needs it: compiling all of them takes longer than everything else at a recorder's start.
"""

import pkgutil
import re
from collections.abc import Iterator
from functools import cache

from evaltap.recorder.pacing import yield_to_agent

_TABLES = ("cards", "commands", "formats", "patterns", "phrases", "sentences", "words")
# Read at import, as modules are: when a text needs them, the process may have no file left to open.
_CONTENT = {
    table: (pkgutil.get_data(__name__, f"{table}.tsv") or b"").decode() for table in _TABLES
}
_PART = re.compile(r"\(\?&(\w+)\)")


def rows(table: str) -> Iterator[list[str]]:
    """Yield the rows of a table."""
    return parsed(table, _CONTENT[table])


def parsed(table: str, content: str) -> Iterator[list[str]]:
    """Yield the rows of a table's text; raises ValueError for one that stands twice or lacks a cell."""
    header, *lines = content.splitlines()
    columns = header.count("\t")
    seen: set[str] = set()
    for number, line in enumerate(lines, start=2):
        if line in seen or line.count("\t") != columns:
            fault = "stands twice" if line in seen else f"expected {columns + 1} cells"
            raise ValueError(f"{table}.tsv:{number}: {fault}: {line}")
        seen.add(line)
        yield line.split("\t")


@cache
def _lists() -> dict[str, tuple[str, ...]]:
    lists: dict[str, tuple[str, ...]] = {}
    for name, _, listed, _ in rows("words"):
        found = (*lists.get(name, ()), *listed.split(" "))
        if len(set(found)) < len(found):
            twice = sorted({one for one in found if found.count(one) > 1})
            raise ValueError(f"words.tsv: {name}: stands twice: {', '.join(twice)}")
        lists[name] = found
    return lists


def words(name: str) -> tuple[str, ...]:
    """Return the words of a list, of all languages."""
    return _lists()[name]


class Words:
    """The lists of one family as sets, by name: `"pin" in Words("names").exact`."""

    def __init__(self, family: str) -> None:
        self._family = family

    def __getattr__(self, name: str) -> frozenset[str]:
        # Called for a name that was not used before: the list becomes an attribute.
        found = frozenset(words(f"{self._family}.{name}"))
        setattr(self, name, found)
        return found


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern compiled; other threads may run after it."""
    made = re.compile(pattern)
    yield_to_agent()
    return made


@cache
def _sources() -> dict[str, dict[str, list[str]]]:
    sources: dict[str, dict[str, list[str]]] = {}
    for family, name, pattern, _ in rows("patterns"):
        sources.setdefault(family, {}).setdefault(name, []).append(pattern)
    return sources


class Patterns:
    """The patterns of one family, by name: `Patterns("tables").row.match(text)`."""

    def __init__(self, family: str) -> None:
        self._family = family

    def __getattr__(self, name: str) -> re.Pattern[str]:
        # Called for a name that was not used before: the pattern becomes an attribute.
        if len(_sources()[self._family].get(name, ())) != 1:
            raise AttributeError(f"patterns.tsv: expected one row {self._family} {name}")
        pattern = compiled(self.source(name))
        setattr(self, name, pattern)
        return pattern

    def each(self, name: str) -> tuple[re.Pattern[str], ...]:
        """Return the patterns of all rows with a name, in their order."""
        return _several(self._family, name)

    def source(self, name: str) -> str:
        """Return the text of a pattern, or of a list of words, as it is compiled."""
        sources = _sources()[self._family]
        if name not in sources:
            return "|".join(words(f"{self._family}.{name}"))
        return "|".join(map(self.whole, sources[name]))

    def whole(self, pattern: str) -> str:
        """Return a pattern with the parts that it names."""
        return _PART.sub(lambda part: self.source(part[1]), pattern)


@cache
def _several(family: str, name: str) -> tuple[re.Pattern[str], ...]:
    whole = Patterns(family).whole
    return tuple(compiled(whole(one)) for one in _sources()[family][name])
