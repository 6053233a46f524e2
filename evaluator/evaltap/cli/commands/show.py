"""`evaltap show`: one case, turn by turn, with its scores and reasons."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from evaltap.cli.options.common import add_databases, add_json, open_stores
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from evaltap.evaluator.store.database import Store

TEXT_WIDTH = 400

TURNS = """
SELECT invocation_id, turn_revision, started_at::VARCHAR AS started_at, status, capture::VARCHAR
       AS capture, actual_json, expected_json
FROM latest_turns WHERE eval_id = $eval_id AND eval_set_id = $eval_set_id
ORDER BY latest_turns.started_at NULLS FIRST, first_landed_seq
"""
SCORES = """
SELECT metric_name, score, status, threshold, reason, run_id, revision FROM latest_scores
WHERE eval_id = $eval_id AND eval_set_id = $eval_set_id ORDER BY metric_name
"""
TURN_SCORES = """
SELECT invocation_id, turn_index, metric_name, score, status, reason FROM latest_turn_scores
WHERE eval_id = $eval_id AND eval_set_id = $eval_set_id
QUALIFY rank() OVER (PARTITION BY invocation_id, turn_index, metric_name ORDER BY scored_at DESC) = 1
ORDER BY turn_index, metric_name
"""
NAMES = """
SELECT DISTINCT eval_set_id, eval_id FROM (
  SELECT eval_set_id, eval_id FROM cases UNION SELECT eval_set_id, eval_id FROM scores
)"""


@dataclass(frozen=True, slots=True)
class ShowOptions:
    """The case to show."""

    db: tuple[Path, ...]
    case: str
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "example: evaltap show results.duckdb session-42\n\n"
        "CASE is the eval id, or <eval set id>/<eval id> where two sets have the same one."
    )
    add_databases(parser)
    parser.add_argument("case", metavar="CASE")
    add_json(parser)
    parser.set_defaults(run=run, options=ShowOptions)


def run(options: ShowOptions) -> int:
    """Print the case."""
    with open_stores(options.db) as store:
        data = _load(store, options.case)
    if options.json:
        print(json.dumps(data, ensure_ascii=False))
        return 0
    from evaltap.evaluator.reports.console import console

    _print(data, console())
    return 0


def _load(store: "Store", case: str) -> dict[str, Any]:
    from evaltap.evaluator.maintenance.why import IS_CASE

    found = store.records(f"{NAMES} WHERE {IS_CASE}", {"case": case})
    if not found:
        some = store.rows(
            "SELECT DISTINCT eval_id FROM scores UNION SELECT eval_id FROM cases LIMIT 5"
        )
        known = ", ".join(sorted(row[0] for row in some)) or "none"
        raise InputError(f"no case {case!r} in {store.path}; some that are there: {known}")
    if len(found) > 1:
        names = ", ".join(f"{row['eval_set_id']}/{row['eval_id']}" for row in found)
        raise InputError(f"{len(found)} cases are called {case!r}; name one of: {names}")
    (key,) = found
    turns = store.records(TURNS, key)
    for turn in turns:
        expected = turn.pop("expected_json")
        turn["actual"] = orjson.loads(turn.pop("actual_json"))
        turn["expected"] = orjson.loads(expected) if expected else None
        turn["capture"] = orjson.loads(turn["capture"]) if turn["capture"] else {}
    return {
        **key,
        "turns": turns,
        "scores": store.records(SCORES, key),
        "turn_scores": store.records(TURN_SCORES, key),
    }


def _print(data: dict[str, Any], out: "Console") -> None:
    from rich.text import Text

    from evaltap.evaluator.cases.turn import gaps_of, run_failure

    def line(label: str, text: str, indent: int = 2) -> None:
        out.print(Text(visible(f"{' ' * indent}{label:<10} {text}")))

    out.print(Text(visible(f"{data['eval_set_id']}/{data['eval_id']}"), style="bold"))
    if not data["turns"]:
        line("turns", "not landed here: the case was scored from a file")
    for number, turn in enumerate(data["turns"], start=1):
        title = f"turn {number}  {turn['invocation_id']}  {turn['status'] or ''}"
        out.print(Text(visible(title), style="bold"))
        _print_turn(turn["actual"], line)
        if failure := run_failure(turn["actual"]):
            line("error", _one_line(failure))
        for gap in gaps_of(turn["actual"]):
            line("capture", gap)
        if turn["expected"]:
            line("expected", "")
            _print_turn(turn["expected"], lambda label, text: line(label, text, 4))
    for score in data["turn_scores"]:
        value = "" if score["score"] is None else f" {score['score']:g}"
        why = f": {_one_line(score['reason'])}" if score["reason"] else ""
        line(
            "score",
            f"turn {score['turn_index'] + 1} {score['metric_name']} {score['status']}{value}{why}",
        )
    for score in data["scores"]:
        value = "" if score["score"] is None else f" {score['score']:g} of {score['threshold']:g}"
        why = f": {_one_line(score['reason'])}" if score["reason"] else ""
        line("case", f"{score['metric_name']} {score['status']}{value}{why}")


def _print_turn(turn: dict[str, Any], line: Any) -> None:
    if user := turn.get("userContent"):
        line("user", _one_line(user.get("content", "")))
    for tool in turn.get("tools") or ():
        if tool is None:
            continue
        error = tool.get("error")
        outcome = f"error {_compact(error)}" if error else _compact(tool.get("result"))
        line(
            "tool", _one_line(f"{tool.get('name')}({_compact(tool.get('arguments'))}) -> {outcome}")
        )
    if final := turn.get("finalResponse"):
        line("answer", _one_line(final.get("content", "")))


def _compact(value: Any) -> str:
    return "not captured" if value is None else orjson.dumps(value).decode()


def _one_line(text: str) -> str:
    return one_line(visible(text), TEXT_WIDTH)
