"""`evaltap prune`: delete sessions older than a given age from a DuckDB file."""

import argparse
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evaltap.cli.options.common import add_database, add_json
from evaltap.cli.parsing import duration
from evaltap.schemas.text import counted, utc_text


@dataclass(frozen=True, slots=True)
class PruneOptions:
    """The store to prune, and the age of the sessions to delete."""

    db: Path
    older_than: timedelta
    dry_run: bool
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap prune cases.duckdb --older-than 90d --dry-run\n"
        "  evaltap prune cases.duckdb --older-than 90d\n\n"
        "Deletes whole sessions, by the start of their newest turn. Stop the consumer of the file"
        " first. The file is rewritten, which needs free space for a second copy."
    )
    add_database(parser)
    add = parser.add_argument
    add(
        "--older-than",
        type=duration,
        required=True,
        metavar="AGE",
        help="delete sessions whose newest turn started longer ago than this, e.g. 24h or 90d",
    )
    add("--dry-run", action="store_true", help="only count what would be deleted")
    add_json(parser)
    parser.set_defaults(run=run, options=PruneOptions)


def run(options: PruneOptions) -> int:
    """Delete old sessions and report how many rows were deleted."""
    from evaltap.evaluator.pipeline.maintenance.pruning import prune

    before = datetime.now(UTC) - options.older_than
    found = prune(options.db, before, dry_run=options.dry_run)
    if options.json:
        data = {
            "before": utc_text(before, "seconds"),
            "dry_run": options.dry_run,
            "sessions": found.sessions,
            "rows": dict(found.rows),
        }
        print(json.dumps(data))
        return 0
    rows = ", ".join(f"{name} {count:,}" for name, count in found.rows.items()) or "nothing"
    verb = "would be deleted" if options.dry_run else "deleted"
    print(f"{counted(found.sessions, 'session')} that ended before {before:%Y-%m-%d %H:%M} UTC")
    print(f"rows {verb}: {rows}")
    return 0
