"""What it costs to ask many DuckDB files, or Parquet files, instead of one file.

Scores the same cases into one file and into one file a day, exports the days as Parquet, and times two
everyday questions over each, in turn, in one run.

    python docs/benchmarks/many_files.py [--days 7] [--cases 10000]
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
from score_files import EVALTAP, METRICS, write_cases

QUESTIONS = {
    "pass rate": "SELECT metric_name, avg((status = 'passed')::INT) FROM {scores} GROUP BY ALL",
    "worst cases": "SELECT eval_id, reason FROM {scores} WHERE status = 'failed'"
    " ORDER BY score, eval_id LIMIT 20",
}
ROUNDS = 7


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--days", type=int, default=7)
    parser.add_argument("--cases", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        days = [f"day-{number}" for number in range(options.days)]
        (folder / "m.json").write_text(json.dumps(METRICS))
        for day in days:
            write_cases(folder / f"{day}.jsonl", options.cases)
            _score(folder, [f"{day}.jsonl"], day)
        _score(folder, [f"{day}.jsonl" for day in days], "all")
        _compare(folder, days)


def _score(folder: Path, files: list[str], name: str) -> None:
    import subprocess

    arguments = ["score", *files, "--metrics", "m.json", "--db", f"{name}.duckdb"]
    subprocess.run([sys.executable, "-c", EVALTAP, *arguments], cwd=folder, capture_output=True)


def _compare(folder: Path, days: list[str]) -> None:
    one = duckdb.connect(str(folder / "all.duckdb"), read_only=True)
    union = duckdb.connect()
    for number, day in enumerate(days):
        union.execute(f"ATTACH '{folder / day}.duckdb' AS d{number} (READ_ONLY)")
        union.execute(f"COPY d{number}.scores TO '{folder / day}.parquet' (COMPRESSION zstd)")
    files = " UNION ALL ".join(f"FROM d{number}.scores" for number in range(len(days)))
    union.execute(f"CREATE VIEW scores AS {files}")
    parquet = duckdb.connect()
    parquet.execute(f"CREATE VIEW scores AS FROM read_parquet('{folder}/*.parquet')")
    sizes = {
        "one file": (folder / "all.duckdb").stat().st_size,
        "a file a day": sum((folder / f"{day}.duckdb").stat().st_size for day in days),
        "Parquet": sum((folder / f"{day}.parquet").stat().st_size for day in days),
    }
    (count,) = one.execute("SELECT count(*) FROM scores").fetchone() or (0,)
    print(f"{count:,} scores in {len(days)} days")
    for name, question in QUESTIONS.items():
        query = question.format(scores="scores")
        asked: dict[str, Callable[[], object]] = {
            "one file": lambda q=query: one.execute(q).fetchall(),
            "a file a day": lambda q=query: union.execute(q).fetchall(),
            "Parquet": lambda q=query: parquet.execute(q).fetchall(),
        }
        taken: dict[str, list[float]] = {place: [] for place in asked}
        for _ in range(ROUNDS):
            for place, ask in asked.items():
                began = time.perf_counter()
                ask()
                taken[place].append(time.perf_counter() - began)
        base = statistics.median(taken["one file"])
        for place, seconds in taken.items():
            median = statistics.median(seconds)
            print(
                f"  {name}: {place}: {median / base:.1f} x of one file ({median * 1000:.1f} ms),"
                f" {sizes[place] / 1e6:.1f} MB"
            )


if __name__ == "__main__":
    main()
