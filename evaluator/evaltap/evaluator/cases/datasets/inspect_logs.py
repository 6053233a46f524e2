"""Logs of Inspect (`inspect-ai`) as rows: one for each sample and epoch.

Source: the JSON logs of inspect-ai 0.3.285. Tool calls name a `function`; results may have an `error`.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.datasets.columns import RUN, TELEMETRY
from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError

Row = Mapping[str, Json]

_SAMPLE: Final = {"epoch", "id", "input", "messages", "output"}
_ATTACHMENT: Final = "attachment://"
_INPUT: Final = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write")
"""Disjoint counts that add up to the input tokens."""


def refuse_binary(path: Path) -> None:
    """Raise InputError for a log that is not JSON."""
    if path.suffix.lower() == ".eval":
        raise InputError(
            f"{path}: is a log of Inspect in its binary form; expected JSON (`inspect log convert --to json"
            " --output-dir DIR LOGS`)"
        )


def is_inspect_log(data: Row) -> bool:
    """Return whether an object is a log."""
    return isinstance(data.get("eval"), Mapping) and isinstance(data.get("samples"), list)


def samples_of(log: Row) -> Iterator[Json]:
    """Yield the samples; each contains the model of the log."""
    model = log["eval"].get("model")
    for sample in log["samples"]:
        yield {"model": model, **sample} if isinstance(sample, dict) else sample


def inspect_sample(row: Row) -> Row | None:
    """Return a sample as a flat row; None for other rows."""
    if not row.keys() >= _SAMPLE:
        return None
    messages = row["messages"]
    if isinstance(messages, list):
        messages = _whole([_message(one) for one in messages], row)
    return {
        "id": row["id"],
        "messages": messages,
        "expected_output": row.get("target") or None,
        "scores": row.get("scores") or None,
        "metadata": row.get("metadata") or None,
        RUN: f"epoch-{row['epoch']}",
        TELEMETRY: _telemetry(row),
    }


def _whole(messages: list[Json], row: Row) -> list[Json]:
    """Return the messages with what only the sample's input and events hold.

    Compaction replaces messages; the calls that it removed are still in the events.
    """
    roles = [one.get("role") if isinstance(one, Mapping) else None for one in messages]
    if "user" not in roles and isinstance(row["input"], str):
        place = sum(role == "system" for role in roles)
        messages = [*messages[:place], {"role": "user", "content": row["input"]}, *messages[place:]]
        roles.insert(place, "user")
    known = row.get("attachments") or {}
    lost = [_attached(one, known) for one in _lost_calls(messages, _objects(row.get("events")))]
    if not lost or "user" not in roles:
        return messages
    calls = [
        {"id": one.get("id"), "name": one.get("function"), "arguments": one.get("arguments")}
        for one in lost
    ]
    made: list[Json] = [{"role": "assistant", "content": None, "tool_calls": calls}]
    made += [
        {
            "role": "tool",
            "tool_call_id": one.get("id"),
            "content": one.get("result"),
            "error": one.get("error"),
        }
        for one in lost
    ]
    after = roles.index("user") + 1
    return [*messages[:after], *made, *messages[after:]]


def _lost_calls(messages: list[Json], events: list[Row]) -> list[Row]:
    """Return the calls that only the events hold; without a compaction, there are none."""
    calls = [call for one in _objects(messages) for call in _objects(one.get("tool_calls"))]
    known = {call.get("id") for call in calls}
    if known and not any(one.get("event") == "compaction" for one in events):
        return []
    return [one for one in events if one.get("event") == "tool" and one.get("id") not in known]


def _attached(value: Json, attachments: Row) -> Json:
    """Return a value with the texts that an event only refers to: those of more than 100 characters."""
    if isinstance(value, dict):
        return {key: _attached(one, attachments) for key, one in value.items()}
    if isinstance(value, list):
        return [_attached(one, attachments) for one in value]
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    return value


def _objects(value: Json) -> list[Row]:
    return [one for one in value or () if isinstance(one, Mapping)]


def _message(given: Json) -> Json:
    if not isinstance(given, Mapping):
        return given
    message = {**given}
    if isinstance(calls := message.get("tool_calls"), list):
        message["tool_calls"] = [
            {**call, "name": call.get("function"), "function": None}
            if isinstance(call, Mapping)
            else call
            for call in calls
        ]
    if message.get("role") == "tool":
        message["name"] = message.pop("function", None)
    return message


def _telemetry(row: Row) -> Row:
    """Return how the sample ended and its usage; reaching a limit counts as cut off."""
    stated = row.get("model_usage")
    usage = {name: one for name, one in _items(stated) if isinstance(one, Mapping)}
    error, limit, seconds = row.get("error"), row.get("limit"), row.get("total_time")
    found: dict[str, Json] = {
        "models": list(usage) or [one for one in (row.get("model"),) if one],
        "status": "error" if error else "incomplete" if limit else "ok",
    }
    used: list[dict[str, Json]] = [
        {
            "model": name,
            "inputTokens": _count(one, *_INPUT),
            "outputTokens": _count(one, "output_tokens"),
        }
        for name, one in usage.items()
    ]
    if used:
        found |= {name: sum(one[name] for one in used) for name in ("inputTokens", "outputTokens")}
    if len(used) > 1:
        found["usage"] = used
    if isinstance(seconds, int | float):
        found["latencyMs"] = seconds * 1000
    return {**found, **_ending(error, limit)}


def _ending(error: Json, limit: Json) -> Row:
    if isinstance(error, Mapping):
        return {"error": {"message": str(error.get("message") or "")}}
    if isinstance(limit, Mapping):
        message = limit.get("reason") or str(limit.get("type"))
        return {"error": {"type": "limit", "message": message}}
    return {}


def _items(value: Json) -> list[tuple[str, Json]]:
    return list(value.items()) if isinstance(value, Mapping) else []


def _count(usage: Row, *names: str) -> int:
    return sum(usage[name] for name in names if type(usage.get(name)) is int)
