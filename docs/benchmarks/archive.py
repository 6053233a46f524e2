"""Archiving a store: time, memory, size; the archive read back; a question over all of its turns.

    python docs/benchmarks/archive.py PATH [--turns 1000000] [--copies 1]

PATH is a folder for the store (`million.py`) and its archive.  With `--copies N`, the question reads the
files N times and takes their turns for different ones, so that 10 stands for ten times the turns.
"""

import argparse
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

import duckdb
from million import make_store

from evaltap.evaluator.store.archives.reading import fingerprint
from evaltap.evaluator.store.archives.rows import COPIED, DATED, UNDATED, dated, kinds_of, row_hash
from evaltap.evaluator.store.remote.client import open_to_read

# By day and tool; a turn that called a tool twice counts once.
_QUESTION = """
WITH calls AS (SELECT DISTINCT turn, tool_name FROM ({calls}))
SELECT day, tool_name, count(*) FILTER (status = 'passed') / count(*) AS pass_rate
FROM ({verdicts}) JOIN calls USING (turn)
GROUP BY ALL
"""
_ROWS = """
SELECT *, hash(app_name, eval_set_id, eval_id, invocation_id, turn_revision, {copy}) AS turn
FROM read_parquet('{root}/{table}/*/*.parquet')
"""


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("path", type=Path)
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--copies", type=int, default=1)
    options = parser.parse_args()
    options.path.mkdir(parents=True, exist_ok=True)
    store = make_store(options.path / "store.duckdb", options.turns)
    archive = options.path / "archive"
    shutil.rmtree(archive, ignore_errors=True)
    for name in ("first run", "second run, nothing new"):
        _command(name, "archive", str(store), "--to", str(archive))
    _command("verify", "archive", "--verify", str(archive))
    size = sum(one.stat().st_size for one in archive.rglob("*") if one.is_file())
    print(f"size: store {store.stat().st_size / 1e6:,.0f} MB, archive {size / 1e6:,.0f} MB")
    _compare(store, archive)
    _ask(archive, options.copies)


def _command(name: str, *arguments: str) -> None:
    began, used = time.perf_counter(), _cpu()
    command = [
        sys.executable,
        "-c",
        "import sys; from evaltap.cli.main import main; sys.exit(main())",
    ]
    subprocess.run([*command, *arguments], check=True, stdout=subprocess.DEVNULL)
    took = time.perf_counter() - began
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    print(
        f"{name}: {took:.1f} s, {_cpu() - used:.1f} s of CPU, largest process so far {most:,.0f} MB",
        flush=True,
    )


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _compare(store: Path, archive: Path) -> None:
    """Compare number and hash of the rows of every table."""
    with open_to_read(store) as one, open_to_read(archive) as other:
        total = 0
        for table in (*DATED, *UNDATED, *COPIED):
            with dated(one, table) as rows:
                expected = fingerprint(one, rows, "hashed")
            kinds = kinds_of(other, table)
            found = fingerprint(other, f"(FROM {table})", row_hash(kinds))
            if found != expected:
                sys.exit(f"{table}: {found} in the archive, {expected} in the store")
            total += found[0]
    print(f"read back: {total:,} rows of {len({*DATED, *UNDATED, *COPIED})} tables are equal")


def _ask(archive: Path, copies: int) -> None:
    began = time.perf_counter()
    calls, verdicts = (
        " UNION ALL ".join(
            _ROWS.format(root=archive, table=table, copy=copy) for copy in range(copies)
        )
        for table in ("tool_calls", "turn_scores")
    )
    with duckdb.connect() as connection:
        rows = connection.execute(_QUESTION.format(calls=calls, verdicts=verdicts)).fetchall()
    took = time.perf_counter() - began
    print(f"pass rate by day and tool, files read {copies} times: {took:.1f} s, {len(rows):,} rows")


if __name__ == "__main__":
    main()
