"""The tables that redaction reads: each row is used, each name has its row, nothing stands twice."""

import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import evaltap.recorder.privacy
from evaltap.recorder.privacy import lexicon
from evaltap.recorder.privacy.lexicon import compiled, each, lists, parsed, patterns, rows, whole

FOLDER = Path(evaltap.recorder.privacy.__file__).parent
SOURCES = [path.read_text("utf-8") for path in FOLDER.rglob("*.py")]
TABLES = sorted(path.stem for path in (FOLDER / "lexicon").glob("*.tsv"))
FAMILY_OF_TABLE = {"formats": "keys", "phrases": "phrases", "sentences": "sentences"}
_OF_MODULE = re.compile(r'^(_\w+) = (patterns|lists)\("(\w+)"\)$', re.MULTILINE)
_PART = re.compile(r"\(\?&(\w+)\)")

Names = set[tuple[str, str]]
"""Family and name."""


def asked_for(kind: str) -> Names:
    """Return the patterns or lists that the source names."""
    found: Names = set()
    for text in SOURCES:
        for variable, what, family in _OF_MODULE.findall(text):
            if what == kind:
                names = re.findall(rf"\b{variable}\.(\w+)", text)
                found.update((family, name) for name in names)
        several = r'\bwords\("(\w+)\.' if kind == "lists" else r'\beach\("(\w+)", "'
        found.update(re.findall(several + r'(\w+)"\)', text))
    return found


def asked_for_by_text() -> set[str]:
    """Return the names that the source holds in quotes, to choose among several in a loop."""
    return {name for text in SOURCES for name in re.findall(r'"(\w+)"', text)}


def parts() -> Names:
    """Return what patterns name as their parts."""
    found: Names = {("keys", "start")}
    for family, _, pattern, _ in rows("patterns"):
        found.update((family, part) for part in _PART.findall(pattern))
    for table, family in FAMILY_OF_TABLE.items():
        for row in rows(table):
            found.update((family, part) for part in _PART.findall(" ".join(row)))
    return found


def pattern_rows() -> Names:
    return {(family, name) for family, name, _, _ in rows("patterns")}


def list_rows() -> Names:
    return {(family, name) for family, _, name in (row[0].partition(".") for row in rows("words"))}


def test_what_the_source_names_has_a_row() -> None:
    assert asked_for("patterns") - pattern_rows() == set()
    assert asked_for("lists") - list_rows() == set()
    assert parts() - pattern_rows() - list_rows() == set()


def test_every_row_is_used() -> None:
    by_text = asked_for_by_text()
    several = re.compile(r"(percent|entities|escapes|quoted_printable)_token")
    lists_of_several = re.compile(r"(?:harmless_before|head|with)_(\w+)")

    unused = pattern_rows() - asked_for("patterns") - parts()
    words = list_rows() - asked_for("lists") - parts()

    assert {name for _, name in unused if several.sub(r"\1", name) not in by_text} == set()
    assert {name for _, name in words if lists_of_several.sub(r"\1", name) not in by_text} == set()


@pytest.mark.parametrize("family", sorted({family for family, _ in pattern_rows()}))
def test_every_pattern_compiles(family: str) -> None:
    for _, name in sorted(one for one in pattern_rows() if one[0] == family):
        assert each(family, name)
        assert not hasattr(ModuleType, name), "the name is that of an attribute of all modules"


@pytest.mark.parametrize("table", FAMILY_OF_TABLE)
def test_every_pattern_of_a_table_compiles_and_says_for_what_it_is(table: str) -> None:
    column = {"formats": 2, "phrases": 1, "sentences": 3}[table]

    for row in rows(table):
        assert compiled(whole(FAMILY_OF_TABLE[table], row[column]))
        assert row[-1], row


@pytest.mark.parametrize("table", TABLES)
def test_no_pattern_repeats_a_group_in_a_way_that_python_3_11_2_gets_wrong(table: str) -> None:
    possessive = re.compile(r"(?<!\\)\)(?:[*+?]|\{\d*,?\d*\})\+")

    assert not [row for row in rows(table) if any(map(possessive.search, row))]


@pytest.mark.parametrize("table", TABLES)
def test_no_row_of_a_table_stands_twice(table: str) -> None:
    assert list(rows(table))


def test_a_row_that_stands_twice_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cards\.tsv:3: stands twice: 4\t4"):
        list(parsed("cards", "first\tlast\n4\t4\n4\t4\n"))


def test_a_row_with_a_missing_cell_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cards\.tsv:2: expected 2 cells: 4"):
        list(parsed("cards", "first\tlast\n4\n"))


def test_a_name_without_a_row_is_refused() -> None:
    with pytest.raises(AttributeError, match="expected one row numbers nonesuch"):
        _ = patterns("numbers").nonesuch
    with pytest.raises(KeyError, match=r"numbers\.nonesuch"):
        _ = lists("numbers").nonesuch


def test_a_redactor_compiles_patterns_for_its_first_text_and_opens_no_file_then() -> None:
    program = (
        "from evaltap.recorder import PatternRedactor\n"
        f"from {lexicon.__name__} import compiled\n"
        "redactor = PatternRedactor(b'k' * 32)\n"
        "assert compiled.cache_info().currsize == 0\n"
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "said = redactor.value('Mit bob/hunter42! einloggen, Karte 4111 1111 1111 1111: mysql -px1y2z3')\n"
        "assert '4111' not in said and 'x1y2z3' not in said, said\n"
        "assert compiled.cache_info().currsize > 10\n"
    )

    subprocess.run([sys.executable, "-c", program], check=True)
