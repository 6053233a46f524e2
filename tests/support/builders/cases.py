"""Builders of eval cases, records and logs for tests."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evaltap.schemas.log.local import open_log
from evaltap.schemas.wire.record import WireRecord, encode_case

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def make_tool(name: str = "get_order", **given: Any) -> dict[str, Any]:
    """Return a tool call."""
    return {"id": "call-1", "name": name, "arguments": {"order_id": "A-100"}, **given}


def make_turn(
    invocation_id: str = "t-1", answer: str | None = "done", **given: Any
) -> dict[str, Any]:
    """Return a turn; `answer=None` leaves the final response out."""
    turn: dict[str, Any] = {
        "invocationId": invocation_id,
        "userContent": {"role": "user", "content": "Where is order A-100?"},
        "tools": [make_tool()],
    }
    if answer is not None:
        turn["finalResponse"] = {"role": "assistant", "content": answer}
    return turn | given


def make_case(
    eval_id: str = "s-1", turns: Sequence[dict[str, Any]] = (), **given: Any
) -> dict[str, Any]:
    """Return a trace-mode case, with one turn unless told otherwise."""
    return {
        "evalId": eval_id,
        "evalMode": "trace",
        "actualConversation": list(turns) or [make_turn()],
        "sessionInput": {"appName": "app", "userId": "user"},
    } | given


def make_records(
    cases: Sequence[dict[str, Any]], *, producer_id: str = "p", first_seq: int = 1
) -> list[WireRecord]:
    """Return the wire records of one-turn cases."""
    return [
        encode_case(case, producer_id=producer_id, seq=seq, time=NOON)
        for seq, case in enumerate(cases, start=first_seq)
    ]


def write_log(path: Path, records: Sequence[WireRecord]) -> Path:
    """Append records to a local log."""
    log = open_log(path, mode="append")
    log.append(records)
    log.close()
    return path


TRAJECTORY = {
    "metricName": "tool_trajectory_avg_score",
    "threshold": 1,
    "criterion": {
        "toolTrajectory": {"defaultStrategy": {"name": {}, "arguments": {}}},
    },
}
RESPONSE = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "contains"}}},
}
SAYS_YES = {
    "metricName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "yes", "type": "contains", "values": ["yes"]}]}},
}
EXACT = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
}
RUBRIC = {
    "metricName": "llm_rubric_response",
    "threshold": 1,
    "criterion": {
        "llmJudge": {
            "judgeModel": {"providerName": "openai", "modelName": "judge-1", "numSamples": 1},
            "rubrics": [{"id": "1", "content": {"text": "The answer names the order."}}],
        }
    },
}
