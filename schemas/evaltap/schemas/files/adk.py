"""Google ADK eval sets, converted to and from the models of `evaltap.schemas.formats.case`.

ADK writes snake_case keys at the top level and either spelling below it, reads either everywhere, and
has messages as lists of parts. An ADK conversation is the expected one, so it becomes `conversation`.
tRPC-Agent-Python has the same form, with recorded turns and context messages.
Keys without a counterpart here (`final_session_state`, `app_details`, durations, …) are preserved.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Final

from evaltap.schemas.data import Json, JsonObject
from evaltap.schemas.errors import FormatError
from evaltap.schemas.formats.case import EvalCase, EvalSet, Invocation, SessionInput, Tool
from evaltap.schemas.formats.message import Message
from evaltap.schemas.formats.model import WireModel

_STATUSES: Final = {1: "passed", 2: "failed", 3: "not_evaluated"}
STOP_SIGNAL: Final = "</finished>"
MOST_TURNS: Final = 20
"""How ADK's simulated users end a conversation: by what they say, or after so many turns."""


def is_adk_eval_set(data: object) -> bool:
    """Return whether decoded JSON has the form of ADK; in camelCase, its messages of parts tell it."""
    if not isinstance(data, dict):
        return False
    return "eval_set_id" in data or "eval_cases" in data or _begins_with_parts(data)


def _begins_with_parts(data: JsonObject) -> bool:
    """Return whether the first message of a user is a list of parts."""
    try:
        case = data["evalCases"][0]
        message = (case.get("conversation") or case["actualConversation"])[0]["userContent"]
        return "parts" in message and "content" not in message
    except (AttributeError, KeyError, IndexError, TypeError):
        return False


def is_adk_result(data: object) -> bool:
    """Return whether decoded JSON is an eval result of ADK (`.adk/eval_history`) or tRPC-Agent-Python."""
    return isinstance(data, dict) and "eval_case_results" in data


def from_adk_result(data: Mapping[str, object], *, path: str = "") -> JsonObject:
    """Convert a decoded eval result of ADK, whose runs of a case follow one another.

    Raises FormatError with the place that does not fit.
    """
    reader = _Reader(path)
    rest = dict(data)
    given = enumerate(reader.items(rest, "eval_case_results", ""))
    cases = [reader.result(item, f"eval_case_results[{i}]") for i, item in given]
    runs: Counter[str] = Counter()
    for case in cases:
        runs[str(case["evalId"])] += 1
        case["runId"] = runs[str(case["evalId"])]
    return {
        "evalSetResultId": _take(rest, "eval_set_result_id"),
        "evalSetResultName": _take(rest, "eval_set_result_name"),
        "evalSetId": _take(rest, "eval_set_id"),
        "evalCaseResults": cases,
    }


def from_adk(data: Mapping[str, object], *, path: str = "") -> EvalSet:
    """Convert a decoded ADK eval set; raises FormatError with the place that does not fit."""
    reader = _Reader(path)
    rest = dict(data)
    cases = reader.items(rest, "eval_cases", "")
    return reader.eval_set(
        {
            "evalSetId": _take(rest, "eval_set_id"),
            "evalCases": [reader.case(item, f"eval_cases[{i}]") for i, item in enumerate(cases)],
            "creationTimestamp": _take(rest, "creation_timestamp") or None,
            **rest,
        }
    )


class _Reader:
    """Converts the parts of one file; holds its path for messages."""

    def __init__(self, path: str) -> None:
        self._path = path

    def eval_set(self, data: JsonObject) -> EvalSet:
        # Imported here: documents.py offers both forms and imports this module.
        from evaltap.schemas.files.validation import parse

        given = {key: value for key, value in data.items() if value is not None}
        return parse(EvalSet, given, path=self._path)

    def items(self, data: JsonObject, key: str, place: str) -> list[object]:
        if (value := _take(data, key)) is None:
            return []
        if not isinstance(value, list):
            where = f"{place}.{key}" if place else key
            raise FormatError("expected a list", path=self._path, place=where)
        return value

    def as_object(self, value: object, place: str) -> JsonObject:
        if not isinstance(value, dict):
            raise FormatError("expected an object", path=self._path, place=place)
        return dict(value)

    def case(self, value: object, place: str) -> JsonObject:
        rest = self.as_object(value, place)
        turns = self.items(rest, "conversation", place)
        recorded = self.items(rest, "actual_conversation", place)
        context = self.items(rest, "context_messages", place)
        mode = _take(rest, "eval_mode")
        final_state = rest.get("final_session_state", rest.get("finalSessionState"))
        session = _take(rest, "session_input")
        rubrics = _take(rest, "rubrics")
        scenario = _take(rest, "conversation_scenario")
        conversation = [
            self.turn(turn, f"{place}.conversation[{i}]") for i, turn in enumerate(turns)
        ]
        if conversation and isinstance(final_state, dict):
            # The final session state is the last turn's state; the key itself is preserved as well.
            conversation[-1].setdefault("state", final_state)
        if session is None and mode == "trace":
            session = {}  # optional in this form
        return {
            "evalId": _take(rest, "eval_id"),
            "evalMode": mode,
            "conversation": conversation,
            "actualConversation": [
                self.turn(turn, f"{place}.actual_conversation[{i}]")
                for i, turn in enumerate(recorded)
            ],
            "contextMessages": [
                self.context(one, f"{place}.context_messages[{i}]") for i, one in enumerate(context)
            ],
            "sessionInput": self.session(session, f"{place}.session_input")
            if session is not None
            else None,
            "creationTimestamp": _take(rest, "creation_timestamp") or None,
            **({"adkRubrics": rubrics} if rubrics else {}),
            "conversationScenario": self.scenario(scenario, f"{place}.conversation_scenario")
            if scenario
            else None,
            **rest,
        }

    def result(self, value: object, place: str) -> JsonObject:
        rest = self.as_object(value, place)
        key = "eval_metric_result_per_invocation"
        turns = enumerate(self.items(rest, key, place))
        return {
            "evalSetId": _take(rest, "eval_set_id"),
            "evalId": _take(rest, "eval_id") or rest.get("session_id"),
            "finalEvalStatus": _status(_take(rest, "final_eval_status")),
            "overallEvalMetricResults": self.metrics(rest, "overall_eval_metric_results", place),
            "evalMetricResultPerInvocation": [
                self.turn_result(item, f"{place}.{key}[{i}]") for i, item in turns
            ],
            "sessionId": _take(rest, "session_id"),
            "userId": _take(rest, "user_id"),
        }

    def turn_result(self, value: object, place: str) -> JsonObject:
        rest = self.as_object(value, place)
        actual, expected = _take(rest, "actual_invocation"), _take(rest, "expected_invocation")
        return {
            "actualInvocation": actual and self.turn(actual, f"{place}.actual_invocation"),
            "expectedInvocation": expected and self.turn(expected, f"{place}.expected_invocation"),
            "evalMetricResults": self.metrics(rest, "eval_metric_results", place),
        }

    def metrics(self, data: JsonObject, key: str, place: str) -> list[JsonObject]:
        found = []
        for number, item in enumerate(self.items(data, key, place)):
            rest = self.as_object(item, f"{place}.{key}[{number}]")
            found.append(
                {
                    "metricName": _take(rest, "metric_name"),
                    "score": _take(rest, "score"),
                    "evalStatus": _status(_take(rest, "eval_status")),
                    "threshold": _take(rest, "threshold"),
                }
            )
        return found

    def scenario(self, value: object, place: str) -> JsonObject:
        rest = self.as_object(value, place)
        return {
            "startingPrompt": _take(rest, "starting_prompt"),
            "conversationPlan": _take(rest, "conversation_plan"),
            "stopSignal": STOP_SIGNAL,
            "maxAllowedInvocations": MOST_TURNS,
            **rest,
        }

    def session(self, value: object, place: str) -> JsonObject:
        rest = self.as_object(value, place)
        return {
            "appName": _take(rest, "app_name"),
            "userId": _take(rest, "user_id"),
            "state": _take(rest, "state"),
            **rest,
        }

    def turn(self, value: object, place: str) -> JsonObject:
        try:
            return self._turn(value, place)
        except (AttributeError, KeyError, TypeError, ValueError) as error:  # a part of another type
            message = f"does not have the form of a turn of Google ADK ({error})"
            raise FormatError(message, path=self._path, place=place) from None

    def _turn(self, value: object, place: str) -> JsonObject:
        rest = self.as_object(value, place)
        user, final = _take(rest, "user_content"), _take(rest, "final_response")
        data = _take(rest, "intermediate_data")
        tools, texts = self.steps(data, f"{place}.intermediate_data") if data else ([], [])
        return {
            "invocationId": _take(rest, "invocation_id"),
            "userContent": self.message(user, "user", f"{place}.user_content"),
            "finalResponse": self.message(final, "assistant", f"{place}.final_response"),
            "tools": tools,
            "intermediateResponses": texts,
            "creationTimestamp": _take(rest, "creation_timestamp") or None,
            **rest,
        }

    def message(self, value: object, role: str, place: str) -> JsonObject | None:
        if value is None:
            return None
        content = self.as_object(value, place)
        parts = content.get("parts") or []
        plain = all(isinstance(p, dict) and set(_given(p)) == {"text"} for p in parts)
        spoken = (p for p in parts if isinstance(p, dict) and not p.get("thought"))
        text = "".join(p.get("text") or "" for p in spoken)
        return {"role": role, "content": text, **({} if plain else {"parts": parts})}

    def context(self, value: object, place: str) -> JsonObject | None:
        role = self.as_object(value, place).get("role") or "user"
        return self.message(value, "assistant" if role == "model" else role, place)

    def steps(self, value: object, place: str) -> tuple[list[JsonObject], list[JsonObject]]:
        data = self.as_object(value, place)
        if "invocation_events" in data or "invocationEvents" in data:
            return self.events(_take(data, "invocation_events") or [])
        calls = [_given(call) for call in _take(data, "tool_uses") or []]
        responses = [_given(item) for item in _take(data, "tool_responses") or []]
        texts = [
            {
                "role": "assistant",
                "content": "".join(p.get("text") or "" for p in parts),
                "name": author,
            }
            for author, parts in _take(data, "intermediate_responses") or []
        ]
        return _joined(calls, responses), texts

    def events(self, events: list[JsonObject]) -> tuple[list[JsonObject], list[JsonObject]]:
        calls: list[JsonObject] = []
        responses: list[JsonObject] = []
        texts: list[JsonObject] = []
        for event in events:
            for part in (event.get("content") or {}).get("parts") or []:
                given = dict(part)
                if call := _take(given, "function_call"):
                    calls.append(_given(call))
                elif response := _take(given, "function_response"):
                    responses.append(_given(response))
                elif given.get("text") and not given.get("thought"):
                    author = event.get("author") or ""
                    texts.append({"role": "assistant", "content": given["text"], "name": author})
        return _joined(calls, responses), texts


def _status(value: Json) -> Json:
    return _STATUSES.get(value, value) if isinstance(value, int) else value


def _joined(calls: list[JsonObject], responses: list[JsonObject]) -> list[JsonObject]:
    """Pair calls with responses: by id with the last, otherwise with the next of the same name."""
    left = list(responses)
    last = {item["id"]: item for item in responses if item.get("id")}
    tools = []
    for call in calls:
        match = last.pop(call.get("id"), None)
        if match is None:
            named = (r for r in left if not r.get("id") and r.get("name") == call.get("name"))
            if (match := next(named, None)) is not None:
                left.remove(match)
        tools.append(
            {
                "id": call.get("id"),
                "name": call.get("name"),
                "arguments": call.get("args"),
                "result": match.get("response") if match else None,
            }
        )
    return tools


def _take(data: JsonObject, key: str) -> Json:
    """Remove `key` (snake_case or camelCase) from `data` and return its value."""
    head, *tail = key.split("_")
    camel = head + "".join(word.title() for word in tail)
    return data.pop(key, None) if key in data else data.pop(camel, None)


def _given(data: Mapping[str, object]) -> JsonObject:
    return {key: value for key, value in data.items() if value is not None}


# -- writing ---------------------------------------------------------------------------------------


def to_adk(eval_set: EvalSet) -> JsonObject:
    """Convert an eval set to ADK's form.

    ADK has one conversation per case: the expected one if there is one, otherwise the recorded one.
    """
    return {
        "eval_set_id": eval_set.eval_set_id,
        "name": eval_set.name or eval_set.eval_set_id,
        "description": eval_set.description,
        "eval_cases": [_case(case) for case in eval_set.eval_cases],
        "creation_timestamp": eval_set.creation_timestamp or 0.0,
        **_extra(eval_set),
    }


def _case(case: EvalCase) -> JsonObject:
    extra = _extra(case)
    rubrics = extra.pop("adkRubrics", None)
    scenario = _scenario(case)
    turns = case.conversation or case.actual_conversation
    last = case.conversation[-1] if case.conversation else None
    if last and last.state and "finalSessionState" not in extra:
        extra.setdefault("final_session_state", last.state)
    return {
        "eval_id": case.eval_id,
        **({} if scenario else {"conversation": [_turn(turn) for turn in turns if turn]}),
        **({"conversation_scenario": scenario} if scenario else {}),
        **({"session_input": _session(case.session_input)} if case.session_input else {}),
        **({"rubrics": rubrics} if rubrics else {}),
        "creation_timestamp": case.creation_timestamp or 0.0,
        **extra,
    }


def _scenario(case: EvalCase) -> JsonObject | None:
    planned = case.conversation_scenario
    if planned is None or case.conversation or case.actual_conversation:
        return None
    return {
        "starting_prompt": planned.starting_prompt,
        "conversation_plan": planned.conversation_plan,
        **_extra(planned),
    }


def _session(session: SessionInput) -> JsonObject:
    names = {"app_name": session.app_name, "user_id": session.user_id, "state": session.state}
    return names | _extra(session)


def _turn(turn: Invocation) -> JsonObject:
    tools = [tool for tool in turn.tools if tool]
    steps = {
        "tool_uses": [
            _given({"id": tool.id or None, "name": tool.name, "args": _object(tool.arguments)})
            for tool in tools
        ],
        "tool_responses": [_response(tool) for tool in tools if _answered(tool)],
        "intermediate_responses": [
            [(message.model_extra or {}).get("name", ""), [{"text": message.content}]]
            for message in turn.intermediate_responses
        ],
    }
    return {
        "invocation_id": turn.invocation_id,
        "user_content": _content(turn.user_content, "user"),
        **(
            {"final_response": _content(turn.final_response, "model")}
            if turn.final_response
            else {}
        ),
        "intermediate_data": steps,
        "creation_timestamp": turn.creation_timestamp or 0.0,
        **_extra(turn),
    }


def _answered(tool: Tool) -> bool:
    return tool.result is not None or tool.error is not None


def _response(tool: Tool) -> JsonObject:
    response = tool.result
    if tool.error is not None:
        response = {"error": tool.error.message or tool.error.type}
    return _given({"id": tool.id or None, "name": tool.name, "response": _object(response)})


def _object(value: object) -> object:
    return value if value is None or isinstance(value, dict) else {"result": value}


def _content(message: Message | None, role: str) -> JsonObject:
    if message is None:
        return {"parts": [], "role": role}
    parts = (message.model_extra or {}).get("parts")
    return {"parts": parts or [{"text": message.content}], "role": role}


def _extra(model: WireModel) -> JsonObject:
    return dict(model.model_extra or {})
