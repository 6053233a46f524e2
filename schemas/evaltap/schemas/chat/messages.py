"""Chat messages in one shape, whatever their source.

`None` as text means that the part existed and its content was withheld.
"""

from dataclasses import dataclass

from evaltap.schemas.chat.evidence import Evidence, Flaw
from evaltap.schemas.chat.media import WITHHELD, MediaPart


@dataclass(frozen=True, slots=True)
class Text:
    """A text part."""

    content: str | None
    flaw: Flaw | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call requested by a model."""

    call_id: str | None
    name: str | None
    arguments: Evidence | None
    hosted: bool = False
    """Run by the provider within its answer: the model continues after it."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool call, sent to a model."""

    call_id: str | None
    name: str | None
    result: Evidence | None
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A model's reasoning."""

    content: str


Part = Text | Call | Answer | MediaPart | Reasoning


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation; `role` is user, assistant, tool, system or as written."""

    role: str
    parts: tuple[Part, ...]

    @property
    def calls(self) -> list[Call]:
        """The tool calls that this message requests."""
        return [part for part in self.parts if isinstance(part, Call)]

    @property
    def answers(self) -> list[Answer]:
        """The tool results in this message."""
        return [part for part in self.parts if isinstance(part, Answer)]

    @property
    def reasoning(self) -> str:
        """The model's reasoning before this message."""
        thoughts = (part.content for part in self.parts if isinstance(part, Reasoning))
        return "\n".join(thoughts)

    @property
    def media(self) -> tuple[MediaPart, ...]:
        """Its images, audio and files."""
        return tuple(part for part in self.parts if isinstance(part, MediaPart))

    @property
    def text(self) -> Evidence | None:
        """Its text: None without any text part, empty with media alone."""
        if len(self.parts) == 1 and type(part := self.parts[0]) is Text:  # as most have
            return Evidence(None if part.flaw else part.content, part.flaw)
        parts = [part for part in self.parts if isinstance(part, Text)]
        media = self.media
        if not parts:
            return Evidence("", media=media) if media and not self.answers else None
        flaw: Flaw | None = next(filter(None, (part.flaw for part in parts)), None)
        words = [part.content for part in parts if part.content is not None]
        if flaw or not words:
            return Evidence(None, flaw, media)
        return Evidence(("" if self.role == "assistant" else "\n").join(words), media=media)


def text_part(value: str) -> Text:
    """Return a text part, withheld if the text is a placeholder for hidden content."""
    return Text(None, "redacted") if value in WITHHELD else Text(value)


def with_answers_apart(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Split messages of the assistant in which the provider wrote results of tools, too."""
    if not any(one.role == "assistant" and one.answers for one in messages):
        return messages
    found: list[Message] = []
    for message in messages:
        if message.role != "assistant" or not message.answers:
            found.append(message)
            continue
        said: list[Part] = []
        for part in message.parts:
            if not isinstance(part, Answer):
                said.append(part)
                continue
            if said:
                found.append(Message(message.role, tuple(said)))
            found.append(Message("tool", (part,)))
            said = []
        if said:
            found.append(Message(message.role, tuple(said)))
    return tuple(found)
