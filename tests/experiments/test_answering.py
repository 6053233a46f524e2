"""The contract of a replay, for every framework: a recording answers in place of the tools."""

import asyncio
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from evaltap.experiments.agents.loading import agent_of
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.mocks.recorded import recording_of
from evaltap.experiments.mocks.tape import Tape
from evaltap.experiments.pseudonyms import Inventions
from evaltap.experiments.worker import UnitEnd, Worker, WorkerSettings, recorder_of
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.answering import ToolMiss
from plugin_drivers import (
    Adk,
    BlockingLangChain,
    ClaudeAgent,
    LangChain,
    OpenAIAgents,
    OpenAIRunHooks,
)
from plugin_drivers.driver import AgentSpec, Call, Driver, Step, call, says
from support.worlds.framework_runs import FRAMEWORKS, Runs, agent_for_a_run, unit_of
from support.worlds.replayed_agents import Recording, Shop, calls_of, recorded, replay, replay_now

KINDS = [kind for kind in FRAMEWORKS if kind is not ClaudeAgent]  # which has a test of its own


def frameworks(*without: type[Driver]) -> pytest.MarkDecorator:
    """Run a test with every framework but some."""
    kinds = [kind for kind in KINDS if kind not in without]
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.name)


def agent(kind: type[Driver], shop: Shop, *steps: Step, **options: Any) -> Any:
    return agent_for_a_run(kind, lambda: AgentSpec(steps, tools=shop.tools(), **options), [])


def facts(tool: Any) -> dict[str, Any]:
    """Return what a recorded call is about."""
    return {key: tool[key] for key in ("name", "arguments", "result", "error") if key in tool}


@frameworks()
def test_the_recorded_result_reaches_the_model_and_the_case(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    seller = agent(kind, shop, says("", call("sell", "c1", sku="A")), says("Done."))
    recording = Recording(recorded("sell", sku="A", result="as recorded"))

    ended, given = replay_now(runs, seller, recording, unit_of("Sell A"))

    assert ended == ["Done."]
    assert "as recorded" in given[-1]
    (tool,) = calls_of(runs.cases())
    assert facts(tool) == {"name": "sell", "arguments": {"sku": "A"}, "result": "as recorded"}
    assert shop.effects() == []


class OutOfStock(Exception):
    pass


OUTCOMES: Mapping[str, Any] = {
    "text": "sold", "text of JSON": '{"a": [1, 2.0]}', "none": None, "list": ["a", {"b": None}],
    "object": {"a": 1, "b": 2.0}, "number": 5.0, "false": False, "empty": "",
    "error in an object": {"error": "out of stock"}, "error": OutOfStock("none left"),
    "value error": ValueError("bad sku"), "error without text": OutOfStock(),
}  # fmt: skip


@frameworks()
@pytest.mark.parametrize("outcome", OUTCOMES.values(), ids=OUTCOMES)
def test_the_model_is_told_what_it_was_told_when_the_calls_were_recorded(
    kind: type[Driver], outcome: object
) -> None:
    is_live = True

    def sell(sku: str, count: int = 1, note: str | None = None) -> Any:
        """Sell some."""
        assert is_live
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def run(answers: Tape | None) -> tuple[Any, list[str], list[Any]]:
        runs = Runs()
        calls = call("sell", "c1", sku="A"), call("sell", "c2", sku="B", count=2)
        seller = agent_for_a_run(
            kind, lambda: AgentSpec([says("", *calls), says("Done.")], tools=[sell]), []
        )
        ended, given = replay_now(runs, seller, answers, unit_of("Sell"))
        told = [_VARYING.sub("", one) for one in given]
        return ended, told, runs.cases()

    ended, told, (case,) = run(None)
    tape, is_live = Tape(recording_of(case), MockPolicy()), False
    tape.begin()
    again, told_again, replayed = run(tape)

    if isinstance(ended, Exception):  # of two parallel calls, one is cancelled
        assert isinstance(again, type(ended) | ToolMiss)
    else:
        assert (again, told_again, tape.missed) == (ended, told, [])
        assert [*map(facts, calls_of(replayed))] == [*map(facts, calls_of([case]))]


_VARYING = re.compile(
    r"datetime\.datetime\([^)]*\)|adk-[0-9a-f-]+|run--?[0-9a-f-]+|[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{16,}"
)


@frameworks(OpenAIAgents, OpenAIRunHooks)  # where it ends the run
@pytest.mark.parametrize(
    "refused",
    [call("sell", "c1", count=7), call("sell_all", "c1", sku="A")],
    ids=lambda one: one.tool,
)
def test_a_call_that_the_framework_refuses_again_is_no_other_call(
    kind: type[Driver], refused: Call, shop: Shop, tmp_path: Path
) -> None:
    calls = says("", refused), says("", call("sell", "c2", sku="A")), says("Done.")

    def run(policy: MockPolicy | None, **recording: Any) -> tuple[UnitEnd, list[Any]]:
        sink, inventions = MemorySink(), Inventions()
        recorder, _ = recorder_of(WorkerSettings(log=str(tmp_path / "log.db")), inventions, sink)
        seller = agent_for_a_run(kind, lambda: AgentSpec(calls, tools=shop.tools()), [])
        worker = Worker(
            agent_of(seller, recorder), recorder, WorkerSettings(policy=policy), inventions
        )
        end = asyncio.run(worker.run(unit_of("Sell", **recording)))
        recorder.close()
        return end, sink.cases

    _, (case,) = run(None)
    end, _ = run(MockPolicy(), recording=recording_of(case))

    assert end.mocks is not None
    assert end.mocks["turns"][0]["unused"] == []
    assert end.state == "ended"


@frameworks()
@pytest.mark.parametrize("sku", ["A", "B"])
def test_the_tools_of_an_agent_that_a_function_runs_are_answered(
    kind: type[Driver], sku: str, runs: Runs, shop: Shop
) -> None:
    driver = kind(Recorder(sink=MemorySink(), disabled=True))
    steps = says("", call("sell", "c1", sku=sku)), says("Done.")
    seller = driver.agent(AgentSpec(steps, tools=shop.tools()))
    sold = {"name": "sell", "arguments": {"sku": "A"}, "result": "as recorded"}
    tape = Tape(recording_of({"actualConversation": [{"tools": [sold]}]}), MockPolicy())
    tape.begin()

    async def function(messages: list[dict[str, str]]) -> str | None:
        return await driver.ask(seller, messages[-1]["content"])

    with driver.installed():
        ended, given = replay_now(runs, function, tape, unit_of("Sell"))

    assert shop.effects() == []
    if sku == "A":
        assert ended == ["Done."]
        assert "as recorded" in given[-1]
        assert [*map(facts, calls_of(runs.cases()))] == [sold]
    else:
        assert isinstance(ended, ToolMiss)


@frameworks()
def test_a_recorded_error_reaches_the_model_as_a_live_one_does(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    seller = agent(kind, shop, says("", call("sell", "c1", sku="A")), says("Sorry."))

    ended, given = replay_now(
        runs, seller, Recording(recorded("sell", sku="A", error="out of stock")), unit_of("Sell A")
    )

    assert ended == ["Sorry."]
    assert "out of stock" in given[-1]
    (tool,) = calls_of(runs.cases())
    if kind.sees_tool_errors:
        assert "error" in tool
    assert shop.effects() == []


@frameworks()
def test_a_miss_ends_the_run_before_the_model_is_called_again(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    seller = agent(
        kind,
        shop,
        says("", call("sell", "c1", sku="A"), call("sell", "c2", sku="B")),
        says("Never said."),
    )
    recording = Recording(recorded("sell", sku="A", result="as recorded"))

    ended, given = replay_now(runs, seller, recording, unit_of("Sell A and B"))

    assert isinstance(ended, ToolMiss)
    assert recording.missed == [ended]
    assert len(given) == 1
    assert {tool["arguments"]["sku"] for tool in calls_of(runs.cases())} == {"A", "B"}
    assert shop.effects() == []


@frameworks()
def test_parallel_calls_each_get_their_own_result(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    calls = [call("sell", f"c{number}", sku=sku) for number, sku in enumerate("BAA")]
    seller = agent(kind, shop, says("", *calls), says("Done."))
    recording = Recording(
        recorded("sell", sku="A", result="first A"),
        recorded("sell", sku="B", result="only B"),
        recorded("sell", sku="A", result="second A"),
    )

    ended, _ = replay_now(runs, seller, recording, unit_of("Sell"))

    assert ended == ["Done."]
    tools = calls_of(runs.cases())
    assert [tool["arguments"]["sku"] for tool in tools] == ["B", "A", "A"]
    assert tools[0]["result"] == "only B"
    assert {tool["result"] for tool in tools[1:]} == {"first A", "second A"}
    assert shop.effects() == []


@frameworks()
def test_units_that_run_at_once_are_answered_each_from_its_own_recording(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    sells = [says("", call("sell", "c1", sku="A"))] * 4

    def make() -> Any:
        return agent(kind, shop, sells[0], says("Done."))

    agents = [make() for _ in sells]
    recordings = [
        Recording(recorded("sell", sku="A", result=f"recorded {number}")) for number in range(3)
    ]

    async def at_once() -> list[Any]:
        given: list[Recording | None] = [*recordings, None]
        return await asyncio.gather(
            *(
                asyncio.create_task(
                    replay(runs, one, recording, unit_of("Sell A", eval_id=f"c-{number}"))
                )
                for number, (one, recording) in enumerate(zip(agents, given, strict=True))
            )
        )

    ended = asyncio.run(at_once())

    assert ended == [["Done."]] * 4
    results = {case["evalId"]: calls_of([case])[0]["result"] for case in runs.cases()}
    assert results == {
        "c-0": "recorded 0", "c-1": "recorded 1", "c-2": "recorded 2", "c-3": "sold A",
    }  # fmt: skip
    assert shop.effects() == ["sell A"]


@frameworks()
def test_a_tool_that_may_run_runs(kind: type[Driver], runs: Runs, shop: Shop) -> None:
    seller = agent(kind, shop, says("", call("sell", "c1", sku="A")), says("Done."))

    ended, given = replay_now(runs, seller, Recording(runs=["sell"]), unit_of("Sell A"))

    assert ended == ["Done."]
    assert "sold A" in given[-1]
    assert calls_of(runs.cases())[0]["result"] == "sold A"
    assert shop.effects() == ["sell A"]


@frameworks()
def test_an_agent_that_was_replayed_runs_live_afterwards(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    seller = agent(kind, shop, *[says("", call("sell", "c1", sku="A")), says("Done.")] * 2)

    replay_now(runs, seller, Recording(recorded("sell", sku="A", result="old")), unit_of("Sell A"))
    ended, _ = replay_now(runs, seller, None, unit_of("Sell A", eval_id="c-2"))

    assert ended == ["Done."]
    assert [tool["result"] for tool in calls_of(runs.cases())] == ["old", "sold A"]
    assert shop.effects() == ["sell A"]


# ADK's own AgentTool builds its runner in a way that ADK deprecates.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
@pytest.mark.parametrize("is_recorded", [True, False], ids=["hit", "miss"])
@frameworks()
def test_the_tools_of_an_agent_that_works_as_a_tool_are_answered(
    kind: type[Driver], is_recorded: bool, runs: Runs, shop: Shop
) -> None:
    driver = kind(Recorder(sink=MemorySink(), disabled=True))
    helper = AgentSpec(
        [says("", call("sell", "n2", sku="A")), says("Sold.")], tools=shop.tools(), name="clerk"
    )
    boss = agent(
        kind, shop, says("", driver.delegation("n1", "clerk", "sell A")), says("Fine."),
        name="boss", delegate=helper,
    )  # fmt: skip
    calls = [recorded("sell", sku="A", result="as recorded")] if is_recorded else []
    recording = Recording(*calls, runs=["clerk"])

    ended, given = replay_now(runs, boss, recording, unit_of("Sell A"))

    assert shop.effects() == []
    assert recording.asked.count("sell") == 1
    if is_recorded:
        assert ended == ["Fine."]
        assert any("as recorded" in text for text in given)
    else:
        assert isinstance(ended, ToolMiss)


@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
@frameworks(LangChain, BlockingLangChain)  # which do not say who calls
def test_agents_with_tools_of_one_name_each_get_their_own_result(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    driver = kind(Recorder(sink=MemorySink(), disabled=True))
    helper = AgentSpec(
        [says("", call("sell", "n2", sku="A")), says("Sold.")], tools=shop.tools(), name="clerk"
    )
    boss = agent(
        kind, shop, says("", driver.delegation("n1", "clerk", "sell A")),
        says("", call("sell", "n3", sku="A")), says("Fine."), name="boss", delegate=helper,
    )  # fmt: skip
    sold = {"name": "sell", "arguments": {"sku": "A"}}
    tools = [{**sold, "agent": name, "result": f"of the {name}"} for name in ("boss", "clerk")]
    case = {"actualConversation": [{"tools": tools}]}
    tape = Tape(recording_of(case), MockPolicy(on_miss={"clerk": "real"}))
    tape.begin()

    ended, _ = replay_now(runs, boss, tape, unit_of("Sell A"))

    assert ended == ["Fine."]
    results = [one.outcome for one in tape.calls if one.tool == "sell"]
    assert results == ["of the clerk", "of the boss"]


@pytest.mark.parametrize("kind", [Adk, OpenAIAgents, OpenAIRunHooks], ids=lambda kind: kind.name)
def test_the_tools_of_an_agent_that_takes_over_are_answered(
    kind: type[Driver], runs: Runs, shop: Shop
) -> None:
    driver = kind(Recorder(sink=MemorySink(), disabled=True))
    successor = AgentSpec(
        [says("", call("sell", "n2", sku="A")), says("Sold.")], tools=shop.tools(), name="billing"
    )
    first = agent(kind, shop, says("", driver.handover("n1", "billing")), successor=successor)

    ended, _ = replay_now(
        runs, first, Recording(recorded("sell", sku="A", result="old")), unit_of("Sell A")
    )

    assert ended == ["Sold."]
    assert shop.effects() == []


@pytest.mark.slow
@frameworks()
def test_fifty_replays_have_no_effect(kind: type[Driver], runs: Runs, shop: Shop) -> None:
    turn = [says("", call("sell", "c1", sku="A"), call("sell", "c2", sku="B")), says("Done.")]
    seller = agent(kind, shop, *turn * 50)

    for number in range(50):
        recording = Recording(
            recorded("sell", sku="A", result=f"A {number}"),
            recorded("sell", sku="B", error="sold out"),
        )
        ended, _ = replay_now(runs, seller, recording, unit_of("Sell", eval_id=f"c-{number}"))
        assert ended == ["Done."]

    assert shop.effects() == []
    assert len(calls_of(runs.cases())) == 100
