"""`--tasks` and `--items`: limit the cases that are scored."""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaltap.cli.parsing import of_environment, positive
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.cases.identity import CaseKey
    from evaltap.evaluator.scoring.selection import Selection


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Glob patterns and a number of cases; the environment supplies options that are not given."""

    command: str
    tasks: tuple[str, ...] | None
    items: int | None

    def selection(self, chosen: "Sequence[CaseKey] | None" = None) -> "Selection | None":
        """Return the selection of cases to score, None for all; `chosen` are the cases of a filter."""
        from evaltap.evaluator.scoring.selection import Selection

        given = (os.environ.get("EVALTAP_TASKS", ""),) if self.tasks is None else self.tasks
        tasks = [part.strip() for text in given for part in text.split(",") if part.strip()]
        items = self.items
        if items is None and (text := os.environ.get("EVALTAP_ITEMS", "").strip()):
            items = of_environment("EVALTAP_ITEMS", positive, text)
        keys = None if chosen is None else frozenset(key[1:] for key in chosen)
        return Selection(tasks, items, keys) if tasks or items or keys else None


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that limit the cases to score."""
    parser.add_argument(
        "--tasks",
        action="append",
        metavar="GLOB",
        help="score only cases whose eval id, eval set id or <eval set>/<eval id> matches; separate"
        " several with commas, or repeat the option (default: EVALTAP_TASKS, or all)",
    )
    parser.add_argument(
        "--items",
        type=positive,
        metavar="N",
        help="score only the first N cases (default: EVALTAP_ITEMS, or all)",
    )


def report_selection(command: str, selection: "Selection | None") -> None:
    """Report how many cases were selected; raise InputError when none was."""
    if selection is None:
        return
    tasks = ",".join(selection.tasks)
    if selection.seen and not selection.taken:
        raise InputError(
            f"--tasks {tasks}: none of {selection.seen:,} cases matches; the first is"
            f" {selection.passed_over}"
        )
    notes = []
    if selection.tasks:
        notes.append(f"{selection.taken:,} of {selection.seen:,} cases match --tasks {tasks}")
    if selection.full:
        notes.append(f"stopped after {selection.items:,} (--items)")
    if notes:
        print(f"evaltap {command}: {'; '.join(notes)}", file=sys.stderr)
