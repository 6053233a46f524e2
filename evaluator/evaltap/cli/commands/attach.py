"""`evaltap store attach`: write SQL that reads the files of several consumers as one."""

import sys

from evaltap.cli.options.store import AttachOptions
from evaltap.evaluator.store.shards import shards_sql
from evaltap.schemas.files.content import write_bytes


def run(options: AttachOptions) -> int:
    """Write the SQL; return the exit code."""
    text = shards_sql(options.dbs)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_bytes(options.out, text.encode())
        print(f"{options.out} reads {len(options.dbs)} files as one", file=sys.stderr)
    return 0
