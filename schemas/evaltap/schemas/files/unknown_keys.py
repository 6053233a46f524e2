"""Find the keys of a case's turns that the format does not have, so that nothing compares them.

tRPC-Agent-Go ignores such keys and `parse` preserves them, but `parts` in place of `content` is an
answer that passes as empty.
"""

from collections.abc import Iterator
from typing import Final

from pydantic import BaseModel

from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.message import Message
from evaltap.schemas.text import did_you_mean

_DURATIONS = ("duration", "modelDuration", "toolDuration", "model_duration", "tool_duration")
_OF_ADK: Final = frozenset({*_DURATIONS, "rubrics", "appDetails", "app_details", "name"})
"""Keys that a converted set of Google ADK preserves."""


def unknown_keys(case: EvalCase) -> Iterator[str]:
    """Yield each unknown key of the turns of a case, with a suggestion where one is near."""
    for side in ("conversation", "actualConversation"):
        turns = case.conversation if side == "conversation" else case.actual_conversation
        for turn in turns:
            if turn is not None:
                yield from _inside(turn, f"{side}[].")


def _inside(model: BaseModel, prefix: str) -> Iterator[str]:
    fields = type(model).model_fields
    for name, field in fields.items():
        value = getattr(model, name)
        many = isinstance(value, list)
        for item in value if many else (value,):
            if isinstance(item, BaseModel):
                yield from _inside(item, f"{prefix}{field.alias or name}{'[]' if many else ''}.")
    for key in (model.model_extra or {}).keys() - _OF_ADK:
        if key != "parts" or not isinstance(model, Message):
            hint = did_you_mean(key, [field.alias or name for name, field in fields.items()])
            yield f"{prefix}{key}" + (f" ({hint})" if hint else "")
        elif not model.content and not model.content_parts:
            yield f"{prefix}{key} (`content` is the text of a message)"
