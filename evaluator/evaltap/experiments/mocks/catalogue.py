"""The tools of recordings as MCP describes tools: names, and schemas as the recorded arguments suggest."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from evaltap.experiments.mocks.declared import DeclaredMock
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


def catalogue(
    recordings: Iterable[Recording], declared: Iterable[DeclaredMock] = ()
) -> list[dict[str, Any]]:
    """Return `{name, description, inputSchema}` for each recorded tool, in the order of their first calls,
    and for those that have declared mocks only.
    """
    calls: dict[str, list[RecordedCall]] = {}
    for turns in recordings:
        for turn in turns:
            for call in turn:
                calls.setdefault(call.name, []).append(call)
    recorded = [
        {
            "name": name,
            "description": f"Answers calls of {name} from a recording.",
            "inputSchema": _schema([one.arguments for one in some]),
        }
        for name, some in calls.items()
    ]
    others = dict.fromkeys(mock.name for mock in declared if mock.name not in calls)
    return recorded + [
        {
            "name": name,
            "description": f"Answers calls of {name} as its mocks say.",
            "inputSchema": {"type": "object"},
        }
        for name in others
    ]


def contradictions(
    cases: Iterable[tuple[str, Recording, Iterable[DeclaredMock]]],
) -> dict[str, list[str]]:
    """Return the tools that cases recorded, or mock, with other results for equal arguments, and the names of
    two such cases.
    """
    outcomes: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for case, turns, declared in cases:
        calls = [
            (one.name, one.arguments, [one.result, one.error]) for turn in turns for one in turn
        ]
        mocks = [(one.name, ["mock", one.arguments], [one.result, one.prompt]) for one in declared]
        for name, asked, given in (*calls, *mocks):
            of_call = name, json.dumps(asked, sort_keys=True)
            outcomes[of_call][case].append(json.dumps(given, sort_keys=True))
    found: dict[str, list[str]] = {}
    for (name, _), by_case in outcomes.items():
        first, *others = by_case
        if other := next((one for one in others if by_case[one] != by_case[first]), ""):
            found.setdefault(name, [first, other])
    return found


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
