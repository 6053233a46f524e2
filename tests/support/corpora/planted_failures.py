"""A store in which every failure is known: what was planted, in which turn and call, and the fix."""

import copy
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from evaltap.cli.main import main
from support.builders.cases import make_case, make_records, write_log

KINDS: Final = ("wrong_arguments", "missing_call", "loop", "crash", "different_answer")
METRICS: Final = [
    {"metricName": "trajectory_exact", "threshold": 1},
    {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
    },
    {"metricName": "trajectory_no_loop", "threshold": 1},
]
_TOOLS: Final = ("get_order", "search", "refund", "get_price", "open_ticket", "send_mail")


@dataclass(frozen=True, slots=True)
class Planted:
    """A recorded case with one failure."""

    eval_id: str
    kind: str
    turn: int
    call: int | None
    bug: list[dict[str, Any]]
    """The recorded turns."""
    fix: list[dict[str, Any]]
    """The same turns without the failure."""

    def turns(self, *, expected: bool) -> list[dict[str, Any]]:
        """Return a case for each turn, as a recorder writes it; with the expected turn if it is known."""
        return [
            make_case(self.eval_id, [bug], **({"conversation": [fix]} if expected else {}))
            for bug, fix in zip(self.bug, self.fix, strict=True)
        ]


def planted(each: int, seed: int = 20261127) -> list[Planted]:
    """Return cases with every kind of failure, `each` of each kind."""
    draw = random.Random(seed)
    return [_planted(f"{kind}-{number}", kind, draw) for kind in KINDS for number in range(each)]


def _planted(eval_id: str, kind: str, draw: random.Random) -> Planted:
    fix = [_turn(eval_id, number, draw) for number in range(1, draw.randint(1, 4) + 1)]
    bug = copy.deepcopy(fix)
    place = draw.randrange(len(bug))
    turn = bug[place]
    at = draw.randrange(len(turn["tools"]))
    call: int | None = at + 1
    if kind == "wrong_arguments":
        turn["tools"][at]["arguments"]["id"] += "-wrong"
    elif kind == "missing_call":
        del turn["tools"][at]
    elif kind == "loop":
        turn["tools"][at:at] = [copy.deepcopy(turn["tools"][at]) for _ in range(3)]
    elif kind == "crash":
        del turn["tools"][at + 1 :]
        del turn["finalResponse"]
        gone = {"type": "TimeoutError", "message": "the model is gone"}
        turn["telemetry"] = {"status": "error", "error": gone}
    else:
        turn["finalResponse"]["content"] = "I do not know."
        call = None
    return Planted(eval_id, kind, place + 1, call, bug, fix)


def _turn(eval_id: str, number: int, draw: random.Random) -> dict[str, Any]:
    names = draw.sample(_TOOLS, draw.randint(1, 4))
    return {
        "invocationId": str(number),
        "userContent": {"role": "user", "content": f"question {number} of {eval_id}"},
        "tools": [
            {"id": f"c{at}", "name": name, "arguments": {"id": f"A-{draw.randint(1, 999)}"}}
            for at, name in enumerate(names)
        ],
        "finalResponse": {"role": "assistant", "content": f"answer {number} to {eval_id}"},
    }


def planted_store(folder: Path, cases: Sequence[Planted], *, expected: bool) -> Path:
    """Land and score the cases."""
    log, db, metrics = folder / "log.db", folder / "cases.duckdb", folder / "metrics.json"
    write_log(log, make_records([turn for one in cases for turn in one.turns(expected=expected)]))
    metrics.write_text(json.dumps(METRICS if expected else METRICS[2:]))
    consume = ["consume", "--log", str(log), "--db", str(db), "--metrics", str(metrics)]
    assert main([*consume, "--until-idle"]) == 1
    return db
