"""The note about running work: its content after a crash, and its removal after a normal end."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest

from evaltap.evaluator.pipeline.batch.crash_guard import DEATHS, GROUP, CrashGuard


class Case(NamedTuple):
    number: int

    @property
    def key(self) -> tuple[str, str, str]:
        return "app", "set", f"s-{self.number}"


CASES = [Case(number) for number in range(3 * GROUP)]


def die_at(database: Path, cases: list[Case], number: int) -> None:
    """Score cases up to one of them, and end as a killed process does."""
    watched: Any = CrashGuard(database).watched(cases)
    while next(watched).number != number:
        pass
    note = Path(f"{database}.scoring").read_text()
    watched.close()
    Path(f"{database}.scoring").write_text(note)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "x.duckdb"


def test_after_a_good_end_nothing_is_left_behind(database: Path) -> None:
    guard = CrashGuard(database)

    assert list(guard.watched(CASES)) == CASES
    guard.done()

    assert list(database.parent.iterdir()) == []


def test_after_a_death_the_cases_of_one_group_are_suspected(database: Path) -> None:
    die_at(database, CASES, GROUP + 7)

    guard = CrashGuard(database)

    assert guard.suspects == {case.key for case in CASES[GROUP : 2 * GROUP]}
    assert not any(guard.gives_up(case.key) for case in CASES)


def test_a_case_that_was_alone_at_two_deaths_is_given_up_and_no_other(database: Path) -> None:
    die_at(database, CASES[:3], 1)
    for _ in range(DEATHS):
        die_at(database, CASES[1:2], 1)

    guard = CrashGuard(database)

    assert "died 2 times" in (guard.gives_up(CASES[1].key) or "")
    assert guard.gives_up(CASES[0].key) is None
    guard.cleared([case.key for case in CASES[:3]])
    assert list(database.parent.iterdir()) == []


@pytest.mark.parametrize("note", ["", "{", "[]", '{"suspects": [], "under_way": [1]}', "\xff"])
def test_half_a_note_makes_nobody_suspect(database: Path, note: str) -> None:
    Path(f"{database}.scoring").write_text(note, "latin-1")

    assert CrashGuard(database).suspects == frozenset()


def test_a_database_in_memory_has_no_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert list(CrashGuard(Path(":memory:")).watched(CASES)) == CASES

    assert list(tmp_path.iterdir()) == []
