"""Texts in the evidence of spans: a model's output, and comparisons of two texts."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from evaltap.recorder.conventions.messages import closing_text
from evaltap.recorder.conventions.reading import Reading
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.messages import Message

_COMPLETED: Final = "[[ ## completed ## ]]"


def requests_tool(reading: Reading) -> bool:
    """Return whether a model's output ends with the request of a tool that the provider does not run."""
    output = reading.output or ()
    if _answers_after_tools(output):
        return False
    return any(not call.hosted for message in output for call in message.calls)


def output_text(reading: Reading) -> Evidence | None:
    """Return the whole text of a model's output; with results of tools in it, what follows them."""
    if _answers_after_tools(reading.output or ()):
        return closing_text(reading.output or ())
    words = [m.text for m in reading.output or () if m.text is not None]
    texts = [word.value for word in words if isinstance(word.value, str)]
    media = tuple(part for word in words for part in word.media)
    if not words:
        return None
    if not texts:
        return Evidence(None, next((word.flaw for word in words if word.flaw), None), media)
    return Evidence("".join(texts), media=media)


def _answers_after_tools(output: Sequence[Message]) -> bool:
    """Return whether results of tools are in a model's output, and a text after them."""
    return any(one.answers for one in output) and closing_text(output) is not None


def ends_with(words: Evidence | None, answer: Evidence | None) -> bool:
    """Return whether an answer is the end of a longer text, up to DSPy's mark of the end."""
    if words is None or answer is None:
        return False
    said = as_text(words.value).strip().removesuffix(_COMPLETED).strip()
    stated = as_text(answer.value).strip()
    return bool(stated) and said != stated and said.endswith(stated)


def is_part(entered: Evidence | None, asked: Evidence | None) -> bool:
    """Return whether a longer text contains one that entered a run."""
    if entered is None or asked is None or not isinstance(asked.value, str):
        return False
    text = entered.value.strip() if isinstance(entered.value, str) else ""
    return bool(text) and text != asked.value.strip() and text in asked.value


def differ(returned: Evidence | None, final: Evidence) -> bool:
    """Return whether a run returned another text than its answer."""
    if returned is None or not isinstance(returned.value, str) or final.value is None:
        return False
    return bool(returned.value.strip()) and not same_text(returned, final)


def best(candidates: list[Evidence | None]) -> Evidence | None:
    """Return the first evidence with a value, otherwise the first that states why it has none."""
    seen = [candidate for candidate in candidates if candidate is not None]
    instructions = next((item for item in seen if item.value is not None), None)
    return instructions or next((item for item in seen if item.flaw), None)


def with_media(chosen: Evidence | None, seen: list[Evidence | None]) -> Evidence | None:
    """Return evidence with the first media found: a stated text may leave them out."""
    if chosen is None or chosen.media:
        return chosen
    media = next((item.media for item in seen if item is not None and item.media), ())
    return replace(chosen, media=media) if media else chosen


def same_text(one: Evidence, other: Evidence) -> bool:
    """Return whether two pieces of evidence are equal, as text or as JSON."""
    left, right = as_text(one.value).strip(), as_text(other.value).strip()
    return left == right or (left[:1] in "{[" and decode(left).value == decode(right).value)


def as_text(value: object) -> str:
    """Return a value as text, JSON unless it is one."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)
