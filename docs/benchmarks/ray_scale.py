"""What a second node brings to `evaltap consume --engine ray` while a judge takes 200 ms an answer.

Nodes are processes of `ray.cluster_utils.Cluster` on this machine, of one processor each; a scripted
judge answers over HTTP.  The same log is landed and scored with one node, with two, and in one process,
each with the same `--concurrency` a worker; the rows must be the same.  Times are those of scoring: from
the first score to the last.

    python docs/benchmarks/ray_scale.py [--cases 800] [--concurrency 8]
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
from judge_load import judge
from judged_cells import METRIC
from score_files import EVALTAP

from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import encode_case

NODES = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
for _ in range(int(sys.argv[1]) - 1):
    cluster.add_node(num_cpus=1)
cluster.wait_for_nodes()
print(cluster.address, flush=True)
sys.stdin.read()
cluster.shutdown()
"""


@contextmanager
def nodes(count: int) -> Iterator[str]:
    """Give the address of a cluster of so many nodes."""
    cluster = subprocess.Popen(
        [sys.executable, "-c", NODES, str(count)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    assert cluster.stdin is not None
    assert cluster.stdout is not None
    try:
        yield cluster.stdout.readline().strip()
    finally:
        cluster.stdin.close()
        cluster.wait(60)
        cluster.stdout.close()


def write_log(path: Path, count: int) -> None:
    """Write sessions of one turn."""
    log = open_log(path, mode="append")
    for number in range(count):
        turn = {
            "invocationId": "t",
            "userContent": {"role": "user", "content": f"Where is order {number}?"},
            "finalResponse": {"role": "assistant", "content": f"Order {number} ships on Friday."},
        }
        case = {
            "evalId": f"s-{number}",
            "evalMode": "trace",
            "sessionInput": {"appName": "bench", "userId": "u"},
            "actualConversation": [turn],
        }
        log.append([encode_case(case, producer_id="p", seq=number + 1, time=datetime.now(UTC))])
    log.close()


def consume(work: Path, name: str, url: str, *arguments: str) -> tuple[float, float]:
    """Land and score the log; return seconds of the command, and from the first score to the last."""
    environ = {key: value for key, value in os.environ.items() if "EVALTAP" not in key}
    environ |= {"EVALTAP_JUDGE_BASE_URL": url, "EVALTAP_JUDGE_MODEL": "scripted",
                "EVALTAP_JUDGE_CACHE": "off"}  # fmt: skip
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", EVALTAP, "consume", "--log", work / "log.db", "--db",
         work / f"{name}.duckdb", "--metrics", work / "m.json", "--until-idle", *arguments],
        capture_output=True, text=True, env=environ,
    )  # fmt: skip
    seconds = time.perf_counter() - began
    if done.returncode:
        sys.exit(f"{name}: exit code {done.returncode}: {done.stdout}{done.stderr}")
    with duckdb.connect(str(work / f"{name}.duckdb"), read_only=True) as store:
        found = store.execute(
            "SELECT epoch(max(scored_at) - min(landed_at)) FROM scores, (SELECT landed_at FROM turns)"
        ).fetchone()
    assert found is not None
    return seconds, float(found[0])


def rows(path: Path) -> list[tuple[Any, ...]]:
    """Return the scores of a file, without what differs from run to run."""
    with duckdb.connect(str(path), read_only=True) as store:
        return [
            row
            for table in ("scores", "turn_scores", "rubric_votes")
            for row in store.execute(
                "SELECT COLUMNS(lambda c: c NOT IN ('score_id', 'run_id', 'scored_at'))"
                f" FROM {table} ORDER BY ALL"
            ).fetchall()
        ]


def main() -> None:
    """Score with one node, with two, and here; compare times and rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=800)
    parser.add_argument("--concurrency", type=int, default=8)
    options = parser.parse_args()
    concurrency = ["--concurrency", str(options.concurrency)]
    with tempfile.TemporaryDirectory() as folder, judge(0.2) as url:
        work = Path(folder)
        (work / "m.json").write_text(json.dumps([METRIC]))
        write_log(work / "log.db", options.cases)
        scoring = {}
        for count in (1, 2):
            with nodes(count) as address:
                name = f"nodes-{count}"
                whole, scoring[count] = consume(
                    work, name, url, *concurrency, "--engine", "ray", "--ray-address", address
                )
            print(f"{count} node(s): {whole:.1f} s, of which {scoring[count]:.1f} s scoring,"
                  f" {options.cases / scoring[count]:,.0f} cases a second", flush=True)  # fmt: skip
        whole, here = consume(work, "here", url, *concurrency)
        print(f"one process: {whole:.1f} s, of which {here:.1f} s scoring")
        same = (
            rows(work / "nodes-1.duckdb")
            == rows(work / "nodes-2.duckdb")
            == rows(work / "here.duckdb")
        )
    print(f"two nodes / one: {scoring[1] / scoring[2]:.2f} x; rows of all three the same: {same}")
    if not same:
        sys.exit(1)


if __name__ == "__main__":
    main()
