"""`evaltap runs`: the scoring runs of a DuckDB file."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from evaltap.cli.options.common import add_databases, add_json, open_stores

QUERY = """
SELECT r.run_id, r.kind, r.source, r.started_at::VARCHAR AS started_at,
       (SELECT max(e.ended_at) FROM run_ends e WHERE e.run_id = r.run_id)::VARCHAR AS ended_at,
       count(DISTINCT (s.app_name, s.eval_set_id, s.eval_id)) FILTER (s.score_id IS NOT NULL) AS cases,
       count(*) FILTER (s.status = 'passed') AS passed,
       count(*) FILTER (s.status = 'failed') AS failed,
       count(*) FILTER (s.status = 'crashed') AS crashed,
       count(*) FILTER (s.status = 'not_evaluated') AS not_evaluated,
       count(*) FILTER (s.status = 'error') AS errors
FROM runs r LEFT JOIN scores s USING (run_id)
GROUP BY r.run_id, r.kind, r.source, r.started_at
ORDER BY r.started_at
"""


@dataclass(frozen=True, slots=True)
class RunsOptions:
    """The store whose runs are listed."""

    db: tuple[Path, ...]
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = "example: evaltap runs results.duckdb"
    add_databases(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=RunsOptions)


def run(options: RunsOptions) -> int:
    """Print a row for each run, oldest first."""
    with open_stores(options.db) as store:
        rows = store.records(QUERY)
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.reports.console import console

    table = Table(
        title="scoring runs; passed and the like count scores, one a case and metric",
        title_justify="left",
    )
    for name in ("run", "kind", "source", "started (UTC)", "ended"):
        table.add_column(name, overflow="fold")
    for name in ("cases", "passed", "failed", "crashed", "not evaluated", "errors"):
        table.add_column(name, justify="right")
    for row in rows:
        ended = row["ended_at"] or ("goes on" if row["kind"] == "live" else "not finished")
        cells = (row["run_id"], row["kind"], row["source"], row["started_at"][:19], ended[:19])
        counts = (
            row[name]
            for name in ("cases", "passed", "failed", "crashed", "not_evaluated", "errors")
        )
        table.add_row(*map(Text, cells), *(f"{count:,}" for count in counts))
    console().print(table)
    return 0
