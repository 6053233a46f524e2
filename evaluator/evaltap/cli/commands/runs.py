"""`evaltap runs`: the scoring runs of a DuckDB file, and their scores as files for comparisons."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from evaltap.cli.options.common import add_json, open_stores
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

_COUNTS = ("cases", "passed", "failed", "crashed", "not_evaluated", "errors")


@dataclass(frozen=True, slots=True)
class RunsOptions:
    """The store whose runs are listed, or `export` and the runs whose scores are written."""

    db: tuple[str, ...]
    out: Path | None
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.usage = (
        "evaltap runs X.duckdb ... [--json]\n"
        "       evaltap runs export X.duckdb[#RUN,...] ... --out FILE"
    )
    parser.epilog = (
        "examples:\n"
        "  evaltap runs cases.duckdb\n"
        "  evaltap runs export cases.duckdb --out baseline.json\n"
        "  evaltap runs export cases.duckdb#20261121-101500-ab12cd --out base.scores.jsonl\n\n"
        "export writes what `evaltap compare` and `evaltap gate --baseline` read, sorted and without\n"
        "times: .json, how often each case passed, small enough for git; .jsonl, every score"
    )
    parser.add_argument(
        "db",
        nargs="+",
        metavar="X.duckdb",
        help="a DuckDB file of evaltap, or the files of consumers with --partitions, read as one; after"
        " export also FILE#RUN,RUN for some of its runs",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="export: the file to write")
    add_json(parser)
    parser.set_defaults(run=run, options=RunsOptions)


def run(options: RunsOptions) -> int:
    """Print a row for each run, oldest first, or write the scores of runs."""
    if options.db[0] == "export":
        return _export(options)
    if options.out is not None:
        raise InputError("--out: goes with export; `evaltap runs export X.duckdb --out FILE`")
    from evaltap.evaluator.results.runs import listed_runs

    with open_stores([Path(name) for name in options.db]) as store:
        rows = listed_runs(store)
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.reports.console import console

    table = Table(
        title="scoring runs; counts are of scores: one for each case and metric (of a gate: dimension)",
        title_justify="left", box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    table.add_column("run", no_wrap=True)
    for name in ("kind", "source", "started (UTC)", "ended"):
        table.add_column(name, overflow="fold")
    always = ("cases", "passed", "failed")
    counts = [name for name in _COUNTS if name in always or any(row[name] for row in rows)]
    for name in counts:
        table.add_column(name.replace("_", " "), justify="right")
    gated = any(row["gate"] for row in rows)
    if gated:
        table.add_column("gate")
    for row in rows:
        ended = row["ended_at"] or ("running" if row["kind"] == "live" else "not finished")
        cells = (row["run_id"], row["kind"], row["source"], row["started_at"][:19], ended[:19])
        verdict = (_verdict(row["gate"]),) if gated else ()
        table.add_row(*map(Text, cells), *(f"{row[name]:,}" for name in counts), *verdict)
    console().print(table)
    return 0


def _verdict(gate: dict[str, int] | None) -> str:
    return f"{gate['passed']:,} of {gate['results']:,} passed" if gate else ""


def _export(options: RunsOptions) -> int:
    from evaltap.evaluator.compare.reading import export_scores

    sides = options.db[1:]
    if not sides or options.out is None:
        raise InputError("export: expected X.duckdb or X.duckdb#RUN, and --out FILE")
    written = export_scores(sides, options.out)
    noun = "score" if options.out.suffix != ".json" else "case"
    print(f"evaltap runs: {counted(written, noun)} written to {options.out}", file=sys.stderr)
    return 0
