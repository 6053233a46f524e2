"""Runs of which rates are known, and their comparison."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from support.builders.commands import Evaltap

Rates = Mapping[str, tuple[int, int]]


def score_line(eval_id: str, run: int, status: str = "passed", **more: Any) -> dict[str, Any]:
    return {
        "runId": f"run-{run}",
        "evalSetId": "golden",
        "evalId": eval_id,
        "metricName": "helpful",
        "metricDigest": "d1",
        "score": {"passed": 1.0, "failed": 0.0}.get(status),
        "status": status,
        "threshold": 1.0,
    } | more


def write_lines(name: str, lines: Iterable[Mapping[str, Any]]) -> str:
    Path(name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def trials(eval_id: str, passes: int, of: int = 5, **more: Any) -> list[dict[str, Any]]:
    return [score_line(eval_id, n, "passed" if n < passes else "failed", **more) for n in range(of)]


def write_runs(rates: Rates, of: int = 5) -> tuple[str, str]:
    sides = (
        write_lines(name, [line for eval_id, p in rates.items() for line in trials(eval_id, p[at])])
        for at, name in enumerate(("base.scores.jsonl", "head.scores.jsonl"))
    )
    base, head = sides
    return base, head


STEADY = {f"s-{n:02}": (5, 5) for n in range(1, 15)}


BROKEN = STEADY | {"s-00": (5, 0), "known": (0, 0), "flaky": (3, 2)}


def compared(evaltap: Evaltap, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = evaltap("compare", *arguments, "--json")
    return code, json.loads(out)
