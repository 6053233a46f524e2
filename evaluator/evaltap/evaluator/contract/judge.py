"""The judge: a model that answers one request with text, and how a metric finds it.

`Judge` is the protocol; `OpenAIJudge` (in `judges.openai`) is the shipped client and `ScriptedJudge` its
in-memory twin; the package `judges` contains the layers around a client.  The metric's `judgeModel` names
the model, and the environment overrides it.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Protocol, runtime_checkable

from evaltap.evaluator.waiting import in_thread
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.formats.metric import GenerationConfig

DEFAULT_GENERATION: Final = GenerationConfig(max_tokens=2000, temperature=0.0)
"""What a metric without a generation config asks with: the same question, the same answer."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One question to a judge: a single user message, and the JSON it should answer with."""

    prompt: str
    answer_name: str = ""
    answer_schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer; None for free text.  A judge may ignore it, so callers check."""
    generation: GenerationConfig = DEFAULT_GENERATION
    nonce: str = ""
    """The random word of the fences in `prompt`: two requests that differ in it only are the same."""
    sample: int = 0
    """Number of this request among those that ask the same thing; each wants an answer of its own."""
    version: str = ""
    """Version of the question and of what reads its answer."""
    check: Callable[[str], object] | None = field(default=None, compare=False, repr=False)
    """Raises JudgeInvalid for an answer that cannot be used; without it every answer can."""
    form: int = 0
    """How much simpler than a JSON Schema the form of answer has to be: set when one was refused."""


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What a judge answered, and what the answer cost as far as it is known."""

    text: str
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency: timedelta | None = None
    cost_usd: float | None = None
    """None when the price of the model is not known; 0 for an answer that was kept from before."""
    cached: bool = False
    """The answer was paid for before: tokens and cost are 0 now."""
    saved_usd: float | None = None
    """What a kept answer cost when it was given."""


@runtime_checkable
class Judge(Protocol):
    """Answers requests; `answer` is called from several threads at a time.

    A judge that waits only through `evaltap.evaluator.waiting` may set `shares_thread = True`; any
    other gets a thread for each request.
    """

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer, or raise a JudgeError; any other exception is a fault of the judge."""
        ...


def ask(judge: Judge, request: JudgeRequest) -> JudgeReply:
    """Return what a judge answers, while others that share this thread continue."""
    if getattr(judge, "shares_thread", False):
        return judge.answer(request)
    return in_thread(judge.answer, request)


class ScriptedJudge:
    """A judge in memory, for tests and dry runs: it answers from a script and keeps the requests.

    The script is a function of the request, or replies in order; a reply that is an exception is
    raised.  Without replies left it raises JudgeError.
    """

    def __init__(
        self,
        script: Callable[[JudgeRequest], "JudgeReply | str"]
        | Iterable["JudgeReply | str | Exception"],
    ) -> None:
        self._function = script if callable(script) else None
        self._replies = iter(()) if callable(script) else iter(script)
        self._lock = threading.Lock()
        self.requests: list[JudgeRequest] = []

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the next reply of the script."""
        with self._lock:
            self.requests.append(request)
            reply = None if self._function else next(self._replies, None)
        if self._function:
            reply = self._function(request)
        if reply is None:
            raise JudgeError(f"the script ended after {len(self.requests) - 1} replies")
        if isinstance(reply, Exception):
            raise reply
        return JudgeReply(reply) if isinstance(reply, str) else reply


class JudgeError(EvaltapError):
    """Base of errors that leave a case without a judge's verdict; the score is then NULL, never 0."""

    exit_code = 3
    reply: "JudgeReply | None" = None
    """What the judge answered, where it answered: it may have cost something."""


class JudgeNotConfigured(JudgeError):
    """Report that no judge model is named, or neither its base URL nor its key."""


class JudgeUnavailable(JudgeError):
    """Report a judge that could not be reached, was overloaded or did not answer in time.

    `retry_after` is what the server asked to wait; `maybe_billed` says that it may have done the work.
    """

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, maybe_billed: bool = False
    ) -> None:
        self.retry_after = retry_after
        self.maybe_billed = maybe_billed
        super().__init__(message)


class JudgeRejected(JudgeError):
    """Report a request that the judge's endpoint refused (key, model or parameters)."""


class AnswerFormRefusedError(JudgeRejected):
    """Report a server that does not know the form of answer; `simpler` asks for a simpler one."""

    def __init__(self, message: str, simpler: "JudgeRequest") -> None:
        self.simpler = simpler
        super().__init__(message)


class BudgetSpentError(JudgeError):
    """Report a request that was not made, as it could have cost more than is left."""


class JudgeInvalid(JudgeError):
    """Report an answer that holds no usable verdict; `reply` tells what it cost, where that is known."""

    def __init__(self, message: str, *, reply: "JudgeReply | None" = None) -> None:
        self.reply = reply
        super().__init__(message)
