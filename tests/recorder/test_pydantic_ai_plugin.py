"""The pydantic-ai capability and the framework's own spans tell the same turns of real agents."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, InstrumentationSettings
from pydantic_ai.exceptions import CallDeferred, ToolFailed
from pydantic_ai.messages import TextPart

from evaltap.recorder.plugins.pydantic_ai import EvaltapCapability
from inline_recorder import InlineRecorder
from scripted_pydantic_ai import Step, ask, called, get_order, in_stock, scripted
from witness import Witness, facts, facts_of

ORDER = {"order_id": "A", "total": 42.5}


class Verdict(BaseModel):
    """A structured answer."""

    ok: bool


@pytest.fixture
def witness() -> Iterator[Witness]:
    found = Witness()
    Agent.instrument_all(InstrumentationSettings(tracer_provider=found.provider))
    yield found
    Agent.instrument_all(False)


def agent_of(witness: Witness, *steps: Step, name: str = "support", **options: Any) -> Agent[Any]:
    capability = EvaltapCapability(recorder=witness.by_plugin)
    return Agent(scripted(*steps), name=name, capabilities=[capability], **options)


def test_one_tool(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [TextPart("Let me see."), called("get_order", "c1", order_id="A")],
        [TextPart("Delivered.")],
        tools=[get_order],
    )

    ask(agent, "Where is A?", conversation_id="s1")

    turn = witness.turn()
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]
    assert (turn["intermediate"], turn["status"]) == (["Let me see."], "ok")


def test_parallel_tools(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [called("get_order", "p1", order_id="A"), called("get_order", "p2", order_id="B")],
        [TextPart("Both.")],
        tools=[get_order],
    )

    ask(agent, "Where are they?", conversation_id="s1")

    assert [tool[0] for tool in witness.turn()["tools"]] == ["p1", "p2"]


def test_a_retry_that_the_tool_asks_for_is_a_failed_call(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [called("in_stock", "c1", sku="x9")],
        [called("in_stock", "c2", sku="X9")],
        [TextPart("Three.")],
        tools=[in_stock],
    )

    ask(agent, "In stock?", conversation_id="s1")

    turn = witness.turn()
    assert turn["errors"] == [{"type": "ModelRetry", "message": "sku must be upper case"}, None]
    assert turn["tools"][1][3] == "3"


def test_a_call_with_wrong_arguments_is_a_failed_call(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [called("in_stock", "c1", wrong=1)],
        [called("in_stock", "c2", sku="X9")],
        [TextPart("Three.")],
        tools=[in_stock],
    )

    ask(agent, "In stock?", conversation_id="s1")

    turn = witness.turn()
    assert turn["tools"][0][:3] == ("c1", "in_stock", {"wrong": 1})
    assert turn["errors"][0]["type"].endswith(".ValidationError")


def test_a_tool_that_does_not_exist_is_a_failed_call(witness: Witness) -> None:
    agent = agent_of(
        witness, [called("sell", "c1", sku="X9")], [TextPart("I cannot.")], tools=[in_stock]
    )

    ask(agent, "Sell it", conversation_id="s1")

    turn = witness.turn()
    assert turn["tools"][0][:3] == ("c1", "sell", {"sku": "X9"})


def test_a_tool_that_raises_fails_the_run(witness: Witness) -> None:
    agent = agent_of(
        witness, [TextPart("Hm."), called("in_stock", "c1", sku="X0")], tools=[in_stock]
    )

    with pytest.raises(RuntimeError, match="inventory down"):
        ask(agent, "In stock?", conversation_id="s1")

    turn = witness.turn()
    failure = {"type": "RuntimeError", "message": "inventory down"}
    assert (turn["errors"], turn["error"], turn["status"]) == ([failure], failure, "error")
    assert (turn["final"], turn["intermediate"]) == (None, ["Hm."])


def test_a_model_that_raises_fails_the_run(witness: Witness) -> None:
    agent = agent_of(witness, TimeoutError("slow"))

    with pytest.raises(TimeoutError):
        ask(agent, "Hi", conversation_id="s1")

    assert witness.turn()["error"] == {"type": "TimeoutError", "message": "slow"}


def test_three_turns_of_a_session(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [TextPart("Which?")],
        [called("get_order", "c1", order_id="A")],
        [TextPart("Delivered.")],
        [TextPart("Bye.")],
        tools=[get_order],
    )

    history = None
    for text in ("Hi", "A", "Thanks"):
        result = ask(agent, text, message_history=history, conversation_id="s1")
        history = result.all_messages()

    turns = witness.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "A", "Thanks"]
    assert [turn["final"] for turn in turns] == ["Which?", "Delivered.", "Bye."]
    assert [len(turn["tools"]) for turn in turns] == [0, 1, 0]


def test_an_agent_inside_a_tool_is_part_of_the_turn(witness: Witness) -> None:
    inner = agent_of(
        witness,
        [TextPart("hm"), called("get_order", "n2", order_id="A")],
        [TextPart("A is there.")],
        tools=[get_order],
        name="researcher",
    )

    async def research(question: str) -> str:
        """Ask the researcher."""
        return str((await inner.run(question)).output)

    boss = agent_of(
        witness,
        [called("research", "n1", question="find A"), called("get_order", "n3", order_id="B")],
        [TextPart("Good news.")],
        tools=[research, get_order],
        name="boss",
    )

    ask(boss, "Where is A?", conversation_id="s1")

    turn = witness.turn()
    assert (turn["user"], turn["final"], turn["intermediate"]) == ("Where is A?", "Good news.", [])
    calls = zip(turn["tools"], turn["agents"], turn["parents"], strict=True)
    assert sorted((call[0], agent, parent) for call, agent, parent in calls) == [
        ("n1", "boss", None),
        ("n2", "researcher", "n1"),
        ("n3", "boss", None),
    ]


def test_a_failing_agent_inside_a_tool_fails_its_call_only(witness: Witness) -> None:
    inner = agent_of(witness, ValueError("lost"), name="researcher")

    async def research(question: str) -> str:
        """Ask the researcher."""
        try:
            return str((await inner.run(question)).output)
        except ValueError as error:
            raise ToolFailed(str(error)) from error

    boss = agent_of(
        witness, [called("research", "n1", question="find")], [TextPart("Sorry.")], tools=[research]
    )

    ask(boss, "Where is A?", conversation_id="s1")

    turn = witness.turn()
    assert (turn["status"], turn["final"]) == ("ok", "Sorry.")
    assert turn["errors"] == [{"type": "pydantic_ai.exceptions.ToolFailedError", "message": "lost"}]


def test_a_structured_answer_is_the_final_response_and_no_tool_call(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [called("get_order", "c1", order_id="A")],
        [called("final_result", "c2", ok=True)],
        tools=[get_order],
        output_type=Verdict,
    )

    ask(agent, "Ok?", conversation_id="s1")

    turn = witness.turn()
    assert turn["final"] == '{"ok":true}'
    assert [tool[1] for tool in turn["tools"]] == ["get_order"]


def test_a_streamed_run_is_one_answer(witness: Witness) -> None:
    agent = agent_of(
        witness,
        [called("get_order", "c1", order_id="A")],
        [TextPart("It is delivered.")],
        tools=[get_order],
    )

    async def talk() -> None:
        async with agent.run_stream("Where?", conversation_id="s1") as stream:
            async for _ in stream.stream_text():
                pass

    asyncio.run(talk())

    turn = witness.turn()
    assert (turn["final"], turn["intermediate"]) == ("It is delivered. ", [])
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]


def test_concurrent_sessions_do_not_mix(witness: Witness) -> None:
    async def talk() -> None:
        agents = [
            agent_of(
                witness,
                [called("get_order", f"c{number}", order_id=f"A-{number}")],
                [TextPart(f"Answer {number}")],
                tools=[get_order],
            )
            for number in range(4)
        ]
        runs = (
            agent.run(f"Question {number}", conversation_id=f"s{number}")
            for number, agent in enumerate(agents)
        )
        await asyncio.gather(*runs)

    asyncio.run(talk())

    turns = sorted(witness.turns(), key=lambda turn: str(turn["session"]))
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        (f"s{number}", f"Question {number}", f"Answer {number}") for number in range(4)
    ]
    assert [turn["tools"][0][0] for turn in turns] == ["c0", "c1", "c2", "c3"]


def test_a_cancelled_run_is_incomplete(witness: Witness) -> None:
    started = asyncio.Event()

    async def hang() -> str:
        """Never come back."""
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = agent_of(witness, [TextPart("Wait."), called("hang", "c1")], tools=[hang])

    async def talk() -> None:
        task = asyncio.create_task(agent.run("Hang", conversation_id="s1"))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(talk())

    # The spans of a cancelled run say that all went well, only the words and the call are the same.
    (turn,) = facts_of(witness.by_plugin.cases)
    assert turn["status"] == "incomplete"
    assert turn["error"] == {"type": "asyncio.exceptions.CancelledError"}
    assert (turn["final"], turn["intermediate"]) == (None, ["Wait."])
    assert turn["tools"] == [("c1", "hang", {}, None)]
    witness.by_spans.flush()
    (told,) = facts_of(witness.by_spans.cases)
    assert all(told[key] == turn[key] for key in ("user", "final", "intermediate", "tools"))


def test_a_deferred_call_has_no_result_and_is_no_error(witness: Witness) -> None:
    def approve(order_id: str) -> str:
        """Wait for a human."""
        raise CallDeferred

    agent = agent_of(
        witness,
        [called("approve", "c1", order_id="A")],
        tools=[approve],
        output_type=[str, DeferredToolRequests],
    )

    ask(agent, "Refund A", conversation_id="s1")

    (case,) = witness.by_plugin.cases
    (tool,) = case["actualConversation"][0]["tools"]
    assert tool["capture"] == {"result": "missing"}
    assert "error" not in tool


class Broken(InlineRecorder):
    """A recorder that cannot take anything."""

    def observe(self, observation: object) -> None:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_the_agent() -> None:
    recorder = Broken()
    agent = Agent(
        scripted([called("get_order", "c1", order_id="A")], [TextPart("Delivered.")]),
        tools=[get_order],
        capabilities=[EvaltapCapability(recorder=recorder)],
    )

    assert ask(agent, "Where?").output == "Delivered."
    assert recorder.faults


def test_arguments_are_those_the_model_gave_and_not_what_a_tool_made_of_them() -> None:
    recorder = InlineRecorder()

    def spoil(items: list[str]) -> str:
        """Change its own arguments."""
        items.clear()
        return "done"

    agent = Agent(
        scripted([called("spoil", "c1", items=["a"])], [TextPart("Done.")]),
        tools=[spoil],
        capabilities=[EvaltapCapability(recorder=recorder)],
    )

    ask(agent, "Go")

    assert facts(recorder.cases[0])["tools"][0][2] == {"items": ["a"]}
