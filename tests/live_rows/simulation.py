"""`simulation`: one conversation with a simulated user."""

import asyncio
from typing import Any

from evaltap.experiments.service import (
    AgentCall,
    InferenceRequest,
    InferenceResult,
    LocalService,
    Options,
    UserSimulator,
)
from evaltap.experiments.stores import memory_stores
from evaltap.schemas.errors import InputError
from live_rows.agents import ScriptedAgent, ScriptedUser
from live_rows.comparing import Row, same


def check(row: Row, **instead: Any) -> None:
    given, wanted = row["input"], {**row["want"], **instead}
    agent = ScriptedAgent(given.get("agent") or {})
    user = ScriptedUser(given.get("simulatorReplies") or [])
    found: dict[str, Any] = {"error": True, "recordedTurns": 0}
    try:
        result = _inferred(given, agent, user)
        found = {"error": result.status != "passed", "recordedTurns": len(result.inferences)}
    except InputError:
        pass
    found["userTurns"] = [one.text for one in agent.calls]
    found["simulatorInputs"] = [one.text for one in user.calls]
    if user.calls:
        prompt = _prompt(user.calls[0])
        mentions = wanted.get("systemPromptMentions") or {}
        found["systemPromptMentions"] = {one: one in prompt for one in mentions}
        found["simulatorState"] = user.calls[0].state
    for name in ("simulatorState",):
        if name not in wanted:
            found.pop(name, None)

    same(found, {key: one for key, one in wanted.items() if key != "peer_error"})


def _inferred(given: Row, agent: ScriptedAgent, user: ScriptedUser) -> InferenceResult:
    options = given.get("options") or {}
    more: dict[str, Any] = {}
    if "systemPrompt" in options:
        more["system_prompt"] = lambda _: options["systemPrompt"]
    for name, ours in (("userId", "user_id"), ("sessionId", "session_id")):
        if name in options:
            more[ours] = lambda name=name: options[name]
    simulator = UserSimulator(
        user,
        stop_signal=options.get("stopSignal"),
        max_turns=options.get("maxAllowedInvocations"),
        **more,
    )
    stores = memory_stores()
    stores.sets.create("app", "set")
    session: Row = {"appName": "app", "userId": "u"}
    if given.get("sessionState") is not None:
        session["state"] = given["sessionState"]
    stores.sets.add_case(
        "app",
        "set",
        {"evalId": "c1", "conversationScenario": given["scenario"], "sessionInput": session},
    )
    service = LocalService(agent)
    request = InferenceRequest("app", "set")
    made = asyncio.run(service.inference(request, Options(stores=stores, simulator=simulator)))
    return made[0]


def _prompt(call: AgentCall) -> str:
    return "\n".join(str(one["content"]) for one in call.context_messages)


def _keeps_ended_turns(row: Row) -> None:
    check(row, recordedTurns=1)


DEVIATIONS = {"simulation/target_error_discards_earlier_turns": _keeps_ended_turns}
