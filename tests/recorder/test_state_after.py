"""The session's state after a turn: recorded, and redacted like the state before it."""

import json
from typing import Any

import pytest
from google.adk.tools.tool_context import ToolContext

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.privacy.policy import FieldPolicy
from evaltap.recorder.privacy.redactor import PatternRedactor
from evaltap.schemas.formats.case import EvalCase
from plugin_drivers.adk import Adk
from plugin_drivers.driver import call, says, tapped
from plugin_drivers.strands import Strands


def recorded(*states: Any, **settings: Any) -> dict[str, Any]:
    sink = MemorySink()
    recorder = Recorder(sink=sink, **settings)
    with recorder.turn(session_id="s", user="Return A.", state={"orders": ["A"]}) as turn:
        for state in states:
            turn.set_state(state)
        turn.respond("Done.")
    assert recorder.close()
    assert recorder.counters().faults == 0
    (case,) = sink.cases
    assert EvalCase.model_validate(case)
    data: dict[str, Any] = case["actualConversation"][0]
    return data


def test_the_last_state_counts_and_is_a_copy() -> None:
    state = {"orders": ["A"], "returned": []}

    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(session_id="s", user="Return A.") as turn:
        turn.set_state({"orders": []})
        turn.set_state(state)
        state["orders"].clear()
    recorder.close()

    assert sink.cases[0]["actualConversation"][0]["state"] == {"orders": ["A"], "returned": []}


def test_a_state_is_redacted_cut_and_withheld_by_its_policy() -> None:
    state = {"mail": "ann@example.com", "note": "x" * 4_000}

    seen = recorded(state, field_max_bytes=1_000)
    withheld = recorded(state, capture_content=False)
    dropped = recorded(state, redaction_policy="state=drop")
    hashed = recorded(state, redaction_policy="state=hash")
    kept = recorded(state, redaction_policy="state=keep")

    assert "ann@" not in json.dumps([seen, hashed])
    assert seen["capture"] == {"state": "truncated"}
    assert "state" not in {**withheld, **dropped}
    assert withheld["capture"]["state"] == dropped["capture"]["state"] == "redacted"
    assert set(hashed["state"]) == {"mail", "note"}
    assert kept["state"] == state


@pytest.mark.parametrize("odd", [object(), None, 5, [1]])
def test_what_is_no_state_disturbs_nobody(odd: Any) -> None:
    assert recorded(odd)["finalResponse"]["content"] == "Done."


def remember(order_id: str, tool_context: ToolContext) -> str:
    """Note that an order was returned."""
    tool_context.state["returned"] = [order_id]
    tool_context.state["temp:draft"] = "x"
    return "noted"


def test_adk_leaves_the_state_that_its_tools_made() -> None:
    with tapped(Adk, differ=["state"]) as tap:
        agent = tap.agent(
            says("", call("remember", "c1", order_id="A")), says("Done."), tools=[remember]
        )

        tap.ask(agent, "Return A.")

        (case,) = tap.recorder.cases
        (turn,) = case["actualConversation"]
    assert turn["state"] == {"returned": ["A"]}
    assert turn["tools"][0]["stateDelta"] == {"returned": ["A"], "temp:draft": "x"}
    assert "state" not in case["sessionInput"]


def test_what_a_tool_wrote_follows_the_policy_of_the_state() -> None:
    case = {"actualConversation": [{"tools": [{"name": "t", "stateDelta": {"to": "a@b.com"}}]}]}

    def treated(policy: str) -> Any:
        redactor = PatternRedactor(b"k" * 32, policy=FieldPolicy.parse(policy))
        return redactor(case)[0]["actualConversation"][0]["tools"][0]

    assert "a@b.com" not in json.dumps([treated(""), treated("state=hash")])
    assert treated("state=keep")["stateDelta"] == {"to": "a@b.com"}
    assert treated("state=drop") == {"name": "t", "capture": {"stateDelta": "redacted"}}


def test_strands_has_a_state_before_and_after_a_turn() -> None:
    with tapped(Strands, differ=["state"]) as tap:

        def take_back(order_id: str) -> str:
            """Note that an order was returned."""
            agent.state.set("returned", [order_id])
            return "noted"

        steps = says("", call("take_back", "c1", order_id="A")), says("Done.")
        agent = tap.agent(*steps, tools=[take_back])
        agent.state.set("orders", ["A"])

        tap.ask(agent, "Return A.")

        (case,) = tap.recorder.cases
        (turn,) = case["actualConversation"]
    assert case["sessionInput"]["state"] == {"orders": ["A"]}
    assert turn["state"] == {"orders": ["A"], "returned": ["A"]}
