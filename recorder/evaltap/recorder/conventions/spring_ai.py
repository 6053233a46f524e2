"""Spring AI's observations (`spring.ai.*`), next to the `gen_ai.*` attributes of its models.

Source: the observability reference of Spring AI 1.x. Every span except a model's has the operation
`framework`; `spring.ai.kind` distinguishes them. Content is opt-in.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.recorder.conventions.reading import Kind, Reading, first_text
from evaltap.recorder.conventions.tool_output import take_output
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import decode

KIND: Final = "spring.ai.kind"
TOOL_NAME: Final = "spring.ai.tool.definition.name"
CALL_ID: Final = "spring.ai.tool.call.id"
ARGUMENTS: Final = "spring.ai.tool.call.arguments"
RESULT: Final = "spring.ai.tool.call.result"
CONVERSATION_ID: Final = (
    "spring.ai.chat.client.conversation.id",
    "spring.ai.advisor.conversation.id",
)
_KINDS: Final[Mapping[str, Kind]] = {"chat_client": "run", "advisor": "other", "tool_call": "tool"}


class SpringAI:
    """Identifies tool calls and chat clients among Spring AI's spans."""

    name = "spring-ai"
    marks = ("spring.ai.",)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return the reading of a span with `spring.ai.kind` or a tool's definition, else None."""
        attributes = span.attributes
        stated = attributes.get(KIND)
        kind = _KINDS.get(stated) if isinstance(stated, str) else None
        name = first_text(attributes, TOOL_NAME)
        if kind is None and name is None:
            return None
        reading = Reading(self.name, kind=kind or "tool")
        reading.session_id = first_text(attributes, *CONVERSATION_ID)
        if reading.kind == "tool":
            reading.tool_name = name or span.name.removeprefix("tool_call ")
            reading.call_id = first_text(attributes, CALL_ID)
            if ARGUMENTS in attributes:
                reading.arguments = decode(attributes[ARGUMENTS])
            if RESULT in attributes:
                take_output(reading, decode(attributes[RESULT]))
        return reading
