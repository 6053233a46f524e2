"""Flatten rows of other tools: of OpenAI's evals, ragas, and those with objects for texts.

Also trajectories with one object per file: chat messages, ATIF (Harbor, Terminal-Bench), SWE-agent.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Final

import orjson

from evaltap.evaluator.cases.datasets.conversations import is_chat, is_user
from evaltap.evaluator.cases.datasets.inspect_logs import inspect_sample
from evaltap.evaluator.cases.datasets.object_rows import flattened
from evaltap.evaluator.cases.datasets.promptfoo import promptfoo_result
from evaltap.evaluator.cases.datasets.results import phoenix_run
from evaltap.schemas.data import Json

Row = Mapping[str, Json]

OURS: Final = "evaltap"
_HOLDERS: Final = ("metadata", "additional_metadata")
"""The columns of other tools' rows that hold what evaltap wrote; the second is DeepEval's."""
_SERVICES: Final = {"datasetName", "dataset_id", "dataset_record_id"}
"""Columns of rows as Langfuse, and LangSmith or MLflow, have them."""
_NOTES: Final = {
    *("datasetId", "datasetName", "status", "createdAt", "updatedAt"),
    *("dataset_id", "dataset_record_id", "created_at", "modified_at"),
    *("created_time", "last_update_time"),
}
"""What these services note beside a row."""
_EXPORTED: Final = (
    *("input", "inputs", "outputs", "expected_output", "expectedOutput", "expected_tools"),
    *("metadata", "additional_metadata"),
)
"""Columns of rows with objects that `evaltap set export` writes."""
_COMMAND: Final = re.compile(r"```\w*\n(.*?)\n?```", re.DOTALL)
_HUGGING_FACE: Final = {"id", "input", "messages", "expected_tools", "tools_called", "metadata"}
"""Columns of the folders that `evaltap set export --format huggingface` writes."""


def unwrapped(row: Row, mapped: frozenset[str] = frozenset()) -> Row:
    """Return a row with its parts as columns; rows of unknown shape are returned unchanged.

    `mapped` are columns that the user maps fields to, or into.  What `evaltap set export` wrote beside the
    parts is in the column OURS.
    """
    flat = next((found for shape in _SHAPES if (found := shape(row)) is not None), None)
    flat = flat or _objects(row, mapped) or row
    item = row.get("item")
    ours = _ours(item if isinstance(item, Mapping) else row)
    return (
        flat
        if ours is None
        else {key: flat[key] for key in flat if key not in _HOLDERS} | {OURS: ours}
    )


def is_trajectory(data: Mapping[str, Json]) -> bool:
    """Return whether an object is one dialogue, not a wrapper around rows."""
    chat = data.get("messages") or data.get("traj") or data.get("conversations")
    return _is_atif(data) or _is_swe_agent(data) or is_dialogue(chat)


def is_dialogue(said: Json) -> bool:
    """Return whether a value is a list of chat messages."""
    return (
        isinstance(said, list)
        and bool(said)
        and all(isinstance(one, Mapping) and ("role" in one or "from" in one) for one in said)
    )


def _is_swe_agent(row: Row) -> bool:
    return "trajectory" in row and is_dialogue(row.get("history"))


def _swe_agent(row: Row) -> Row | None:
    """Read a trajectory of SWE-agent, or of mini-swe-agent, where observations are messages of the user."""
    if _is_swe_agent(row):
        said = [_with_call_id(one) for one in row["history"]]
        return {"messages": said, "environment": row.get("environment")}
    if not str(row.get("trajectory_format", "")).startswith("mini-swe-agent"):
        return None
    asked = False
    messages: list[dict[str, Json]] = []
    for one in row["messages"]:
        observed = asked and one["role"] == "user" and messages[-1]["role"] == "assistant"
        asked = asked or one["role"] == "user"
        if observed:
            code = _COMMAND.findall(str(messages[-1]["content"]))
            call = {"name": "bash", "arguments": {"command": code[-1]} if code else {}}
            messages[-1] = {**messages[-1], "tool_calls": [call]}
        messages.append({**one, "role": "tool"} if observed else {**one})
    return {**row, "messages": messages}


def _tau_bench(row: Row) -> Row | None:
    """Read a row of tau-bench's results: a trial of a task, with the chat as `traj`."""
    if "task_id" not in row or not is_dialogue(row.get("traj")):
        return None
    return {"id": f"{row['task_id']}-{row.get('trial', 0)}", "messages": row["traj"]}


def _with_call_id(message: Row) -> Row:
    ids = message.get("tool_call_ids")
    return {**message, "tool_call_id": ids[0]} if isinstance(ids, list) and ids else message


def _is_atif(row: Row) -> bool:
    version = row.get("schema_version")
    return (
        isinstance(version, str)
        and version.startswith("ATIF")
        and isinstance(row.get("steps"), list)
    )


def _atif(row: Row) -> Row | None:
    """Read Harbor's Agent Trajectory Interchange Format: steps of user and agent as chat messages."""
    if not _is_atif(row):
        return None
    steps = [step for step in row["steps"] if isinstance(step, Mapping)]
    # Copied steps are those of the trajectory before: what was said then, and nothing that was done.
    copied = [step for step in steps if step.get("is_copied_context")]
    own = [step for step in steps if not step.get("is_copied_context")]
    if not any(step.get("source") == "user" for step in own):
        own = [step for step in copied if step.get("source") == "user"][-1:] + own
    messages: list[Json] = [
        {"role": "assistant", "content": step.get("message")}
        for step in copied
        if step.get("source") == "agent" and step.get("message")
    ]
    messages += chain.from_iterable(map(_atif_messages, own))
    return {"id": row.get("session_id"), "messages": messages, "agent": row.get("agent")}


def _atif_messages(step: Row) -> Iterator[Row]:
    """Yield what a step said and called, and what came of it."""
    speaker = str(step.get("source"))
    said = {"role": "assistant" if speaker == "agent" else speaker, "content": step.get("message")}
    calls = [_atif_call(one) for one in _list(step.get("tool_calls"))]
    yield {**said, "tool_calls": calls} if calls else said
    observed = step.get("observation")
    for result in _list(observed.get("results")) if isinstance(observed, Mapping) else ():
        known = result if isinstance(result, Mapping) else {"content": result}
        call_id = known.get("source_call_id")
        yield {"role": "tool", "tool_call_id": call_id, "content": known.get("content")}


def _list(value: Json) -> list[Json]:
    """Return a list; a value that is none as its only item, null as none."""
    return value if isinstance(value, list) else [] if value is None else [value]


def _atif_call(call: Json) -> Json:
    """Return a call in a form that is read, or refused, as any other is."""
    if not isinstance(call, Mapping):
        return call
    return {
        "id": call.get("tool_call_id"),
        "name": call.get("function_name"),
        "arguments": call.get("arguments"),
    }


def _openai(row: Row) -> Row | None:
    """Read `{"item": {...}, "sample": {...}}`."""
    item, sample = row.get("item"), row.get("sample")
    if not isinstance(item, Mapping) or set(row) - {"item", "sample"}:
        return None
    flat = dict(item)
    if _ours(item) is not None:
        flat["expected_tools"] = flat.pop("tools", None)
    for column, name in (("actual_output", "output_text"), ("tools_called", "output_tools")):
        if isinstance(sample, Mapping) and sample.get(name) is not None:
            flat[column] = sample[name]
    return flat


def _objects(row: Row, mapped: frozenset[str]) -> Row | None:
    """Read a row with objects for texts, without what a service notes beside it."""
    if (flat := flattened(row, mapped)) is None:
        return None
    if _ours(row) is None:
        notes = _NOTES if _SERVICES & row.keys() else ()
        return {key: flat[key] for key in flat if key not in notes}
    return {key: flat[key] for key in _EXPORTED if key in flat} | {"id": _id(row)}


def _ragas(row: Row) -> Row | None:
    """Read a sample of ragas with several turns: a whole conversation is the `user_input`."""
    said = row.get("user_input")
    if not isinstance(said, list) or not is_chat(said) or is_user(said[-1]):
        return None
    return {"messages": said} | {key: row[key] for key in row if key != "user_input"}


def _hugging_face(row: Row) -> Row | None:
    messages = row.get("messages")
    if not set(row) >= _HUGGING_FACE or not isinstance(messages, str):
        return None
    flat: dict[str, Json] = {"id": _id(row), "input": orjson.loads(messages)}
    for output, tools in (("expected_output", "expected_tools"), ("actual_output", "tools_called")):
        flat[output], flat[tools] = row.get(output) or None, row.get(tools) or None
    return flat


def _id(row: Row) -> Json:
    """Return evaltap's id from the metadata, or otherwise the tool's id."""
    if (ours := _ours(row)) is None:
        return row.get("id")
    turn = ours.get("turn")
    return ours["evalId"] if turn is None else f"{ours['evalId']}/{turn}"


def _ours(row: Row) -> Row | None:
    """Return evaltap's metadata of a row that `evaltap set export` wrote; None for other rows."""
    metadata = next((row[name] for name in _HOLDERS if row.get(name)), None)
    if isinstance(metadata, str) and metadata.startswith("{"):
        metadata = orjson.loads(metadata)
    ours = metadata.get("evaltap") if isinstance(metadata, Mapping) else None
    return ours if isinstance(ours, Mapping) and ours.get("evalId") else None


_SHAPES: Final = (
    _openai,
    _ragas,
    _hugging_face,
    _atif,
    _swe_agent,
    _tau_bench,
    inspect_sample,
    promptfoo_result,
    phoenix_run,
)
