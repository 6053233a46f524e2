"""How fast `evaltap score` is when a judge has answered everything before: judged cells a second.

A cell is one turn under one judged metric, asked once.  The cache is filled in this process by a
scripted judge; then the whole command runs against it, with a judge at an address where nobody listens,
so that a single answer that is not in the cache would show.  The floor, measured in turn in the same
run, does for each cell what any cache must: decode the case, hash the question, look the answer up in
SQLite, decode it.

    python docs/benchmarks/judged_cells.py [--cells 100000] [--rounds 3]
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from score_files import EVALTAP

from evaltap.evaluator import CaseScorer, Services
from evaltap.evaluator.scoring.contract.judge import JudgeReply, ScriptedJudge
from evaltap.evaluator.scoring.judges.cache import CachedJudge, JudgeCache
from evaltap.evaluator.scoring.judges.endpoint import judge_settings
from evaltap.schemas.files.documents import iter_cases, read_metrics

WORDS = [
    "the",
    "order",
    "ships",
    "on",
    "Friday",
    "and",
    "a",
    "refund",
    "of",
    "twelve",
    "euros",
    "was",
    "made",
    "to",
    "your",
    "card",
    "today",
]
METRIC = {
    "metricName": "llm_rubric_response",
    "threshold": 0.6,
    "criterion": {
        "llmJudge": {
            "rubrics": [
                {"id": "1", "content": {"text": "The answer names the day of delivery."}},
                {"id": "2", "content": {"text": "The answer is polite."}},
            ],
            "judgeModel": {
                "modelName": "nobody",
                "baseURL": "http://127.0.0.1:9/v1",
                "apiKey": "none",
            },
        }
    },
}
FLOOR = """
import hashlib, sqlite3, sys, orjson
file = sqlite3.connect(sys.argv[2])
known = file.execute("SELECT key FROM replies").fetchall()
for number, line in enumerate(open(sys.argv[1], "rb")):
    turn = orjson.loads(line)["actualConversation"][0]
    asked = turn["userContent"]["content"] + turn["finalResponse"]["content"]
    hashlib.sha256(asked.encode()).digest()
    text, = file.execute("SELECT text FROM replies WHERE key = ?", known[number]).fetchone()
    orjson.loads(text)
"""


def main() -> None:
    """Fill the cache, run floor and command in turn, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cases, metrics, cache = (Path(folder, name) for name in ("c.jsonl", "m.json", "cache.db"))
        write_cases(cases, options.cells)
        metrics.write_text(json.dumps([METRIC]))
        fill(cache, cases, metrics)
        floors, commands = [], []
        for number in range(options.rounds):
            result = Path(folder, f"x{number}.duckdb")
            floors.append(seconds([FLOOR, cases, cache]))
            commands.append(
                seconds([EVALTAP, "score", cases, "--metrics", metrics, "--db", result,
                         "--judge-cache", cache])
            )  # fmt: skip
            print(
                f"floor {floors[-1]:.1f} s, command {commands[-1]:.1f} s,"
                f" {options.cells / commands[-1]:,.0f} cells a second,"
                f" {commands[-1] / floors[-1]:.1f} x",
                flush=True,
            )
        ratios = [command / floor for command, floor in zip(commands, floors, strict=True)]
        print(
            f"median: {options.cells / statistics.median(commands):,.0f} cells a second,"
            f" {statistics.median(ratios):.1f} x the floor"
        )


def write_cases(path: Path, count: int) -> None:
    """Write cases of one turn with an answer of some 400 characters."""
    rng = random.Random(7)
    with path.open("w") as file:
        for number in range(count):
            answer = " ".join(rng.choice(WORDS) for _ in range(80))
            turn = {
                "invocationId": f"t-{number}",
                "userContent": {"role": "user", "content": f"Where is order {number}?"},
                "finalResponse": {"role": "assistant", "content": f"{number}: {answer}"},
            }
            case = {
                "evalId": f"c-{number}",
                "evalMode": "trace",
                "sessionInput": {"appName": "bench", "userId": "u"},
                "actualConversation": [turn],
            }
            file.write(json.dumps(case) + "\n")


def fill(cache: Path, cases: Path, metrics: Path) -> None:
    """Have each cell answered once by a scripted judge."""
    model = read_metrics(metrics)[0].criterion
    assert model is not None
    assert model.llm_judge is not None
    settings = judge_settings(model.llm_judge.judge_model, {})
    rows = [{"id": name, "score": 1, "reason": f"rubric {name} is met"} for name in ("1", "2")]
    reply = JudgeReply(json.dumps({"rubricScores": rows}), "nobody", 400, 60, cost_usd=0.0001)
    kept = JudgeCache(cache)
    judge = CachedJudge(ScriptedJudge(lambda _: reply), kept, settings)
    scorer = CaseScorer(read_metrics(metrics), services=Services(judge=lambda _: judge))
    for case in iter_cases(cases):
        assert scorer.score(case).score == 1
    kept.close()


def seconds(command: list[object]) -> float:
    """Return how long a program takes, start-up and all."""
    environ = {name: value for name, value in os.environ.items() if "EVALTAP" not in name}
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", *map(str, command)], capture_output=True, text=True, env=environ
    )
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {done.stdout}{done.stderr}")
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
