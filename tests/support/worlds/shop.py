"""Traffic of a small shop, landed and scored as a user would, for tests of filters and curation."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from evaltap.cli.main import main
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import WireRecord, encode_case, encode_feedback
from support.builders.cases import NOON, make_case, make_tool, make_turn, write_log
from support.worlds.once import made_once

POLITE = {
    "metricName": "polite",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "r", "type": "contains", "values": ["please"]}]}},
}
"""A metric that needs no reference: the answer says please."""


@dataclass(frozen=True)
class Asked:
    """One turn: what was asked, done and answered."""

    question: str
    tools: Sequence[str] = ("get_order",)
    answer: str = "Here you are, please."
    error: str = ""
    """The type of error that ended the run."""
    thumb: bool | None = None
    correction: str = ""
    hours: float = 0
    """When it was asked, after noon."""
    session: str = ""
    """Turns of one session; empty: a session of its own."""
    arguments: Any = None
    source: Any = None
    """More keys of the case's `source`."""
    telemetry: Any = None


def records(asked: Sequence[Asked], *, producer_id: str = "p") -> list[WireRecord]:
    """Return the records of turns, sessions s-0, s-1, … in their order, and of what users thought."""
    made: list[WireRecord] = []
    for number, one in enumerate(asked):
        name = one.session or f"s-{number}"
        at = NOON + timedelta(hours=one.hours, seconds=number)
        status: dict[str, Any] = {"status": "ok"}
        if one.error:
            status = {"status": "error", "error": {"type": one.error, "message": "it broke"}}
        tools = [
            make_tool(tool, id=f"call-{number}-{place}", result={"ok": True})
            | ({"arguments": one.arguments} if one.arguments is not None else {})
            for place, tool in enumerate(one.tools)
        ]
        turn = make_turn(
            f"t-{number}",
            answer=None if one.error else one.answer,
            userContent={"role": "user", "content": one.question},
            tools=tools,
            creationTimestamp=at.timestamp(),
            telemetry={
                "traceId": f"trace-{number}",
                "models": ["small"],
                "latencyMs": 100.0 + number,
                "costUsd": 0.001,
                **status,
                **(one.telemetry or {}),
            },
        )
        source = {"revision": 1, **(one.source or {})}
        case = make_case(
            name,
            [turn],
            sessionInput={"appName": "shop", "userId": f"u-{number % 3}"},
            evalSetId="live",
            source=source,
        )
        made.append(encode_case(case, producer_id=producer_id, seq=number + 1, time=at))
        if one.thumb is not None:
            thought = Feedback(
                f"f-{number}", "live", name, at, app_name="shop", invocation_id=f"t-{number}",
                name="thumbs", positive=one.thumb, correction=one.correction,
            )  # fmt: skip
            made.append(encode_feedback(thought, producer_id=producer_id))
    return made


@made_once
def landed(
    folder: Path, asked: Sequence[Asked], *, metrics: Sequence[dict[str, Any]] = (POLITE,)
) -> Path:
    """Land turns in a new DuckDB file, score them, and return the file."""
    write_log(folder / "log.db", records(asked))
    (folder / "metrics.json").write_text(json.dumps(list(metrics)))
    arguments = ["consume", "--log", str(folder / "log.db"), "--db", str(folder / "x.duckdb")]
    scored = ["--metrics", str(folder / "metrics.json")] if metrics else []
    main([*arguments, *scored, "--until-idle", "--json"])
    return folder / "x.duckdb"
