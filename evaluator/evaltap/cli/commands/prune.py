"""`evaltap store prune`: delete sessions older than a given age from a DuckDB file."""

from datetime import UTC, datetime

from evaltap.cli.messages import print_json
from evaltap.cli.options.store import PruneOptions
from evaltap.evaluator.pipeline.maintenance.pruning import prune
from evaltap.schemas.text import counted, utc_text


def run(options: PruneOptions) -> int:
    """Delete old sessions and report how many rows were deleted."""
    before = datetime.now(UTC) - options.older_than
    found = prune(options.db, before, archived=options.archived, dry_run=options.dry_run)
    if options.json:
        data = {
            "before": utc_text(before, "seconds"),
            "dry_run": options.dry_run,
            "sessions": found.sessions,
            "rows": dict(found.rows),
        }
        print_json(data)
        return 0
    rows = ", ".join(f"{name} {count:,}" for name, count in found.rows.items()) or "nothing"
    verb = "would be deleted" if options.dry_run else "deleted"
    print(f"{counted(found.sessions, 'session')} that ended before {before:%Y-%m-%d %H:%M} UTC")
    print(f"rows {verb}: {rows}")
    if found.rewritten and not found.rows:
        print("the file was rewritten without the rows that were deleted before")
    return 0
