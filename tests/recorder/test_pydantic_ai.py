"""A real pydantic-ai agent, instrumented by its own OpenTelemetry support, recorded in the process."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel
from pydantic_ai import Agent, InstrumentationSettings

from evaltap.recorder.sources.span_processor import CaseSpanProcessor
from plugin_drivers.driver import call, get_order, says
from plugin_drivers.pydantic_ai import ask, in_stock, model
from support.builders.inline_recorder import InlineRecorder
from support.builders.span_builders import intermediate, tools, words

# Versions 2 to 4 of the instrumentation are deprecated, and still what much telemetry holds.
pytestmark = pytest.mark.filterwarnings("ignore:Instrumentation format versions")
VERSIONS = (2, 3, 4, 5, 6)


class Witness:
    """Records what the agents of one test do."""

    def __init__(self) -> None:
        self.recorder = InlineRecorder()
        self.provider = TracerProvider()
        self.provider.add_span_processor(CaseSpanProcessor(recorder=self.recorder))

    def instrument(self, **settings: Any) -> None:
        """Instrument all agents with these settings."""
        made = InstrumentationSettings(tracer_provider=self.provider, **settings)
        Agent.instrument_all(made)

    def turns(self) -> list[dict[str, Any]]:
        """Return the recorded turns in order of time."""
        self.recorder.flush()
        cases = sorted(self.recorder.cases, key=lambda case: case["creationTimestamp"])
        assert {case["evalId"] for case in cases} == {"conv-1"}
        return [case["actualConversation"][0] for case in cases]


@pytest.fixture
def witness() -> Iterator[Witness]:
    yield Witness()
    Agent.instrument_all(False)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_conversation_is_recorded_turn_by_turn(witness: Witness, version: int) -> None:
    witness.instrument(version=version)
    agent = Agent(
        model(
            says(
                "Let me see.",
                call("get_order", "c1", order_id="A"),
                call("get_order", "c2", order_id="B"),
            ),
            says("Both delivered."),
            says("Bye."),
        ),
        tools=[get_order],
        name="support",
    )

    first = ask(agent, "Where are A and B?", conversation_id="conv-1")
    ask(agent, "Thanks", message_history=first.all_messages(), conversation_id="conv-1")

    one, two = witness.turns()
    assert words(one, "userContent") == "Where are A and B?"
    assert words(one, "finalResponse") == "Both delivered."
    assert intermediate(one) == ["Let me see."]
    assert tools(one) == [
        ("c1", "get_order", {"order_id": "A"}, {"order_id": "A", "total": 42.5}),
        ("c2", "get_order", {"order_id": "B"}, {"order_id": "B", "total": 42.5}),
    ]
    assert (words(two, "userContent"), words(two, "finalResponse")) == ("Thanks", "Bye.")
    assert tools(two) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_a_retried_call_is_a_failed_call_and_another(witness: Witness, version: int) -> None:
    witness.instrument(version=version)
    agent = Agent(
        model(
            says("", call("in_stock", "c1", sku="x9")),
            says("", call("in_stock", "c2", sku="X9")),
            says("Three."),
        ),
        tools=[in_stock],
        name="support",
    )

    ask(agent, "In stock?", conversation_id="conv-1")

    (turn,) = witness.turns()
    failed, good = turn["tools"]
    assert failed["error"] == {"type": "ModelRetry", "message": "sku must be upper case"}
    assert ("error" in good, good["id"]) == (False, "c2")
    assert good["result"] == "3", "text that looks like a number stays text"


@pytest.mark.parametrize("version", VERSIONS)
def test_a_tool_that_raises_fails_the_run(witness: Witness, version: int) -> None:
    witness.instrument(version=version)
    agent = Agent(
        model(says("", call("in_stock", "c1", sku="X0"))), tools=[in_stock], name="support"
    )

    with pytest.raises(RuntimeError):
        ask(agent, "In stock?", conversation_id="conv-1")

    (turn,) = witness.turns()
    failure = {"type": "RuntimeError", "message": "inventory down"}
    assert (turn["tools"][0]["error"], turn["telemetry"]["error"]) == (failure, failure)
    assert words(turn, "finalResponse") is None


class Verdict(BaseModel):
    """A structured answer."""

    ok: bool


@pytest.mark.parametrize("version", VERSIONS)
def test_a_structured_answer_is_the_final_response_and_no_tool_call(
    witness: Witness, version: int
) -> None:
    witness.instrument(version=version)
    agent = Agent(
        model(
            says("", call("get_order", "c1", order_id="A")),
            says("", call("final_result", "c2", ok=True)),
        ),
        tools=[get_order],
        output_type=Verdict,
        name="support",
    )

    ask(agent, "Ok?", conversation_id="conv-1")

    (turn,) = witness.turns()
    assert words(turn, "finalResponse") == '{"ok":true}'
    assert [tool["name"] for tool in turn["tools"]] == ["get_order"]


@pytest.mark.parametrize("version", VERSIONS)
def test_an_agent_inside_a_tool_is_part_of_the_turn(witness: Witness, version: int) -> None:
    witness.instrument(version=version)
    inner = Agent(
        model(says("", call("get_order", "n2", order_id="A")), says("A is there.")),
        tools=[get_order],
        name="researcher",
    )

    async def research(question: str) -> str:
        """Ask the researcher."""
        return (await inner.run(question)).output

    boss = Agent(
        model(says("", call("research", "n1", question="find A")), says("Good news.")),
        tools=[research],
        name="boss",
    )

    ask(boss, "Where is A?", conversation_id="conv-1")

    (turn,) = witness.turns()
    assert words(turn, "userContent") == "Where is A?"
    assert words(turn, "finalResponse") == "Good news."
    assert [(tool["id"], tool["agent"], tool.get("parentId")) for tool in turn["tools"]] == [
        ("n1", "boss", None),
        ("n2", "researcher", "n1"),
    ]
    assert intermediate(turn) == []


@pytest.mark.parametrize("version", VERSIONS)
def test_without_content_the_structure_is_recorded_and_the_rest_is_missing(
    witness: Witness, version: int
) -> None:
    witness.instrument(version=version, include_content=False)
    agent = Agent(
        model(says("", call("get_order", "c1", order_id="A")), says("There.")),
        tools=[get_order],
        name="support",
    )

    ask(agent, "Where is A?", conversation_id="conv-1")

    (turn,) = witness.turns()
    assert turn["capture"] == {"userContent": "missing", "finalResponse": "missing"}
    assert tools(turn) == [("c1", "get_order", None, None)]
    assert turn["tools"][0]["capture"] == {"arguments": "missing", "result": "missing"}
