"""The contract of a plugin, for every framework: the content of its turns, and that it never disturbs an
agent.

Where the framework writes spans too, each test also compares the plugin's turns with theirs.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from typing import Any, TypeVar

import pytest

from plugin_drivers import (
    DRIVERS,
    Adk,
    BlockingLangChain,
    BlockingStrands,
    ClaudeAgent,
    LangChain,
    OpenAIAgents,
    OpenAIRunHooks,
    PydanticAI,
    Strands,
)
from plugin_drivers.driver import ALL, AgentSpec, Driver, Tap, call, get_order, says, tapped
from support.builders.witness import latest

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
ORDER = {"order_id": "A", "total": 42.5}
T = TypeVar("T")


def in_stock(sku: str) -> str:
    """Check the stock, and fail."""
    raise RuntimeError("inventory down")


class Opaque:
    """No JSON."""


def scenario(
    *,
    cannot: Mapping[type[Driver], str] | None = None,
    differ: Mapping[type[Driver], Sequence[str]] | None = None,
) -> pytest.MarkDecorator:
    """Run a test with every driver; what is said of one holds for those derived from it too.

    `cannot` tells what a framework does not have, and `differ` on which facts its spans say something
    else than the plugin.
    """
    params = []
    for kind in DRIVERS:
        skipped = said_of(kind, cannot)
        marks = [pytest.mark.skip(reason=skipped)] if skipped else []
        params.append(pytest.param((kind, said_of(kind, differ) or ()), id=kind.name, marks=marks))
    return pytest.mark.parametrize("tap", params, indirect=True)


def said_of(kind: type[Driver], table: Mapping[type[Driver], T] | None) -> T | None:
    """Return the entry of a driver, or of one that it is derived from."""
    return next((said for one, said in (table or {}).items() if issubclass(kind, one)), None)


@pytest.fixture
def tap(request: pytest.FixtureRequest) -> Iterator[Tap[Driver]]:
    kind, differ = request.param
    with tapped(kind, differ=differ) as tap:
        yield tap


@pytest.mark.slow
@scenario()
def test_one_tool(tap: Tap[Driver]) -> None:
    agent = tap.agent(
        says("Let me see.", call("get_order", "c1", order_id="A")),
        says("Delivered."),
        tools=[get_order],
    )

    answer = tap.ask(agent, "Where is A?")

    turn = tap.turn()
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, tap.driver.result(ORDER))]
    assert (turn["intermediate"], turn["agents"]) == (
        ["Let me see."],
        [tap.driver.top_agent or "support"],
    )
    assert (turn["status"], turn["errors"], turn["error"]) == ("ok", [None], None)
    assert (turn["tokens"], answer) == ((22, 10), "Delivered.")


@scenario()
def test_an_answer_without_tools(tap: Tap[Driver]) -> None:
    tap.ask(tap.agent(says("Hello.")), "Hi")

    turn = tap.turn()
    assert (turn["user"], turn["final"], turn["status"]) == ("Hi", "Hello.", "ok")
    assert (turn["tools"], turn["intermediate"]) == ([], [])


@scenario(
    cannot={ClaudeAgent: "the hook shows the words of a prompt only"},
    differ={kind: [ALL] for kind in (Adk, LangChain, OpenAIAgents, PydanticAI, Strands)},
)
def test_a_picture_is_known_by_its_digest_and_marked_as_left_out(tap: Tap[Driver]) -> None:
    agent = tap.agent(says("Delivered."))

    tap.ask(agent, tap.driver.with_picture("Where is A-1?", PNG))

    (case,) = tap.recorder.cases
    (turn,) = case["actualConversation"]
    assert turn["userContent"] == {
        "role": "user",
        "content": "Where is A-1?",
        "content_parts": [
            {
                "type": "image",
                "mime_type": "image/png",
                "size_bytes": len(PNG),
                "sha256": hashlib.sha256(PNG).hexdigest(),
            }
        ],
    }
    assert turn["capture"] == {"userContent.contentParts": "truncated"}
    assert turn["finalResponse"] == {"role": "assistant", "content": "Delivered."}


@scenario(cannot={ClaudeAgent: "no hook shows the system prompt"})
def test_what_the_model_is_told_before_the_conversation_is_its_context(tap: Tap[Driver]) -> None:
    calls = call("get_order", "c1", order_id="A")
    agent = tap.agent(
        says("", calls), says("There."), tools=[get_order], instruction="You know all orders."
    )

    tap.ask(agent, "Where?")

    tap.turn()
    witnesses = [tap.recorder, tap.witness.by_spans] if tap.driver.has_spans else [tap.recorder]
    for witness in witnesses:
        ((told,),) = [
            case["actualConversation"][0]["contextMessages"] for case in latest(witness.cases)
        ]
        # ADK adds who the agent is.
        assert told["role"] == "system"
        assert told["content"].startswith("You know all orders.")


@scenario(cannot={ClaudeAgent: "no hook shows the conversation before a prompt"})
def test_the_conversation_before_a_turn_is_its_context(tap: Tap[Driver]) -> None:
    calls = call("get_order", "c1", order_id="A")
    agent = tap.agent(says("", calls), says("There."), says("Yes."), says("No."), tools=[get_order])

    tap.ask(agent, "Where?", "Sure?", "Really?")

    tap.turns()
    witnesses = [tap.recorder, tap.witness.by_spans] if tap.driver.has_spans else [tap.recorder]
    for witness in witnesses:
        told = [
            [
                (one["role"], one["content"])
                for one in case["actualConversation"][0].get("contextMessages", ())
                if one["role"] != "system"
            ]
            for case in latest(witness.cases)
        ]
        first = [("user", "Where?"), ("assistant", "There.")]
        assert told == [[], first, [*first, ("user", "Sure?"), ("assistant", "Yes.")]]


@scenario()
def test_parallel_calls_of_one_tool_keep_their_ids_and_results(tap: Tap[Driver]) -> None:
    orders = {"p1": "A", "p2": "B", "p3": "A"}
    calls = [call("get_order", call_id, order_id=order) for call_id, order in orders.items()]
    agent = tap.agent(says("", *calls), says("There."), tools=[get_order])

    tap.ask(agent, "Where?")

    result = tap.driver.result
    assert tap.turn(parallel=True)["tools"] == [
        (call_id, "get_order", {"order_id": order}, result(get_order(order)))
        for call_id, order in orders.items()
    ]


@scenario(
    cannot={
        ClaudeAgent: "the ids of Claude's calls are unique",
        OpenAIAgents: "the SDK refuses an id that it has seen",
        OpenAIRunHooks: "the SDK refuses an id that it has seen",
    },
)
def test_calls_of_one_id_that_follow_each_other_are_two(tap: Tap[Driver]) -> None:
    agent = tap.agent(
        says("", call("get_order", "call_0", order_id="A")),
        says("", call("get_order", "call_0", order_id="B")),
        says("There."),
        tools=[get_order],
    )

    tap.ask(agent, "Where are A and B?")

    result = tap.driver.result
    assert [found[1:] for found in tap.turn()["tools"]] == [
        ("get_order", {"order_id": order}, result(get_order(order))) for order in ("A", "B")
    ]


@scenario(
    cannot={ClaudeAgent: "no tool works in this process"},
    differ={Adk: ["tools"]},  # the span is written when the tool is done with its arguments
)
def test_arguments_are_as_the_model_gave_them(tap: Tap[Driver]) -> None:
    def spoil(items: list[str]) -> str:
        """Change its own arguments."""
        items.clear()
        return "done"

    agent = tap.agent(says("", call("spoil", "c1", items=["a"])), says("Done."), tools=[spoil])

    tap.ask(agent, "Go")

    assert tap.turn()["tools"] == [("c1", "spoil", {"items": ["a"]}, "done")]


@scenario(
    cannot={
        ClaudeAgent: "Claude Code speaks JSON with the SDK",
        OpenAIAgents: "models write arguments as JSON text",
        Strands: "models write arguments as JSON text",
    },
    differ={
        Adk: ["tools"],  # the spans have another placeholder
        LangChain: ["tools"],  # the same
        PydanticAI: [ALL],  # the instrumentation fails the run
    },
)
def test_an_argument_that_is_no_json_leaves_the_turn_whole(tap: Tap[Driver]) -> None:
    def keep(thing: Any, order_id: str) -> str:
        """Keep a thing."""
        return "kept"

    asked_for = call("keep", "c1", thing=Opaque(), order_id="A")
    agent = tap.agent(says("", asked_for), says("Kept."), tools=[keep])

    answer = tap.ask(agent, "Keep it")

    turn = tap.turn()
    ((call_id, name, arguments, result),) = turn["tools"]
    assert (call_id, name, arguments["order_id"], result) == ("c1", "keep", "A", "kept")
    assert "Opaque" in str(arguments["thing"])
    assert turn["final"] == answer == "Kept."


@scenario()
def test_a_tool_error_that_the_model_is_told_of_is_a_failed_call(tap: Tap[Driver]) -> None:
    agent = tap.agent(says("", call("in_stock", "c1", sku="X")), says("Sorry."), tools=[in_stock])

    tap.ask(agent, "In stock?")

    turn = tap.turn()
    result, error = tap.driver.failed_call
    assert turn["tools"] == [("c1", "in_stock", {"sku": "X"}, result)]
    (found,) = turn["errors"]
    assert (found is not None) == tap.driver.sees_tool_errors
    assert error.items() <= (found or {}).items()
    assert (turn["final"], turn["status"], turn["error"]) == ("Sorry.", "ok", None)


@scenario(
    cannot={
        ClaudeAgent: "Claude is told of every tool error",
        Strands: "the model is told of every tool error",
    }
)
def test_a_tool_that_raises_fails_the_run(tap: Tap[Driver]) -> None:
    agent = tap.agent(says("Hm.", call("in_stock", "c1", sku="X")), tools=[in_stock], raises=True)

    with pytest.raises(Exception, match="inventory down"):
        tap.ask(agent, "In stock?")

    turn = tap.turn()
    failure = {"type": "RuntimeError", "message": "inventory down"}
    assert turn["errors"] == [failure if tap.driver.sees_tool_errors else None]
    assert turn["tools"] == [("c1", "in_stock", {"sku": "X"}, None)]
    assert (turn["final"], turn["intermediate"], turn["status"]) == (None, ["Hm."], "error")
    assert "inventory down" in turn["error"]["message"]


@scenario(
    cannot={ClaudeAgent: "whether hooks are called for it is up to Claude Code"},
    differ={
        Adk: ["tools", "errors"],  # the plugin is given the error, the spans what the model is told
        LangChain: ["errors"],  # no tool ran, so that no span failed
        OpenAIAgents: ["status", "error"],  # the spans end well
        PydanticAI: ["errors"],  # no tool ran, so that no span failed
    },
)
def test_a_call_of_an_unknown_tool_is_a_call_of_the_turn(tap: Tap[Driver]) -> None:
    agent = tap.agent(
        says("", call("sell", "c1", sku="X")), says("I cannot."), tools=[in_stock], raises=True
    )

    with suppress(Exception):
        tap.ask(agent, "Sell it")

    turn = tap.turn()
    assert [found[:3] for found in turn["tools"]] == [("c1", "sell", {"sku": "X"})]
    assert turn["final"] == ("I cannot." if turn["status"] == "ok" else None)
    assert tap.driver.unknown_tool in str((turn["tools"], turn["errors"], turn["error"]))


@scenario()
def test_a_model_that_raises_fails_the_run(tap: Tap[Driver]) -> None:
    assert_a_raising_model_fails_the_run(tap, stream=False)


@scenario(cannot={BlockingStrands: "only asynchronous calls stream"})
def test_a_streamed_run_that_fails_has_failed(tap: Tap[Driver]) -> None:
    assert_a_raising_model_fails_the_run(tap, stream=True)


def assert_a_raising_model_fails_the_run(tap: Tap[Driver], *, stream: bool) -> None:
    # A streamed answer may be over with its first words.
    words = "" if stream else "Hm."
    agent = tap.agent(
        says(words, call("get_order", "c1", order_id="A")),
        TimeoutError("slow"),
        tools=[get_order],
    )

    raised = pytest.raises(Exception, match="slow")
    with raised if tap.driver.raises_model_errors else nullcontext():
        tap.ask(agent, "Hi", stream=stream)

    turn = tap.turn()
    assert (turn["user"], turn["status"], turn["final"]) == ("Hi", "error", None)
    assert turn["error"]["type"] == tap.driver.model_error
    assert "slow" in turn["error"]["message"]
    assert turn["intermediate"] == ([words] if words else [])
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, tap.driver.result(ORDER))]


@scenario()
def test_three_turns_of_a_session(tap: Tap[Driver]) -> None:
    agent = tap.agent(
        says("Which?"),
        says("", call("get_order", "c1", order_id="A")),
        says("Delivered."),
        says("Bye."),
        tools=[get_order],
    )

    tap.ask(agent, "Hi", "A", "Thanks")

    turns = tap.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "A", "Thanks"]
    assert [turn["final"] for turn in turns] == ["Which?", "Delivered.", "Bye."]
    assert [len(turn["tools"]) for turn in turns] == [0, 1, 0]
    assert {turn["session"] for turn in turns} == {"s1"}


@scenario(cannot={BlockingStrands: "only asynchronous calls stream"})
def test_a_streamed_run_is_one_turn(tap: Tap[Driver]) -> None:
    agent = tap.agent(
        says("", call("get_order", "c1", order_id="A")),
        says("It is delivered."),
        tools=[get_order],
    )

    tap.ask(agent, "Where?", stream=True)

    turn = tap.turn()
    assert (turn["final"], turn["intermediate"]) == ("It is delivered.", [])
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, tap.driver.result(ORDER))]
    assert turn["status"] == "ok"


# ADK's own AgentTool builds its runner in a way that ADK deprecates.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
@scenario(cannot={OpenAIRunHooks: "an agent used as a tool is not given the hooks"})
def test_an_agent_as_tool_is_part_of_the_turn(tap: Tap[Driver]) -> None:
    delegation = tap.driver.delegation("n1", "researcher", "find A")
    researcher = AgentSpec(
        [says("hm", call("get_order", "n2", order_id="A")), says("A is there.")],
        tools=[get_order],
        name="researcher",
    )
    boss = tap.agent(
        says("", delegation, call("get_order", "n3", order_id="B")),
        says("Good news."),
        tools=[get_order],
        name="boss",
        delegate=researcher,
    )

    tap.ask(boss, "Where is A?")

    turn = tap.turn(parallel=True)
    assert (turn["user"], turn["final"], turn["intermediate"]) == ("Where is A?", "Good news.", [])
    top = tap.driver.top_agent or "boss"
    delegated, *orders = turn["tools"]
    assert delegated[:3] == ("n1", delegation.tool, delegation.arguments)
    assert delegated[3].strip() == "A is there."
    assert orders == [
        (call_id, "get_order", {"order_id": order}, tap.driver.result(get_order(order)))
        for call_id, order in (("n2", "A"), ("n3", "B"))
    ]
    assert turn["agents"] == [top, "researcher", top]
    assert (turn["parents"], turn["session"]) == ([None, "n1", None], "s1")


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
@scenario(
    cannot={
        ClaudeAgent: "the ids of Claude's calls are unique",
        OpenAIRunHooks: "the hooks are not passed on to an agent used as a tool",
    },
)
def test_a_call_of_a_sub_agent_with_the_id_of_its_parents_call_is_its_own(tap: Tap[Driver]) -> None:
    delegation = tap.driver.delegation("call_0", "researcher", "find A")
    looks = [says("", call("get_order", "call_0", order_id="A")), says("A is there.")]
    boss = tap.agent(
        says("", delegation),
        says("Good news."),
        name="boss",
        delegate=AgentSpec(looks, tools=[get_order], name="researcher"),
    )

    tap.ask(boss, "Where is A?")

    turn = tap.turn()
    delegated, order = turn["tools"]
    assert (delegated[:2], delegated[3].strip()) == (("call_0", delegation.tool), "A is there.")
    assert order[1:] == ("get_order", {"order_id": "A"}, tap.driver.result(get_order("A")))
    assert turn["parents"] == [None, "call_0"]


@scenario(
    cannot={
        ClaudeAgent: "Claude has sub-agents and hands over to nobody",
        PydanticAI: "agents use each other as tools only",
    },
    differ={Strands: [ALL]},  # each agent of a swarm writes a trace of its own
)
def test_a_handover_is_a_call_of_the_turn(tap: Tap[Driver]) -> None:
    handover = tap.driver.handover("h1", "billing")
    billing = AgentSpec(
        [says("", call("get_order", "c2", order_id="A")), says("Billed.")],
        tools=[get_order],
        name="billing",
    )
    # Of these frameworks only Strands asks an agent that has handed over for some more words.
    triage = tap.agent(
        says("One moment.", handover), says("Over."), name="triage", successor=billing
    )

    tap.ask(triage, "Bill me")

    turn = tap.turn()
    assert "Bill me" in turn["user"]
    assert (turn["final"], turn["status"], turn["session"]) == ("Billed.", "ok", "s1")
    assert turn["tools"] == [
        ("h1", handover.tool, handover.arguments, tap.driver.handover_result),
        ("c2", "get_order", {"order_id": "A"}, tap.driver.result(ORDER)),
    ]
    assert turn["intermediate"][0] == "One moment."
    assert (turn["agents"], turn["parents"]) == (["triage", "billing"], [None, None])


@scenario()
def test_concurrent_sessions_do_not_mix(tap: Tap[Driver]) -> None:
    async def talk() -> None:
        agents = [
            tap.agent(
                says("", call("get_order", f"c{number}", order_id=f"A-{number}")),
                says(f"Answer {number}"),
                tools=[get_order],
            )
            for number in range(4)
        ]
        await asyncio.gather(
            *(
                tap.driver.ask(agent, f"Question {number}", f"s{number}")
                for number, agent in enumerate(agents)
            )
        )

    asyncio.run(talk())

    turns = tap.turns(parallel=True)
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        (f"s{number}", f"Question {number}", f"Answer {number}") for number in range(4)
    ]
    assert [turn["tools"][0][0] for turn in turns] == ["c0", "c1", "c2", "c3"]


@scenario(
    cannot={
        BlockingLangChain: "a blocking call runs no asynchronous tool",
        ClaudeAgent: "a client has one session",
        Strands: "an agent at work refuses another message",
    }
)
def test_concurrent_runs_of_one_agent_do_not_mix(tap: Tap[Driver]) -> None:
    sessions = [f"s{number}" for number in range(4)]

    async def talk() -> None:
        together = asyncio.Barrier(len(sessions))

        async def meet(order_id: str) -> str:
            """Wait for the other runs."""
            async with together:
                return f"met for {order_id}"

        agent = tap.agent(
            *(says("", call("meet", f"c-{session}", order_id=session)) for session in sessions),
            *(says(f"Answer {number}") for number in range(len(sessions))),
            tools=[meet],
        )
        await asyncio.gather(
            *(tap.driver.ask(agent, f"Question of {session}", session) for session in sessions)
        )

    asyncio.run(talk())

    # Which run the one model gives which answer is open; that a run has all of its own is not.
    turns = tap.turns(parallel=True)
    assert [(turn["session"], turn["user"]) for turn in turns] == [
        (session, f"Question of {session}") for session in sessions
    ]
    assert sorted(turn["final"] for turn in turns) == [f"Answer {n}" for n in range(4)]
    calls = [made for turn in turns for made in turn["tools"]]
    assert sorted(made[0] for made in calls) == [f"c-{session}" for session in sessions]
    assert all(made[3] == f"met for {made[2]['order_id']}" for made in calls)


@scenario(
    cannot={
        BlockingLangChain: "nobody can cancel a call that blocks its thread",
        BlockingStrands: "nobody can cancel a call that blocks its thread",
    },
    differ={
        Adk: ["status", "error", "errors"],  # the spans end well
        # The spans take it for a failed run. LangGraph may end a cancelled tool after its run:
        # then the span of the tool has the error, and the turn of the plugin is already over.
        LangChain: ["status", "error", "errors"],
        OpenAIAgents: ["status", "error"],  # the spans end well
        PydanticAI: ["status", "error", "errors"],  # the same
        Strands: [ALL],  # the spans of its calls are never ended
    },
)
def test_a_cancelled_run_is_incomplete(tap: Tap[Driver]) -> None:
    async def talk() -> None:
        await tap.cancel_in_a_tool("Wait.", "c1")
        await tap.driver.ask(tap.agent(says("Yes.")), "Are you there?")

    asyncio.run(talk())

    first, second = tap.turns()
    assert (first["status"], first["final"]) == ("incomplete", None)
    assert first["intermediate"] == ["Wait."]
    assert first["tools"] == [("c1", "hang", {}, None)]
    assert first["error"] in (None, {"type": "asyncio.exceptions.CancelledError"})
    assert tap.recorder.cases[0]["source"]["closeReason"] == tap.driver.closes_cancelled
    assert (second["user"], second["final"], second["status"]) == ("Are you there?", "Yes.", "ok")


@scenario()
def test_a_run_inside_an_except_block_has_not_failed(tap: Tap[Driver]) -> None:
    async def talk() -> None:
        try:
            raise ValueError("before the run")
        except ValueError:
            await tap.driver.ask(tap.agent(says("Fine.")), "Hi")

    asyncio.run(talk())

    turn = tap.turn()
    assert (turn["status"], turn["error"], turn["final"]) == ("ok", None, "Fine.")
