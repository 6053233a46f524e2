"""Export to the format of each tool, as its loader or API expects it."""

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from evaltap.evaluator.cases.datasets.exports.rows import (
    Row,
    Side,
    calls_of,
    json_lines,
    json_text,
    metadata,
    pairs_of,
    rows_of,
    side,
)
from evaltap.evaluator.cases.evalsets.content import message_text
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.files import canonical

Files = Mapping[str, bytes]
"""Content by suffix of the given path; for folders, a slash and the name within the folder."""

_NAMESPACE: Final = uuid.UUID("7b0f7f0c-7b52-5d0a-9a53-1f2b8a4e9c11")
"""The namespace of LangSmith example ids, so that the same case always has the same id."""
_LONGEST_ID: Final = 255


def deepeval(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return goldens as saved by DeepEval 4.3; a case with several turns is a conversational golden.

    DeepEval refuses a file with both kinds, so the conversational ones are then in a file of their own.
    """
    goldens, conversations = [], []
    for case in sorted(cases, key=lambda one: str(one["evalId"])):
        pairs = pairs_of(case)
        if len(pairs) == 1:
            (row,) = rows_of([case], name)
            goldens.append(_golden(row, with_actual=with_actual))
        else:
            conversations.append(_conversation(case, name, with_actual=with_actual))
    if goldens and conversations:
        return {"": _array(goldens), ".conversations.json": _array(conversations)}
    return {"": _array(goldens or conversations)}


def _golden(row: Row, *, with_actual: bool) -> dict[str, Json]:
    actual = row.actual if with_actual else None
    context = [f"{one['role']}: {one['content']}" for one in row.messages[:-1]]
    return {
        "input": row.text,
        "actual_output": actual.content if actual else None,
        "expected_output": row.expected.content if row.expected else None,
        "retrieval_context": None,
        "context": context or None,
        "name": row.id,
        "comments": None,
        "source_file": None,
        "tools_called": _deepeval_calls(actual),
        "expected_tools": _deepeval_calls(row.expected),
        "token_cost": None,
        "input_token_count": None,
        "output_token_count": None,
        "additional_metadata": row.metadata,
        "custom_column_key_values": None,
        "expectations": None,
    }


def shows_expected(case: CaseData, *, with_actual: bool) -> bool:
    """Whether the turns of a conversational golden, which are of one kind, are the expected ones."""
    return bool(case.get("conversation")) and not (with_actual and case.get("actualConversation"))


def _conversation(case: CaseData, name: str, *, with_actual: bool) -> dict[str, Json]:
    turns: list[Json] = []
    about = metadata(case, name)
    if wanted := shows_expected(case, with_actual=with_actual):
        about["evaltap"]["turns"] = "expected"
    for expected, actual in pairs_of(case):
        if (turn := expected if wanted else actual) is None:
            break
        user = message_text(turn.get("userContent"))
        turns.append({"role": "user", "content": user, "tools_called": None})
        if (done := side(turn)) is not None:
            calls = _deepeval_calls(done)
            content = done.content or ""
            turns.append({"role": "assistant", "content": content, "tools_called": calls})
    return {
        "scenario": str(case["evalId"]),
        "turns": turns,
        "expected_outcome": None,
        "user_description": None,
        "persona": None,
        "context": None,
        "name": case["evalId"],
        "comments": None,
        "additional_metadata": about,
        "custom_column_key_values": None,
        "expectations": None,
    }


def _deepeval_calls(done: Side | None) -> list[Json] | None:
    if done is None or done.tools is None:
        return None
    return [
        {
            "name": tool["name"],
            "inputParameters": tool.get("arguments"),
            "output": tool.get("result"),
        }
        for tool in done.tools
    ]


def openai_evals(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return rows for OpenAI's evals, and the schema of their `item`."""
    rows = []
    for row in rows_of(cases, name):
        item: dict[str, Json] = {
            "id": row.id,
            "input": list(row.messages),
            "ideal": row.expected.content if row.expected else None,
            "tools": calls_of(row.expected),
            "metadata": row.metadata,
        }
        item = {key: value for key, value in item.items() if value is not None}
        line: dict[str, Json] = {"item": item}
        if with_actual and row.actual:
            done = {"output_text": row.actual.content, "output_tools": calls_of(row.actual)}
            line["sample"] = {key: value for key, value in done.items() if value is not None}
        rows.append(line)
    return {"": json_lines(rows), ".schema.json": canonical.dumps(_ITEM_SCHEMA, readable=True)}


_TEXT: Final = {"type": "string"}
_ITEM_SCHEMA: Final = {
    "type": "object",
    "properties": {
        "id": _TEXT,
        "input": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"role": _TEXT, "content": _TEXT},
                "required": ["role", "content"],
            },
        },
        "ideal": _TEXT,
        "tools": {
            "type": "array",
            "items": {"type": "object", "properties": {"name": _TEXT}, "required": ["name"]},
        },
        "metadata": {"type": "object"},
    },
    "required": ["id", "input"],
}


def langsmith(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return examples for LangSmith's `create_examples`."""
    return {"": _array([_example(row, name) for row in rows_of(cases, name)])}


def _example(row: Row, name: str) -> dict[str, Json]:
    outputs = None
    if row.expected is not None:
        answer: dict[str, Json] = {"role": "assistant", "content": row.expected.content or ""}
        if row.expected.tools is not None:
            answer["tool_calls"] = [
                {
                    "id": f"call_{number}",
                    "type": "function",
                    "function": {
                        "name": tool["name"],
                        "arguments": json_text(tool.get("arguments", {})),
                    },
                }
                for number, tool in enumerate(row.expected.tools, start=1)
            ]
        outputs = {"messages": [answer]}
    return {
        "id": str(uuid.uuid5(_NAMESPACE, f"{name}/{row.id}")),
        "inputs": {"messages": list(row.messages)},
        "outputs": outputs,
        "metadata": row.metadata,
        "split": "base",
    }


def langfuse(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return dataset items for Langfuse, which replaces items with the same id."""
    traces = {str(case["evalId"]): _trace(case) for case in cases}
    return {
        "": json_lines(
            [
                {
                    "datasetName": name,
                    "id": _short(f"{name}/{row.id}"),
                    "input": {"messages": list(row.messages)},
                    "expectedOutput": None
                    if row.expected is None
                    else {"content": row.expected.content, "tools": calls_of(row.expected)},
                    "metadata": row.metadata,
                    "sourceTraceId": traces[row.eval_id],
                    "status": "ACTIVE",
                }
                for row in rows_of(cases, name)
            ]
        )
    }


def _trace(case: CaseData) -> str | None:
    source = ((case.get("source") or {}).get("curation") or {}).get("from") or {}
    traces = source.get("traceIds") or []
    return str(traces[0]) if traces else None


def _short(text: str) -> str:
    """Return an id of at most 255 characters; a longer one is truncated and ends in its hash."""
    if len(text) <= _LONGEST_ID:
        return text
    return f"{text[: _LONGEST_ID - 37]}-{uuid.uuid5(_NAMESPACE, text)}"


def huggingface(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return a folder that Hugging Face `datasets` loads; lists and objects are JSON text."""
    rows = rows_of(cases, name)
    lines = [
        {
            "id": row.id,
            "input": row.text,
            "messages": json_text(list(row.messages)),
            "expected_output": (row.expected.content if row.expected else None) or "",
            "expected_tools": _calls_text(row.expected),
            "actual_output": (row.actual.content if row.actual else None) or "",
            "tools_called": _calls_text(row.actual),
            "metadata": json_text(row.metadata),
        }
        for row in rows
    ]
    card = _CARD.format(name=name, cases=len(cases), rows=len(rows))
    return {"/README.md": card.encode(), "/data/test.jsonl": json_lines(lines)}


def _calls_text(done: Side | None) -> str:
    calls = calls_of(done)
    return "" if calls is None else json_text(calls)


_CARD: Final = """\
---
configs:
- config_name: default
  data_files:
  - split: test
    path: data/test.jsonl
---

# {name}

{cases} eval cases in {rows} rows, written by `evaltap set export --format huggingface`.
Lists and objects are JSON text.
Licence: not stated; add one before you publish.
"""


_NOT_TEXT: Final = re.compile(r"^(?:file|package):|\{[{%#]")


def texts_to_promptfoo(cases: Sequence[CaseData]) -> tuple[list[CaseData], list[CaseData]]:
    """Return the cases whose texts, which anybody may have written, promptfoo takes as they are; and the
    others.

    It renders those as templates, with the environment's keys, and loads or runs the files that they name.
    No escape suits both its JSON prompts and its other prompts.
    """
    kept: list[CaseData] = []
    others: list[CaseData] = []
    for case in cases:
        tests = map(_promptfoo_test, rows_of([case], ""))
        texts = (text for test in tests for text in test["vars"].values())
        (others if any(map(_NOT_TEXT.search, texts)) else kept).append(case)
    return kept, others


def promptfoo(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return tests for promptfoo (`tests: file://…`): variables, and assertions on the answer."""
    kept, _ = texts_to_promptfoo(cases)
    return {"": _array([_promptfoo_test(row) for row in rows_of(kept, name)])}


def _promptfoo_test(row: Row) -> dict[str, Json]:
    test: dict[str, Json] = {
        "description": row.id,
        "vars": {"input": row.text, "messages": json_text(list(row.messages))},
        "metadata": row.metadata,
    }
    if row.expected is not None:
        test["vars"]["expected_output"] = row.expected.content or ""
        test["vars"]["expected_tools"] = _calls_text(row.expected)
        if row.expected.content:
            test["assert"] = [{"type": "icontains", "value": row.expected.content}]
    return test


def pytest_cases(cases: Sequence[CaseData], name: str, *, with_actual: bool) -> Files:
    """Return a module whose `cases` decorator runs a test once for each row."""
    rows: list[object] = [
        {
            "id": row.id,
            "input": row.text,
            "messages": list(row.messages),
            "expected_output": row.expected.content if row.expected else None,
            "expected_tools": calls_of(row.expected),
            "metadata": row.metadata,
        }
        for row in rows_of(cases, name)
    ]
    return {"": _MODULE.format(rows=canonical.dumps(rows, readable=True).decode()).encode()}


_MODULE: Final = '''\
"""Eval cases, written by `evaltap set export --format pytest`; do not edit.

    from this_module import cases

    @cases
    def test_agent(case):
        assert case["expected_output"] in my_agent(case["input"])
"""

import json

import pytest

CASES = json.loads(
    r"""
{rows}"""
)
cases = pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
'''

FORMS: Final[Mapping[str, Callable[..., Files]]] = {
    "deepeval": deepeval,
    "openai-evals": openai_evals,
    "langsmith": langsmith,
    "langfuse": langfuse,
    "huggingface": huggingface,
    "promptfoo": promptfoo,
    "pytest": pytest_cases,
}
"""The formats of `--format` in addition to evaltap's own."""
WITH_ACTUAL: Final = ("deepeval", "openai-evals")
"""Those that can include what was recorded."""


def _array(rows: Sequence[Json]) -> bytes:
    return canonical.dumps(rows, indent=4, readable=True)
