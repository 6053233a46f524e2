"""Requests and responses of model APIs, and their messages: conversations as the provider has them.

Sources: items of OpenAI's Responses API, contents of Gemini's, UI messages of the AI SDK; logs with a request
and its response; Bedrock's model invocation logs (`ModelInvocationLog`), as S3 and CloudWatch have them.

An agent calls a model several times in a turn, and each request repeats the conversation so far; so requests
that a later one continues are only counted, not read again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, filterfalse, takewhile
from typing import Final

from evaltap.recorder.conventions.messages import read_request, read_response
from evaltap.recorder.conventions.reading import failure_of_answer
from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.gemini import CONTEXT
from evaltap.recorder.sources.sessions.messages import Call, Conversation, Message, value_of, word
from evaltap.recorder.telemetry.cloudwatch_export import records_in
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import Tokens, tokens
from evaltap.schemas.chat import messages as said
from evaltap.schemas.chat.shapes import HOSTED_CALLS, read_messages, steps
from evaltap.schemas.text import begins_as_error

NAME: Final = "model-api"
_LISTS: Final = ("contents", "history", "items", "messages")
_IDS: Final = ("session_id", "sessionId", "conversation_id", "thread_id", "id")
_LOG: Final = "ModelInvocationLog"
_QUESTIONS: Final = ("input", "inputText", "message", "prompt")
_ANSWERS: Final = ("generation", "outputText", "text", "completion")
"""Keys of texts in requests and responses of models that do not chat: Llama, Titan, Cohere."""
_SYSTEM: Final = ("system", "developer")
_REQUESTS: Final = ("request", "input", "inputBodyJson", "request_body", "body")
_RESPONSES: Final = ("response", "output", "outputBodyJson", "response_body", "completion")
_ITEMS: Final = (
    *("message", "reasoning", "function_call", "function_call_output"),
    *("human", "ai", "system", "tool"),
    *HOSTED_CALLS,
)
"""Types of items in lists of OpenAI's and LangChain's, which have no role."""


def calls_in(document: object) -> tuple[list[Conversation], int] | None:
    """Return the conversations in logs of model calls, and the number of Bedrock's other calls (embeddings).

    None for other documents.
    """
    listed = document if isinstance(document, list) else [document]
    records = [record for one in listed for record in records_in(one)]
    calls = [(record, _call(record)) for record in records]
    found = [call for _, call in calls if call is not None]
    others = [record for record, call in calls if call is None]
    if not found or any(one.get("schemaType") != _LOG for one in others):
        return None
    return _conversations(found), len(others)


def messages_in(document: object) -> list[Conversation] | None:
    """Return the conversations in lists of messages or items; None for other documents and plain chats."""
    if isinstance(document, list) and document and all(map(_is_chat, document)):
        return _chats(document)
    whole = mapping(document)
    state = mapping(whole.get("values")) if "messages" not in whole else {}  # of LangGraph
    found = _items(state or whole, document)
    if not found or _is_plain(found):
        return None
    parts = chain.from_iterable(map(steps, found))
    read = chain.from_iterable(map(read_messages, parts))
    messages = [one for one in read if not (one.text and str(one.text.value).startswith(CONTEXT))]
    if not any(one.text is not None or one.calls for one in messages):
        return None
    about = mapping(whole.get("metadata")) if state else whole
    ids = (word(about.get(name)) for name in _IDS)
    session = next((one for one in ids if one is not None), None)
    return [replace(_conversation(messages), session_id=session)]


def _chats(document: Sequence[object]) -> list[Conversation] | None:
    chats = [found for one in document for found in messages_in(one) or ()]
    return chats if len(chats) == len(document) else None


def _is_plain(messages: Sequence[Mapping[str, object]]) -> bool:
    """Return whether messages are a plain chat, which any reader of chats understands."""
    return all("role" in one and "content" in one and "parts" not in one for one in messages)


def _is_chat(item: object) -> bool:
    return any(isinstance(mapping(item).get(name), list) for name in ("contents", "messages"))


def _items(whole: Mapping[str, object], document: object) -> Sequence[Mapping[str, object]]:
    """Return the messages or items of a document; none if it has something else."""
    if whole.get("object") == "response":
        listed = whole.get("output")
    else:
        listed = next((whole[key] for key in _LISTS if key in whole), document)
    found = objects(listed)
    are_all = isinstance(listed, list) and len(found) == len(listed)
    return found if are_all and all(map(_is_item, found)) else ()


def _is_item(item: Mapping[str, object]) -> bool:
    is_known = "lc" in item or item.get("type") in _ITEMS
    return "role" in item or (is_known and "message" not in item)


def conversation_of(messages: Iterable[said.Message]) -> Iterator[Message]:
    """Yield the messages of a provider as messages of a session."""
    for one in said.with_answers_apart(tuple(messages)):
        yield from map(_returned, one.answers)
        words = word(one.text and one.text.value)
        if one.role == "user" and (words is not None or not one.answers):
            yield Message(role="user", text=words)
        elif one.role in _SYSTEM:
            yield Message(role="system", text=words)
        elif one.role == "assistant":
            asked = [
                Call(call.name, call.arguments and call.arguments.value, call.call_id or "")
                for call in one.calls
                if call.name
            ]
            if asked or words is not None:
                yield Message(role="assistant", text=words, calls=tuple(asked))


def _returned(answer: said.Answer) -> Message:
    return Message(
        role="tool",
        call_id=answer.call_id or "",
        name=answer.name or "",
        result=answer.result and answer.result.value,
        failure=_failure(answer),
    )


def _failure(answer: said.Answer) -> Failure | None:
    """Return the failure that a result states, or looks like: Gemini's results may be `error` alone."""
    value = answer.result.value if answer.result is not None else None
    if not answer.failed and isinstance(value, Mapping) and set(value) == {"error"}:
        return Failure(message=str(value["error"]))
    looks = isinstance(value, str) and begins_as_error(value)
    return failure_of_answer(answer) if answer.failed or looks else None


@dataclass(frozen=True, slots=True)
class _ModelCall:
    """What a model was asked, and what it said."""

    asked: tuple[said.Message, ...]
    answered: tuple[said.Message, ...]
    system: tuple[said.Message, ...]
    model: str | None
    tokens: Tokens
    failure: Failure | None


def _call(record: Mapping[str, object]) -> _ModelCall | None:
    """Return the model call of a record: a request and its response, side by side or in a wrapper."""
    request, response = _request_in(record), _response_in(record)
    given = read_request(_request_of(request))
    error = record.get("errorCode") or mapping(response.get("error")).get("message")
    if not any(one.role == "user" for one in given) or not (response or error):
        return None
    if given[-1].role == "assistant":
        return None  # a whole conversation
    answered = _answered(response)
    if not answered and not error:
        return None  # an embedding, or a form that is not known
    system = read_messages(request.get("system", request.get("instructions")), role="system")
    model = record.get("modelId") or response.get("model") or request.get("model")
    usage = mapping(response.get("usage")) or mapping(record.get("usage")) or _logged(record)
    return _ModelCall(
        asked=tuple(filterfalse(_is_system, given)),
        answered=tuple(answered),
        system=(*system, *filter(_is_system, given)),
        model=word(model or record.get("model")),
        tokens=_tokens(usage),
        failure=Failure(None, error) if isinstance(error, str) else None,
    )


def _assembled(chunks: Sequence[Mapping[str, object]]) -> Mapping[str, object]:
    """Return the message that Anthropic's events of a streamed response make up."""
    blocks: dict[object, dict[str, object]] = {}
    usage: dict[str, object] = {}
    for chunk in chunks:
        for stated in (mapping(chunk.get("message")).get("usage"), chunk.get("usage")):
            usage.update(mapping(stated))
        if started := mapping(chunk.get("content_block")):
            blocks[chunk.get("index")] = dict(started)
        delta = mapping(chunk.get("delta"))
        for part, name in (("text", "text"), ("partial_json", "input")):
            block = blocks.get(chunk.get("index"))
            if block is not None and isinstance(piece := delta.get(part), str):
                before = block.get(name)
                block[name] = (word(before) or "") + piece
    return {"content": [*blocks.values()], "usage": usage}


def _held(record: Mapping[str, object], names: Sequence[str]) -> Mapping[str, object]:
    """Return the first object under these names, which may be JSON text."""
    held = (mapping(value_of(record[name])) for name in names if name in record)
    return next(filter(None, held), {})


def _request_of(request: Mapping[str, object]) -> object:
    """Return a request with a text as its messages."""
    text = next((request[key] for key in _QUESTIONS if isinstance(request.get(key), str)), None)
    return request if text is None else {"messages": [{"role": "user", "content": text}]}


def _logged(record: Mapping[str, object]) -> Mapping[str, object]:
    """Return the tokens that Bedrock's log counts beside the bodies."""
    return {
        f"{side}Tokens": mapping(record.get(side)).get(f"{side}TokenCount")
        for side in ("input", "output")
    }


def _is_system(message: said.Message) -> bool:
    return message.role in _SYSTEM


def _answered(response: Mapping[str, object]) -> Sequence[said.Message]:
    found = [
        one
        for one in read_response(mapping(response.get("output")).get("message", response))
        if one.role == "assistant" and (one.text is not None or one.calls)
    ]
    text = next((response[key] for key in _ANSWERS if isinstance(response.get(key), str)), None)
    return read_messages(text, role="assistant") if not found and text is not None else found


def _request_in(record: Mapping[str, object]) -> Mapping[str, object]:
    request = _held(record, _REQUESTS) or record
    return _held(request, _REQUESTS) or request


def _response_in(record: Mapping[str, object]) -> Mapping[str, object]:
    response = _held(record, _RESPONSES)
    if isinstance(chunks := response.get("outputBodyJson"), list):
        response = _assembled(objects(chunks))
    return _held(response, ("outputBodyJson", "body")) or response


def _tokens(usage: Mapping[str, object]) -> Tokens:
    def count(*names: str) -> object:
        return next((usage[name] for name in names if name in usage), None)

    details = mapping(count("input_tokens_details", "prompt_tokens_details"))
    return tokens(
        count("input_tokens", "inputTokens", "prompt_tokens"),
        count("output_tokens", "outputTokens", "completion_tokens"),
        count("cache_read_input_tokens", "cacheReadInputTokens") or details.get("cached_tokens"),
        count("cache_creation_input_tokens", "cacheWriteInputTokens"),
        apart="cache_read_input_tokens" in usage or "cacheReadInputTokens" in usage,
    )


def _conversations(calls: Sequence[_ModelCall]) -> list[Conversation]:
    """Return a conversation for each call that no other continues, with the tokens of those before."""
    alike: dict[str, list[_ModelCall]] = {}
    for call in calls:
        alike.setdefault(repr(call.asked[0]) if call.asked else "", []).append(call)
    found: list[Conversation] = []
    for group in alike.values():
        left = group
        while left:
            last = max(left, key=lambda call: len(call.asked))
            before = [one for one in left if _continues(last, one)]
            found.append(_conversation((*last.asked, *last.answered), [*before, last]))
            left = [one for one in left if one is not last and one not in before]
    return found


def _continues(later: _ModelCall, call: _ModelCall) -> bool:
    """Return whether a call's conversation is the beginning of a later one's, with what was answered."""
    size = len(call.asked)
    if len(later.asked) <= size or later.asked[:size] != call.asked:
        return False
    return not call.answered or _said(call.answered) == _said(later.asked[size:])


def _said(messages: Sequence[said.Message]) -> tuple[str, list[str | None]]:
    """Return the model's text and the tools that it called, at the beginning of messages."""
    own = [*takewhile(lambda one: one.role == "assistant", messages)]
    texts = (str(one.text.value or "") for one in own if one.text is not None)
    return "".join(texts).strip(), [call.name for one in own for call in one.calls]


def _conversation(
    messages: Sequence[said.Message], calls: Sequence[_ModelCall] = ()
) -> Conversation:
    ends: dict[int, list[_ModelCall]] = {}
    for call in calls:
        ends.setdefault(len(call.asked), []).append(call)
    found = [*conversation_of(calls[-1].system if calls else ())]
    for number, message in enumerate(messages):
        found += map(_used, ends.pop(number, []))
        found += conversation_of([message])
    found += (_used(call) for left in ends.values() for call in left)
    return Conversation(framework=NAME, messages=found)


def _used(call: _ModelCall) -> Message:
    return Message(role="assistant", model=call.model, tokens=call.tokens, failure=call.failure)
