"""Results of other tools' experiments as rows: what they say of a run beside its texts."""

from collections.abc import Mapping
from typing import Final

from evaltap.evaluator.cases.datasets.columns import RUN, TELEMETRY
from evaltap.evaluator.cases.datasets.conversations import is_chat
from evaltap.schemas.data import Json, json_bytes

_RUN_OF_PHOENIX: Final = {"example_id", "repetition_number", "reference_output"}


def ended(error: Json, **measured: Json) -> dict[str, Json]:
    """Return the telemetry of a run: how it ended (`error` is None if it did so well), and what is known."""
    known = {name: value for name, value in measured.items() if value is not None}
    if error is None:
        return {**known, "status": "ok"}
    return {**known, "status": "error", "error": {"message": str(error)}}


def as_text(value: Json) -> Json:
    """Return a text or a number as it is, and any other value as its JSON text."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return json_bytes(value).decode()


def as_asked(value: Json) -> Json:
    """Return an input: a chat as its messages, and any other as a text."""
    return value if is_chat(value) else as_text(value)


def phoenix_run(row: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return a run of an experiment that Phoenix exported as JSON as a flat row; None for other rows."""
    if not row.keys() >= _RUN_OF_PHOENIX:
        return None
    return {
        RUN: f"repetition-{row['repetition_number']}",
        "id": row["example_id"],
        "input": as_asked(_only(row.get("input"))),
        "output": as_text(_only(row.get("output"))),
        "expected_output": as_text(_only(row["reference_output"])),
        "annotations": row.get("annotations") or None,
        "trace_id": row.get("trace_id"),
        TELEMETRY: ended(
            row.get("error"),
            latencyMs=row.get("latency_ms"),
            inputTokens=row.get("prompt_token_count"),
            outputTokens=row.get("completion_token_count"),
        ),
    }


def _only(value: Json) -> Json:
    """Return the only value of an object, such as `{"question": …}`, None for an empty one, or the value."""
    if isinstance(value, dict) and len(value) <= 1:
        return next(iter(value.values()), None)
    return value
