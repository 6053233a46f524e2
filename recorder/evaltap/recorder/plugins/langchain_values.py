"""Plain functions that read LangChain's objects: user messages, answers and tool results."""

from collections.abc import Mapping, Sequence

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    ToolMessage,
    convert_to_messages,
)

from evaltap.recorder.conventions.chain_values import question_of
from evaltap.recorder.foreign import attribute
from evaltap.recorder.observation import UNSEEN, Failure
from evaltap.recorder.plugins.support import first_items, text_of
from evaltap.schemas.chat.evidence import Evidence, without_drawn_ids
from evaltap.schemas.chat.media import MediaPart, media_in
from evaltap.schemas.chat.shapes import read_messages
from evaltap.schemas.data import JsonObject

_NO_STATE = {"messages", "structured_response", "remaining_steps", "is_last_step"}


def state_written(output: object) -> object:
    """Return what a tool's LangGraph command writes to the state besides its message for the model; UNSEEN
    for one that does more, and None for what is no command.
    """
    update = attribute(output, "update")
    if type(output).__name__ != "Command":
        return None
    does_more = any(attribute(output, name) for name in ("goto", "graph", "resume"))
    if does_more or type(update) is not dict or len(update.get("messages") or ()) > 1:
        return UNSEEN
    return {key: value for key, value in first_items(update) if key != "messages"}


def tool_message_value(message: ToolMessage) -> tuple[object, Failure | None]:
    """Return a tool message's content for the model, and the failure it reports."""
    content = without_drawn_ids(message.content)
    failed = message.status == "error"
    text = content if isinstance(content, str) else None
    return content, Failure(message=text) if failed else None


def tool_output_value(output: object, call_id: str) -> tuple[object, bool]:
    """Return a tool's value and whether it reports a failure.

    A tool may return a LangGraph command, to update the state or hand over; the message for the
    model is then part of the update.
    """
    update = attribute(output, "update")
    if type(update) is dict and isinstance(update.get("messages"), list):
        tool_messages = [m for m in update["messages"] if isinstance(m, ToolMessage)]
        output = next((m for m in tool_messages if m.tool_call_id == call_id), output)
    if isinstance(output, ToolMessage):
        return without_drawn_ids(output.content), output.status == "error"
    return output, False


def state_of(outputs: object) -> JsonObject:
    """Return a LangGraph graph's state apart from messages and answer; empty for other chains."""
    if not isinstance(outputs, Mapping) or not isinstance(outputs.get("messages"), list):
        return {}
    return {
        key: value
        for key, value in first_items(outputs)
        if key not in _NO_STATE and not key.startswith("__")
    }


def is_failure(error: BaseException) -> bool:
    """Return whether an exception is an error, not an interrupt of LangGraph or asyncio."""
    bubbles = any(kind.__name__ == "GraphBubbleUp" for kind in type(error).__mro__)
    return isinstance(error, Exception) and not bubbles


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception is LangGraph's, to wait for a person."""
    return any(kind.__name__ == "GraphInterrupt" for kind in type(error).__mro__)


def before_the_user(messages: Sequence[object]) -> Sequence[object]:
    """Return the messages before the user's last one; none if a model is given a plain prompt."""
    places = (at for at in reversed(range(len(messages))) if isinstance(messages[at], HumanMessage))
    return messages[: next(places, 0)]


def history_message(message: object) -> tuple[str, object]:
    """Return role and text of a message of the preceding conversation."""
    if isinstance(message, HumanMessage | AIMessage):
        return "user" if isinstance(message, HumanMessage) else "assistant", str(message.text)
    return "", None


def user_message_in(given: object) -> Evidence | None:
    """Return the user's message in the input of a run or model; None if there is none."""
    if isinstance(given, Mapping):
        messages = given.get("messages")
        return user_message_in(messages) if messages is not None else question_of(given)
    if isinstance(given, str):
        return Evidence(given)
    items = given if isinstance(given, list | tuple) else [given]
    for item in reversed(items):
        if isinstance(item, str):
            return Evidence(item)
        message = item
        if isinstance(item, tuple | dict):
            (message,) = convert_to_messages([item])
        if isinstance(message, HumanMessage):
            words, media = str(message.text), media_of(message)
            return Evidence(words, media=media) if words or media else None
    return None


def is_streamed(inputs: object) -> bool:
    """Return whether a chain's input is what LangChain tells before a streamed one has arrived."""
    given = inputs.get("input") if type(inputs) is dict and len(inputs) == 1 else None
    return type(given) is str and not given


def media_of(message: BaseMessage) -> tuple[MediaPart, ...]:
    """Return the images, audio, video and files in a message's content blocks."""
    blocks = message.content if isinstance(message.content, list) else ()
    found = (media_in(block) for block in blocks if isinstance(block, dict))
    return tuple(part for part in found if part is not None)


def reasoning_of(message: BaseMessage) -> str | None:
    """Return a message's reasoning, from its content blocks or from the provider's extra fields."""
    blocks = message.content if isinstance(message.content, list) else ()
    (seen,) = read_messages([{"role": "assistant", "content": list(blocks)}])
    added = message.additional_kwargs.get("reasoning_content")
    return seen.reasoning or (added if isinstance(added, str) else None)


def result_of(outputs: object) -> str | None:
    """Return a run's own result as text; None when it cannot be identified."""
    if isinstance(outputs, str):
        return outputs
    if isinstance(outputs, Mapping):
        if (structured := outputs.get("structured_response")) is not None:
            return text_of(structured)
        messages = outputs.get("messages")
        outputs = messages[-1] if isinstance(messages, list) and messages else None
    if isinstance(outputs, AIMessage) and not outputs.tool_calls:
        return str(outputs.text) or None
    return None
