"""How much ten metrics cost compared with the least that any scorer must do, in one thread.

The floor decodes each case with orjson and compares tool calls and answer as dictionaries.  Both run in turn
in one process and are measured in processor time, so the ratio holds on a noisy machine.  The cases are those
of score_files.py, in which 3 in 10 turns differ: as they are, with shuffled references, so that nearly every
turn fails some metric, and with the references in the order of the calls.  Each round scores new cases:
what is remembered of turns seen before counts only as far as turns resemble each other.

    python docs/benchmarks/ten_metrics.py [--cases 300] [--rounds 15]
"""

import argparse
import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson
from score_files import METRICS, write_cases

from evaltap.evaluator.cases.outline import lazy_case
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas.files.documents import metrics_of, read_case

TRAJECTORY = [
    "any_order", "in_order", "exact", "edit_similarity", "unordered", "strict", "f1", "precision",
    "recall", "args_score", "result_match", "superset", "subset",
]  # fmt: skip
EIGHT = 8


def floor(lines: Sequence[bytes]) -> None:
    """Decode and compare as plain data."""
    for line in lines:
        case = orjson.loads(line)
        for one, other in zip(case["actualConversation"], case["conversation"], strict=True):
            _ = one["tools"] == other["tools"] and one["finalResponse"] == other["finalResponse"]


def scoring(names: Sequence[str]) -> Callable[[Sequence[bytes]], None]:
    """Return a function that reads cases as `evaltap score` does and scores them."""
    given = [{"metricName": f"trajectory_{name}", "threshold": 1} for name in names]
    scorer = CaseScorer(metrics_of([*METRICS, *given]))
    lazy = scorer.outline_suffices

    def score(lines: Sequence[bytes]) -> None:
        for line in lines:
            outline = lazy_case(line) if lazy else None
            scorer.score(read_case(line) if outline is None else outline)

    return score


def seconds(work: Callable[[Sequence[bytes]], None], lines: Sequence[bytes]) -> float:
    """Return the processor time of some work."""
    began = time.process_time()
    work(lines)
    return time.process_time() - began


def in_order(line: bytes) -> bytes:
    """Return a case with the calls of its references in the order of the actual calls."""
    case = orjson.loads(line)
    for turn in case["conversation"]:
        turn["tools"].sort(key=lambda call: call["id"])
    return orjson.dumps(case)


def report(title: str, batches: Sequence[Sequence[bytes]]) -> None:
    """Print what sets of metrics cost for a batch of cases."""
    sets = {
        "two matchers": scoring([]),
        "ten metrics": scoring(TRAJECTORY[:EIGHT]),
        "ten others": scoring(TRAJECTORY[-EIGHT:]),
    }
    floors: list[float] = []
    times: dict[str, list[float]] = {name: [] for name in sets}
    for lines in batches:
        floors.append(seconds(floor, lines))
        for name, work in sets.items():
            times[name].append(seconds(work, lines))
    count = len(batches[0])
    each = statistics.median(floors) / count * 1e6
    print(f"{title}: floor {each:.0f} us a case of 5 KB, two turns of four calls")
    for name, taken in times.items():
        ratio = statistics.median(one / base for one, base in zip(taken, floors, strict=True))
        print(f"  {name:13} {statistics.median(taken) / count * 1e6:5.0f} us   {ratio:5.2f} x")


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare ten metrics with their floor.")
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.jsonl"
        write_cases(path, options.cases * options.rounds)
        lines = path.read_bytes().splitlines()
    gc.disable()  # as in the workers of `evaltap score`
    batches = [
        lines[first : first + options.cases] for first in range(0, len(lines), options.cases)
    ]
    report("references shuffled", batches)
    report("references in order", [[*map(in_order, batch)] for batch in batches])


if __name__ == "__main__":
    main()
