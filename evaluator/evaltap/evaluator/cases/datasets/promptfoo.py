"""Results of promptfoo as rows: one for each test, prompt and provider.

Source: JSON and JSON Lines that promptfoo 0.115 writes (`promptfoo eval -o results.json`).
"""

from collections.abc import Mapping, Sequence
from typing import Final

import orjson

from evaltap.evaluator.cases.datasets.columns import RUN, TELEMETRY
from evaltap.evaluator.cases.datasets.conversations import is_chat
from evaltap.evaluator.cases.datasets.results import as_text, ended
from evaltap.schemas.data import Json

_RESULT: Final = {"failureReason", "prompt", "promptIdx", "provider", "success", "testIdx", "vars"}
_ERROR: Final = 2
"""The `failureReason` of a result whose provider failed; 1 is that of a failed assertion."""


def is_results(data: Mapping[str, Json]) -> bool:
    """Return whether an object holds results."""
    results = data.get("results")
    return isinstance(results, Mapping) and isinstance(results.get("results"), list)


def results_of(data: Mapping[str, Json]) -> list[Json]:
    """Return the results of a file, with the number of each repeat."""
    return numbered(data["results"]["results"])


def numbered(results: Sequence[Json]) -> list[Json]:
    """Return results with the number of each repeat.

    With `--repeat`, promptfoo numbers the repeats of a test as if they were tests.
    """
    tests: dict[bytes, set[int]] = {}
    for row in filter(is_result, results):
        tests.setdefault(_test(row), set()).add(row["testIdx"])
    return [_numbered(row, sorted(tests[_test(row)])) if is_result(row) else row for row in results]


def _numbered(row: Mapping[str, Json], repeats: list[int]) -> Mapping[str, Json]:
    """Return a result of the first of equal tests, as one of its repeats."""
    if len(repeats) == 1:
        return row
    return {**row, "testIdx": repeats[0], "repeat": repeats.index(row["testIdx"]) + 1}


def is_result(row: Json) -> bool:
    """Return whether a row is a result."""
    return isinstance(row, Mapping) and row.keys() >= _RESULT and isinstance(row["testIdx"], int)


def _test(row: Mapping[str, Json]) -> bytes:
    """Return what a test is known by; the variables of a result may hold more, such as its session."""
    test = _object(row.get("testCase"))
    return orjson.dumps([test, test.get("vars", row["vars"])], option=orjson.OPT_SORT_KEYS)


def promptfoo_result(row: Mapping[str, Json]) -> Mapping[str, Json] | None:
    """Return a result as a flat row; None for other rows.

    What was expected is known of a test that `evaltap set export` wrote, or if one assertion compares with a
    text (`equals`); all are kept in the state.
    Results stand in the order in which they were ready, so the pair of prompt and provider is part of the id.
    """
    if not row.keys() >= _RESULT:
        return None
    test, response = _object(row.get("testCase")), _object(row.get("response"))
    name, pair = test.get("description") or f"test-{row['testIdx']}", row["promptIdx"]
    output = response.get("output")
    ours = _object(row["vars"]) if "evaltap" in _object(test.get("metadata")) else {}
    return {
        RUN: f"repeat-{row['repeat']}" if "repeat" in row else None,
        "id": f"{name}@{pair + 1}" if pair else name,
        "input": _asked(_object(row["prompt"]).get("raw")),
        "actual_output": as_text(output),
        "expected_output": ours.get("expected_output") or _equal(test),
        "expected_tools": ours.get("expected_tools") or None,
        "vars": row["vars"] or None,
        "provider": _object(row["provider"]).get("id"),
        "prompt": row["promptIdx"],
        "assert": test.get("assert") or None,
        "metadata": test.get("metadata") or None,
        TELEMETRY: _telemetry(row, _object(response.get("tokenUsage"))),
    }


def _equal(test: Mapping[str, Json]) -> str | None:
    """Return the text that one assertion compares the answer with."""
    equal = [
        one["value"]
        for one in test.get("assert") or ()
        if isinstance(one, Mapping) and one.get("type") == "equals" and "value" in one
    ]
    return equal[0] if len(equal) == 1 and isinstance(equal[0], str) else None


def _asked(raw: Json) -> Json:
    """Return the prompt: a text, or the messages that it is the JSON of."""
    if not isinstance(raw, str) or not raw.lstrip().startswith("["):
        return raw
    try:
        messages = orjson.loads(raw)
    except orjson.JSONDecodeError:
        return raw
    return messages if is_chat(messages) else raw


def _telemetry(row: Mapping[str, Json], usage: Mapping[str, Json]) -> dict[str, Json]:
    failed = row["failureReason"] == _ERROR
    return ended(
        str(row.get("error") or "") if failed else None,
        latencyMs=row.get("latencyMs"),
        costUsd=row.get("cost"),
        inputTokens=usage.get("prompt"),
        outputTokens=usage.get("completion"),
    )


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}
