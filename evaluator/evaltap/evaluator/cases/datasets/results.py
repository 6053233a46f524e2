"""Results of other tools' experiments as rows: what they say of a run beside its texts."""

from collections.abc import Mapping
from typing import Final

from evaltap.evaluator.cases.datasets.columns import RUN, TELEMETRY
from evaltap.evaluator.cases.datasets.conversations import is_chat
from evaltap.schemas.data import Json, json_bytes

_RUN_OF_PHOENIX: Final = {"example_id", "repetition_number", "reference_output"}


def ended(error: str | None, **measured: Json) -> dict[str, Json]:
    """Return the telemetry of a run: how it ended (`error` is None if it did so well), and what is known."""
    known = {name: value for name, value in measured.items() if value is not None}
    if error is None:
        return {**known, "status": "ok"}
    return {**known, "status": "error", "error": {"message": error}}


def as_text(value: Json) -> Json:
    """Return a text or a number as it is, a chat as its messages, and any other value as its JSON text."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return value if is_chat(value) else json_bytes(value).decode()


def phoenix_run(row: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return a run of an experiment that Phoenix exported as JSON as a flat row; None for other rows."""
    if not row.keys() >= _RUN_OF_PHOENIX:
        return None
    error = row.get("error")
    return {
        RUN: f"repetition-{row['repetition_number']}",
        "id": row["example_id"],
        "input": _only(row.get("input")),
        "output": _only(row.get("output")),
        "expected_output": _only(row["reference_output"]),
        "annotations": row.get("annotations") or None,
        "trace_id": row.get("trace_id"),
        TELEMETRY: ended(
            None if error is None else str(error),
            latencyMs=row.get("latency_ms"),
            inputTokens=row.get("prompt_token_count"),
            outputTokens=row.get("completion_token_count"),
        ),
    }


def _only(value: Json) -> Json:
    """Return the only value of an object, such as `{"question": …}`, or otherwise the value, as a text."""
    if isinstance(value, dict) and len(value) == 1:
        (value,) = value.values()
    return as_text(value or None)
