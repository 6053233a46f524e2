"""Runs of which rates are known, and their comparison."""

import json
from collections.abc import Iterable, Mapping
from contextlib import chdir
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from evaltap.cli.main import main
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn
from support.builders.commands import Evaltap
from support.worlds.once import made_once

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


def recorded_case(eval_id: str, wrong: bool, **more: Any) -> dict[str, Any]:
    right = [make_tool(), make_tool("refund", arguments={"amount": 12})]
    made = [make_tool("refund", arguments={"amount": 21})] if wrong else right
    telemetry = {"latencyMs": 1300 if wrong else 1000, "costUsd": 0.01}
    turn = make_turn(f"t-{eval_id}", tools=made, answer="no" if wrong else "done")
    expected = make_turn("e", tools=right)
    return (
        make_case(
            eval_id, [turn | {"telemetry": telemetry}], conversation=[expected], evalSetId="golden"
        )
        | more
    )


@made_once
def two_agents(folder: Path) -> Path:
    """Record, land and score what two agents did with twelve cases; s-3 to s-9 broke in the second."""
    with chdir(folder):
        Path("m.json").write_text(json.dumps([TRAJECTORY, RESPONSE]))
        for side in ("base", "head"):
            cases = [recorded_case(f"s-{n}", side == "head" and 3 <= n <= 9) for n in range(12)]
            write_lines(f"{side}.jsonl", cases)
            log = f"{side}.log.db"
            assert main(["record", "cases", f"{side}.jsonl", "--log", log]) == 0
            main(["consume", "--log", log, "--db", f"{side}.duckdb", "--metrics", "m.json",
                  "--until-idle"])  # fmt: skip
            main(["score", f"{side}.jsonl", "--metrics", "m.json", "--result",
                  f"{side}.evalset_result.json"])  # fmt: skip
    return folder / "base.duckdb"


@made_once
def two_weeks(folder: Path) -> Path:
    """Land and score two weeks of 80 sessions each; one in ten fails, in the second week half do."""
    begins = datetime(2026, 11, 1, tzinfo=UTC)
    cases = []
    for number in range(160):
        second = number >= 80
        at = begins + timedelta(hours=2 * (number % 80), days=7 * second)
        case = recorded_case(f"s-{number}", number % 2 == 0 if second else number % 10 == 0)
        case["actualConversation"][0]["creationTimestamp"] = at.timestamp()
        case["sessionInput"]["appName"] = "shop" if number % 4 else "desk"
        cases.append(case)
    with chdir(folder):
        Path("m.json").write_text(json.dumps([RESPONSE]))
        write_lines("t.jsonl", cases)
        main(["record", "cases", "t.jsonl", "--log", "t.log.db"])
        main(["consume", "--log", "t.log.db", "--db", "t.duckdb", "--metrics", "m.json",
              "--until-idle"])  # fmt: skip
    return folder / "t.duckdb"
