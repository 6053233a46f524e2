"""Plugins of several frameworks that share a recorder tell one turn of what works together."""

from typing import Any

from langchain.agents import create_agent
from pydantic_ai import Agent
from pydantic_ai.messages import TextPart

import scripted_langchain as langchain
import scripted_pydantic_ai as pydantic_ai
from evaltap.recorder.plugins.langchain import EvaltapHandler
from evaltap.recorder.plugins.pydantic_ai import EvaltapCapability
from inline_recorder import InlineRecorder
from witness import facts_of


def test_an_agent_of_one_framework_inside_a_tool_of_another_is_part_of_the_turn() -> None:
    recorder = InlineRecorder()
    researcher: Any = create_agent(
        langchain.scripted(
            langchain.say("hm", langchain.call("get_order", "n2", order_id="A")),
            langchain.say("A is there."),
        ),
        [langchain.get_order],
        name="researcher",
    )

    async def research(question: str) -> str:
        """Ask the researcher."""
        given = {"messages": [("user", question)]}
        result = await researcher.ainvoke(given, {"callbacks": [EvaltapHandler(recorder=recorder)]})
        return str(result["messages"][-1].content)

    boss = Agent(
        pydantic_ai.scripted(
            [pydantic_ai.called("research", "n1", question="find A")], [TextPart("Good news.")]
        ),
        name="boss",
        tools=[research],
        capabilities=[EvaltapCapability(recorder=recorder)],
    )

    pydantic_ai.ask(boss, "Where is A?", conversation_id="s1")

    (turn,) = facts_of(recorder.cases)
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A?", "Good news.")
    assert [tool[0] for tool in turn["tools"]] == ["n1", "n2"]
    assert (turn["agents"], turn["parents"]) == (["boss", "researcher"], [None, "n1"])
    assert (turn["intermediate"], recorder.faults) == ([], [])
