"""The judge: a model that answers a request with text.

`Judge` is the protocol; `OpenAIJudge` (in `judges.openai`) is the shipped client and `ScriptedJudge` its
in-memory twin; the package `judges` contains the layers around a client.  The metric's `judgeModel` names
the model, and the environment overrides it.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable

import orjson

from evaltap.evaluator.scoring.waiting import in_thread
from evaltap.schemas.errors import ConfigurationError, EvaltapError
from evaltap.schemas.formats.metric import GenerationConfig

DEFAULT_GENERATION: Final = GenerationConfig(max_tokens=2000, temperature=0.0)
"""The generation settings of a metric without its own: temperature 0, so that answers are reproducible."""


@dataclass(frozen=True, slots=True)
class JudgeRequest:
    """One question to a judge: a single user message, and the JSON expected as the answer."""

    prompt: str
    answer_name: str = ""
    answer_schema: Mapping[str, Any] | None = None
    """JSON Schema of the answer; None for free text.  A judge may ignore it, so callers validate answers."""
    generation: GenerationConfig = DEFAULT_GENERATION
    nonce: str = ""
    """The random word of the fences in `prompt`; requests that differ only in it count as the same."""
    sample: int = 0
    """Number of this request among repeated samples of one question; each sample needs its own answer."""
    version: str = ""
    """Version of the question and of the code that reads its answer."""
    check: Callable[[str], object] | None = field(default=None, compare=False, repr=False)
    """Raises JudgeInvalid for an unusable answer; without it every answer is accepted."""
    tokens: bool = False
    """Whether the answer must tell the probabilities of its tokens: it is then the text of `token_text`."""
    form: int = 0
    """How much simpler than a JSON Schema the answer's form must be; raised after a server rejected a
    form."""


class TokenChoice(NamedTuple):
    """A token that a judge said, or might have said in its place, and the logarithm of its probability."""

    text: str
    logprob: float


def token_text(tokens: Iterable[Sequence[TokenChoice]]) -> str:
    """Return the answer to a request with `tokens`: for each token its candidates, the one said first."""
    return orjson.dumps({"tokens": [[*map(list, one)] for one in tokens]}).decode()


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """A judge's answer, and its cost as far as it is known."""

    text: str
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency: timedelta | None = None
    cost_usd: float | None = None
    """None if the price of the model is unknown; 0 for a cached answer."""
    cached: bool = False
    """Whether the answer had already been paid for; tokens and cost are then 0."""
    saved_usd: float | None = None
    """The original cost of a cached answer."""


@runtime_checkable
class Judge(Protocol):
    """Answers requests; `answer` is called from several threads concurrently.

    A judge that only waits through `scoring.waiting` may set `shares_thread = True`; for any other judge each
    request runs in its own thread.
    """

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer, or raise a JudgeError; any other exception is a bug in the judge."""
        ...


def ask(judge: Judge, request: JudgeRequest) -> JudgeReply:
    """Return the judge's answer; while it waits, other greenlets on this thread continue."""
    if getattr(judge, "shares_thread", False):
        return judge.answer(request)
    return in_thread(judge.answer, request)


class ScriptedJudge:
    """An in-memory judge for tests and dry runs: it answers from a script and stores the requests.

    The script is a function of the request, or an iterable of replies; a reply that is an exception is
    raised.  Raises JudgeError when no replies are left.

    >>> from evaltap.evaluator import Services
    >>> judge = ScriptedJudge(['{"rubricScores": [{"id": "1", "score": 1, "reason": "it is so"}]}'])
    >>> services = Services(judge=lambda model: judge)  # for CaseScorer, Suite, Gate, evaluate_case
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
    """The judge's answer, if there was one: it may have cost something."""


class JudgeNotConfigured(JudgeError):
    """Report that no judge model is configured, or that its base URL and its key are both missing."""


class UnreachableError(ConfigurationError):
    """Report, before any request is sent, that nothing answers at an address."""


class JudgeUnavailable(JudgeError):
    """Report a judge that could not be reached, was overloaded or did not answer in time.

    `retry_after` is the delay that the server requested; `maybe_billed` means that the server may have done,
    and billed, the work.
    """

    def __init__(
        self, message: str, *, retry_after: timedelta | None = None, maybe_billed: bool = False
    ) -> None:
        self.retry_after = retry_after
        self.maybe_billed = maybe_billed
        super().__init__(message)


class JudgeRejected(JudgeError):
    """Report a request that the judge's endpoint rejected (key, model or parameters)."""


class AnswerFormRefusedError(JudgeRejected):
    """Report a server that does not support the form of answer; `simpler` is a request for a simpler form."""

    def __init__(self, message: str, simpler: "JudgeRequest") -> None:
        self.simpler = simpler
        super().__init__(message)


class BudgetSpentError(JudgeError):
    """Report a request that was not sent, because it could have cost more than the remaining budget."""


class JudgeInvalid(JudgeError):
    """Report an answer that contains no usable verdict; `reply` contains its cost, if it is known."""

    def __init__(self, message: str, *, reply: "JudgeReply | None" = None) -> None:
        self.reply = reply
        super().__init__(message)
