"""`evaltap attach`: write SQL that reads the files of several consumers as one."""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class AttachOptions:
    """The files to read, and the file for the SQL."""

    dbs: tuple[Path, ...]
    out: Path | None


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap attach shard-*.duckdb --out all.sql\n"
        "  duckdb -init all.sql -c 'FROM v_pass_rate'\n\n"
        'In Python: duckdb.connect().execute(open("all.sql").read())'
    )
    parser.add_argument(
        "dbs",
        nargs="+",
        type=Path,
        metavar="X.duckdb",
        help="files that consumers with --partitions wrote; no process may have them open",
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE.sql", help="the file to write (default: print the SQL)"
    )
    parser.set_defaults(run=run, options=AttachOptions)


def run(options: AttachOptions) -> int:
    """Write the SQL; return the exit code."""
    from evaltap.evaluator.store.shards import shards_sql
    from evaltap.schemas.files.documents import write_bytes

    text = shards_sql(options.dbs)
    if options.out is None:
        sys.stdout.write(text)
    else:
        write_bytes(options.out, text.encode())
        print(f"{options.out} reads {len(options.dbs)} files as one", file=sys.stderr)
    return 0
