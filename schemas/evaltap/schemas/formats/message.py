"""Chat messages in eval cases (snake_case keys, unlike the rest of the format)."""

from typing import Annotated

from pydantic import ConfigDict

from evaltap.schemas.formats.model import Always, AnyValue, FreeObject, Keep, WireModel


class SnakeModel(WireModel):
    """A model whose keys are its field names."""

    model_config = ConfigDict(alias_generator=None)


class Image(SnakeModel):
    """An image part: by URL or inline (base64)."""

    url: str = ""
    data: str = ""
    detail: str = ""
    format: str = ""


class Audio(SnakeModel):
    """An audio or video part: by URL or inline (base64)."""

    url: str = ""
    data: str = ""
    format: str = ""


class File(SnakeModel):
    """A file part: by URL, by id at the provider, or inline (base64)."""

    filename: str = ""
    url: str = ""
    data: str = ""
    file_id: str = ""
    format: str = ""


class ContentPart(SnakeModel):
    """One part of a message with several kinds of content."""

    type: str = ""
    text: Annotated[str | None, Keep] = None
    image: Image | None = None
    audio: Audio | None = None
    video: Audio | None = None
    file: File | None = None
    content_ref: AnyValue = None
    # evaltap's own: a recorded part, whose bytes are not stored
    mime_type: str = ""
    size_bytes: Annotated[int | None, Keep] = None
    sha256: str = ""


class FunctionCall(SnakeModel):
    """The function part of a tool call in a message; `arguments` is text, usually JSON."""

    arguments: str = ""
    name: str = ""
    strict: bool = False
    description: str = ""


class MessageToolCall(SnakeModel):
    """A tool call requested by an assistant message."""

    type: str = ""
    function: FunctionCall | None = None
    id: str = ""
    index: Annotated[int | None, Keep] = None
    extra_fields: FreeObject = {}


class Message(SnakeModel):
    """One chat message; `content` is its text."""

    role: Annotated[str, Always] = ""
    content: str = ""
    content_parts: list[ContentPart] = []
    tool_id: str = ""
    tool_name: str = ""
    tool_calls: list[MessageToolCall] = []
    reasoning_content: str = ""
    reasoning_signature: str = ""
