"""n8n: executions of workflows with AI agents, as its API, its editor and its database have them.

Source: `IExecutionResponse` of n8n (`data.resultData.runData`: the runs of each node); its database has
`data` as a text in the form of the package flatted: a list of values that refer to each other by index.  A
sub-node reports under the kind of its connection: `ai_tool`, `ai_languageModel`.  What a workflow does apart
from agents is not read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    text_of,
    value_of,
    word,
)
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import tokens
from evaltap.schemas.data import JsonObject

NAME = "n8n"
_ASKED = ("chatInput", "guardrailsInput", "text", "query", "message", "prompt")
_ANSWERED = ("output", "text", "response")
_TOOL, _MODEL = "ai_tool", "ai_languageModel"


def conversations(document: object) -> list[Conversation] | None:
    if _is_flat(document):
        document = {"data": document}
    if isinstance(document, dict) and "data" in document and "id" not in document:
        held = document["data"]
        if not _is_flat(held) and isinstance(held, dict | list):
            document = held if isinstance(held, list) or "data" in held else document
    given = document if isinstance(document, list) else [document]
    found = [_whole(one) for one in given]
    if not found or not all(_runs_of(one) is not None for one in found):
        return None
    return [_conversation(one) for one in found]


def _is_flat(value: object) -> bool:
    """Return whether a value is an execution's data in the form of its database."""
    first = mapping(value[0]) if isinstance(value, list) and value else {}
    return "resultData" in first and isinstance(first["resultData"], str)


_BROKEN = ("crashed", "error")
"""How an execution ends that failed."""


def _whole(execution: object) -> JsonObject:
    """Return an execution with its data as objects."""
    one = dict(mapping(execution))
    held = value_of(one.get("data"))
    if isinstance(held, list) and _is_flat(held):
        held = _unflattened(held)
    return {**one, "data": held}


def _unflattened(values: list[object]) -> object:
    """Return the first of flatted values; a text within an object or a list is the index of a value."""
    made: dict[int, object] = {}
    # A text at the top is itself; objects are filled in place, as each may be used several times.
    for number, value in enumerate(values):
        made[number] = {} if isinstance(value, dict) else [] if isinstance(value, list) else value

    def meant(inner: object) -> object:
        is_index = isinstance(inner, str) and inner.isdecimal() and int(inner) in made
        return made[int(inner)] if is_index and isinstance(inner, str) else inner

    for number, value in enumerate(values):
        target = made[number]
        if isinstance(target, dict) and isinstance(value, dict):
            target.update((key, meant(inner)) for key, inner in value.items())
        elif isinstance(target, list) and isinstance(value, list):
            target.extend(map(meant, value))
    return made[0]


def _runs_of(execution: object) -> JsonObject | None:
    """Return the runs of an execution by node; None if it is none."""
    held = execution
    for key in ("data", "resultData", "runData"):
        held = held.get(key) if isinstance(held, dict) else None
    return held if isinstance(held, dict) else None


def _conversation(execution: JsonObject) -> Conversation:
    runs = _ordered(_runs_of(execution) or {})
    items = [item for _, run in runs for item in _items(run, "main")]
    sessions = (_words(item.get("sessionId")) for item in items)
    messages = [
        Message(role="user", text=_question(items), time_ns=_time(runs[0][1]) if runs else 0)
    ]
    agents = _agents(run for _, run in runs)
    for name, run in runs:
        messages += _messages(name, run, is_agent=name in agents or not agents)
    failure = _failure(execution["data"]["resultData"].get("error"))
    broken = Failure(str(execution["status"])) if execution.get("status") in _BROKEN else None
    return Conversation(
        framework=NAME,
        session_id=next(filter(None, sessions), None) or _identity(execution),
        messages=sorted(messages, key=lambda message: message.time_ns),
        failure=failure or broken,
    )


def _question(items: Iterable[JsonObject]) -> str | None:
    """Return what the user asked; a webhook has the caller's data in `body`."""
    given = (held for item in items for held in (item, mapping(item.get("body"))))
    texts = (_words(held.get(key)) for held in given for key in _ASKED)
    return next(filter(None, texts), None)


def _ordered(by_node: JsonObject) -> list[tuple[str, JsonObject]]:
    """Return the runs of all nodes, each with the node's name, in order of time."""
    runs = [(str(name), run) for name, each in by_node.items() for run in objects(each)]
    return sorted(runs, key=lambda named: _number(named[1].get("startTime")))


def _agents(runs: Iterable[JsonObject]) -> set[str]:
    """Return the nodes that call tools or models."""
    return {
        str(source.get("previousNode"))
        for run in runs
        if {_TOOL, _MODEL} & mapping(run.get("data")).keys()
        for source in objects(run.get("source"))
    }


def _messages(name: str, run: JsonObject, *, is_agent: bool) -> Iterator[Message]:
    began, spent = _time(run), _number(run.get("executionTime"))
    ended = began + int(spent * 1e6)
    failure = _failure(run.get("error"))
    data = mapping(run.get("data"))
    if _TOOL in data or _TOOL in mapping(run.get("inputOverride")):
        call = _call(name, next(iter(_items({"data": run.get("inputOverride")}, _TOOL)), None))
        results = _items(run, _TOOL)
        result = _sole(results[0]) if results else None
        yield Message(role="assistant", time_ns=began, calls=(call,))
        yield Message(
            role="tool",
            time_ns=ended,
            call_id=call.id,
            name=name,
            result=result,
            failure=failure,
            duration_ms=float(spent),
        )
    elif _MODEL in data:
        asked = next(iter(_items({"data": run.get("inputOverride")}, _MODEL)), {})
        options = mapping(asked.get("options"))
        for item in _items(run, _MODEL):
            info = _generation(item)
            known = (info.get("model_name"), options.get("model"), options.get("model_name"))
            model = next((one for one in known if isinstance(one, str)), None)
            used = mapping(item.get("tokenUsage"))
            counted = tokens(used.get("promptTokens"), used.get("completionTokens"))
            yield Message(role="assistant", time_ns=ended, model=model, tokens=counted)
    elif is_agent:
        for item in _items(run, "main"):
            said = (_words(item.get(key)) for key in _ANSWERED)
            text = next(filter(None, said), None)
            if text is None and isinstance(item.get("output"), dict):
                text = json.dumps(item["output"], ensure_ascii=False)  # made by an output parser
            if text is not None:
                yield Message(role="assistant", text=text, time_ns=ended)


def _generation(item: JsonObject) -> Mapping[str, object]:
    """Return what a model says of its first generation."""
    found = mapping(item.get("response")).get("generations")
    while isinstance(found, list) and found:
        found = found[0]
    return mapping(mapping(found).get("generationInfo"))


def _call(name: str, given: JsonObject | None) -> Call:
    """Return a call; tools other than nodes have their arguments in `query`."""
    if given is None:
        return Call(name)
    rest = {key: value for key, value in given.items() if key != "toolCallId"}
    if set(rest) == {"query"} and isinstance(rest["query"], dict):
        rest = rest["query"]
    return Call(name, rest, word(given.get("toolCallId")) or "")


def _sole(item: JsonObject) -> object:
    """Return what a tool returned, which nodes wrap as `response` or `output`."""
    return next(iter(item.values())) if set(item) in ({"response"}, {"output"}) else item


def _items(run: JsonObject, kind: str) -> list[JsonObject]:
    """Return the JSON of the items that a run put out on a kind of connection."""
    data = run.get("data")
    outputs = data.get(kind) if isinstance(data, dict) else None
    lists = outputs if isinstance(outputs, list) else []
    found = [item.get("json") for one in lists for item in objects(one)]
    return [one for one in found if isinstance(one, dict)]


def _words(value: object) -> str | None:
    """Return a text, also within an object, as chains and chat programs have it."""
    found = value.get("text") if isinstance(value, dict) else value
    return found if isinstance(found, str) else None


def _identity(execution: JsonObject) -> str | None:
    given = execution.get("id")
    return str(given) if isinstance(given, str | int) else None


def _failure(error: object) -> Failure | None:
    if not isinstance(error, dict):
        return None
    return Failure(word(error.get("name")), text_of(error.get("message")))


def _time(run: JsonObject) -> int:
    return int(_number(run.get("startTime")) * 1_000_000)


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e15 else 0.0
