"""`evaltap store archive`: write what a store holds as Parquet files, or read such files again."""

from evaltap.cli.messages import print_json
from evaltap.cli.options.store import ArchiveOptions
from evaltap.cli.progress import progress
from evaltap.evaluator.pipeline.maintenance.archiving import archive, verify
from evaltap.evaluator.store.place import place_of
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted


def run(options: ArchiveOptions) -> int:
    """Archive the store, or verify an archive, and report what is in it."""
    if options.verify is not None:
        files, rows = verify(options.verify)
        if options.json:
            print_json({"files": files, "rows": rows})
        else:
            print(
                f"{place_of(options.verify)}: {counted(files, 'file')} with {rows:,} rows, all as written"
            )
        return 0
    if options.to is None or options.db is None:
        raise InputError("name the store and its archive: X.duckdb --to DIR")
    with progress("rows archived") as report:
        done = archive(options.db, options.to, progress=report)
    if options.json:
        print_json({"rows": done.rows, "files": done.files, "bytes": done.bytes})
        return 0
    new = ", ".join(f"{name} {count:,}" for name, count in done.rows.items()) or "nothing new"
    print(f"rows archived: {new}")
    print(f"{place_of(options.to)}: {counted(done.files, 'file')}, {done.bytes / 1e6:,.1f} MB")
    return 0
