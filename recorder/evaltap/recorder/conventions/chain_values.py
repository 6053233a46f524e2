"""Inputs and outputs of LangChain's chains and graphs, apart from messages."""

import json
from collections.abc import Mapping
from typing import Final

from evaltap.schemas.chat.evidence import Evidence

QUESTION_KEYS: Final = ("input", "question", "query", "task")
"""Keys that chains and agents use for the user's message, before a template makes a prompt of it."""
ANSWER_KEYS: Final = ("answer", "output", "result", "response", "text")
"""Keys that they use for the answer."""

_COMMAND: Final = {"graph", "update", "resume", "goto"}


def is_resumption(inputs: Mapping[str, object]) -> bool:
    """Return whether a graph's input is LangGraph's command to go on after an interrupt."""
    return inputs.keys() == _COMMAND and inputs["resume"] is not None


def question_of(inputs: object) -> Evidence | None:
    """Return the text under the first known key, also inside DSPy's `input_args`, or None."""
    if isinstance(inputs, Mapping):
        inputs = inputs.get("input_args", inputs)
    if not isinstance(inputs, Mapping):
        return None
    found = (inputs.get(key) for key in QUESTION_KEYS)
    return next((Evidence(value) for value in found if isinstance(value, str) and value), None)


def answer_of(outputs: Mapping[str, object]) -> Evidence | None:
    """Return the text under the first known key, or None."""
    found = (outputs.get(key) for key in ANSWER_KEYS)
    return next((Evidence(value) for value in found if isinstance(value, str) and value), None)


def structured_answer(outputs: object) -> Evidence | None:
    """Return a graph's structured response as JSON text, or None."""
    found = outputs.get("structured_response") if isinstance(outputs, Mapping) else None
    if found is None:
        return None
    if isinstance(found, str):
        return Evidence(found)
    return Evidence(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
