"""The tools of recordings as MCP describes tools: names, and schemas as the recorded arguments suggest."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from evaltap.experiments.mocks.recorded import RecordedCall, Recording
from evaltap.schemas.data import Json

_TYPES: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}


def catalogue(recordings: Iterable[Recording]) -> list[dict[str, Any]]:
    """Return `{name, description, inputSchema}` for each recorded tool, in the order of their first calls."""
    calls: dict[str, list[RecordedCall]] = {}
    for turns in recordings:
        for turn in turns:
            for call in turn:
                calls.setdefault(call.name, []).append(call)
    return [
        {
            "name": name,
            "description": f"Answers calls of {name} from a recording.",
            "inputSchema": _schema([one.arguments for one in some]),
        }
        for name, some in calls.items()
    ]


def _schema(given: list[Json]) -> dict[str, Any]:
    objects = [one for one in given if isinstance(one, dict)]
    properties: dict[str, set[str]] = {}
    for one in objects:
        for name, value in one.items():
            properties.setdefault(name, set()).add(_TYPES[type(value)])
    always = [name for name in properties if all(name in one for one in objects)]
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {
            name: {"type": min(kinds) if len(kinds) == 1 else sorted(kinds)}
            for name, kinds in properties.items()
        },
    }
    return schema | ({"required": always} if always else {})
