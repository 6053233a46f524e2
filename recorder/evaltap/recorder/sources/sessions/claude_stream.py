"""Claude Code: the messages that `claude -p --output-format stream-json`, or `json --verbose`, prints.

Source: the messages of Anthropic's Agent SDK (`system`, `assistant`, `user`, `result`); its programs collect
them in the same form, as do exports of the web version (`loglines`).  The stream has neither times nor the
prompt; `result` has the use of the whole run.
"""

from collections.abc import Iterator, Mapping

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.claude_code import AGENT, normal_name, result_of
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    text_of,
    time_of,
    usd,
)
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import of_anthropic
from evaltap.schemas.data import JsonObject

NAME = "claude-code"


def conversations(document: object) -> list[Conversation] | None:
    held = mapping(document)
    lines = objects(document) or objects(held.get("messages", held.get("loglines")))
    told, ends = ([*filter(one, lines)] for one in (_is_message, _is_end))
    if not ends and not (told and (any(map(_is_start, lines)) or len(told) == len(lines))):
        return None
    session = next((one for line in lines if isinstance(one := line.get("session_id"), str)), None)
    model: str | None = None
    messages: list[Message] = []
    before: JsonObject = {}
    for line in lines:
        if _is_start(line):
            model = line["model"] if isinstance(line.get("model"), str) else None
            # Each prompt of a session with several begins with another start.
            if not messages or messages[-1].role != "user":
                messages.append(Message(role="user"))
        elif _is_end(line):
            if not told:  # `--output-format json` prints nothing but the end
                messages.append(Message(role="assistant", text=text_of(line.get("result"))))
            messages.append(_end(line, model, before))
            before = line
        # What a sub-agent says belongs to the call that started it.
        elif _is_message(line) and line.get("parent_tool_use_id") is None:
            messages += _messages(line)
    return [Conversation(framework=NAME, session_id=session, agent_name=AGENT, messages=messages)]


def _is_start(line: JsonObject) -> bool:
    return line.get("type") == "system" and line.get("subtype") == "init"


def _is_end(line: JsonObject) -> bool:
    return line.get("type") == "result" and "num_turns" in line


def _is_message(line: JsonObject) -> bool:
    message = mapping(line.get("message"))
    return line.get("type") in ("user", "assistant") and message.get("role") == line["type"]


def _messages(line: JsonObject) -> Iterator[Message]:
    content, now = line["message"].get("content"), time_of(line.get("timestamp"))
    blocks = objects(content)
    text = text_of([one for one in blocks if one.get("type") == "text"] if blocks else content)
    for block in blocks:
        if block.get("type") == "tool_result":
            result = result_of(block.get("content"))
            failed = block.get("is_error") is True
            yield Message(
                role="tool",
                time_ns=now,
                call_id=str(block.get("tool_use_id") or ""),
                result=result,
                failure=Failure(None, text_of(block.get("content"))) if failed else None,
            )
    if line["type"] == "assistant":
        calls = [
            Call(normal_name(name), block.get("input"), str(block.get("id") or ""))
            for block in blocks
            if block.get("type") == "tool_use" and isinstance(name := block.get("name"), str)
        ]
        if calls or text is not None:
            yield Message(role="assistant", text=text, time_ns=now, calls=tuple(calls))
    # Skills and reminders also come as messages of the user, but marked, or next to results.
    elif isinstance(content, str) and not line.get("isSynthetic"):
        yield Message(role="user", text=content, time_ns=now)


def _end(line: JsonObject, model: str | None, before: JsonObject) -> Message:
    words = text_of(line.get("result")) or text_of([{"text": str(e)} for e in _errors(line)])
    failed = line.get("is_error") is True
    return Message(
        role="assistant",
        model=model,
        tokens=of_anthropic(line.get("usage")),
        cost_usd=_cost(line, before),
        failure=Failure(str(line.get("subtype")), words) if failed else None,
    )


def _cost(line: JsonObject, before: JsonObject) -> float | None:
    """Return the cost of a prompt: a result has that of its process so far, as has its `modelUsage`.

    The latter tells the results of one process from those of several in one file.
    """
    total, past = usd(line.get("total_cost_usd")), usd(before.get("total_cost_usd"))
    written, of_prompt = _written(line), of_anthropic(line.get("usage")).output or 0
    is_other = bool(written) and written < _written(before) + of_prompt
    return total if total is None or past is None or total < past or is_other else total - past


def _written(line: JsonObject) -> int:
    """Return the output tokens of the process so far; 0 where they are not told."""
    models = map(mapping, mapping(line.get("modelUsage")).values())
    counts = (model.get("outputTokens") for model in models)
    return sum(count for count in counts if isinstance(count, int))


def _errors(line: Mapping[str, object]) -> list[object]:
    found = line.get("errors")
    return found if isinstance(found, list) else []
