"""How much `evaltap score` costs compared with the least that any scorer must do.

The floor decodes each case with orjson and compares tool calls and answer as dictionaries, on one
thread; the product validates, matches optimally, and writes runs, scores and turn scores to DuckDB.
Both are measured in turn in the same run, so the ratio holds on a noisy machine.

    python docs/benchmarks/score_files.py [--cases 20000] [--rounds 5]
"""

import argparse
import copy
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TOOLS = ["search", "calculator", "get_time", "lookup_order", "send_mail", "knowledge_search"]
METRICS = [
    {
        "metricName": "tool_trajectory_avg_score",
        "threshold": 1,
        "criterion": {
            "toolTrajectory": {"defaultStrategy": {"name": {}, "arguments": {}, "result": {}}}
        },
    },
    {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}},
    },
]
FLOOR = """
import sys, orjson
for line in open(sys.argv[1], "rb"):
    case = orjson.loads(line)
    for actual, expected in zip(case["actualConversation"], case["conversation"]):
        actual["tools"] == expected["tools"] and actual["finalResponse"] == expected["finalResponse"]
"""
EVALTAP = "import sys; from evaltap.cli.main import main; sys.exit(main())"


def write_cases(path: Path, count: int) -> None:
    """Write cases of 5 KB: 2 turns of 4 tool calls; references shuffled, 3 in 10 turns differ."""
    rng = random.Random(7)
    with path.open("w") as file:
        for number in range(count):
            actual, expected = [], []
            for turn in range(2):
                calls = [tool_call(rng, f"call-{number}-{turn}-{k}", k) for k in range(4)]
                wanted = copy.deepcopy(calls)
                rng.shuffle(wanted)
                if rng.random() < 0.3:
                    wanted[0]["arguments"]["n"] += 1000
                said = {
                    "userContent": {
                        "role": "user",
                        "content": f"Please handle request {number}-{turn}: " * 2,
                    },
                    "finalResponse": {
                        "role": "assistant",
                        "content": f"Request {number}-{turn} is done. " * 3,
                    },
                }
                actual.append({"invocationId": f"a{number}-{turn}", "tools": calls, **said})
                expected.append({"invocationId": f"e{number}-{turn}", "tools": wanted, **said})
            case = {
                "evalId": f"case-{number}",
                "evalMode": "trace",
                "conversation": expected,
                "actualConversation": actual,
                "sessionInput": {"appName": "bench", "userId": f"user-{number % 97}"},
            }
            file.write(json.dumps(case, separators=(",", ":")) + "\n")


def tool_call(rng: random.Random, call_id: str, k: int) -> dict[str, object]:
    """Return a call of 250 bytes with its result."""
    return {
        "id": call_id,
        "name": rng.choice(TOOLS),
        "arguments": {
            "q": f"item {rng.randrange(1000)}",
            "n": rng.randrange(100),
            "opt": {"deep": bool(k % 2), "tags": ["a", "b", str(k)]},
        },
        "result": {
            "ok": True,
            "value": round(rng.random(), 6),
            "rows": [{"id": j, "label": f"row {j}"} for j in range(3)],
        },
    }


def measure(*command: str) -> tuple[float, float]:
    """Return seconds and the largest memory of the process in MB."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in (0, 1):
        raise SystemExit(f"{command[1:]} ended with {process.returncode}")
    return seconds, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare `evaltap score` with its floor.")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        (work / "metrics.json").write_text(json.dumps(METRICS))
        sizes = (options.cases // 4, options.cases)
        for size in sizes:
            write_cases(work / f"{size}.jsonl", size)
        memory = {}
        floors, scores = [], []
        for number in range(options.rounds):
            floors.append(measure(FLOOR, str(work / f"{options.cases}.jsonl"))[0])
            for size in sizes:
                seconds, memory[size] = measure(
                    EVALTAP, "score", str(work / f"{size}.jsonl"), "--metrics", str(work / "metrics.json"),
                    "--db", str(work / f"{size}-{number}.duckdb"),
                )  # fmt: skip
            scores.append(seconds)
        ratios = [score / floor for score, floor in zip(scores, floors, strict=True)]
    per_case = statistics.median(scores) / options.cases * 1e6
    print(f"cases                      {options.cases:,} of 5 KB, two metrics, result in DuckDB")
    print(f"floor                      {statistics.median(floors):.2f} s")
    print(
        f"evaltap score              {statistics.median(scores):.2f} s ({per_case:.0f} us a case)"
    )
    print(
        f"ratio, median (min-max)    {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
    )
    for size in sizes:
        print(f"memory with {size:>9,} cases  {memory[size]:.0f} MB")


if __name__ == "__main__":
    main()
