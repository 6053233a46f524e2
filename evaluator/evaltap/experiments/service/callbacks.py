"""Callbacks before and after the steps of an evaluation: eight points, as in tRPC-Agent-Go.

callbacks = Callbacks()
callbacks.add("log", after_inference_case=lambda call: print(call.eval_case_id, call.result.status))
"""

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Final, Literal, TypeAlias, TypeVar

from evaltap.experiments.service.requests import ServiceError

Found = TypeVar("Found")

POINTS: Final = (
    "before_inference_set",
    "before_inference_case",
    "after_inference_case",
    "after_inference_set",
    "before_evaluate_set",
    "before_evaluate_case",
    "after_evaluate_case",
    "after_evaluate_set",
)
"""In the order in which they are called: for each run, and at the case points for each case."""


@dataclass(frozen=True, slots=True)
class CallbackCall:
    """What a callback is given; which fields are set depends on the point."""

    point: str
    request: Any
    """The InferenceRequest or EvaluateRequest; before the set, it may be edited."""
    context: Any = None
    """What an earlier callback of this phase returned as its context."""
    eval_case_id: str = ""
    session_id: str = ""
    inference: Any = None
    """After the evaluation of a case: its InferenceResult."""
    result: Any = None
    """After a case: its InferenceResult or EvalCaseResult; after evaluating a set: its SetRunResult."""
    results: Any = None
    """After the inference of a set: its InferenceResults."""
    error: Exception | None = None
    """Why the set failed; the failure of a case is in its result."""
    started: datetime | None = None
    """After-points: when the step began."""


@dataclass(frozen=True, slots=True)
class CallbackResult:
    """What a callback may return."""

    context: Any = None
    """For later callbacks of this phase; from a set's point, also those of its cases.  A later result of the
    point without a context takes it away from them.
    """
    result: Any = None
    """After a case: replaces its result."""


Callback: TypeAlias = Callable[[CallbackCall], CallbackResult | Awaitable[Any] | None]
"""Called on the event loop in order of registration; an exception ends the point.

At a case's point it fails this case, at a set's point the whole call.  An after-point is called whenever its
before-point has succeeded.
"""


@dataclass(slots=True)
class Callbacks:
    """Callbacks by point, in the order of their registration."""

    _added: dict[str, list[tuple[str, Callback]]] = field(default_factory=dict)

    def add(self, name: str, **callbacks: Callback) -> None:
        """Register callbacks under a name, by point: `add("log", before_inference_set=…)`."""
        for point, callback in callbacks.items():
            if point not in POINTS:
                raise TypeError(f"no callback point {point!r}; there are: {', '.join(POINTS)}")
            self._added.setdefault(point, []).append((name, callback))

    def copy(self) -> "Callbacks":
        """Return these callbacks, to which others can be added."""
        return Callbacks({point: [*added] for point, added in self._added.items()})

    async def around(
        self,
        step: Literal["inference", "evaluate"],
        request: Any,
        work: Callable[[Any], Awaitable[Found]],
    ) -> Found:
        """Do a step between the callbacks of its set; raise what it raises once those after it have run."""
        before = await self.run(CallbackCall(f"before_{step}_set", request))
        after = CallbackCall(
            f"after_{step}_set", request, before.context, started=datetime.now(UTC)
        )
        try:
            found = await work(before.context)
        except Exception as error:
            await self.run(replace(after, error=error))
            raise
        is_list = step == "inference"
        await self.run(replace(after, results=found) if is_list else replace(after, result=found))
        return found

    async def around_case(
        self,
        call: CallbackCall,
        work: Callable[[], Awaitable[Found]],
        failed: Callable[[Found | None, str], Found],
        **after: Any,  # fields of CallbackCall
    ) -> Found:
        """Do the step that the call has as its point, between the callbacks of its case.

        If one of them fails, return what `failed` makes of the step's result, None before it.
        """
        step = call.point
        try:
            before = await self.run(replace(call, point=f"before_{step}_case"))
        except ServiceError as error:
            return failed(None, str(error))
        call = replace(call, point=f"after_{step}_case", context=before.context, **after)
        call = replace(call, started=datetime.now(UTC))
        result = await work()
        try:
            instead = (await self.run(replace(call, result=result))).result
        except ServiceError as error:
            return failed(result, str(error))
        found: Found = result if instead is None else instead
        return found

    async def run(self, call: CallbackCall) -> CallbackResult:
        """Run the callbacks of a point; return the context from here on and what replaces the result.

        Raises ServiceError with the name of the callback that failed.
        """
        given, last = call.context, CallbackResult(call.context)
        for index, (name, callback) in enumerate(self._added.get(call.point, ())):
            try:
                returned: Any = callback(replace(call, context=given))
                if inspect.isawaitable(returned):
                    returned = await returned
            except Exception as error:  # whatever the user's callback raises ends the point
                where = f"{call.point} callback[{index}] ({name})"
                raise ServiceError(f"{where}: {type(error).__name__}: {error}") from error
            if returned is None:
                continue
            if returned.context is not None:
                given = returned.context
            context = call.context if returned.context is None else returned.context
            kept = last.result if returned.result is None else returned.result
            last = CallbackResult(context, kept)
            if returned.result is not None:
                call = replace(call, result=returned.result)
        return last
