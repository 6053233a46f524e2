"""The openai-agents trace processor and OpenInference's spans tell the same turns of real runs."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import agents
import pytest
from agents import Agent, RunConfig, Runner, function_tool
from openinference.instrumentation import using_session
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor

from evaltap.recorder.plugins.openai_agents import EvaltapTraceProcessor
from evaltap.recorder.plugins.openai_run_hooks import EvaltapRun
from inline_recorder import InlineRecorder
from scripted_openai import Step, call, say, scripted, scripted_chat
from witness import Witness, facts_of

ORDER = {"order_id": "A", "total": 42.5}


@function_tool
def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id, "total": 42.5}


@function_tool
def flaky(sku: str) -> str:
    """Check the stock, and fail; the model is told."""
    raise RuntimeError(f"inventory down for {sku}")


@function_tool(failure_error_function=None)
def fatal(sku: str) -> str:
    """Check the stock, and fail the run."""
    raise RuntimeError(f"inventory down for {sku}")


@pytest.fixture
def witness() -> Iterator[Witness]:
    found = Witness(exact_errors=False)
    instrumentor = OpenAIAgentsInstrumentor()
    agents.set_trace_processors([])
    instrumentor.instrument(tracer_provider=found.provider, exclusive_processor=False)
    agents.add_trace_processor(EvaltapTraceProcessor(recorder=found.by_plugin))
    yield found
    instrumentor.uninstrument()
    agents.set_trace_processors([])


@pytest.fixture
def recorder() -> Iterator[InlineRecorder]:
    """A plugin alone, for what the spans cannot tell."""
    found = InlineRecorder()
    agents.set_trace_processors([EvaltapTraceProcessor(recorder=found)])
    yield found
    agents.set_trace_processors([])
    assert found.faults == []


def agent_of(*steps: Step, name: str = "support", **options: Any) -> Agent[Any]:
    return Agent(name, model=scripted(*steps), **options)


async def asked(agent: Agent[Any], given: Any, session: str = "s1", **options: Any) -> Any:
    with using_session(session):
        return await Runner.run(agent, given, run_config=RunConfig(group_id=session), **options)


def ask(agent: Agent[Any], given: Any, session: str = "s1", **options: Any) -> Any:
    return asyncio.run(asked(agent, given, session, **options))


def test_one_tool(witness: Witness) -> None:
    agent = agent_of(
        [say("Let me see."), call("get_order", "c1", order_id="A")],
        [say("Delivered.")],
        tools=[get_order],
    )

    ask(agent, "Where is A?")

    turn = witness.turn()
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]
    assert (turn["intermediate"], turn["agents"]) == (["Let me see."], ["support"])


def test_the_chat_completions_api_tells_the_same(witness: Witness) -> None:
    model = scripted_chat(
        [say("Let me see."), call("get_order", "c1", order_id="A")], [say("Delivered.")]
    )

    ask(Agent("support", model=model, tools=[get_order]), "Where is A?")

    turn = witness.turn()
    assert (turn["user"], turn["final"]) == ("Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]
    assert turn["intermediate"] == ["Let me see."]


def test_parallel_calls_of_one_tool_keep_their_ids(witness: Witness) -> None:
    agent = agent_of(
        [
            call("get_order", "p1", order_id="A"),
            call("get_order", "p2", order_id="B"),
            call("get_order", "p3", order_id="A"),
        ],
        [say("There.")],
        tools=[get_order],
    )

    ask(agent, "Where?")

    tools = witness.turn()["tools"]
    assert [(tool[0], tool[3]["order_id"]) for tool in tools] == [
        ("p1", "A"),
        ("p2", "B"),
        ("p3", "A"),
    ]


def test_a_handled_tool_error_is_a_failed_call_with_what_the_model_was_told(
    witness: Witness,
) -> None:
    agent = agent_of([call("flaky", "c1", sku="X")], [say("Sorry.")], tools=[flaky])

    ask(agent, "In stock?")

    turn = witness.turn()
    assert (turn["status"], turn["final"]) == ("ok", "Sorry.")
    assert turn["tools"][0][3].startswith("An error occurred while running the tool")
    assert turn["errors"][0]["message"]


def test_a_fatal_tool_error_fails_the_run_with_the_tools_own_error(witness: Witness) -> None:
    agent = agent_of([say("Hm."), call("fatal", "c1", sku="X")], tools=[fatal])

    with pytest.raises(agents.UserError):
        ask(agent, "In stock?")

    turn = witness.turn()
    assert turn["errors"] == [{"type": "RuntimeError", "message": "inventory down for X"}]
    assert (turn["status"], turn["final"], turn["intermediate"]) == ("error", None, ["Hm."])
    assert turn["error"]["message"] == "Error running tool fatal: inventory down for X"


def test_a_model_that_fails_fails_the_run(witness: Witness) -> None:
    with pytest.raises(Exception, match="out of order"):
        ask(agent_of(500), "Hi")

    turn = witness.turn()
    assert (turn["status"], turn["error"]["type"]) == ("error", "openai.InternalServerError")


def test_a_call_of_an_unknown_tool_fails_the_run(recorder: InlineRecorder) -> None:
    with pytest.raises(agents.ModelBehaviorError):
        ask(agent_of([call("sell", "c1", sku="X")]), "Sell it")

    (turn,) = facts_of(recorder.cases)
    assert turn["tools"] == [("c1", "sell", {"sku": "X"}, None)]
    assert turn["error"] == {
        "type": "agents.exceptions.ModelBehaviorError",
        "message": "Tool sell not found in agent support",
    }


def test_three_turns_of_a_session(witness: Witness) -> None:
    agent = agent_of(
        [say("Which?")],
        [call("get_order", "c1", order_id="A")],
        [say("Delivered.")],
        [say("Bye.")],
        tools=[get_order],
    )

    async def talk() -> None:
        given: list[Any] = []
        for text in ("Hi", "A", "Thanks"):
            result = await asked(agent, [*given, {"role": "user", "content": text}])
            given = result.to_input_list()

    asyncio.run(talk())

    turns = witness.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "A", "Thanks"]
    assert [turn["final"] for turn in turns] == ["Which?", "Delivered.", "Bye."]
    assert [len(turn["tools"]) for turn in turns] == [0, 1, 0]
    assert {turn["session"] for turn in turns} == {"s1"}


def test_a_handoff_is_a_call_of_the_turn_and_the_other_agent_answers(witness: Witness) -> None:
    billing = agent_of(
        [call("get_order", "c2", order_id="A")], [say("Billed.")], name="billing", tools=[get_order]
    )
    triage = agent_of(
        [say("One moment."), call("transfer_to_billing", "h1")], name="triage", handoffs=[billing]
    )

    ask(triage, "Bill me")

    turn = witness.turn()
    assert (turn["user"], turn["final"]) == ("Bill me", "Billed.")
    assert turn["tools"] == [
        ("h1", "transfer_to_billing", {}, '{"assistant": "billing"}'),
        ("c2", "get_order", {"order_id": "A"}, ORDER),
    ]
    assert turn["agents"] == ["triage", "billing"]


def test_an_agent_as_tool_is_part_of_the_turn_around_it(witness: Witness) -> None:
    researcher = agent_of(
        [say("hm"), call("get_order", "n2", order_id="A")],
        [say("A is there.")],
        name="researcher",
        tools=[get_order],
    )
    boss = agent_of(
        [call("research", "n1", input="find A")],
        [say("Good news.")],
        name="boss",
        tools=[researcher.as_tool("research", "Find things.")],
    )

    ask(boss, "Where is A?")

    turn = witness.turn()
    assert (turn["user"], turn["final"], turn["intermediate"]) == ("Where is A?", "Good news.", [])
    assert turn["tools"] == [
        ("n1", "research", {"input": "find A"}, "A is there."),
        ("n2", "get_order", {"order_id": "A"}, ORDER),
    ]
    assert (turn["agents"], turn["parents"]) == (["boss", "researcher"], [None, "n1"])


def test_a_streamed_run_is_one_turn(witness: Witness) -> None:
    agent = agent_of(
        [call("get_order", "c1", order_id="A")], [say("It is delivered.")], tools=[get_order]
    )

    async def talk() -> None:
        with using_session("s1"):
            result = Runner.run_streamed(agent, "Where?", run_config=RunConfig(group_id="s1"))
            async for _ in result.stream_events():
                pass

    asyncio.run(talk())

    turn = witness.turn()
    assert (turn["final"], turn["status"]) == ("It is delivered.", "ok")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, ORDER)]


def test_a_streamed_run_that_fails_has_failed(recorder: InlineRecorder) -> None:
    async def talk() -> None:
        result = Runner.run_streamed(agent_of(500), "Where?")
        with suppress(Exception):
            async for _ in result.stream_events():
                pass

    asyncio.run(talk())

    (turn,) = facts_of(recorder.cases)
    assert turn["status"] == "error"
    assert "out of order" in turn["error"]["message"]


def test_concurrent_sessions_do_not_mix(witness: Witness) -> None:
    async def talk() -> None:
        runs = (
            asked(
                agent_of(
                    [call("get_order", f"c{number}", order_id=f"A-{number}")],
                    [say(f"Answer {number}")],
                    tools=[get_order],
                ),
                f"Question {number}",
                f"s{number}",
            )
            for number in range(4)
        )
        await asyncio.gather(*runs)

    asyncio.run(talk())

    turns = sorted(witness.turns(), key=lambda turn: str(turn["session"]))
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        (f"s{number}", f"Question {number}", f"Answer {number}") for number in range(4)
    ]
    assert [turn["tools"][0][0] for turn in turns] == ["c0", "c1", "c2", "c3"]


def test_a_cancelled_run_is_incomplete(recorder: InlineRecorder) -> None:
    started = asyncio.Event()

    @function_tool
    async def hang() -> str:
        """Never come back."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async def talk() -> None:
        agent = agent_of([say("Wait."), call("hang", "c1")], tools=[hang])
        task = asyncio.create_task(asked(agent, "Hang"))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task

    asyncio.run(talk())

    (turn,) = facts_of(recorder.cases)
    assert (turn["status"], turn["final"]) == ("incomplete", None)
    assert turn["intermediate"] == ["Wait."]
    assert turn["tools"] == [("c1", "hang", {}, None)]


def test_two_runs_in_one_trace_are_two_turns(recorder: InlineRecorder) -> None:
    async def talk() -> None:
        with agents.trace("support", group_id="s1"):
            await Runner.run(agent_of([say("One.")]), "First")
            await Runner.run(agent_of([say("Two.")]), "Second")

    asyncio.run(talk())

    turns = facts_of(recorder.cases)
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        ("s1", "First", "One."),
        ("s1", "Second", "Two."),
    ]


def test_a_run_inside_an_except_block_has_not_failed(recorder: InlineRecorder) -> None:
    async def talk() -> None:
        try:
            raise ValueError("before the run")
        except ValueError:
            await asked(agent_of([say("Fine.")]), "Hi")

    asyncio.run(talk())

    (turn,) = facts_of(recorder.cases)
    assert (turn["status"], turn["final"]) == ("ok", "Fine.")


def test_without_content_the_structure_is_recorded_and_the_rest_is_missing(
    recorder: InlineRecorder,
) -> None:
    agent = agent_of(
        [call("get_order", "c1", order_id="A")], [say("Delivered.")], tools=[get_order]
    )
    config = RunConfig(group_id="s1", trace_include_sensitive_data=False)

    asyncio.run(Runner.run(agent, "Where?", run_config=config))

    (case,) = recorder.cases
    (turn,) = case["actualConversation"]
    assert turn["capture"] == {"userContent": "missing", "finalResponse": "missing"}
    (tool,) = turn["tools"]
    assert (tool["name"], "id" in tool) == ("get_order", False)
    assert tool["capture"] == {"id": "missing", "arguments": "missing", "result": "missing"}


def run_with_hooks(agent: Agent[Any], **options: Any) -> dict[str, Any]:
    recorder = InlineRecorder()
    off = RunConfig(tracing_disabled=True)

    async def talk() -> None:
        with suppress(Exception), EvaltapRun(recorder, session_id="s1") as hooks:
            await Runner.run(agent, "Where?", hooks=hooks, run_config=off, **options)

    asyncio.run(talk())
    assert recorder.faults == []
    (turn,) = facts_of(recorder.cases)
    return turn


def test_hooks_see_a_run_with_tracing_off() -> None:
    billing = agent_of(
        [call("get_order", "c2", order_id="A")], [say("Billed.")], name="billing", tools=[get_order]
    )
    triage = agent_of(
        [say("One moment."), call("transfer_to_billing", "h1")], name="triage", handoffs=[billing]
    )

    turn = run_with_hooks(triage)

    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where?", "Billed.")
    assert turn["intermediate"] == ["One moment."]
    assert turn["tools"] == [
        ("h1", "transfer_to_billing", {}, '{"assistant": "billing"}'),
        ("c2", "get_order", {"order_id": "A"}, ORDER),
    ]
    assert turn["agents"] == ["triage", "billing"]


def test_a_run_that_fails_with_tracing_off_has_failed() -> None:
    turn = run_with_hooks(agent_of([say("Hm."), call("fatal", "c1", sku="X")], tools=[fatal]))

    assert (turn["status"], turn["final"], turn["intermediate"]) == ("error", None, ["Hm."])
    assert turn["error"]["type"] == "agents.exceptions.UserError"
    assert turn["tools"] == [("c1", "fatal", {"sku": "X"}, None)]


def test_the_user_message_of_a_run_whose_model_fails_is_seen_by_hooks() -> None:
    turn = run_with_hooks(agent_of(500))

    assert (turn["user"], turn["status"]) == ("Where?", "error")


class Broken(InlineRecorder):
    """A recorder that cannot take anything."""

    def observe(self, observation: object) -> None:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_the_agent() -> None:
    recorder = Broken()
    agents.set_trace_processors([EvaltapTraceProcessor(recorder=recorder)])
    agent = agent_of(
        [call("get_order", "c1", order_id="A")], [say("Delivered.")], tools=[get_order]
    )

    result = ask(agent, "Where?")
    agents.set_trace_processors([])

    assert result.final_output == "Delivered."
    assert recorder.faults
