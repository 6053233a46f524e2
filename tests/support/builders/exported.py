"""An eval set with everything that exports have to carry, and what an import must restore."""

from typing import Any

from support.builders.cases import make_turn

MESSAGE = {"role": "system", "content": "Be kind."}
CALL = {
    "id": "1",
    "name": "get_order",
    "arguments": {"id": "A-7", "tags": ["x", None]},
    "result": {"ok": 1},
}


def asked(
    text: str, answer: str | None, tools: list[dict[str, Any]], **more: Any
) -> dict[str, Any]:
    user = {"role": "user", "content": text}
    return make_turn("1", answer=answer, userContent=user, tools=tools, **more)


CASES: list[dict[str, Any]] = [
    {
        "evalId": "a/ü 1",
        "conversation": [asked('Where is "A-7"? <b>', "It's in Bern & \u2028 on its way.", [CALL])],
        "sessionInput": {"appName": "shop", "userId": "u", "state": {"tier": "gold"}},
        "source": {"curation": {"labels": ["failed:f1"], "weight": 3.5, "members": 3,
                                "from": {"traceIds": ["t-9"]}}},
    },
    {
        "evalId": "b",
        "evalMode": "trace",
        "actualConversation": [asked("Hello?", "No.", [])],
        "conversation": [asked("Hello?", "Hello!", [], contextMessages=[MESSAGE])],
        "rubrics": [{"metricName": "m", "id": "1", "content": {"text": "kind"}}],
    },
    {
        "evalId": "c",
        "conversation": [asked("One?", "1", [CALL]), asked("Two?", "2", [])],
    },
]  # fmt: skip


def carried(case: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return what a round trip keeps of each turn: what is asked, answered and called."""
    turns = case.get("conversation") or case.get("actualConversation") or []
    return [
        (
            turn["userContent"]["content"],
            (turn.get("finalResponse") or {}).get("content"),
            [(tool["name"], tool.get("arguments")) for tool in turn.get("tools") or []],
        )
        for turn in turns
    ]
