"""Dialects that add a few attributes to plain GenAI spans, or to those around them."""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.recorder.conventions.envelopes import take_output
from evaltap.recorder.conventions.reading import Kind, Reading, first_text
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.chat.evidence import Evidence, decode

WORKFLOW_ID = "workflow.id"
_WORKFLOWS: dict[str, Kind] = {"workflow.run": "run", "workflow.build": "other"}
SPRING_KIND: Final = "spring.ai.kind"
SPRING_TOOL_NAME: Final = "spring.ai.tool.definition.name"
SPRING_CALL_ID: Final = "spring.ai.tool.call.id"
SPRING_ARGUMENTS: Final = "spring.ai.tool.call.arguments"
SPRING_RESULT: Final = "spring.ai.tool.call.result"
SPRING_CONVERSATION: Final = (
    "spring.ai.chat.client.conversation.id",
    "spring.ai.advisor.conversation.id",
)
_SPRING_KINDS: Final[Mapping[str, Kind]] = {
    "chat_client": "run",
    "advisor": "other",
    "tool_call": "tool",
}
LIVEKIT_TOOL_NAME: Final = "lk.function_tool.name"
LIVEKIT_CALL_ID: Final = "lk.function_tool.id"
LIVEKIT_ARGUMENTS: Final = "lk.function_tool.arguments"
LIVEKIT_RESULT: Final = "lk.function_tool.output"
LIVEKIT_IS_ERROR: Final = "lk.function_tool.is_error"
LIVEKIT_SESSION_ID: Final = ("lk.room_sid", "lk.room_name", "lk.job_id")
LIVEKIT_TURN: Final = "agent_turn"
MCP_METHOD = "mcp.method.name"
TOOL_CALL = "tools/call"
SESSION = "session.id"
USER = "user.id"


class AgentFramework:
    """Microsoft Agent Framework: distinguishes running a workflow from building one.

    `workflow.run` spans contain the executors that run the agents; without them each agent of a workflow
    would become its own turn.  Source: the spans of agent-framework-core 1.23.
    """

    name = "agent-framework"
    marks = (WORKFLOW_ID,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        if WORKFLOW_ID not in span.attributes or span.name not in _WORKFLOWS:
            return None
        return Reading(self.name, kind=_WORKFLOWS[span.name])


class SpringAI:
    """Identifies tool calls and chat clients among Spring AI's spans.

    Every span except a model's has the operation `framework`; `spring.ai.kind` distinguishes them. Content is
    opt-in.  Source: the observability reference of Spring AI 1.x.
    """

    name = "spring-ai"
    marks = ("spring.ai.",)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        stated = attributes.get(SPRING_KIND)
        kind = _SPRING_KINDS.get(stated) if isinstance(stated, str) else None
        name = first_text(attributes, SPRING_TOOL_NAME)
        if kind is None and name is None:
            return None
        reading = Reading(self.name, kind=kind or "tool")
        reading.session_id = first_text(attributes, *SPRING_CONVERSATION)
        if reading.kind == "tool":
            reading.tool_name = name or span.name.removeprefix("tool_call ")
            reading.call_id = first_text(attributes, SPRING_CALL_ID)
            if SPRING_ARGUMENTS in attributes:
                reading.arguments = decode(attributes[SPRING_ARGUMENTS])
            if SPRING_RESULT in attributes:
                take_output(reading, decode(attributes[SPRING_RESULT]))
        return reading


class LiveKit:
    """LiveKit's voice agents: reads turns and tool calls; the rest of a session is speech.

    A session span has an `agent_turn` for each turn. The user message is a transcript; model calls are below
    `llm_node`, whose text is what was spoken.  Source: the telemetry of livekit-agents 1.5.
    """

    name = "livekit"
    marks = ("lk.",)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        attributes = span.attributes
        if LIVEKIT_TOOL_NAME in attributes:
            reading = Reading(
                self.name, kind="tool", call_id=first_text(attributes, LIVEKIT_CALL_ID)
            )
            reading.tool_name = first_text(attributes, LIVEKIT_TOOL_NAME)
            if LIVEKIT_ARGUMENTS in attributes:
                reading.arguments = decode(attributes[LIVEKIT_ARGUMENTS])
            if LIVEKIT_RESULT in attributes:
                reading.result = decode(attributes[LIVEKIT_RESULT])
            if attributes.get(LIVEKIT_IS_ERROR) is True:
                reading.failure = Failure(message=first_text(attributes, LIVEKIT_RESULT))
            return reading
        if span.name != LIVEKIT_TURN or not any(key.startswith("lk.") for key in attributes):
            return None
        reading = Reading(
            self.name, kind="agent", session_id=first_text(attributes, *LIVEKIT_SESSION_ID)
        )
        reading.agent_name = first_text(attributes, "lk.agent_label")
        user = first_text(attributes, "lk.user_input")
        answer = first_text(attributes, "lk.response.text")
        reading.user = Evidence(user) if user is not None else None
        reading.final = Evidence(answer) if answer is not None else None
        return reading


class Mcp:
    """Model Context Protocol (GenAI conventions 1.39 and later): tells tool calls from other requests.

    `mcp.session.id` is the transport's session, never a conversation. A `tools/call` inside an execute_tool
    span is the same call; the tree keeps the outermost.
    """

    name = "mcp"
    marks = (MCP_METHOD,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        method = span.attributes.get(MCP_METHOD)
        if not isinstance(method, str):
            return None
        if method != TOOL_CALL:
            # An enclosing execute_tool span may carry the attributes of its own list or read
            # request.
            is_tool = span.attributes.get("gen_ai.operation.name") == "execute_tool"
            return Reading(self.name, kind="tool" if is_tool else "other")
        name = first_text(span.attributes, "gen_ai.tool.name")
        return Reading(
            self.name, kind="tool", tool_name=name or span.name.removeprefix(f"{TOOL_CALL} ")
        )


class Requests:
    """An application's own spans around its agent: their session and user are those of the runs below."""

    name = ""
    marks = (SESSION,)

    def read(self, span: Span, logs: Sequence[LogRecord]) -> Reading | None:
        if (session := first_text(span.attributes, SESSION)) is None:
            return None
        return Reading(self.name, session_id=session, user_id=first_text(span.attributes, USER))
