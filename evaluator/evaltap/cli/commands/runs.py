"""`evaltap runs`: list the scoring runs of a DuckDB file, and export their scores for comparisons."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from evaltap.cli.options.common import add_json, open_stores, print_outcome
from evaltap.cli.settings import STORE, of_settings
from evaltap.evaluator.store.queries import Record
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted, utc_text

_ALWAYS = ("cases", "passed", "failed")
_WIDE = 110
_LEAST_SOURCE = 6
_COUNTS = ("cases", "passed", "failed", "crashed", "not_evaluated", "errors")


if TYPE_CHECKING:
    from evaltap.evaluator.store.queries import Record


@dataclass(frozen=True, slots=True)
class RunsOptions:
    """The stores to list, or `export` and the runs whose scores to write."""

    db: tuple[str, ...]
    out: Path | None
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = (
        "evaltap runs X.duckdb ... [--json]\n"
        "       evaltap runs export X.duckdb[#RUN,...] ... --out FILE [--json]"
    )
    parser.epilog = (
        "examples:\n"
        "  evaltap runs cases.duckdb\n"
        "  evaltap runs export cases.duckdb --out baseline.json\n"
        "  evaltap runs export cases.duckdb#20261121-101500-ab12cd --out a.scores.jsonl\n\n"
        "`export` writes a file for `evaltap compare` and `evaltap gate --baseline`, sorted and"
        " without times:\n"
        "  .json   how often each case passed; small enough for git\n"
        "  .jsonl  every score"
    )
    files = parser.add_argument(
        "db",
        nargs="+",
        metavar="X.duckdb",
        help="the store to read; several files, one for each consumer with --partitions, are read as one;"
        " with export also FILE#RUN,RUN for some of its runs (default: the store of evaltap.toml, or"
        " ./cases.duckdb)",
    )
    of_settings(files, STORE)
    parser.add_argument("--out", type=Path, metavar="FILE", help="export: the file to write")
    add_json(parser)
    parser.set_defaults(run=run, options=RunsOptions)


def run(options: RunsOptions) -> int:
    """Print a row for each run, oldest first, or write the scores of runs."""
    if "export" in options.db[:2]:  # the store of the settings may precede it
        return _export(options)
    if options.out is not None:
        raise InputError("--out: only works with export: `evaltap runs export X.duckdb --out FILE`")
    from evaltap.evaluator.scoring.results.runs import listed_runs, run_states

    with open_stores([Path(name) for name in options.db]) as store:
        rows = listed_runs(store)
        landing = store.lands
    if not rows and not options.json:
        print("no scoring runs yet; create one with `evaltap score` or `evaltap consume --metrics`")
        return 0
    if options.json:
        print(json.dumps([_data(row) for row in rows], ensure_ascii=False))
        return 0
    states = run_states(rows, landing=landing)
    _print_table([{**row, "state": state} for row, state in zip(rows, states, strict=True)])
    return 0


def _data(row: "Record") -> "Record":
    """Return a run for JSON, with times in the same format as in other commands."""
    times = {name: row[name] for name in ("started_at", "ended_at", "last_scored_at") if row[name]}
    written = {
        name: utc_text(datetime.fromisoformat(text), "milliseconds") for name, text in times.items()
    }
    return row | written


def _print_table(rows: "list[Record]") -> None:
    """Print a line for each run; a narrow terminal shortens times and sources, never ids."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.reports.console import console

    out = console()
    narrow = out.width < _WIDE
    table = Table(
        title="scoring runs (counts are scores: one for each case and metric, for a gate each case and"
        " dimension)",
        title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    counts = [name for name in _COUNTS if name in _ALWAYS or any(row[name] for row in rows)]
    lines = [_cells(row, counts, narrow) for row in rows]
    titles = [title for title in _cells({}, counts, narrow) if any(line[title] for line in lines)]
    widths = {
        title: max(map(len, (*title.split(), *(line[title] for line in lines)))) for title in titles
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
    """Shorten the sources; if that is not enough, omit the kinds."""

    def over() -> int:
        return sum(widths.values()) + 2 * len(widths) + 2 - width

    widths["source"] = max(_LEAST_SOURCE, min(widths["source"], widths["source"] - over()))
    if over() > 0:
        del widths["kind"]


def _cells(row: "Record", counts: Sequence[str], narrow: bool) -> dict[str, str]:
    """Return the cells of a run by title; an empty run gives the titles."""
    cells = {
        "run": row.get("run_id", ""),
        "kind": row.get("kind", ""),
        "source": row.get("source", ""),
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
    if gate := row.get("gate"):
        passed = f"{gate['passed']:,} of {gate['results']:,}"
        cells["gate"] = passed if narrow else f"{passed} passed"
    else:
        cells["gate"] = ""
    return cells


def _export(options: RunsOptions) -> int:
    from evaltap.evaluator.reports.compare.reading import export_scores

    sides = [side for side in options.db if side != "export"]
    if not sides or options.out is None:
        raise InputError("export: expected X.duckdb or X.duckdb#RUN, and --out FILE")
    written = export_scores(sides, options.out)
    noun = "score" if options.out.suffix != ".json" else "case"
    data = {f"{noun}s": written, "out": str(options.out)}
    text = f"evaltap runs: {counted(written, noun)} written to {options.out}"
    print_outcome(data, text, as_json=options.json)
    return 0
