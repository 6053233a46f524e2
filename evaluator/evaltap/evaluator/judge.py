"""The judge: a model that answers one request with text, and how a metric finds it.

`Judge` is the edge; `OpenAIJudge` (in `openai_judge`) is the shipped client and `ScriptedJudge` its
in-memory twin.  Which model judges is the metric's `judgeModel`, overridden by the environment.
"""

import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from evaltap.evaluator.errors import JudgeError, JudgeNotConfigured
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.metric import GenerationConfig, JudgeModel

if TYPE_CHECKING:
    from evaltap.evaluator.openai_judge import OpenAIJudge

OPENAI_URL: Final = "https://api.openai.com/v1"
DEFAULT_TIMEOUT: Final = timedelta(seconds=60)
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


@dataclass(frozen=True, slots=True)
class JudgeReply:
    """What a judge answered, and what the answer cost as far as it is known."""

    text: str
    model: str = ""
    input_tokens: int | None = None
    output_tokens: int | None = None
    latency: timedelta | None = None


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


def judge_settings(model: JudgeModel | None, environ: Mapping[str, str]) -> JudgeSettings:
    """Return the settings of a metric's judge; the environment goes before the metric's own.

    EVALTAP_JUDGE_BASE_URL, EVALTAP_JUDGE_MODEL, EVALTAP_JUDGE_API_KEY and EVALTAP_JUDGE_TIMEOUT
    (in seconds) override; `$NAME` and `${NAME}` in the metric are expanded here, an unset one to
    nothing.  Raises JudgeNotConfigured when there is no model, or neither a base URL nor a key.
    """

    def choose(variable: str, own: str) -> str:
        return environ.get(variable, "").strip() or _expand(own, environ).strip()

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
    timeout = _timeout(environ.get("EVALTAP_JUDGE_TIMEOUT", ""))
    return JudgeSettings(name, url or OPENAI_URL, key, timeout, dict(own.extra_fields))


def judge_from(model: JudgeModel | None, environ: Mapping[str, str]) -> Judge:
    """Return the judge of a metric; raise JudgeNotConfigured when nothing says which."""
    settings = judge_settings(model, environ)
    from evaltap.evaluator.openai_judge import OpenAIJudge

    return OpenAIJudge(settings)


class EnvironmentJudges:
    """The judge provider of production: one client for each distinct setting, made when first used.

    Reads the environment at each use; may be called from several threads.
    """

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self._judges: dict[str, OpenAIJudge] = {}
        self._lock = threading.Lock()

    def __call__(self, model: JudgeModel | None) -> Judge:
        """Return the judge for a metric's `judgeModel`; raise JudgeNotConfigured without one."""
        settings = judge_settings(model, self._environ)
        key = f"{settings!r}\0{settings.api_key}"
        with self._lock:
            judge = self._judges.get(key)
            if judge is None:
                from evaltap.evaluator.openai_judge import OpenAIJudge

                judge = self._judges[key] = OpenAIJudge(settings)
            return judge

    def close(self) -> None:
        """Close the connections of all judges; a later use opens new ones."""
        with self._lock:
            judges = list(self._judges.values())
            self._judges.clear()
        for judge in judges:
            judge.close()


def _expand(text: str, environ: Mapping[str, str]) -> str:
    return _REFERENCE.sub(lambda match: environ.get(match[1] or match[2], ""), text)


def _timeout(text: str) -> timedelta:
    if not text.strip():
        return DEFAULT_TIMEOUT
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 86400:
        raise ConfigurationError(
            f"EVALTAP_JUDGE_TIMEOUT is '{text}'; expected seconds above 0 and below a day"
        )
    return timedelta(seconds=seconds)
