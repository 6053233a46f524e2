"""A support agent of pydantic-ai, traced with OpenTelemetry alone.

python tests/support/worlds/newcomer_agent.py SESSIONS

Its model is a script.  In every eighth session it refunds ten times the requested amount.
"""

import sys
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pydantic_ai import Agent, InstrumentationSettings
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

ASKED: Final = "Order {order_id} came late, I would like 10 euros back."


def get_order(order_id: str) -> dict[str, str]:
    """Look up an order."""
    return {"order_id": order_id, "status": "delivered", "delay": "3 days"}


def refund(order_id: str, amount: int) -> dict[str, str | int]:
    """Pay money back."""
    return {"order_id": order_id, "refunded": amount}


def support(order_id: str, amount: int) -> Agent:
    """Return an agent that refunds so much for an order."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        made = sum(len(one.parts) for one in messages if isinstance(one, ModelResponse))
        steps = (
            ToolCallPart("get_order", {"order_id": order_id}, "c1"),
            ToolCallPart("refund", {"order_id": order_id, "amount": amount}, "c2"),
            TextPart(f"I have refunded 10 euros for order {order_id}."),
        )
        return ModelResponse(parts=[steps[made]])

    return Agent(FunctionModel(answer), tools=[get_order, refund], name="support")


def order_of(number: int) -> str:
    """Return the order that a session is about."""
    return f"A-{100 + number}"


def main(sessions: int) -> None:
    """Answer as many users, and send what happened to where OTEL_EXPORTER_OTLP_ENDPOINT says."""
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter()))
    Agent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    for number in range(sessions):
        order = order_of(number)
        agent = support(order, 100 if number % 8 == 5 else 10)
        agent.run_sync(ASKED.format(order_id=order), conversation_id=f"s-{number:02d}")
    provider.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
