"""Adapt evaltap to DeepEval: find its classes by name, and convert turns to its test cases.

The package is an extra.  It is imported when a metric that uses it is built, with its telemetry and its
reading of `.env` files disabled.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from importlib import import_module
from typing import Any, get_args, get_type_hints

import orjson

from evaltap.evaluator.cases.costs import cost_of
from evaltap.evaluator.cases.json_path import follow
from evaltap.evaluator.cases.turn import ToolCall, Turn, absent_state
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.named import load_object
from evaltap.schemas.text import did_you_mean_one_of

_PYTHON = "$python"


def load_deepeval() -> Any:  # the module
    """Import DeepEval; raise MetricError if it is not installed."""
    os.environ["DEEPEVAL_TELEMETRY_OPT_OUT"] = "1"
    os.environ["DEEPEVAL_DISABLE_DOTENV"] = "1"
    try:
        return import_module("deepeval")
    except ImportError as error:
        raise MetricError(
            f"DeepEval cannot be imported ({error}); install evaltap[deepeval]"
        ) from error


def metric_class(name: str) -> type[Any]:
    """Return the metric class with a name in `deepeval.metrics` or an import path; raise MetricError if
    absent."""
    metrics = import_module("deepeval.metrics")
    found = load_object(name, "deepeval.metric") if ":" in name else getattr(metrics, name, None)
    kinds = (metrics.BaseMetric, metrics.BaseConversationalMetric)
    if not isinstance(found, type) or not issubclass(found, kinds):
        known = [
            key
            for key, value in sorted(vars(metrics).items())
            if isinstance(value, type) and issubclass(value, kinds) and value not in kinds
        ]
        raise MetricError(
            f"deepeval.metric is '{name}'; expected module:Class or of {', '.join(known)}"
        )
    return found


def is_conversational(metric: type[Any]) -> bool:
    """Return whether a metric scores the whole conversation."""
    base: type[object] = import_module("deepeval.metrics").BaseConversationalMetric
    return issubclass(metric, base)


def parameters_of(metric: type[object], given: Mapping[str, object]) -> dict[str, object]:
    """Return constructor arguments: enumerations by value, Python objects by path.

    A class given as `model` is instantiated here; any other class is passed unchanged.
    """
    try:
        hints = get_type_hints(metric.__init__)
    except Exception:  # annotations may raise anything; plain values are still passed
        hints = {}
    made = {}
    for name, value in given.items():
        found = _object(value)
        if name == "model" and isinstance(found, type):
            found = found()
        made[name] = _enumerated(found, hints.get(name), name)
    return made


def _object(value: object) -> object:
    if isinstance(value, Mapping):
        if set(value) == {_PYTHON}:
            return load_object(str(value[_PYTHON]), _PYTHON)
        return {key: _object(item) for key, item in value.items()}
    return [_object(item) for item in value] if isinstance(value, list) else value


def _enumerated(value: object, hint: object, name: str) -> object:
    if (kind := _enum_in(hint)) is None:
        return value
    if isinstance(value, list):
        return [_member(item, kind, name) for item in value]
    return _member(value, kind, name)


def _enum_in(hint: object) -> type[Enum] | None:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint
    return next((found for one in get_args(hint) if (found := _enum_in(one)) is not None), None)


def _member(value: object, kind: type[Enum], name: str) -> object:
    if not isinstance(value, str):
        return value
    members = {**{one.name: one for one in kind}, **{one.value: one for one in kind}}
    if value not in members:
        hint = did_you_mean_one_of(value, [str(one.value) for one in kind])
        raise MetricError(f"deepeval.parameters.{name} has '{value}'; {hint}")
    return members[value]


# -- test cases ------------------------------------------------------------------------------------


def turn_fields(
    turn: Turn,
    expected: Turn,
    case: Mapping[str, object],
    *,
    context_path: Sequence[str | int] | None,
    retrieval_tools: Sequence[str],
) -> dict[str, object]:
    """Return the fields of an `LLMTestCase` for a turn, without missing evidence."""
    fields: dict[str, object] = {}
    for name, source, key, text in (
        ("input", turn, "userContent", turn.user_text),
        ("actual_output", turn, "finalResponse", turn.final_text),
        ("expected_output", expected, "finalResponse", expected.final_text),
    ):
        if text is not None and not source.lacks(key):
            fields[name] = text
    calls = [call for call in turn.tools if call]
    if not turn.lacks("tools"):
        fields["tools_called"] = [*map(_call, calls)]
        if retrieved := _retrieved(calls, retrieval_tools):
            fields["retrieval_context"] = retrieved
    if "tools" in expected.data and not expected.lacks("tools"):
        fields["expected_tools"] = [*map(_call, filter(None, expected.tools))]
    with suppress(ValueError):  # a metric that needs the field reports that it is missing
        if context_path is not None and (context := _texts(follow(case, context_path))):
            fields["context"] = context
    return fields | _measured(turn.data.get("telemetry") or {})


def _retrieved(calls: Sequence[ToolCall], tools: Sequence[str]) -> list[str]:
    """Return the results of retrieval; none if one of them is absent, as the rest is not the source."""
    found = [call for call in calls if call.get("name") in tools]
    if any(absent_state(call, "result") for call in found):
        return []
    return [_text(call["result"]) for call in found if call.get("result") is not None]


def _measured(telemetry: Mapping[str, Any]) -> dict[str, object]:
    fields: dict[str, object] = {}
    if (cost := cost_of(telemetry)) is not None:
        fields["token_cost"] = cost
    if telemetry.get("latencyMs") is not None:
        fields["completion_time"] = telemetry["latencyMs"] / 1000
    return fields


def turn_test_case(fields: Mapping[str, Any]) -> object:
    """Return DeepEval's test case for one turn."""
    kinds = import_module("deepeval.test_case")
    calls = {
        key: [kinds.ToolCall(**call) for call in fields[key]]
        for key in ("tools_called", "expected_tools")
        if key in fields
    }
    return kinds.LLMTestCase(**{**fields, **calls})


def conversation_fields(turns: Sequence[Turn]) -> list[dict[str, object]] | str:
    """Return the messages of a conversation, or a description of the missing evidence."""
    messages: list[dict[str, object]] = []
    for turn in turns:
        for role, field, text in (
            ("user", "userContent", turn.user_text),
            ("assistant", "finalResponse", turn.final_text),
        ):
            reason = turn.lacks(field) or (f"{field} is absent" if text is None else None)
            if reason is not None:
                return reason
            messages.append({"role": role, "content": text})
        if not turn.lacks("tools") and turn.tools:
            messages[-1]["tools_called"] = [_call(call) for call in turn.tools if call]
    return messages


def conversation_test_case(
    messages: Sequence[Mapping[str, Any]], extra: Mapping[str, Any]
) -> object:
    """Return DeepEval's test case for a whole conversation."""
    kinds = import_module("deepeval.test_case")
    made = []
    for message in messages:
        calls = [kinds.ToolCall(**call) for call in message.get("tools_called", ())]
        made.append(kinds.Turn(**{**message, "tools_called": calls or None}))
    return kinds.ConversationalTestCase(turns=made, **extra)


def _call(call: Mapping[str, object]) -> dict[str, object]:
    made: dict[str, object] = {"name": call.get("name") or ""}
    arguments = call.get("arguments")
    if isinstance(arguments, Mapping) and not absent_state(call, "arguments"):
        made["input_parameters"] = dict(arguments)
    if call.get("result") is not None and not absent_state(call, "result"):
        made["output"] = call["result"]
    return made


def _texts(value: object) -> list[str]:
    items = value if isinstance(value, list) else [value]
    return [_text(item) for item in items if item is not None]


def _text(value: object) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
