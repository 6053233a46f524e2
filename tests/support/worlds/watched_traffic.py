"""Days of traffic of two apps for watches: sessions of one turn that calls one of several tools."""

import json
import random
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from evaltap.schemas.wire.record import WireRecord, encode_case
from support.builders.cases import RESPONSE, make_case, make_tool, make_turn

FIRST = datetime(2026, 11, 1, tzinfo=UTC)


def write_metrics(path: Path = Path("m.json")) -> Path:
    """Write the metric `helpful`, which the traffic passes or fails."""
    metric = RESPONSE | {"metricName": "helpful", "evaluatorName": "final_response_avg_score"}
    path.write_text(json.dumps([metric]))
    return path


def traffic(
    fails: Callable[[str, int], float],
    *,
    days: int = 24,
    daily: int = 40,
    pause: int | None = None,
    tools: Callable[[int], Sequence[str]] = lambda day: ("search", "search", "order", "refund"),
    first: datetime = FIRST,
    latency: Callable[[int, int], float] = lambda day, number: 100.0 + number,
) -> list[WireRecord]:
    """Return the records of some days; `fails` gives the chance by tool and day, `tools` the choice.

    `latency` gives milliseconds by the day and the number of the turn in it.
    """
    source = random.Random(7)
    records: list[WireRecord] = []
    for day in range(days):
        for number in range(daily):
            if pause == day:
                continue
            tool = source.choice(tools(day))
            wrong = source.random() < fails(tool, day)
            at = first + timedelta(days=day, minutes=30 * number)
            turn = make_turn(
                tools=[make_tool("login"), make_tool(tool)], answer="no" if wrong else "done"
            )
            turn |= {
                "creationTimestamp": at.timestamp(),
                "telemetry": {"latencyMs": latency(day, number)},
            }
            case = make_case(f"s-{day}-{number}", [turn], conversation=[make_turn()])
            case["sessionInput"]["appName"] = "shop" if number % 3 else "desk"
            seq = len(records) + 1
            records.append(encode_case(case, producer_id="p", seq=seq, time=at))
    return records
