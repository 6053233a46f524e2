"""The agent itself, served by tRPC-Agent-Go's protocol for remote agents: one request for each turn."""

import asyncio
import time
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from evaltap.experiments.server.app import RefusedError, body_of, responding
from evaltap.experiments.server.routing import Names, Route, answer
from evaltap.experiments.service.capture import COMPLETION, CapturedTurn
from evaltap.experiments.service.conversation import captured
from evaltap.experiments.service.kept_session import KeptSession
from evaltap.experiments.service.remote import BASE
from evaltap.experiments.service.runners import AgentCall, Runner
from evaltap.schemas.data import CaseData, Json, JsonObject, json_bytes
from evaltap.schemas.formats.message import Message
from evaltap.schemas.formats.model import FreeObject, WireModel

IDLE_SECONDS: Final = 3_600.0
MOST_SESSIONS: Final = 256


class Session(WireModel):
    """Who talks, in which conversation."""

    user_id: str = ""
    session_id: str = ""


class RunOptions(WireModel):
    """What a turn is run with."""

    request_id: str = ""
    execution_trace_enabled: bool = False
    force_prompt_engine_telemetry: bool = False
    runtime_state: FreeObject | None = None


class TurnRequest(WireModel):
    """The body of a request."""

    session: Session = Session()
    input: Message | None = None
    profile: Json = None
    run_options: RunOptions = RunOptions()


def agent_routes(app_name: str, runner: Runner, turn_seconds: float | None = None) -> list[Route]:
    """Return the route at which a remote evaluator runs the agent, turn by turn."""
    sessions = _Sessions(runner, turn_seconds)

    async def run(request: Request, names: Names) -> Response:
        if names["app"] != app_name:
            raise RefusedError(404, "not found")
        return await _answered(await body_of(TurnRequest, request), app_name, sessions)

    return [Route(f"{BASE}/{{app}}/runs", {"POST": responding(run)})]


def _refuse_nameless(session: Session) -> None:
    for name, value in (("userId", session.user_id), ("sessionId", session.session_id)):
        if not value:
            raise RefusedError(400, f"session.{name} is required")


async def _answered(asked: TurnRequest, app_name: str, sessions: "_Sessions") -> Response:
    session, said = asked.session, asked.input
    _refuse_nameless(session)
    if said is None or said.role != "user":
        raise RefusedError(400, "input.role must be user")
    if not said.content:
        raise RefusedError(400, "input.content is required: the agent is given text")
    if asked.profile:
        raise RefusedError(400, "profiles are not supported: the agent is run as it is")
    call = AgentCall(
        session.user_id,
        session.session_id,
        said.model_dump(by_alias=True),
        state=asked.run_options.runtime_state,
    )
    request_id = asked.run_options.request_id or str(uuid.uuid4())
    try:
        found = await sessions.ask(call)
    except RefusedError:
        raise
    except Exception as error:  # of the agent: it is what the request asks for
        why = str(error) or type(error).__name__
        found = CapturedTurn({"userContent": call.message}, f"the agent failed: {why}")
    events = _events(found, app_name, request_id)
    told = [one["choices"][0] for one in events if one["choices"] and one["object"] != COMPLETION]
    return answer(
        {
            "status": "failed" if found.error else "completed",
            "events": events,
            "messages": [call.message, *(one["message"] for one in told)],
            **({"errorMessage": found.error} if found.error else {}),
        }
    )


class _Sessions:
    """The open sessions of the agent, each with its user."""

    def __init__(self, runner: Runner, turn_seconds: float | None) -> None:
        self._runner, self._turn_seconds = runner, turn_seconds
        self._open: dict[str, tuple[str, KeptSession]] = {}

    async def ask(self, call: AgentCall) -> CapturedTurn:
        """Run a turn in its session, which is opened if it is not."""
        if call.session_id not in self._open:
            if len(self._open) >= MOST_SESSIONS:
                raise RefusedError(503, "too many sessions are open; try again later")
            made = KeptSession(self._runner, call, IDLE_SECONDS)
            self._open[call.session_id] = call.user_id, made
            made.task.add_done_callback(lambda _: self._open.pop(call.session_id, None))
        user_id, session = self._open[call.session_id]
        if user_id != call.user_id:
            raise RefusedError(400, "the session is that of another user")
        return await session.use(lambda turns: self._turn(turns, call))

    async def _turn(self, turns: Runner, call: AgentCall) -> CapturedTurn:
        limit = asyncio.timeout(self._turn_seconds)
        try:
            async with limit:
                return await captured(turns, call)
        except Exception:
            if limit.expired():
                raise TimeoutError(f"no answer within {self._turn_seconds} s") from None
            raise


def _events(found: CapturedTurn, app_name: str, request_id: str) -> list[JsonObject]:
    """Return the events that tell a turn: calls and results of tools, the answer, the end."""
    turn = found.turn
    invocation = turn.get("invocationId") or str(uuid.uuid4())
    made: list[JsonObject] = []

    def add(kind: str, message: Any, *, done: bool, **more: Any) -> None:  # JSON
        made.append(
            {
                "requestID": request_id,
                "invocationId": invocation,
                "author": app_name,
                "id": str(uuid.uuid4()),
                "timestamp": datetime.now(UTC).isoformat(),
                "created": int(time.time()),
                "object": kind,
                "is_partial": False,
                "done": done,
                "choices": [] if message is None else [{"index": 0, "message": message}],
                **more,
            }
        )

    for number, tool in enumerate(turn.get("tools") or (), 1):
        call_id = tool.get("id") or f"call-{number}"
        function = {"name": tool.get("name") or "", "arguments": _text(tool.get("arguments"), {})}
        call = {"id": call_id, "type": "function", "function": function}
        add(
            "chat.completion",
            {"role": "assistant", "content": "", "tool_calls": [call]},
            done=False,
        )
        result = {
            "role": "tool",
            "tool_id": call_id,
            "tool_name": function["name"],
            "content": _text(_result(tool), ""),
        }
        add("tool.response", result, done=False)
    final = turn.get("finalResponse")
    if found.error:
        error = {"type": "run_error", "message": found.error}
        add("error", None, done=True, error=error)
        add(COMPLETION, None, done=True, error=error)
    else:
        if final is not None:
            add("chat.completion", final, done=True)
        add(COMPLETION, final, done=True)
    return made


def _result(tool: CaseData) -> Json:
    error = tool.get("error")
    return tool.get("result") if error is None else {"error": error}


def _text(value: Json, instead: Json) -> str:
    given = instead if value is None else value
    return given if isinstance(given, str) else json_bytes(given).decode()
