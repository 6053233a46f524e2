"""What LangChain's chains and graphs are given and return besides messages."""

import json
from collections.abc import Mapping
from typing import Final

from evaltap.recorder.conventions.evidence import Evidence

QUESTION_KEYS: Final = ("input", "question", "query", "task")
"""What chains and agents call their user's words, before a template makes a prompt of them."""
ANSWER_KEYS: Final = ("answer", "output", "result", "response", "text")
"""What they call their answer, beside whatever else they return."""


def question_of(inputs: object) -> Evidence | None:
    """Return the text under the first of the known names, None when there is none."""
    if not isinstance(inputs, Mapping):
        return None
    found = (inputs.get(key) for key in QUESTION_KEYS)
    return next((Evidence(value) for value in found if isinstance(value, str) and value), None)


def answer_of(outputs: Mapping[str, object]) -> Evidence | None:
    """Return the text under the first of the known names, None when there is none."""
    found = (outputs.get(key) for key in ANSWER_KEYS)
    return next((Evidence(value) for value in found if isinstance(value, str) and value), None)


def structured_answer(outputs: object) -> Evidence | None:
    """Return a graph's structured response as JSON text, None when it has none."""
    found = outputs.get("structured_response") if isinstance(outputs, Mapping) else None
    if found is None:
        return None
    if isinstance(found, str):
        return Evidence(found)
    return Evidence(json.dumps(found, ensure_ascii=False, separators=(",", ":")))
