"""The Strands hooks and the framework's own spans tell the same turns of real agents."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider
from strands import Agent, tool
from strands.multiagent import GraphBuilder, Swarm
from strands.types.exceptions import EventLoopException

from evaltap.recorder.plugins.strands import EvaltapHooks
from inline_recorder import InlineRecorder
from scripted_strands import Step, agent_of, call, get_order, in_stock, say
from witness import Witness, facts_of

ORDER = '{"order_id": "A", "total": 42.5}'


class Switch(SpanProcessor):
    """Passes spans on to the processor of the test at hand: Strands knows one provider only."""

    target: SpanProcessor | None = None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self.target is not None:
            self.target.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        if self.target is not None:
            self.target.on_end(span)


@pytest.fixture(scope="module")
def switch() -> Switch:
    known = trace.get_tracer_provider()
    provider = known if isinstance(known, TracerProvider) else TracerProvider()
    if provider is not known:
        trace.set_tracer_provider(provider)
    made = Switch()
    provider.add_span_processor(made)
    return made


@pytest.fixture
def witness(switch: Switch) -> Iterator[Witness]:
    found = Witness()
    switch.target = found.processor
    yield found
    switch.target = None


def observed(witness: Witness, *steps: Step, **options: Any) -> Agent:
    return agent_of(*steps, hooks=[EvaltapHooks(recorder=witness.by_plugin)], **options)


def test_one_tool(witness: Witness) -> None:
    agent = observed(
        witness,
        [say("Let me see."), call("get_order", "c1", order_id="A")],
        [say("It is delivered.")],
        tools=[get_order],
    )

    agent("Where is A?")

    turn = witness.turn()
    assert (turn["session"], turn["user"]) == ("s1", "Where is A?")
    assert (turn["final"], turn["intermediate"]) == ("It is delivered.", ["Let me see."])
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]
    telemetry = witness.by_plugin.cases[0]["actualConversation"][0]["telemetry"]
    assert (telemetry["inputTokens"], telemetry["outputTokens"]) == (22, 10)
    assert telemetry["models"] == ["scripted-1"]


def test_parallel_tools(witness: Witness) -> None:
    agent = observed(
        witness,
        [call("get_order", "p1", order_id="A"), call("get_order", "p2", order_id="B")],
        [say("Both.")],
        tools=[get_order],
    )

    agent("Where?")

    assert [tool[0] for tool in witness.turn(parallel=True)["tools"]] == ["p1", "p2"]


def test_a_tool_that_raises_is_a_failed_call_of_which_the_model_is_told(witness: Witness) -> None:
    agent = observed(witness, [call("in_stock", "c1", sku="X0")], [say("Sorry.")], tools=[in_stock])

    agent("In stock?")

    turn = witness.turn()
    assert turn["tools"][0][3] == "Error: RuntimeError - inventory down"
    assert turn["errors"] == [{"type": "RuntimeError", "message": "inventory down"}]
    assert (turn["final"], turn["status"]) == ("Sorry.", "ok")


def test_a_tool_that_does_not_exist_is_a_failed_call(witness: Witness) -> None:
    agent = observed(witness, [call("sell", "c1", sku="X")], [say("No.")], tools=[in_stock])

    agent("Sell it")

    turn = witness.turn()
    assert turn["tools"] == [("c1", "sell", {"sku": "X"}, "Unknown tool: sell")]
    assert turn["errors"][0]["message"] == "Unknown tool: sell"


def test_a_model_that_raises_fails_the_run(witness: Witness) -> None:
    agent = observed(
        witness,
        [say("Hm."), call("get_order", "c1", order_id="A")],
        TimeoutError("slow"),
        tools=[get_order],
    )

    with pytest.raises(EventLoopException):
        agent("Hi")

    turn = witness.turn()
    wrapped = "strands.types.exceptions.EventLoopException"
    assert (turn["status"], turn["error"]) == ("error", {"type": wrapped, "message": "slow"})
    assert (turn["final"], turn["intermediate"]) == (None, ["Hm."])


def test_three_turns_of_a_session(witness: Witness) -> None:
    agent = observed(
        witness,
        [say("Which?")],
        [call("get_order", "c1", order_id="A")],
        [say("Delivered.")],
        [say("Bye.")],
        tools=[get_order],
    )

    for text in ("Hi", "A", "Thanks"):
        agent(text)

    turns = witness.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "A", "Thanks"]
    assert [turn["final"] for turn in turns] == ["Which?", "Delivered.", "Bye."]
    assert [len(turn["tools"]) for turn in turns] == [0, 1, 0]


def test_an_agent_as_tool_is_part_of_the_turn_around_it(witness: Witness) -> None:
    researcher = observed(
        witness,
        [say("hm"), call("get_order", "n2", order_id="A")],
        [say("A is there.")],
        name="researcher",
        tools=[get_order],
    )
    boss = observed(
        witness,
        [call("researcher", "n1", input="find A"), call("get_order", "n3", order_id="B")],
        [say("Good news.")],
        name="boss",
        tools=[researcher, get_order],
    )

    boss("Where is A?")

    turn = witness.turn()
    assert (turn["user"], turn["final"], turn["intermediate"]) == ("Where is A?", "Good news.", [])
    calls = zip(turn["tools"], turn["agents"], turn["parents"], strict=True)
    assert sorted((call[0], agent, parent) for call, agent, parent in calls) == [
        ("n1", "boss", None),
        ("n2", "researcher", "n1"),
        ("n3", "boss", None),
    ]


def test_an_agent_called_by_a_function_that_is_a_tool_is_part_of_the_turn(
    witness: Witness,
) -> None:
    inner = observed(
        witness,
        [call("get_order", "n2", order_id="A")],
        [say("Found.")],
        name="researcher",
        tools=[get_order],
    )

    @tool
    def research(question: str) -> str:
        """Ask the researcher."""
        return str(inner(question)).strip()

    boss = observed(
        witness,
        [call("research", "n1", question="find")],
        [say("Good.")],
        name="boss",
        tools=[research],
    )

    boss("Where?")

    turn = witness.turn()
    assert (turn["final"], turn["parents"]) == ("Good.", [None, "n1"])


def test_a_streamed_run_is_one_turn(witness: Witness) -> None:
    agent = observed(
        witness,
        [call("get_order", "c1", order_id="A")],
        [say("It is delivered.")],
        tools=[get_order],
    )

    async def talk() -> None:
        async for _ in agent.stream_async("Where?"):
            pass

    asyncio.run(talk())

    turn = witness.turn()
    assert (turn["final"], turn["intermediate"]) == ("It is delivered.", [])
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]


def test_concurrent_sessions_do_not_mix(witness: Witness) -> None:
    async def talk() -> None:
        agents = [
            observed(
                witness,
                [call("get_order", f"c{number}", order_id=f"A-{number}")],
                [say(f"Answer {number}")],
                tools=[get_order],
                session=f"s{number}",
            )
            for number in range(4)
        ]
        await asyncio.gather(
            *(agent.invoke_async(f"Question {number}") for number, agent in enumerate(agents))
        )

    asyncio.run(talk())

    turns = sorted(witness.turns(), key=lambda turn: str(turn["session"]))
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        (f"s{number}", f"Question {number}", f"Answer {number}") for number in range(4)
    ]
    assert [turn["tools"][0][0] for turn in turns] == ["c0", "c1", "c2", "c3"]


def test_a_cancelled_run_is_incomplete(witness: Witness) -> None:
    started = asyncio.Event()

    @tool
    async def hang() -> str:
        """Never come back."""
        started.set()
        await asyncio.Event().wait()
        return ""

    agent = observed(witness, [say("Wait."), call("hang", "c1")], tools=[hang])

    async def talk() -> None:
        task = asyncio.create_task(agent.invoke_async("Hang"))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(talk())

    (turn,) = facts_of(witness.by_plugin.cases)
    assert (turn["status"], turn["final"]) == ("incomplete", None)
    assert turn["intermediate"] == ["Wait."]
    assert turn["tools"] == [("c1", "hang", {}, None)]


def test_a_swarm_is_one_turn_and_its_handoff_a_call() -> None:
    recorder = InlineRecorder()
    hooks = EvaltapHooks(recorder=recorder)
    triage = agent_of(
        [say("One moment."), call("handoff_to_agent", "h1", agent_name="billing", message="pay")],
        [say("Handed over.")],
        name="triage",
        hooks=[hooks],
    )
    billing = agent_of(
        [call("get_order", "c2", order_id="A")],
        [say("Billed.")],
        name="billing",
        tools=[get_order],
        hooks=[hooks],
    )
    swarm = Swarm([triage, billing], hooks=[hooks])

    swarm("Bill me", invocation_state={"session_id": "s1"})

    (turn,) = facts_of(recorder.cases)
    assert (turn["session"], turn["final"], turn["status"]) == ("s1", "Billed.", "ok")
    assert "Bill me" in turn["user"]
    assert [tool[1] for tool in turn["tools"]] == ["handoff_to_agent", "get_order"]
    assert (turn["agents"], turn["parents"]) == (["triage", "billing"], [None, None])
    assert recorder.faults == []


def test_a_graph_is_one_turn() -> None:
    recorder = InlineRecorder()
    hooks = EvaltapHooks(recorder=recorder)
    builder = GraphBuilder()
    builder.add_node(agent_of([say("Draft.")], name="writer", hooks=[hooks]), "writer")
    builder.add_node(agent_of([say("Better.")], name="editor", hooks=[hooks]), "editor")
    builder.add_edge("writer", "editor")
    builder.set_hook_providers([hooks])
    builder.set_max_node_executions(5)

    builder.build()("Write", invocation_state={"session_id": "s1"})

    (turn,) = facts_of(recorder.cases)
    assert (turn["user"], turn["final"]) == ("Write", "Better.")
    assert turn["intermediate"] == ["Draft."]


class Broken(InlineRecorder):
    """A recorder that cannot take anything."""

    def observe(self, observation: object) -> None:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_the_agent() -> None:
    recorder = Broken()
    agent = agent_of(
        [call("get_order", "c1", order_id="A")],
        [say("Delivered.")],
        tools=[get_order],
        hooks=[EvaltapHooks(recorder=recorder)],
    )

    assert str(agent("Where?")).strip() == "Delivered."
    assert recorder.faults
