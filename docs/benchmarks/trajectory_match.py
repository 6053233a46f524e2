"""How long it takes to match long trajectories with partial credit, against a plain baseline.

The baseline compares the arguments of each pair of calls as dictionaries, which is the least that a
matcher without partial credit does.  Both run in turn in one process, so the ratio holds on a noisy
machine.  `one tool` is the hard case: every call may stand for every other.

    python docs/benchmarks/trajectory_match.py [--calls 200] [--rounds 15]
"""

import argparse
import copy
import random
import statistics
import time
from collections.abc import Callable
from typing import Any

from evaltap.evaluator.scoring.criteria.calls.alignment import Costs
from evaltap.evaluator.scoring.criteria.calls.diff import trajectory_diff
from evaltap.evaluator.scoring.criteria.calls.pairs import CallPairs, CallSimilarity
from evaltap.evaluator.scoring.criteria.calls.scores import edit_similarity, shares

TOOLS = ["search", "calculator", "get_time", "lookup_order", "send_mail", "knowledge_search"]
Calls = list[dict[str, Any]]


def make_calls(rng: random.Random, count: int, tools: list[str]) -> Calls:
    """Return calls with four arguments, one of them an object."""
    return [
        {
            "name": rng.choice(tools),
            "arguments": {
                "q": f"item {rng.randrange(100)}",
                "n": rng.randrange(20),
                "opt": {"deep": bool(k % 2), "tags": ["a", "b", str(k % 7)]},
                "note": "x",
            },
        }
        for k in range(count)
    ]


def disturb(rng: random.Random, calls: Calls) -> Calls:
    """Return a copy with 3 in 10 arguments changed and 2 in 10 neighbours swapped."""
    made = copy.deepcopy(calls)
    for call in rng.sample(made, len(made) * 3 // 10):
        call["arguments"]["n"] = rng.randrange(20)
    for _ in range(len(made) // 5):
        place = rng.randrange(len(made) - 1)
        made[place], made[place + 1] = made[place + 1], made[place]
    return made


def baseline(expected: Calls, actual: Calls) -> int:
    """Count equal pairs."""
    return sum(
        one["name"] == other["name"] and one["arguments"] == other["arguments"]
        for one in expected
        for other in actual
    )


def milliseconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the matching of long trajectories.")
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    rng = random.Random(7)
    likeness = CallSimilarity()
    measures: dict[str, Callable[[CallPairs], object]] = {
        "F1, any order": lambda pairs: shares(pairs, ordered=False),
        "F1, in order": lambda pairs: shares(pairs, ordered=True),
        "edit similarity": lambda pairs: edit_similarity(pairs, Costs(), 1.0),
        "difference": trajectory_diff,
    }
    print(f"{options.calls} x {options.calls} calls, medians of {options.rounds} rounds")
    for title, tools in (("six tools", TOOLS), ("one tool", TOOLS[:1])):
        actual = make_calls(rng, options.calls, tools)
        pairs = (("close", disturb(rng, actual)), ("unlike", make_calls(rng, options.calls, tools)))
        for kind, expected in pairs:
            for name, measure in measures.items():
                times, floors = [], []
                for _ in range(options.rounds):
                    floors.append(milliseconds(lambda e=expected, a=actual: baseline(e, a)))
                    times.append(
                        milliseconds(
                            lambda m=measure, e=expected, a=actual: m(CallPairs(e, a, likeness))
                        )
                    )
                ratio = statistics.median(
                    one / floor for one, floor in zip(times, floors, strict=True)
                )
                print(
                    f"{title:10} {kind:7} {name:16} {statistics.median(times):6.1f} ms"
                    f"   {ratio:5.2f} x baseline ({statistics.median(floors):.1f} ms)"
                )


if __name__ == "__main__":
    main()
