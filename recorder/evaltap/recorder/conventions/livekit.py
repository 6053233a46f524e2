"""LiveKit's voice agents (`lk.*`): a session span with an `agent_turn` for each turn.

Source: the telemetry of livekit-agents 1.5. The user message is a transcript; model calls are plain
GenAI spans below `llm_node`, whose text is what was spoken.
"""

from collections.abc import Sequence
from typing import Final

from evaltap.recorder.conventions.reading import Reading, first_text
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode

TOOL_NAME: Final = "lk.function_tool.name"
CALL_ID: Final = "lk.function_tool.id"
ARGUMENTS: Final = "lk.function_tool.arguments"
RESULT: Final = "lk.function_tool.output"
IS_ERROR: Final = "lk.function_tool.is_error"
SESSION_ID: Final = ("lk.room_sid", "lk.room_name", "lk.job_id")
TURN: Final = "agent_turn"


class LiveKit:
    """Reads turns and tool calls; the rest of a session is speech."""

    name = "livekit"
    marks = ("lk.",)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        """Return the reading of a turn or tool call, else None."""
        attributes = span.attributes
        if TOOL_NAME in attributes:
            reading = Reading(self.name, kind="tool", call_id=first_text(attributes, CALL_ID))
            reading.tool_name = first_text(attributes, TOOL_NAME)
            if ARGUMENTS in attributes:
                reading.arguments = decode(attributes[ARGUMENTS])
            if RESULT in attributes:
                reading.result = decode(attributes[RESULT])
            if attributes.get(IS_ERROR) is True:
                reading.failure = Failure(message=first_text(attributes, RESULT))
            return reading
        if span.name != TURN or not any(key.startswith("lk.") for key in attributes):
            return None
        reading = Reading(self.name, kind="agent", session_id=first_text(attributes, *SESSION_ID))
        reading.agent_name = first_text(attributes, "lk.agent_label")
        user = first_text(attributes, "lk.user_input")
        answer = first_text(attributes, "lk.response.text")
        reading.user = Evidence(user) if user is not None else None
        reading.final = Evidence(answer) if answer is not None else None
        return reading
