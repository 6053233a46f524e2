"""Plugins of several frameworks that share a recorder record one turn for frameworks that work together."""

import asyncio

from plugin_drivers.driver import AgentSpec, call, get_order, says
from plugin_drivers.langchain import LangChain
from plugin_drivers.pydantic_ai import PydanticAI
from support.builders.inline_recorder import InlineRecorder
from support.builders.witness import facts_of


def test_an_agent_of_one_framework_inside_a_tool_of_another_is_part_of_the_turn() -> None:
    recorder = InlineRecorder()
    langchain, pydantic_ai = LangChain(recorder), PydanticAI(recorder)
    steps = [says("hm", call("get_order", "n2", order_id="A")), says("A is there.")]
    researcher = langchain.agent(AgentSpec(steps, [get_order], name="researcher"))

    async def research(question: str) -> str:
        """Ask the researcher."""
        return str(await langchain.ask(researcher, question, "s2"))

    steps = [says("", call("research", "n1", question="find A")), says("Good news.")]
    boss = pydantic_ai.agent(AgentSpec(steps, [research], name="boss"))

    asyncio.run(pydantic_ai.ask(boss, "Where is A?"))

    (turn,) = facts_of(recorder.cases)
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A?", "Good news.")
    assert [tool[0] for tool in turn["tools"]] == ["n1", "n2"]
    assert (turn["agents"], turn["parents"]) == (["boss", "researcher"], [None, "n1"])
    assert (turn["intermediate"], recorder.faults) == ([], [])
