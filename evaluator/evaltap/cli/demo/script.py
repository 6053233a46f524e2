"""The demo's script in one table: the messages of its users and the answers of its model.

The agent is real, but its model is not: each step below is one answer of the model. Therefore the demo
needs neither a key nor a network, and recordings can be checked against this script.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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


SESSIONS: Mapping[str, Sequence[Exchange]] = {
    "s-delivery": [
        Exchange("Hi, can you help me with an order?", ["Of course. What is the order number?"]),
        Exchange(
            "It is A-100, please mail the answer to ada@example.com.",
            [
                (
                    Call("get_order", {"order_id": "A-100"}),
                    Call("track_parcel", {"order_id": "A-100"}),
                ),
                "Order A-100 has shipped and arrives on Tuesday.",
            ],
        ),
        Exchange(
            "Then refund the shipping costs, 10 euros.",
            [
                (Call("refund", {"order_id": "A-100", "amount": 10}),),
                "I have refunded 10 euros for order A-100.",
            ],
        ),
    ],
    "s-outage": [
        Exchange(
            "Where is order B-200?",
            [
                (Call("get_order", {"order_id": "B-200"}),),
                (Call("track_parcel", {"order_id": "B-200"}),),
                "Order B-200 has shipped; I cannot see the parcel right now, please try again later.",
            ],
        )
    ],
    "s-too-generous": [
        Exchange(
            "Order A-100 came late, I would like 10 euros back.",
            [
                (Call("refund", {"order_id": "A-100", "amount": 100}),),
                "I have refunded 10 euros for order A-100.",
            ],
        )
    ],
    "s-promise": [
        Exchange(
            "Will order C-300 be here before Friday?",
            [
                (Call("track_parcel", {"order_id": "C-300"}),),
                "Order C-300 arrives on Thursday, I guarantee it.",
            ],
        )
    ],
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
