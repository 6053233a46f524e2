"""A judge behind any endpoint that speaks OpenAI's chat completions, through the `openai` SDK.

The SDK is an extra (`evaltap[judge]`) and is loaded when a judge is made.  One answer is one HTTP
request: the SDK's own retries are off, because each try must fit the limits and the budget.
"""

import email.utils
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from typing import Any, Final

from evaltap.evaluator.errors import (
    AnswerFormRefused,
    JudgeInvalid,
    JudgeRejected,
    JudgeUnavailable,
)
from evaltap.evaluator.judge import JudgeReply, JudgeRequest, JudgeSettings
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.metric import GenerationConfig

LONGEST_ANSWER: Final = 16 << 20
"""Bytes of a response; a judge that says more than this gives no verdict."""
GRACE: Final = 1.5
"""Share of the time-out after which a request is given up that the HTTP library still waits for."""
MOST_TOKENS: Final = 10**9
"""A larger count is no count but a fault of the server."""

# From the strictest form of answer to none, as not every server knows every form.
_FORMS: Final = ("json_schema", "json_object", "text")
_UNKNOWN_REQUEST: Final = frozenset({400, 404, 415, 422, 501})
_PLAIN_PARAMETERS: Final = (
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "seed",
)
_EXTRA_PARAMETERS: Final = ("thinking_enabled", "thinking_tokens", "thinking_level")


class OpenAIJudge:
    """Sends each request as one user message; one client, shared by all threads.

    A server that refuses a JSON Schema wants to be asked for any JSON object, or for plain text
    (AnswerFormRefused); what it took is remembered.  The key appears in no text that this class makes.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        try:
            import openai
        except ImportError as error:
            raise ConfigurationError(
                "the judge needs the openai package; install evaltap[judge]"
            ) from error
        self._settings = settings
        self._errors = openai
        self._form = 0
        seconds = settings.timeout.total_seconds()
        # Without an explicit key and address the SDK would read OPENAI_* of the environment and
        # send that key to whatever server the metric names.
        self._client = openai.OpenAI(
            api_key=settings.api_key or "none",
            base_url=settings.base_url,
            timeout=seconds,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(
                timeout=seconds,
                event_hooks={"response": [_deadline(openai.DefaultHttpxClient, seconds)]},
            ),
        )

    def __repr__(self) -> str:
        return f"OpenAIJudge(model={self._settings.model!r}, base_url={self._settings.base_url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the model's answer.

        Raises JudgeUnavailable, JudgeInvalid, JudgeRejected, or AnswerFormRefused with what to ask
        instead.
        """
        form = self._form_of(request)
        started = time.monotonic()
        try:
            seconds = self._settings.timeout.total_seconds() * GRACE
            completion = _within(seconds, lambda: self._complete(request, _FORMS[form]))
        except _TooLate as late:
            raise self._too_slow(late) from None
        except self._errors.APIStatusError as error:
            if error.status_code in _UNKNOWN_REQUEST and form + 1 < len(_FORMS):
                simpler = replace(request, form=form + 1)
                raise AnswerFormRefused(f"{_FORMS[form]} is not known", simpler) from None
            raise self._refusal(error) from None
        except self._errors.APITimeoutError as error:
            raise self._too_slow(error.__cause__) from None
        except self._errors.APIConnectionError as error:
            cause = error.__cause__ or error
            if isinstance(cause, _TooLong):
                raise JudgeInvalid(f"judge {self._where()} answered with {cause}") from None
            if isinstance(cause, _TooLate):
                raise self._too_slow(cause) from None
            raise JudgeUnavailable(
                f"judge {self._where()} cannot be reached: {self._scrub(str(cause))}",
                maybe_billed=not _never_sent(cause),
            ) from None
        except (self._errors.OpenAIError, ValueError, TypeError, RecursionError) as error:
            raise JudgeInvalid(
                f"judge {self._where()} answered with something else than a completion: "
                f"{self._scrub(str(error))}"
            ) from None
        if request.answer_schema is not None:
            self._form = form
        return self._reply(completion, timedelta(seconds=time.monotonic() - started))

    def _form_of(self, request: JudgeRequest) -> int:
        if request.answer_schema is None:
            return len(_FORMS) - 1
        return max(request.form, self._form)

    def _complete(self, request: JudgeRequest, form: str) -> Any:  # the SDK's overloads by keyword
        options = generation_options(request.generation)
        if "seed" in options:
            options["seed"] += request.sample
        options["extra_body"] = {**self._settings.extra_body, **options.get("extra_body", {})}
        if form == "json_schema":
            options["response_format"] = {
                "type": "json_schema",
                "json_schema": {
                    "name": request.answer_name or "answer",
                    "strict": True,
                    "schema": request.answer_schema,
                },
            }
        elif form == "json_object":
            options["response_format"] = {"type": "json_object"}
        return self._client.chat.completions.create(
            model=self._settings.model,
            messages=[{"role": "user", "content": request.prompt}],
            stream=False,
            **options,
        )

    def _reply(self, completion: Any, latency: timedelta) -> JudgeReply:
        # A server may send any JSON; the SDK does not check it against its types.
        choices = getattr(completion, "choices", None)
        message = getattr(choices[0], "message", None) if choices else None
        text = getattr(message, "content", None)
        usage = getattr(completion, "usage", None)
        reply = JudgeReply(
            text if isinstance(text, str) else "",
            str(getattr(completion, "model", None) or self._settings.model)[:200],
            _count(getattr(usage, "prompt_tokens", None)),
            _count(getattr(usage, "completion_tokens", None)),
            latency,
        )
        if not reply.text.strip():
            refusal = getattr(message, "refusal", None)
            found = f"a refusal: {self._scrub(str(refusal))}" if refusal else "no text"
            raise JudgeInvalid(
                f"judge {self._where()} answered with {found}; expected a verdict", reply=reply
            )
        return reply

    def _too_slow(self, cause: BaseException | None) -> JudgeUnavailable:
        seconds = self._settings.timeout.total_seconds()
        return JudgeUnavailable(
            f"judge {self._where()} did not answer within {seconds:g} s; "
            "raise EVALTAP_JUDGE_TIMEOUT or try again later",
            maybe_billed=not _never_sent(cause),
        )

    def _refusal(self, error: Any) -> JudgeUnavailable | JudgeRejected:
        text = f"judge {self._where()} answered {error.status_code}: {self._scrub(error.message)}"
        if error.status_code in (408, 409, 429) or error.status_code >= 500:
            return JudgeUnavailable(text, retry_after=retry_after(error.response.headers))
        return JudgeRejected(f"{text}; check the key, the model name and the parameters")

    def _where(self) -> str:
        return f"{self._settings.model} at {self._settings.base_url}"

    def _scrub(self, text: str) -> str:
        """Return a server's words without the key, as some servers repeat it, and not too long."""
        key = self._settings.api_key
        return (text.replace(key, "***") if key else text)[:500]


def generation_options(config: GenerationConfig) -> dict[str, Any]:
    """Return the request parameters of a generation config; only what it gives, never streaming."""
    options = {
        name: value
        for name in _PLAIN_PARAMETERS
        if (value := getattr(config, name)) is not None and value != ""
    }
    if config.stop:
        options["stop"] = config.stop
    extra = {
        name: value for name in _EXTRA_PARAMETERS if (value := getattr(config, name)) is not None
    }
    if extra:
        options["extra_body"] = extra
    return options


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return what a server asks to wait: milliseconds, seconds or a date; None when it does not."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            seconds = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(seconds) and seconds >= 0:
            return timedelta(seconds=min(seconds, 86400.0))
    date = email.utils.parsedate_tz(headers.get("retry-after", ""))
    if date is None:
        return None
    try:
        seconds = email.utils.mktime_tz(date) - time.time()
    except (OverflowError, ValueError):
        return None
    return timedelta(seconds=min(max(seconds, 0.0), 86400.0))


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_TOKENS:
        return None
    return value


def _never_sent(cause: BaseException | None) -> bool:
    """Tell whether a request failed before the server had it."""
    # By name: the SDK's HTTP library has changed, and may be a compatible one.
    names = {kind.__name__ for kind in type(cause).__mro__}
    return bool(names & {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"})


class _TooLong(Exception):
    """A response that goes on and on."""


class _TooLate(Exception):
    """A response that came in so slowly that the time was over."""


def _within(seconds: float, work: Callable[[], Any]) -> Any:  # the SDK's completion
    """Return what `work` returns, or raise what it raises; _TooLate when it takes too long.

    Nearly always the HTTP library gives up before that.  It cannot where a server sends its headers byte
    by byte, or a name is looked up for ever; such a thread is left behind until the client is closed.
    """
    done: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()

    def run() -> None:
        try:
            done.put((work(), None))
        except BaseException as error:  # whatever it is, the thread that waits raises it
            done.put((None, error))

    threading.Thread(target=run, name="evaltap-judge-request", daemon=True).start()
    try:
        value, error = done.get(timeout=seconds)
    except queue.Empty:
        raise _TooLate from None
    if error is not None:
        raise error
    return value


def _deadline(client_type: type, seconds: float) -> Callable[[Any], None]:
    """Return a hook that bounds the whole of a response: in time, and in bytes.

    The HTTP library's own time-out is that of a single read, so a server that sends a byte now and
    then would be waited for without end.
    """
    # The SDK has changed its HTTP library once; its client knows which it is.
    library: Any = import_module(client_type.__mro__[1].__module__.partition(".")[0])

    class Bounded(library.SyncByteStream):  # type: ignore[misc]  # known at run time only
        def __init__(self, inner: Any) -> None:
            self._inner = inner
            self._until = time.monotonic() + seconds

        def __iter__(self) -> Iterator[bytes]:
            size = 0
            for chunk in self._inner:
                size += len(chunk)
                if size > LONGEST_ANSWER:
                    raise _TooLong(f"more than {LONGEST_ANSWER} bytes")
                if time.monotonic() > self._until:
                    raise _TooLate
                yield chunk

        def close(self) -> None:
            self._inner.close()

        @property
        def elapsed(self) -> Any:
            return getattr(self._inner, "elapsed", None)

    def hook(response: Any) -> None:
        response.stream = Bounded(response.stream)

    return hook
