"""The judge: a model that answers one request with text, and how a metric finds it.

`Judge` is the edge; `OpenAIJudge` (in `openai_judge`) is the shipped client and `ScriptedJudge` its
in-memory twin; the package `judges` holds what is put around a client.  Which model judges is the
metric's `judgeModel`, overridden by the environment.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from evaltap.evaluator.errors import JudgeError, JudgeNotConfigured
from evaltap.evaluator.judge_environment import (
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    NO_LIMITS,
    JudgeLimits,
    judge_limits,
    judge_prices,
    judge_retries,
    judge_timeout,
)
from evaltap.schemas.metric import GenerationConfig, JudgeModel, JudgePrices, OtherJudge

if TYPE_CHECKING:
    from evaltap.evaluator.judges.budget import Budget
    from evaltap.evaluator.judges.cache import JudgeCache
    from evaltap.evaluator.judges.chain import JudgeChain
    from evaltap.evaluator.judges.limits import Limiter

OPENAI_URL: Final = "https://api.openai.com/v1"
DEFAULT_GENERATION: Final = GenerationConfig(max_tokens=2000, temperature=0.8)

_REFERENCE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")


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
    """Answers requests; `answer` is called from several threads at a time."""

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the answer, or raise a JudgeError; any other exception is a fault of the judge."""
        ...


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
            raise JudgeError(f"the script is over after {len(self.requests) - 1} replies")
        if isinstance(reply, Exception):
            raise reply
        return JudgeReply(reply) if isinstance(reply, str) else reply


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """Where the judge is and what it is called, with all references expanded."""

    model: str
    base_url: str
    api_key: str = field(repr=False)
    timeout: timedelta = DEFAULT_TIMEOUT
    extra_body: Mapping[str, Any] = field(default_factory=dict)
    provider: str = ""
    prices: JudgePrices | None = None
    """What a million tokens cost; None to look it up."""
    limits: JudgeLimits = NO_LIMITS
    retries: int = DEFAULT_RETRIES


def judge_settings(model: JudgeModel | None, environ: Mapping[str, str]) -> JudgeSettings:
    """Return the settings of a metric's judge; the environment goes before the metric's own.

    EVALTAP_JUDGE_BASE_URL, EVALTAP_JUDGE_MODEL, EVALTAP_JUDGE_API_KEY override; `$NAME` and `${NAME}`
    in the metric are expanded here, an unset one to nothing.  For a judge beside the metric's own
    (`OtherJudge`) the environment only fills in what it leaves open: panels would else be one model.
    Raises JudgeNotConfigured when there is no model, or neither a base URL nor a key, and
    ConfigurationError for a variable that makes no sense.
    """
    own_first = isinstance(model, OtherJudge)

    def choose(variable: str, own: str) -> str:
        given, own = environ.get(variable, "").strip(), _expand(own, environ).strip()
        return (own or given) if own_first else (given or own)

    own = model or JudgeModel()
    key = own.api_key.get_secret_value() if own.api_key else ""
    name = choose("EVALTAP_JUDGE_MODEL", own.model_name)
    url = choose("EVALTAP_JUDGE_BASE_URL", own.base_url)
    key = choose("EVALTAP_JUDGE_API_KEY", key)
    provider = _expand(own.provider_name, environ).strip().lower()
    if not name:
        raise JudgeNotConfigured(
            "judge not configured: no model; set judgeModel.modelName or EVALTAP_JUDGE_MODEL"
        )
    if not url and not key:
        raise JudgeNotConfigured(
            "judge not configured: no base URL and no API key; set judgeModel.baseURL or apiKey, "
            "or EVALTAP_JUDGE_BASE_URL or EVALTAP_JUDGE_API_KEY"
        )
    if not url and provider not in ("", "openai"):
        raise JudgeNotConfigured(
            f"judge not configured: provider '{provider}' has no known address; set "
            "judgeModel.baseURL or EVALTAP_JUDGE_BASE_URL to its OpenAI-compatible endpoint"
        )
    return JudgeSettings(
        name,
        url or OPENAI_URL,
        key,
        judge_timeout(environ),
        dict(own.extra_fields),
        provider,
        judge_prices(own, environ),
        judge_limits(environ),
        judge_retries(environ),
    )


def judge_from(model: JudgeModel | None, environ: Mapping[str, str]) -> Judge:
    """Return the judge of a metric, with retries and limits.

    Raises JudgeNotConfigured when nothing says which.
    """
    return EnvironmentJudges(environ)(model)


class EnvironmentJudges:
    """The judge provider of production: one judge for each distinct setting, made when first used.

    Judges at the same address, with the same model and key, share their limits, and all of them the
    cache and the budget.  Reads the environment at each use; may be called from several threads.
    """

    def __init__(
        self,
        environ: Mapping[str, str] | None = None,
        *,
        cache: "JudgeCache | None" = None,
        budget: "Budget | None" = None,
    ) -> None:
        self._environ = os.environ if environ is None else environ
        self._cache = cache
        self._budget = budget
        self._chains: dict[str, JudgeChain] = {}
        self._limiters: dict[tuple[str, str, str], Limiter] = {}
        self._lock = threading.Lock()

    def __call__(self, model: JudgeModel | None) -> "JudgeChain":
        """Return the judge for a metric's `judgeModel`; raise JudgeNotConfigured without one."""
        settings = judge_settings(model, self._environ)
        key = f"{settings!r}\0{settings.api_key}"
        with self._lock:
            chain = self._chains.get(key)
            if chain is None:
                chain = self._chains[key] = self._make(settings)
            return chain

    def _make(self, settings: JudgeSettings) -> "JudgeChain":
        from evaltap.evaluator.judges.chain import JudgeChain
        from evaltap.evaluator.judges.limits import Limiter

        where = (settings.base_url, settings.model, settings.api_key)
        limiter = self._limiters.get(where)
        if limiter is None:
            limiter = self._limiters[where] = Limiter(settings.limits)
        return JudgeChain(settings, limiter, cache=self._cache, budget=self._budget)

    def close(self) -> None:
        """Close the connections of all judges; a later use opens new ones."""
        with self._lock:
            chains = list(self._chains.values())
            self._chains.clear()
        for chain in chains:
            chain.close()


def _expand(text: str, environ: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: environ.get(match[1] or match[2], ""), text)
