"""The demo's script, from `sessions.json`: the messages of its users and the answers of its model.

The agent is real, but its model is not: each step below is one answer of the model. Therefore the demo
needs neither a key nor a network, and recordings can be checked against this script.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call of the model."""

    name: str
    arguments: Mapping[str, Any]


Step = str | tuple[Call, ...]
"""One answer of the model: words for the user, or tool calls (several run in parallel)."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn: the user's message and the steps of the model."""

    user: str
    steps: Sequence[Step]


def _step(step: str | list[dict[str, Any]]) -> Step:
    return step if isinstance(step, str) else tuple(Call(**call) for call in step)


SESSIONS: Mapping[str, Sequence[Exchange]] = {
    name: [Exchange(one["user"], [_step(step) for step in one["steps"]]) for one in exchanges]
    for name, exchanges in json.loads(
        Path(__file__).with_name("sessions.json").read_text("utf-8")
    ).items()
}

ORDERS = {"A-100": "shipped", "B-200": "shipped", "C-300": "packed"}
ARRIVALS = {"A-100": "Tuesday", "C-300": "Thursday"}


def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "status": ORDERS[order_id]}


def track_parcel(order_id: str) -> dict[str, Any]:
    """Return when a parcel arrives."""
    if order_id not in ARRIVALS:
        return {"status": "error", "error": "the carrier does not answer"}
    return {"order_id": order_id, "arrives": ARRIVALS[order_id]}


def refund(order_id: str, amount: float) -> dict[str, Any]:
    """Pay money back."""
    return {"order_id": order_id, "refunded": amount}


TOOLS: Mapping[str, Callable[..., dict[str, Any]]] = {
    "get_order": get_order,
    "track_parcel": track_parcel,
    "refund": refund,
}


def judge_answer(prompt: str) -> str:
    """Answer the demo's rubric as its scripted judge: an answer that guarantees a date breaks it."""
    promises = "I guarantee it" in prompt
    reason = "The answer guarantees a delivery date." if promises else "No date is guaranteed."
    return json.dumps(
        {"rubricScores": [{"id": "no-promise", "score": 0 if promises else 1, "reason": reason}]}
    )
