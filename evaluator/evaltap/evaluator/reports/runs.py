"""The scoring runs of a store: as data, and as a table that keeps their ids whole."""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from rich.text import Text

from evaltap.evaluator.reports.console import console, plain_table
from evaltap.evaluator.store.queries import Record
from evaltap.schemas.text import utc_text

_ALWAYS = ("cases", "passed", "failed")
_WIDE = 110
_LEAST_SOURCE = 6
_COUNTS = ("cases", "passed", "failed", "crashed", "not_evaluated", "errors")


def run_data(row: Record) -> Record:
    """Return a run for JSON, with times in the same format as in other commands."""
    return row | {
        name: utc_text(datetime.fromisoformat(row[name]), "milliseconds")
        for name in ("started_at", "ended_at", "last_scored_at")
        if row[name]
    }


def print_runs(rows: list[Record]) -> None:
    """Print a line for each run; a narrow terminal shortens times and sources, never ids."""
    out = console()
    narrow = out.width < _WIDE
    counted = "counts are scores: one for each case and metric, for a gate each case and dimension"
    table = plain_table(1, f"scoring runs ({counted})")
    counts = [name for name in _COUNTS if name in _ALWAYS or any(row[name] for row in rows)]
    lines = [_cells(row, counts, narrow) for row in rows]
    widths = {
        title: max(map(len, (*title.split(), *(line[title] for line in lines))))
        for title in _cells({}, counts, narrow)
        if any(line[title] for line in lines)
    }
    if narrow:
        _fit(widths, out.width)
    for title in widths:
        side: Literal["left", "right"] = "right" if title.replace(" ", "_") in counts else "left"
        table.add_column(title, width=widths[title], justify=side)
    for line in lines:
        table.add_row(*(Text(line[title], no_wrap=narrow, overflow="ellipsis") for title in widths))
    out.print(table)


def _fit(widths: dict[str, int], width: int) -> None:
    """Shorten the sources; if that is not enough, omit kinds, sources and times."""

    def over() -> int:
        return sum(widths.values()) + 2 * len(widths) + 2 - width

    widths["source"] = max(_LEAST_SOURCE, min(widths["source"], widths["source"] - over()))
    for title in ("kind", "source", "started"):
        if over() > 0:
            del widths[title]


def _cells(row: Record, counts: Sequence[str], narrow: bool) -> dict[str, str]:
    """Return the cells of a run by title; an empty run gives the titles."""
    source = row.get("source", "")
    cells = {
        "run": row.get("run_id", ""),
        "kind": row.get("kind", ""),
        "source": source.rpartition("/")[2] if narrow else source,
    }
    begun, ended = row.get("started_at", ""), row.get("ended_at")
    if narrow:
        cells["started"] = begun[5:16]
    else:
        cells["started (UTC)"] = begun[:19]
        state, last = row.get("state", ""), row.get("last_scored_at")
        if state == "stopped" and last:
            state = f"stopped, last score {last[:19]}"
        cells["ended"] = ended[:19] if ended else state
    cells |= {name.replace("_", " "): f"{row.get(name, 0):,}" for name in counts}
    gate = row.get("gate")
    passed = f"{gate['passed']:,} of {gate['results']:,}" if gate else ""
    return cells | {"gate": passed if narrow or not gate else f"{passed} passed"}
