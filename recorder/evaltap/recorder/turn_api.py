"""The plain API: record a turn from your own loop.

    with recorder.turn(session_id="s-1", user="Where is my order?") as turn:
        turn.tool("get_order", {"id": "A-100"}, result={"status": "shipped"})
        turn.respond("It has shipped.")

Every method may be called from any thread, accepts any object, and never raises. An exception in
the block is recorded as the turn's error and propagates unchanged.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar, Token
from types import AsyncGeneratorType, GeneratorType, TracebackType
from typing import Any, TypeVar, cast

from evaltap.recorder.answering import RUN, tool_answers
from evaltap.recorder.copying import name as named
from evaltap.recorder.faults import Guard
from evaltap.recorder.media import MAX_PARTS
from evaltap.recorder.observation import UNSEEN, Origin, failure_of
from evaltap.recorder.protocols import Recording
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import Tokens
from evaltap.schemas.chat.media import MediaPart, media, media_in
from evaltap.schemas.data import JsonObject

_ORIGIN = Origin(framework="plain", convention="evaltap")


class ToolCall:
    """A tool call in progress; use it to record how the call ended."""

    __slots__ = ("_turn", "id")

    def __init__(self, turn: "Turn", call_id: str) -> None:
        self.id = call_id
        self._turn = turn

    def belongs_to(self, turn: "Turn") -> bool:
        """Return whether this is a call of that turn."""
        return self._turn is turn

    def returned(self, result: object) -> None:
        """Record the result; the duration is the time since the call started."""
        self._turn.tool_result(self, result)

    def failed(self, error: object) -> None:
        """Record the failure, an exception or a text."""
        self._turn.tool_result(self, error=error)


class Turn:
    """One user message and what the agent did in response; create it with `Recorder.turn`."""

    def __init__(
        self,
        recorder: Recording,
        *,
        user: str | None,
        parts: Sequence[object],
        session_id: str | None,
        user_id: str | None,
        app_name: str | None,
        agent: str | None,
        invocation_id: str | None,
        state: JsonObject | None,
    ) -> None:
        self._recorder = recorder
        self._run = ObservedRun(
            recorder,
            _ORIGIN,
            session_id=session_id,
            app_name=app_name,
            user_id=user_id,
            agent_name=agent,
            state=state,
            invocation_id=invocation_id,
            begin_now=False,
        )
        self.run_id = self._run.run_id
        self._session_id = named(session_id) or self.run_id
        self._invocation_id = named(invocation_id) or self.run_id
        self._app_name = app_name
        self._numbers = itertools.count(1)
        self._with_id: dict[str, ToolCall] = {}
        """By id, the last call that the model gave it."""
        self._user, self._parts = user, parts
        self._before: Token[Turn | None] | None = None
        self.tool_answers = tool_answers()
        """Who answers the calls of `run_tool`, in whatever thread; None outside of a replay."""
        self.answer: str | None = None
        """The last answer that `respond` was given."""
        self.answers = 0
        """How often `respond` was called."""
        self.tools = 0
        """How many tool calls were recorded."""

    def tool(
        self,
        name: str,
        arguments: object = None,
        *,
        id: str | None = None,
        result: object = UNSEEN,
        error: object = None,
        duration_ms: float | None = None,
        agent: str | None = None,
        parent: ToolCall | str | None = None,
    ) -> ToolCall:
        """Record a tool call and, given `result` or `error`, how it ended.

        `id` is the id the model gave the call; `parent` is the agent-as-tool call in which a
        sub-agent made this one, by default the call of `run_tool` or a decorated tool that runs here.
        """
        generated_id = f"{self.run_id}.{next(self._numbers)}"
        self.tools += 1
        # The id becomes a dict key, and hashing a foreign object may run arbitrary code.
        id = named(id)
        call = ToolCall(self, generated_id)
        with Guard(self._recorder.report_fault, "turn.tool"):
            has_returned = result is not UNSEEN or error is not None
            around = _CURRENT_CALL.get() if parent is None else None
            if around is not None and around.belongs_to(self):
                parent = around
            earlier = self._with_id.get(id or "")
            call.id = self._run.tool_called(
                id,
                name,
                UNSEEN if arguments is None else arguments,
                agent=agent,
                parent=self._key_of(parent),
                generated_id=generated_id,
                expects_id=False,
                is_open=not has_returned,
                key=earlier.id if earlier is not None and self._run.is_open(earlier.id) else None,
            )
            if id is not None:
                self._with_id[id] = call
            if has_returned:
                self._returned(call.id, result, error, duration_ms)
        return call

    def tool_result(
        self,
        call: ToolCall | str,
        result: object = UNSEEN,
        *,
        error: object = None,
        duration_ms: float | None = None,
    ) -> None:
        """Record how a call ended; `call` is the object that `tool` returned, or the id passed to it."""
        with Guard(self._recorder.report_fault, "turn.tool_result"):
            self._returned(self._key_of(call) or "", result, error, duration_ms)

    def run_tool(
        self, name: str, arguments: Mapping[str, Any], function: Callable[..., Any]
    ) -> Any:  # whatever the function returns
        """Call `function(**arguments)` as a tool: record call, result or error, and time.

        Returns what the function returns, and raises what it raises; an `async` function is recorded
        when it is awaited.  In a replay, the recording answers in place of the function.
        """
        recorded = _RecordedCall(_Described(function), (), dict(arguments), name=name, turn=self)
        if inspect.iscoroutinefunction(function):

            async def awaited() -> object:
                with recorded as call:
                    found = call.answer()
                    return call.record_result(
                        await function(**arguments) if found is RUN else found
                    )

            return awaited()
        with recorded as call:
            found = call.answer()
            return call.record_result(function(**arguments) if found is RUN else found)

    def model(
        self,
        model: str | None = None,
        *,
        text: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cache_read_tokens: int | None = None,
        cache_write_tokens: int | None = None,
        cost_usd: float | None = None,
        agent: str | None = None,
        reasoning: str | None = None,
    ) -> None:
        """Record a model call; `text` is its message apart from the tool calls.

        `input_tokens` counts all of them, including those read from the provider's cache
        (`cache_read_tokens`) and written to it (`cache_write_tokens`). `reasoning` is recorded only
        with `capture_reasoning`.
        """
        with Guard(self._recorder.report_fault, "turn.model"):
            self._run.model_called(
                model,
                text=text,
                tokens=Tokens(input_tokens, output_tokens, cache_read_tokens, cache_write_tokens),
                cost_usd=cost_usd,
                agent=agent,
                reasoning=reasoning,
            )

    def context(self, text: str) -> None:
        """Record the model's instructions, or other context from outside the conversation.

        A session stores its first ones, and later ones only when they change.
        """
        with Guard(self._recorder.report_fault, "turn.context"):
            self._run.context_message(text)

    def set_state(self, state: JsonObject) -> None:
        """Record the session state to compare after the turn; the last one wins."""
        with Guard(self._recorder.report_fault, "turn.set_state"):
            self._run.state(state)

    def respond(
        self, text: str | None, *, parts: Sequence[object] = (), reasoning: str | None = None
    ) -> None:
        """Record the answer to the user; the last one wins.

        `parts` are its images, audio and files, as in `Recorder.turn`. `reasoning` is recorded only
        with `capture_reasoning`.
        """
        self.answers += 1
        self.answer = text
        with Guard(self._recorder.report_fault, "turn.respond"):
            self._run.answer(text, _media(parts), reasoning)

    def feedback(
        self,
        *,
        positive: bool | None = None,
        score: float | None = None,
        comment: str | None = None,
        correction: str | None = None,
        name: str = "feedback",
        given_by: str | None = None,
    ) -> str:
        """Record the user's feedback on this turn, during it or later; see `Recorder.feedback`."""
        return self._recorder.feedback(
            self._session_id,
            turn=self._invocation_id,
            positive=positive,
            score=score,
            comment=comment,
            correction=correction,
            name=name,
            given_by=given_by,
            app_name=self._app_name,
        )

    def __enter__(self) -> "Turn":
        """Begin the turn."""
        self._before = CURRENT_TURN.set(self)
        with Guard(self._recorder.report_fault, "turn"):
            self._run.begin()
            self._run.user_message(self._user, _media(self._parts))
        return self

    def __exit__(self, _: object, error: BaseException | None, *more: object) -> None:
        """End the turn: ok, error with the exception, or incomplete when it was interrupted."""
        if self._before is not None:
            # The turn ends in another context than it started in, so there is nothing to reset.
            with suppress(ValueError, RuntimeError):
                CURRENT_TURN.reset(self._before)
        with Guard(self._recorder.report_fault, "turn"):
            if error is None:
                self._run.end()
            else:
                self._run.end_with(error)

    async def __aenter__(self) -> "Turn":
        """Begin the turn, in `async with`."""
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the turn, in `async with`."""
        self.__exit__(kind, error, traceback)

    def _key_of(self, call: ToolCall | str | None) -> str | None:
        """Return the key of a call, or of the last one with this id."""
        if type(call) is ToolCall:
            return call.id
        call_id = named(call)
        known = self._with_id.get(call_id or "")
        return call_id if known is None else known.id

    def _returned(self, key: str, result: object, error: object, duration_ms: float | None) -> None:
        failure = failure_of(error) if error is not None else None
        self._run.tool_returned(key, result, failure, duration_ms=duration_ms)


def _media(parts: Sequence[object]) -> list[MediaPart]:
    """Return the parts to record; one beyond the limit marks that more were dropped."""
    given = parts[: MAX_PARTS + 1] if type(parts) in (list, tuple) else [parts]
    found = (_medium(part) for part in given)
    return [part for part in found if part is not None]


def _medium(part: object) -> MediaPart | None:
    if type(part) is not dict:
        return media(data=part)
    seen, kind = media_in(part), part.get("type")
    is_text = type(kind) is str and kind == "text"
    return MediaPart() if seen is None and not is_text else seen


CURRENT_TURN: ContextVar["Turn | None"] = ContextVar("evaltap_turn", default=None)
"""The turn in progress in this context."""
_CURRENT_CALL: ContextVar[ToolCall | None] = ContextVar("evaltap_tool_call", default=None)
"""The call that runs in this context."""

_Tool = TypeVar("_Tool", bound=Callable[..., Any])


def tool(function: _Tool) -> _Tool:
    """Record each call of a function, sync or `async`, in the current turn.

    Arguments are recorded by name, without `self` and `cls`. Return values and exceptions reach the
    caller unchanged. What a generator yields is not recorded: its result is missing.  In a replay, the
    recording answers in place of the function.

    >>> from evaltap.recorder import MemorySink, Recorder
    >>> @tool
    ... def get_order(order_id):
    ...     return {"status": "shipped"}
    >>> sink = MemorySink()
    >>> with Recorder(sink=sink) as recorder, recorder.turn(session_id="s-1", user="Where is it?"):
    ...     status = get_order("A-100")
    >>> sink.cases[0]["actualConversation"][0]["tools"][0]["arguments"]
    {'order_id': 'A-100'}
    """

    described = _Described(function)

    @functools.wraps(function)
    async def awaited(*args: object, **kwargs: object) -> object:
        with _RecordedCall(described, args, kwargs) as call:
            found = call.answer()
            return call.record_result(await function(*args, **kwargs) if found is RUN else found)

    @functools.wraps(function)
    def plain(*args: object, **kwargs: object) -> object:
        with _RecordedCall(described, args, kwargs) as call:
            found = call.answer()
            return call.record_result(function(*args, **kwargs) if found is RUN else found)

    return cast(_Tool, awaited if inspect.iscoroutinefunction(function) else plain)


class _Described:
    """The name and parameters of a decorated callable: a function, a class, a partial, an object."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._signature: inspect.Signature | None = None
        # A signature is computed by any code the callable brings, and evaluates annotations from
        # Python 3.14 on: it may fail with any exception, which must not keep the tool from running.
        with suppress(Exception):
            self._signature = inspect.signature(function)
        while isinstance(function, functools.partial):
            function = function.func
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))

    def arguments(self, args: tuple[Any, ...], kwargs: JsonObject) -> JsonObject:
        """Return the arguments of a call by name."""
        if self._signature is None:
            return dict(kwargs)
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError:  # the call is about to fail for the same reason
            return dict(kwargs)
        given = dict(bound.arguments)
        given.pop("self", None)
        if issubclass(type(given.get("cls")), type):
            del given["cls"]
        for parameter in self._signature.parameters.values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                given |= given.pop(parameter.name, {})
        return given


class _RecordedCall:
    """One call of a decorated function; the turn and call methods it uses never raise."""

    def __init__(
        self,
        described: _Described,
        args: tuple[Any, ...],
        kwargs: JsonObject,
        *,
        name: str | None = None,
        turn: Turn | None = None,
    ) -> None:
        self._described, self._args, self._kwargs = described, args, kwargs
        self._name, self._turn = name or described.name, turn
        self._call: ToolCall | None = None
        self._before: Token[ToolCall | None] | None = None

    def answer(self) -> Any:  # what the function would return
        """Return the result that a replay has for this call, or `RUN`; raise as it failed."""
        answers = tool_answers() if self._turn is None else self._turn.tool_answers
        if answers is None:
            return RUN
        arguments = self._described.arguments(self._args, self._kwargs)
        return answers.answer(self._name, arguments, function=self._described.function)

    def record_result(self, result: object) -> object:
        """Record the result and return it; a generator's items are not seen."""
        if self._call is not None:
            items_follow = type(result) in (GeneratorType, AsyncGeneratorType)
            self._call.returned(UNSEEN if items_follow else result)
        return result

    def __enter__(self) -> "_RecordedCall":
        turn = self._turn or CURRENT_TURN.get()
        if turn is not None:
            arguments = self._described.arguments(self._args, self._kwargs)
            self._call = turn.tool(self._name, arguments)
            self._before = _CURRENT_CALL.set(self._call)
        return self

    def __exit__(self, _: object, error: BaseException | None, *more: object) -> None:
        if self._before is not None:
            # An abandoned coroutine is closed in another context than it ran in.
            with suppress(ValueError, RuntimeError):
                _CURRENT_CALL.reset(self._before)
        if self._call is not None and isinstance(error, Exception):
            self._call.failed(error)
