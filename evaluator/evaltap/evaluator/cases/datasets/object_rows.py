"""Flatten rows with objects for texts: of MLflow, LangSmith, agentevals, Langfuse and Braintrust.

What was asked is in `inputs` or `input`.  `outputs` is what an example of LangSmith expects; beside
`expectations` (MLflow) or `reference_outputs` (agentevals), it is what the agent said.  In an object, a text
counts if it is the only value, or the only one with a known name; nothing else is guessed.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from evaltap.evaluator.cases.datasets.conversations import (
    content_text,
    is_chat,
    is_user,
    messages_of,
    since_user,
    whole_chat,
)
from evaltap.schemas.data import Json
from evaltap.schemas.files.documents import warn_once

Row = Mapping[str, Json]

REFERENCE: Final = "evaltap.reference"
"""The column of the messages that are expected in place of those in `messages`."""
CONTEXT: Final = "evaltap.context"
"""The column of the messages before those in `messages`, which are no turns."""
REFERENCES: Final = "reference_outputs"
RECORDED: Final = ("expectations", REFERENCES)
"""Columns beside which `outputs` is what the agent said."""
_QUESTIONS: Final = ("question", "query", "input", "prompt", "request", "message", "user_input")
_CHATS: Final = ("messages", "choices", "output")
_EXPECTED: Final = ("expected_output", "expectedOutput", "expected")
_ANSWERS: Final = (
    *("answer", "response", "output", "content", "completion", "prediction", "target", "ideal"),
    *("expected_response", "expected_answer", "reference", "ground_truth", *_EXPECTED),
)


def flattened(row: Row, mapped: frozenset[str]) -> Row | None:
    """Return a row with its texts as columns; None for one without objects.

    `mapped` are the columns that the user maps fields to, or into, which stay as they are.
    """
    read = {key: row[key] for key in row if key not in mapped}
    flat = {"id": row.get("dataset_record_id"), **row}
    if _ask(flat, "inputs", mapped) or ("inputs" not in row and REFERENCES in row):
        _answer(flat, read)
        return {key: flat[key] for key in flat if flat[key] is not None or key in row}
    asked = _ask(flat, "input", mapped)
    held = next((name for name in _EXPECTED if row.get(name) is not None), "")
    wanted = read.get(held)
    if not isinstance(wanted, Mapping):
        return flat if asked else None
    if "datasetName" in row and "content" in wanted:  # as evaltap writes it for Langfuse
        flat |= {held: wanted["content"], "expected_tools": wanted.get("tools")}
        return flat | {"outputs": _rest(wanted, "content", "tools")}
    _expect(flat, wanted, held)
    return flat


def _ask(flat: dict[str, Json], column: str, mapped: frozenset[str]) -> bool:
    """Make the question in an object the column `input`; return whether it, or the user, is clear.

    In recorded rows, `inputs` may be a text or messages, too.
    """
    given = flat.get(column)
    recorded = column == "inputs" not in mapped and any(name in flat for name in RECORDED)
    if recorded and isinstance(given, str | list):
        flat["input"] = flat.pop("inputs")
        return True
    if not isinstance(given, Mapping) or column in mapped:
        return isinstance(given, Mapping)
    texts = {key: "a chat" if is_chat(given[key]) else given[key] for key in given}
    name = "messages" if is_chat(given.get("messages")) else _chosen(texts, _QUESTIONS)
    if name is None or not isinstance(texts[name], str):
        return False
    flat |= {"input": given[name], "inputs": _rest(given, name)}
    return True


def _answer(flat: dict[str, Json], read: Row) -> None:
    """Make columns of what the agent said, and of what is expected."""
    outputs = read.get("outputs")
    if not any(name in flat for name in RECORDED):
        if not _expect(flat, outputs, "outputs") and outputs and isinstance(outputs, Mapping):
            warn_once(
                f"outputs ({', '.join(outputs)}): kept in the state, because none is known to be the"
                " expected answer; choose one with --map expected=outputs.KEY"
            )
        return
    reference = read.get(REFERENCES)
    _record(flat, outputs, messages_of(reference))
    if REFERENCE in flat:
        flat[REFERENCES] = _rest(reference, *_CHATS)
    else:
        _expect(flat, reference, REFERENCES)
    if isinstance(wanted := read.get("expectations"), Mapping):
        answer, calls = "expected_response", "expected_tool_calls"
        flat |= {"expected_output": wanted.get(answer), "expected_tools": wanted.get(calls)}
        flat |= {"expectations": _rest(wanted, answer, calls)}


def _record(flat: dict[str, Json], outputs: Json, expected: Json) -> None:
    """Make columns of what the agent said, and of the messages that are expected in its place."""
    if is_chat(said := messages_of(outputs)):
        asked = flat.get("input") or [*filter(is_user, said)][:1]
        asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
        if any(map(is_user, asked[:-1])):  # said before, and no turn
            flat[CONTEXT], asked, said = asked[:-1], asked[-1:], since_user(said)
        flat |= {
            "messages": whole_chat(asked, said),
            "input": None,
            "outputs": _rest(outputs, *_CHATS),
        }
        if is_chat(expected):
            expected = since_user(expected) if CONTEXT in flat else expected
            flat[REFERENCE] = whole_chat(asked, expected)
    elif outputs is not None and not isinstance(outputs, Mapping):
        flat |= {"actual_output": outputs, "outputs": None}
    elif outputs is not None and (name := _chosen(outputs, _ANSWERS)) is not None:
        flat |= {"actual_output": outputs[name], "outputs": _rest(outputs, name)}


def _calls(said: Sequence[Row]) -> list[Json] | None:
    """Return the calls of messages; None if no message says what it calls."""
    own = [[one] if one.get("type") == "function_call" else None for one in said]
    listed = [one.get("tool_calls", item) for one, item in zip(said, own, strict=True)]
    calls = [one for one in listed if isinstance(one, list)]
    return [*chain.from_iterable(calls)] if calls else None


def _expect(flat: dict[str, Json], wanted: Json, column: str) -> bool:
    """Make columns of what is expected; return whether it was understood."""
    beside = "expected" if column == "expected_output" else column
    if is_chat(said := messages_of(wanted)):
        said = since_user(said) or said
        flat |= {
            beside: _rest(wanted, *_CHATS),
            "expected_output": content_text(said[-1].get("content")) or None,
            "expected_tools": _calls(said),
        }
    elif isinstance(wanted, Mapping) and (name := _chosen(wanted, _ANSWERS)) is not None:
        flat |= {beside: _rest(wanted, name), "expected_output": wanted[name]}
    elif isinstance(wanted, str) and column != "outputs":
        flat |= {column: None, "expected_output": wanted}
    else:
        return False
    return True


def _chosen(given: Row, names: Sequence[str]) -> str | None:
    """Return the key of the text in an object; None if it is not clear."""
    present = [key for key in given if given[key] is not None]
    found = present if len(present) == 1 else [key for key in present if key in names]
    value = given[found[0]] if len(found) == 1 else None
    if isinstance(value, list):  # alternatives, unless they may be steps or labels
        is_text = found[0] in names and value and all(isinstance(one, str) for one in value)
    else:
        is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return found[0] if is_text else None


def _rest(given: Json, *known: str) -> Json:
    """Return the fields of an object that no column is made of; None without any."""
    fields = given if isinstance(given, Mapping) else {}
    left = (key for key in fields if key not in known and fields[key] is not None)
    return {key: fields[key] for key in left} or None
