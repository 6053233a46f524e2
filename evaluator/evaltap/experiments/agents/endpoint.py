"""Agents behind HTTP: OpenAI-compatible chat completions, and any endpoint by a template and a path.

An answer is JSON, a text, or server-sent events.  Without `--agent-result` it is read as in `plain`; of
events the last one counts.  With it, the texts found there in all events are one answer.
"""

import asyncio
import http.client
import json
import math
import os
import re
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, nullcontext
from email.message import Message as HttpHeaders
from typing import Any, Final

from evaltap.experiments.agents.base import Abilities, AgentError, AgentSession, Asked, Unit
from evaltap.experiments.agents.functions import called
from evaltap.experiments.agents.plain import Reported, recorded, reported, served_mocks, shown
from evaltap.recorder import Recorder
from evaltap.schemas.errors import InputError

KEY_VARIABLE: Final = "EVALTAP_AGENT_API_KEY"
_OPENAI: Final = re.compile(r"openai:(?P<model>.+?)@(?P<url>https?://\S+)")
_PLACEHOLDER: Final = re.compile(r"\{\{\s*(\w*)\s*\}\}")
_PLACEHOLDERS: Final = ("message", "messages", "session_id", "mocks_url")
_PATH: Final = re.compile(r"\$(?:\.[^.\[\]]+|\[\d+\])*")
_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_DEFAULT_REQUEST: Final = {"messages": "{{messages}}", "session_id": "{{session_id}}"}
_LONGEST_REPLY: Final = 16 * 1024 * 1024
_SOCKET_SECONDS: Final = 600.0
_BUSY: Final = (429, 503)
_MOST_TRIES: Final = 6
_LONGEST_PAUSE: Final = 60.0


class EndpointAgent:
    """An endpoint that is asked once for each turn; `body` makes what is sent, `read` reads the reply."""

    def __init__(
        self,
        url: str,
        body: Callable[[Asked, str], Any],  # JSON
        read: Callable[[str, str], Reported],
        abilities: Abilities,
        recorder: Recorder,
        key: str = "",
    ) -> None:
        self._url, self._body, self._read, self._key = url, body, read, key
        self._recorder = recorder
        self.abilities = abilities

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation; the endpoint keeps its memory, if it has one, by the session id."""
        with served_mocks() if self.abilities.served_mocks else nullcontext("") as url:
            yield _Session(self, url)

    async def answer(self, asked: Asked, mocks: str = "") -> str | None:
        """Ask the endpoint; one that is busy is asked again."""
        return await recorded(self._recorder, asked, self._reply(asked, mocks))

    async def _reply(self, asked: Asked, mocks: str) -> Reported:
        body = json.dumps(self._body(asked, mocks)).encode()
        for number in range(_MOST_TRIES):
            try:
                return self._read(*await called(self._post, body))
            except urllib.error.HTTPError as error:
                if error.code not in _BUSY or number + 1 == _MOST_TRIES:
                    raise refusal(self._url, error) from None
                await asyncio.sleep(pause_after(error.headers.get("Retry-After"), number))
        raise AssertionError  # the last try has returned or raised

    def _post(self, body: bytes) -> tuple[str, str]:
        accept = "application/json, text/event-stream"
        headers, data = post(
            self._url, body, self._key, accept, seconds=_SOCKET_SECONDS, longest=_LONGEST_REPLY
        )
        try:
            text = data.decode(headers.get_content_charset("utf-8"), errors="replace")
        except LookupError:  # nobody knows this charset
            text = data.decode(errors="replace")
        return headers.get_content_type(), text.removeprefix("\ufeff")


class _Session:
    def __init__(self, agent: EndpointAgent, mocks: str) -> None:
        self._agent, self._mocks = agent, mocks

    async def answer(self, asked: Asked) -> str | None:
        return await self._agent.answer(asked, self._mocks)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """Another host must not be sent the key."""

    def redirect_request(
        self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> None:
        return None


OPENER: Final = urllib.request.build_opener(_NoRedirects)
"""Follows no redirect."""


def post(
    url: str, body: bytes, token: str, accept: str, *, seconds: float, longest: int
) -> tuple[HttpHeaders, bytes]:
    """Send JSON to an agent; return the headers of its reply and the reply.

    Raises AgentError without a whole reply of at most `longest` bytes, and HTTPError for a refusal.
    """
    headers = {"Content-Type": "application/json", "Accept": accept}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        request = urllib.request.Request(url, body, headers)
        with OPENER.open(request, timeout=seconds) as response:
            data: bytes = response.read(longest + 1)
            told: HttpHeaders = response.headers
            missing: int | None = response.length
    except urllib.error.HTTPError:
        raise
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", None) or error or type(error).__name__
        raise AgentError(f"{url} cannot be reached: {reason}") from error
    if len(data) > longest:
        raise AgentError(f"{url} answered with more than {longest:,} bytes")
    if missing:  # of what Content-Length has promised
        raise AgentError(f"{url} broke off its answer after {len(data):,} bytes")
    return told, data


def refusal(url: str, error: urllib.error.HTTPError) -> AgentError:
    """Return what an answer with an error's status is to a run."""
    text = error.read(2_000).decode(errors="replace")
    return AgentError(f"{url} answered with status {error.code}: {shown(text)}")


def pause_after(asked_for: str | None, number: int) -> float:
    """Return how long to wait after a refusal: as long as asked for, otherwise longer with each try."""
    try:
        seconds = float(asked_for or "nan")
    except ValueError:
        seconds = math.nan
    return min(max(2.0**number if math.isnan(seconds) else seconds, 0.1), _LONGEST_PAUSE)


def openai_agent(text: str, recorder: Recorder) -> EndpointAgent:
    """Return the agent of `openai:MODEL@http://host/v1`; its key is in the environment only."""
    if (found := _OPENAI.fullmatch(text)) is None:
        raise InputError(f"--agent {text}: expected openai:MODEL@http://host/v1")
    model = found["model"]
    return EndpointAgent(
        f"{found['url'].rstrip('/')}/chat/completions",
        lambda asked, _: {"model": model, "messages": [*asked.messages]},
        lambda _, reply: _completion(reply, model),
        Abilities(context=True, tools=False),
        recorder,
        os.environ.get(KEY_VARIABLE, ""),
    )


def _completion(text: str, model: str) -> Reported:
    data = _json(text)
    try:
        message = data["choices"][0]["message"]
        answer = message.get("content") or message.get("refusal")
    except (LookupError, TypeError, AttributeError):
        answer = None
    if not isinstance(answer, str):
        raise AgentError(f"the model's reply {shown(text)} has no text in choices[0].message")
    usage = data.get("usage") or {}
    return Reported(
        answer,
        usage={
            "model": data.get("model") or model,
            "input_tokens": usage.get("prompt_tokens"),
            "output_tokens": usage.get("completion_tokens"),
        },
    )


def http_agent(url: str, recorder: Recorder, request: Any, result: str) -> EndpointAgent:
    """Return the agent of an HTTP address: `request` is the template of what is sent, None the default;
    `result` is the path to the answer.

    Raises InputError if either is wrong.
    """
    template = _DEFAULT_REQUEST if request is None else request
    names = {name for one in _texts(template) for name in _PLACEHOLDER.findall(one)}
    if unknown := sorted(names.difference(_PLACEHOLDERS)):
        raise InputError(
            f"--agent-request: no placeholder {unknown[0]!r}; known: {', '.join(_PLACEHOLDERS)}"
        )
    if not names & {"message", "messages"}:
        raise InputError("--agent-request: has neither {{message}} nor {{messages}}")
    if result and not _PATH.fullmatch(result):
        raise InputError(f"--agent-result {result}: expected a path such as $.output.text")
    return EndpointAgent(
        url,
        lambda asked, mocks: filled(template, asked, mocks),
        lambda kind, reply: _read(kind, reply, result),
        Abilities(context="messages" in names, tools=not result, served_mocks="mocks_url" in names),
        recorder,
    )


def _texts(template: Any) -> Iterator[str]:
    if isinstance(template, str):
        yield template
    elif isinstance(template, Mapping):
        for value in template.values():
            yield from _texts(value)
    elif isinstance(template, list):
        for value in template:
            yield from _texts(value)


def filled(template: Any, asked: Asked, mocks: str = "") -> Any:
    """Return a template with its placeholders filled; one that is a whole text keeps its type."""
    values = {
        "message": asked.user,
        "messages": [*asked.messages],
        "session_id": asked.unit.session_id,
        "mocks_url": mocks,
    }
    if isinstance(template, str):
        if (whole := _PLACEHOLDER.fullmatch(template)) is not None:
            return values[whole[1]]
        return _PLACEHOLDER.sub(lambda found: _as_text(values[found[1]]), template)
    if isinstance(template, Mapping):
        return {name: filled(value, asked, mocks) for name, value in template.items()}
    if isinstance(template, list):
        return [filled(value, asked, mocks) for value in template]
    return template


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _read(kind: str, reply: str, result: str) -> Reported:
    """Return the answer in a reply of a content type."""
    parts = [*_events(reply)] if kind == "text/event-stream" else [reply]
    if not parts:
        raise AgentError("the endpoint sent no event with data")
    if result:
        found = [_at(_json(one), result) for one in parts]
        if not (texts := [one for one in found if isinstance(one, str)]):
            raise AgentError(f"{result} is no text in the endpoint's reply {shown(parts[-1])}")
        return Reported("".join(texts))
    if kind != "application/json":
        try:
            data = json.loads(parts[-1])
        except ValueError:
            data = None
        if not isinstance(data, str | dict):  # a text that reads like a number is one, too
            return Reported(parts[-1])
    else:
        data = _json(parts[-1])
    return Reported(data) if isinstance(data, str) else reported(data)


def _events(text: str) -> Iterator[str]:
    """Yield the data of server-sent events, without OpenAI's end mark."""
    for event in re.split(r"(?:\r\n|\r|\n){2}", text):
        lines = [one.removeprefix("data:") for one in event.splitlines() if one.startswith("data:")]
        data = "\n".join(one.removeprefix(" ") for one in lines)
        if data and data != "[DONE]":
            yield data


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise AgentError(f"the endpoint answered {shown(text)}; expected JSON") from None


def _at(data: Any, path: str) -> Any:
    """Return what is at a path, None if there is nothing."""
    for name, index in _STEP.findall(path):
        try:
            data = data[name if name else int(index)]
        except (LookupError, TypeError):
            return None
    return data
