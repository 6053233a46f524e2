"""Documents that `evaltap try` reads, written and read for tests."""

import json
from pathlib import Path
from typing import Any

from evaltap.cli.recognising import Recognised, recognise
from evaltap.schemas.data import CaseData

Line = dict[str, Any]


def read(folder: Path, *documents: object) -> Recognised:
    """Return what files are read as; a list of objects is a file of JSON Lines."""
    paths = []
    for number, document in enumerate(documents):
        path = folder / f"file-{number}"
        lines = document if isinstance(document, list) else [document]
        path.write_text("\n".join(map(json.dumps, lines)))
        paths.append(path)
    return recognise(paths)


def turns(found: Recognised) -> list[CaseData]:
    return [turn for case in found.cases for turn in case["actualConversation"]]


def outline(turn: CaseData) -> tuple[object, ...]:
    """Return a turn's question, calls (and whether each failed), answer and status."""
    calls = [(call["name"], "error" in call) for call in turn.get("tools", ())]
    asked, said = (turn.get(key, {}).get("content") for key in ("userContent", "finalResponse"))
    return asked, calls, said, turn.get("telemetry", {}).get("status")


def at(second: int) -> str:
    return f"2026-03-01T10:00:{second:02}Z"
