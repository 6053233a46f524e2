"""Traffic of which eval sets are made, and the command that makes them."""

import json
from pathlib import Path
from typing import Any

from evaltap.cli.main import main
from support.worlds.shop import Asked

QUESTIONS = (
    ("Where is my order {}?", ("get_order",)),
    ("I want a refund for {} please", ("get_order", "refund")),
    ("Cancel the order {} now", ("cancel",)),
    ("Which cards do you take?", ()),
)


def traffic(count: int = 40) -> list[Asked]:
    """Return four intents in turn; every fifth answer is impolite, one path is rare, one run breaks."""
    made = []
    for number in range(count):
        text, tools = QUESTIONS[number % 4]
        greeting = "Hello! " if number % 3 == 0 else ""
        answer = "No." if number % 5 == 0 else "Yes, please."
        made.append(Asked(greeting + text.format(f"A-{number}"), tools, answer, hours=number))
    made.append(Asked("Export everything I ever bought", ("export_all",)))
    made.append(Asked("Track my parcel A-1", ("track",), error="TimeoutError"))
    made.append(
        Asked("Is it cold in Bern?", (), "No idea.", thumb=False, correction="Yes, please see.")
    )
    return made


def curate(database: Path, out: Path, *arguments: str, code: int = 0) -> list[dict[str, Any]]:
    assert main(["curate", str(database), "--out", str(out), *arguments]) == code
    cases: list[dict[str, Any]] = json.loads(out.read_text())["evalCases"]
    return cases


def labels(cases: list[dict[str, Any]]) -> dict[str, list[str]]:
    return {case["evalId"]: case["source"]["curation"]["labels"] for case in cases}
