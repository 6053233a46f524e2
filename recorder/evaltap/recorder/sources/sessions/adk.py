"""Google ADK: its sessions, as `adk run --save_session` and its API write them, and the results of its evals.

Sources: `Session`, `Event` and `EvalSetResult` of google-adk; keys may be in snake_case or camelCase.
"""

from collections.abc import Iterator, Mapping

from evaltap.recorder.conventions.adk import unwrap_result
from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import Call, Conversation, Message, text_of, word
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import Tokens, tokens
from evaltap.schemas.data import JsonObject

NAME = "google-adk"


def conversations(document: object) -> list[Conversation] | None:
    whole = mapping(document)
    if results := objects(_get(whole, "eval_case_results")):
        details = (_get(one, "session_details") for one in results)
        found = [_session(mapping(one)) for one in details]
        return [one for one in found if one is not None] or None
    one = _session({"events": document} if isinstance(document, list) else whole)
    return None if one is None else [one]


def _session(whole: Mapping[str, object]) -> Conversation | None:
    events = objects(whole.get("events"))
    authored = all(
        "author" in one and any(isinstance(one.get(key), dict) for key in ("content", "actions"))
        for one in events
    )
    if not authored or not (events or _get(whole, "app_name")):
        return None
    state = whole.get("state")
    return Conversation(
        framework=NAME,
        session_id=word(whole.get("id")),
        agent_name=word(_get(whole, "app_name")),
        messages=[message for event in events for message in _messages(event)],
        state=state if isinstance(state, dict) else {},
    )


def _messages(event: JsonObject) -> Iterator[Message]:
    """Yield the messages of an event; fragments of a streamed answer are not messages."""
    if event.get("partial") is True:
        return
    now = _nanoseconds(event.get("timestamp"))
    parts = objects(mapping(event.get("content")).get("parts"))
    text = text_of(
        [one for one in parts if word(one.get("text")) is not None and not one.get("thought")]
    )
    returned = [mapping(_get(one, "function_response")) for one in parts]
    if event.get("author") == "user":
        if text is not None or not any(returned):
            yield Message(role="user", text=text, time_ns=now)
    else:
        asked = (mapping(_get(one, "function_call")) for one in parts)
        code, words = word(_get(event, "error_code")), word(_get(event, "error_message"))
        yield Message(
            role="assistant",
            text=text,
            time_ns=now,
            calls=tuple(_call(one) for one in asked if word(one.get("name")) is not None),
            model=word(_get(event, "model_version")),
            tokens=_tokens(mapping(_get(event, "usage_metadata"))),
            failure=Failure(code, words) if words or code not in (None, "STOP") else None,
        )
    for response in filter(None, returned):
        yield _result(response, now)


def _call(asked: Mapping[str, object]) -> Call:
    return Call(str(asked["name"]), asked.get("args"), word(asked.get("id")) or "")


def _result(response: Mapping[str, object], now: int) -> Message:
    """Return a tool's result; a tool that fails in ADK returns an object with `error` alone."""
    held = response.get("response")
    error = mapping(held).get("error")
    alone = set(mapping(held)) == {"error"} and isinstance(error, str)
    return Message(
        role="tool",
        time_ns=now,
        call_id=word(response.get("id")) or "",
        name=word(response.get("name")) or "",
        result=unwrap_result(held),
        failure=Failure(None, word(error)) if alone else None,
    )


def _tokens(usage: Mapping[str, object]) -> Tokens:
    """Return a call's usage: Gemini counts reasoning apart, and others include it in the total."""
    given, output, thoughts, total, cached = (
        count if type(count := _get(usage, f"{name}_token_count")) is int else None
        for name in ("prompt", "candidates", "thoughts", "total", "cached_content")
    )
    if thoughts and (total is None or total >= (given or 0) + (output or 0) + thoughts):
        output = (output or 0) + thoughts
    return tokens(given, output, cached)


def _get(data: Mapping[str, object], key: str) -> object:
    """Return the value of a key in either spelling."""
    head, *tail = key.split("_")
    return data.get(key, data.get(head + "".join(map(str.title, tail))))


def _nanoseconds(seconds: object) -> int:
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e11:
        return 0
    return int(seconds * 1e6) * 1000
