"""`evaltap runs`: the scoring runs of a DuckDB file."""

import argparse
import json

from evaltap.evaluator.commands.options import add_database, add_json, open_store

QUERY = """
SELECT r.run_id, r.kind, r.source, r.started_at::VARCHAR AS started_at,
       (SELECT max(e.ended_at) FROM run_ends e WHERE e.run_id = r.run_id)::VARCHAR AS ended_at,
       count(DISTINCT (s.app_name, s.eval_set_id, s.eval_id)) FILTER (s.score_id IS NOT NULL) AS cases,
       count(*) FILTER (s.status = 'passed') AS passed,
       count(*) FILTER (s.status = 'failed') AS failed,
       count(*) FILTER (s.status = 'not_evaluated') AS not_evaluated,
       count(*) FILTER (s.status = 'error') AS errors
FROM runs r LEFT JOIN scores s USING (run_id)
GROUP BY r.run_id, r.kind, r.source, r.started_at
ORDER BY r.started_at
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = "example: evaltap runs results.duckdb"
    add_database(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a row for each run, oldest first."""
    with open_store(options.db, create=False) as store:
        rows = store.records(QUERY)
    if options.json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.report import console

    table = Table(
        title="scoring runs; passed and the like count scores, one a case and metric",
        title_justify="left",
    )
    for name in ("run", "kind", "source", "started (UTC)", "ended"):
        table.add_column(name, overflow="fold")
    for name in ("cases", "passed", "failed", "not evaluated", "errors"):
        table.add_column(name, justify="right")
    for row in rows:
        ended = row["ended_at"] or ("goes on" if row["kind"] == "live" else "not finished")
        cells = (row["run_id"], row["kind"], row["source"], row["started_at"][:19], ended[:19])
        counts = (row[name] for name in ("cases", "passed", "failed", "not_evaluated", "errors"))
        table.add_row(*map(Text, cells), *(f"{count:,}" for count in counts))
    console().print(table)
    return 0
