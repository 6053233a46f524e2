"""A decorator for the tools of hand-written loops: their calls are recorded in the turn under way.

    @tool
    def get_order(order_id): ...

    with recorder.turn(user="Where is A-100?") as turn:
        get_order("A-100")

Outside of a turn the function is called and nothing else happens.
"""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from evaltap.recorder.turn_api import ToolCall, Turn

UNDER_WAY: ContextVar["Turn | None"] = ContextVar("evaltap_turn", default=None)
"""The turn that this context works for."""

_Tool = TypeVar("_Tool", bound=Callable[..., Any])


def tool(function: _Tool) -> _Tool:
    """Record each call of a function, plain or `async`, in the turn around it.

    Arguments are recorded by name, `self` left out.  What the function returns and raises reaches the
    caller unchanged.
    """

    @functools.wraps(function)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        with _Recorded(function, args, kwargs) as call:
            return call.keep(await function(*args, **kwargs))

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with _Recorded(function, args, kwargs) as call:
            return call.keep(function(*args, **kwargs))

    return cast(_Tool, awaited if inspect.iscoroutinefunction(function) else plain)


class _Recorded:
    """One call of a decorated function; the methods of turns and calls never raise."""

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        self._function, self._args, self._kwargs = function, args, kwargs
        self._call: ToolCall | None = None

    def keep(self, result: Any) -> Any:
        """Record the result and pass it on."""
        if self._call is not None:
            self._call.returned(result)
        return result

    def __enter__(self) -> "_Recorded":
        turn = UNDER_WAY.get()
        if turn is not None:
            self._call = turn.tool(self._function.__name__, self._arguments())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._call is not None and isinstance(error, Exception):
            self._call.failed(error)

    def _arguments(self) -> dict[str, Any]:
        try:
            bound = inspect.signature(self._function).bind(*self._args, **self._kwargs)
        except (TypeError, ValueError):
            # The call is about to fail for it, or the function hides its signature.
            return dict(self._kwargs)
        return {name: value for name, value in bound.arguments.items() if name != "self"}
