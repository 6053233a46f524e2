"""An agent on another host that speaks tRPC-Agent-Go's protocol for remote agents."""

import json
import urllib.error
import uuid
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlsplit

from evaltap.experiments.agents.base import AgentError
from evaltap.experiments.agents.endpoint import post, refusal
from evaltap.experiments.agents.functions import called
from evaltap.experiments.agents.plain import shown
from evaltap.experiments.service.capture import COMPLETION, Event
from evaltap.experiments.service.runners import AgentCall
from evaltap.recorder.answering import TOOL_ANSWERS
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import ConfigurationError

BASE: Final = "/trpc-agent/v1/apps"
_LONGEST_REPLY: Final = 64 * 1024 * 1024


class RemoteAgent:
    """A runner of an app behind `POST {url}/trpc-agent/v1/apps/{app}/runs`.

        AgentEvaluator("shop", RemoteAgent("http://agents:8080", "shop"), stores=stores)

    The protocol carries the user's message, the session and its state.  It has no place for context messages
    and tool mocks, so cases with these fail instead of running without.  `token` is sent as a bearer token,
    and `timeout_seconds` is for one turn.  Raises ConfigurationError for what is no HTTP address.
    """

    def __init__(
        self, url: str, app: str, *, token: str = "", timeout_seconds: float = 600.0
    ) -> None:
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            raise ConfigurationError(f"remote agent {url!r}: expected http://HOST:PORT")
        self._url = f"{url.rstrip('/')}{BASE}/{quote(app, safe='')}/runs"
        self._token, self._timeout = token, timeout_seconds

    async def __call__(self, call: AgentCall) -> Sequence[Event]:
        """Run one turn and return its events."""
        if call.context_messages:
            raise ConfigurationError("a remote agent takes no context messages; leave them out")
        if TOOL_ANSWERS.get() is not None:
            raise ConfigurationError("a remote agent's tools cannot be mocked; leave toolMock out")
        request_id = str(uuid.uuid4())
        options: JsonObject = {"requestID": request_id}
        if call.state:
            options["runtimeState"] = dict(call.state)
        body = {
            "session": {"userId": call.user_id, "sessionId": call.session_id},
            "input": {"role": "user", **call.message},
            "runOptions": options,
        }
        reply = await called(self._post, json.dumps(body).encode())
        return _events(reply, request_id)

    def _post(self, body: bytes) -> bytes:
        try:
            _, data = post(
                self._url,
                body,
                self._token,
                "application/json",
                seconds=self._timeout,
                longest=_LONGEST_REPLY,
            )
        except urllib.error.HTTPError as error:
            raise refusal(self._url, error) from None
        return data


def _events(reply: bytes, request_id: str) -> list[Event]:
    try:
        data: Any = json.loads(reply)
        events = data["events"]
        last = events[-1]
        ids = {one["requestID"] for one in events}
        is_complete = last["object"] == COMPLETION and last["done"]
    except (ValueError, LookupError, TypeError):
        raise AgentError(
            f"the remote agent answered {shown(reply.decode(errors='replace'))}; expected events"
        ) from None
    if ids != {request_id}:
        raise AgentError("the remote agent answered with events of another request")
    if not is_complete:
        raise AgentError(f"the remote agent's last event is no {COMPLETION}")
    return list(events)
