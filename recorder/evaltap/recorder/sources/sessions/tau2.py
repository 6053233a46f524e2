"""tau2-bench: its result files, one object with `simulations`, and files with one simulation each.

Source: `Results` and `SimulationRun` of tau2's data model; the rows of tau-bench before it, a list of objects
with `traj`, are chats.  Each simulation is a session.  The user is
simulated; calls that the user makes are no calls of the agent.
"""

from collections.abc import Iterator

from evaltap.recorder.observation import Failure, RunStatus
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    text_of,
    time_of,
    usd,
    value_of,
    word,
)
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import tokens
from evaltap.schemas.data import JsonObject

NAME = "tau2"
_ENDED = ("agent_stop", "user_stop")


def conversations(document: object) -> list[Conversation] | None:
    whole = mapping(document)
    found = objects(whole.get("simulations")) or objects([document])
    alone = "simulations" not in whole
    if not found or not all(_is_simulation(one, alone=alone) for one in found):
        return None
    return [_conversation(one) for one in found]


def _is_simulation(one: JsonObject, *, alone: bool) -> bool:
    """Return whether an object is a run; those of two voices have `ticks` instead of messages."""
    known = {"messages", "termination_reason"} if alone else {"messages"}
    return "task_id" in one and ("ticks" in one or known <= one.keys())


def _conversation(simulation: JsonObject) -> Conversation:
    stated = {key: simulation.get(key) for key in ("task_id", "trial")}
    reward = simulation.get("reward_info")
    if isinstance(reward, dict):
        stated["reward"] = reward.get("reward")
    reason = simulation.get("termination_reason")
    status: RunStatus | None = None
    failure = None
    if isinstance(reason, str) and reason not in _ENDED:
        status, failure = "error", Failure(reason)
    messages = [found for one in objects(simulation.get("messages")) for found in _messages(one)]
    if reason == "user_stop" and messages and messages[-1].role == "user":
        del messages[-1]  # the user's word that ends the simulation
    return Conversation(
        framework=NAME,
        session_id=word(simulation.get("id")),
        messages=messages,
        state={key: value for key, value in stated.items() if value is not None},
        status=status,
        failure=failure,
    )


def _messages(given: JsonObject) -> Iterator[Message]:
    """Yield a message; those of several tools are in one."""
    role, now = given.get("role"), time_of(given.get("timestamp"))
    text = text_of(given.get("content"))
    if role == "tool" and given.get("tool_messages") is not None:
        for one in objects(given["tool_messages"]):
            yield from _messages(one)
    elif role == "tool" and given.get("requestor", "assistant") == "assistant":
        failure = Failure(None, text) if given.get("error") else None
        yield Message(
            role="tool",
            time_ns=now,
            call_id=word(given.get("id")) or "",
            result=value_of(text),
            failure=failure,
        )
    elif role == "user" and not given.get("tool_calls"):
        yield Message(role="user", text=text, time_ns=now)
    elif role == "system":
        yield Message(role="system", text=text, time_ns=now)
    elif role == "assistant":
        used = mapping(given.get("usage"))
        model = mapping(given.get("raw_data")).get("model")
        yield Message(
            role="assistant",
            text=text,
            time_ns=now,
            calls=tuple(map(_call, _named(given.get("tool_calls")))),
            model=word(model),
            tokens=tokens(used.get("prompt_tokens"), used.get("completion_tokens")),
            cost_usd=usd(given.get("cost")),
        )


def _named(calls: object) -> list[JsonObject]:
    return [one for one in objects(calls) if isinstance(one.get("name"), str)]


def _call(call: JsonObject) -> Call:
    return Call(call["name"], value_of(call.get("arguments")), str(call.get("id") or ""))
