"""A judge behind any endpoint that speaks OpenAI's chat completions, through the `openai` SDK.

The SDK is an extra (`evaltap[judge]`) and is loaded when a judge is made.  It retries overload and
lost connections with back-off and honours Retry-After.
"""

import time
from datetime import timedelta
from typing import Any, Final

from evaltap.evaluator.errors import JudgeInvalid, JudgeRejected, JudgeUnavailable
from evaltap.evaluator.judge import JudgeReply, JudgeRequest, JudgeSettings
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.metric import GenerationConfig

RETRIES: Final = 2

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
)
_EXTRA_PARAMETERS: Final = ("thinking_enabled", "thinking_tokens", "thinking_level")


class OpenAIJudge:
    """Sends each request as one user message; one client, shared by all threads.

    A server that refuses a JSON Schema is asked again for any JSON object, then for plain text;
    what it took is remembered.  The key appears in no text that this class makes.
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
        # Without an explicit key and address the SDK would read OPENAI_* of the environment and
        # send that key to whatever server the metric names.
        self._client = openai.OpenAI(
            api_key=settings.api_key or "none",
            base_url=settings.base_url,
            timeout=settings.timeout.total_seconds(),
            max_retries=RETRIES,
        )

    def __repr__(self) -> str:
        return f"OpenAIJudge(model={self._settings.model!r}, base_url={self._settings.base_url!r})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the model's answer; raise JudgeUnavailable, JudgeRejected or JudgeInvalid."""
        form = self._form if request.answer_schema is not None else len(_FORMS) - 1
        while True:
            started = time.monotonic()
            try:
                completion = self._complete(request, _FORMS[form])
                break
            except self._errors.APIStatusError as error:
                if error.status_code not in _UNKNOWN_REQUEST or form + 1 == len(_FORMS):
                    raise self._refusal(error) from None
                form += 1
            except self._errors.APITimeoutError:
                seconds = self._settings.timeout.total_seconds()
                raise JudgeUnavailable(
                    f"judge {self._where()} did not answer within {seconds:g} s; "
                    "raise EVALTAP_JUDGE_TIMEOUT or try again later"
                ) from None
            except self._errors.APIConnectionError as error:
                cause = error.__cause__ or error
                raise JudgeUnavailable(
                    f"judge {self._where()} cannot be reached: {self._scrub(str(cause))}"
                ) from None
            except (self._errors.OpenAIError, ValueError, TypeError) as error:
                raise JudgeInvalid(
                    f"judge {self._where()} answered with something else than a completion: "
                    f"{self._scrub(str(error))}"
                ) from None
        if request.answer_schema is not None:
            self._form = form
        return self._reply(completion, timedelta(seconds=time.monotonic() - started))

    def _complete(self, request: JudgeRequest, form: str) -> Any:  # the SDK's overloads by keyword
        options = generation_options(request.generation)
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
        if not isinstance(text, str) or not text.strip():
            refusal = getattr(message, "refusal", None)
            found = f"a refusal: {refusal}" if refusal else "no text"
            raise JudgeInvalid(f"judge {self._where()} answered with {found}; expected a verdict")
        usage = getattr(completion, "usage", None)
        return JudgeReply(
            text,
            str(getattr(completion, "model", None) or self._settings.model),
            _count(getattr(usage, "prompt_tokens", None)),
            _count(getattr(usage, "completion_tokens", None)),
            latency,
        )

    def _refusal(self, error: Any) -> JudgeUnavailable | JudgeRejected:
        text = f"judge {self._where()} answered {error.status_code}: {self._scrub(error.message)}"
        if error.status_code in (408, 409, 429) or error.status_code >= 500:
            return JudgeUnavailable(f"{text}; gave up after {RETRIES} retries")
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


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
