"""What redaction looks for: words, formats, phrases and commands as rows of tables.

The tables are the `.tsv` files beside this module: a header, then a row a line. In a pattern `(?&name)`
stands for what the row, or the list of words, of that name in the same family says. A pattern is compiled
when a text first needs it: compiling all of them takes longer than everything else at a recorder's start.

A group is repeated as `(?>(?:...)*)`, not as `(?:...)*+`: Python before 3.11.5 forgets where a try of such a
group began that failed, and what follows is not found (CPython issue 106052).
"""

import pkgutil
import re
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Protocol, cast

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


class Lists(Protocol):
    """The lists of one family as sets, by name: `"pin" in lists("names").exact`."""

    def __getattr__(self, name: str, /) -> frozenset[str]: ...


def lists(family: str) -> Lists:
    """Return the lists of a family."""
    return cast(Lists, _by_name(family, lambda name: frozenset(words(f"{family}.{name}"))))


def _by_name(family: str, find: Callable[[str], object]) -> ModuleType:
    """Return an object whose attributes are found when they are first used.

    A module, since Python reads its attributes four times as fast as those of a class with `__getattr__`.
    """
    made = ModuleType(family)

    def first(name: str) -> object:
        setattr(made, name, found := find(name))
        return found

    made.__getattr__ = first  # type: ignore[method-assign]  # PEP 562
    return made


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


class Patterns(Protocol):
    """The patterns of one family, by name: `patterns("tables").row.match(text)`."""

    def __getattr__(self, name: str, /) -> re.Pattern[str]: ...


def patterns(family: str) -> Patterns:
    """Return the patterns of a family."""

    def one(name: str) -> re.Pattern[str]:
        if len(_sources()[family].get(name, ())) != 1:
            raise AttributeError(f"patterns.tsv: expected one row {family} {name}")
        return each(family, name)[0]

    return cast(Patterns, _by_name(family, one))


@cache
def each(family: str, name: str) -> tuple[re.Pattern[str], ...]:
    """Return the patterns of all rows with a name, in their order."""
    return tuple(compiled(whole(family, one)) for one in _sources()[family][name])


def whole(family: str, pattern: str) -> str:
    """Return a pattern with the parts that it names."""
    return _PART.sub(lambda part: _source(family, part[1]), pattern)


def _source(family: str, name: str) -> str:
    """Return the text of a pattern, or of a list of words, as it is compiled."""
    if name not in _sources()[family]:
        return any_of(words(f"{family}.{name}"))
    return "|".join(whole(family, one) for one in _sources()[family][name])


def any_of(words: tuple[str, ...]) -> str:
    """Return a pattern of words by their first letters, which `re` tries four times as fast."""
    if not all(one[0].isalnum() and not set("?*+{|()[").intersection(one) for one in words):
        return "|".join(words)
    by_first: dict[str, list[str]] = {}
    for one in words:
        by_first.setdefault(one[0], []).append(one[1:])
    return "|".join(f"{first}(?:{'|'.join(rests)})" for first, rests in by_first.items())
