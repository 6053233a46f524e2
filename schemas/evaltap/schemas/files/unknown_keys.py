"""Find the keys of a case's turns that the format does not have, so that nothing compares them.

tRPC-Agent-Go ignores such keys and `parse` preserves them, but `parts` in place of `content` is an
answer that passes as empty.
"""

from collections.abc import Iterator
from functools import lru_cache
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
    sides = {"conversation": case.conversation, "actualConversation": case.actual_conversation}
    for side, turns in sides.items():
        for turn in turns:
            if turn is not None:
                yield from _inside(turn, f"{side}[].")


def _inside(model: BaseModel, prefix: str) -> Iterator[str]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        many = isinstance(value, list)
        for item in value if many else (value,):
            if isinstance(item, BaseModel):
                yield from _inside(item, f"{prefix}{field.alias or name}{'[]' if many else ''}.")
    for key in model.model_extra or ():
        if key in _OF_ADK:
            continue
        if key != "parts" or not isinstance(model, Message):
            yield f"{prefix}{key}{_hint(key, type(model))}"
        elif not model.content and not model.content_parts:
            yield f"{prefix}{key} (`content` is the text of a message)"


@lru_cache(maxsize=256)  # a key that one case has, all cases of a file may have
def _hint(key: str, model: type[BaseModel]) -> str:
    known = [field.alias or name for name, field in model.model_fields.items()]
    hint = did_you_mean(key, known)
    return f" ({hint})" if hint else ""
