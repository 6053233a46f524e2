"""A judge behind any endpoint that implements OpenAI's chat completions.

One answer is one HTTP request, without retries: each attempt must fit the limits and the budget.
"""

import json
import math
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import orjson

from evaltap.evaluator.scoring.contract.judge import (
    AnswerFormRefusedError,
    JudgeInvalid,
    JudgeRejected,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
    TokenChoice,
    UnreachableError,
    token_text,
)
from evaltap.evaluator.scoring.judges.endpoint import JudgeSettings
from evaltap.evaluator.scoring.judges.http import (
    BrokenResponseError,
    HttpClient,
    HttpResponse,
    NoAnswerInTimeError,
    NotSentError,
    ResponseTooLargeError,
    StaleConnectionError,
)
from evaltap.evaluator.scoring.judges.retries import ConnectionWentStale
from evaltap.evaluator.scoring.judges.retry_after import retry_after
from evaltap.schemas.data import json_bytes
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import GenerationConfig

MOST_TOKENS: Final = 10**9
"""A larger count is an error of the server."""

MOST_CHOICES: Final = 20
"""Candidates of a token that are asked for: as many as OpenAI tells."""

# From the strictest form of answer to free text, because not every server supports every form.
_FORMS: Final = ("json_schema", "json_object", "text")
_UNKNOWN_REQUEST: Final = frozenset({400, 404, 415, 422, 501})
_PARAMETERS: Final = (
    "max_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "seed",
    "thinking_enabled",
    "thinking_tokens",
    "thinking_level",
)


def openai_client(base_url: str, path: str, key: str) -> HttpClient:
    """Return a client of a path below an OpenAI-compatible address; raises the same errors as HttpClient."""
    headers = {
        # Without a key, a placeholder: some servers require any value.
        "Authorization": f"Bearer {key or 'none'}",
        "Content-Type": "application/json",
        "Accept": "application/json",
        "User-Agent": "evaltap",
    }
    return HttpClient(base_url, path, headers)


class OpenAIJudge:
    """Sends each request as one user message; all threads share one client.

    If the server rejects a JSON Schema, it requests any JSON object instead, or plain text
    (AnswerFormRefusedError); the accepted form is remembered.  The key does not appear in any text of this
    class.
    """

    def __init__(self, settings: JudgeSettings) -> None:
        self._settings = settings
        self._form = 0
        try:
            self._client = openai_client(settings.base_url, "/chat/completions", settings.api_key)
        except ConfigurationError as error:
            raise ConfigurationError(settings.scrub(str(error))) from None

    def __repr__(self) -> str:
        return f"OpenAIJudge({self._settings.where!r})"

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def check(self) -> str:
        """Return why connections are slow, or an empty string; raise UnreachableError if nothing answers."""
        try:
            return self._client.check()
        except UnreachableError as error:
            raise UnreachableError(self._settings.scrub(str(error))) from None

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the model's answer.

        Raises JudgeUnavailable, JudgeInvalid, JudgeRejected, or AnswerFormRefusedError with the request to
        send instead.
        """
        form = self._form_of(request)
        started = time.monotonic()
        response = self._post(self._body(request, _FORMS[form]))
        if response.status in _UNKNOWN_REQUEST and form + 1 < len(_FORMS):
            simpler = replace(request, form=form + 1)
            raise AnswerFormRefusedError(f"{_FORMS[form]} is not known", simpler)
        if not 200 <= response.status < 300:
            raise self._refusal(response)
        if request.answer_schema is not None:
            self._form = form
        taken = timedelta(seconds=time.monotonic() - started)
        return self._reply(response.body, taken, tokens=request.tokens)

    def _form_of(self, request: JudgeRequest) -> int:
        if request.answer_schema is None:
            return len(_FORMS) - 1
        return max(request.form, self._form)

    def _post(self, body: bytes) -> HttpResponse:
        seconds = self._settings.timeout.total_seconds()
        try:
            return self._client.post(body, seconds)
        except NoAnswerInTimeError as late:
            raise JudgeUnavailable(
                f"judge {self._settings.where} did not answer within {seconds:g} s; "
                "raise EVALTAP_JUDGE_TIMEOUT or try again later",
                maybe_billed=late.sent,
            ) from None
        except ResponseTooLargeError as large:
            raise JudgeInvalid(f"judge {self._settings.where} answered with {large}") from None
        except (NotSentError, BrokenResponseError) as error:
            kind = (
                ConnectionWentStale if isinstance(error, StaleConnectionError) else JudgeUnavailable
            )
            raise kind(
                f"judge {self._settings.where} cannot be reached: {self._scrub(str(error))}",
                maybe_billed=isinstance(error, BrokenResponseError),
            ) from None

    def _body(self, request: JudgeRequest, form: str) -> bytes:
        options = generation_options(request.generation)
        if "seed" in options:
            options["seed"] += request.sample
        if request.tokens:
            options = {"top_logprobs": MOST_CHOICES, **options, "logprobs": True}
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
        body = {
            "model": self._settings.model,
            "messages": [{"role": "user", "content": request.prompt}],
            **options,
            **self._settings.extra_body,
            "stream": False,
        }
        return json_bytes(body)

    def _reply(self, body: bytes, latency: timedelta, *, tokens: bool = False) -> JudgeReply:
        # A server may send any JSON.
        try:
            completion = _loads(body)
        except (ValueError, RecursionError) as error:
            raise self._no_completion(str(error)) from None
        if not isinstance(completion, dict):
            raise self._no_completion(f"JSON {type(completion).__name__}")
        choices = completion.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = _object(choice, "message")
        text, usage = _words(message.get("content")), _object(completion, "usage")
        if tokens and (candidates := _token_choices(choice)):
            text = token_text(candidates)
        reply = JudgeReply(
            text,
            str(completion.get("model") or self._settings.model)[:200],
            _count(usage.get("prompt_tokens")),
            _count(usage.get("completion_tokens")),
            latency,
        )
        if found := self._fault(choice, reply.text):
            raise JudgeInvalid(
                f"judge {self._settings.where} answered with {found}; expected a verdict",
                reply=reply,
            )
        return reply

    def _fault(self, choice: object, text: str) -> str:
        """Return why an answer is not usable: it is cut off, so that its end may be missing, or empty."""
        end = str(choice.get("finish_reason")).lower() if isinstance(choice, dict) else ""
        if end in ("length", "max_tokens"):
            return "an answer cut off at its limit (raise max_tokens)"
        if end == "content_filter":
            return "an answer cut off by a content filter"
        if text.strip():
            return ""
        refusal = _object(choice, "message").get("refusal")
        return f"a refusal: {self._scrub(str(refusal))}" if refusal else "no text"

    def _no_completion(self, found: str) -> JudgeInvalid:
        return JudgeInvalid(
            f"judge {self._settings.where} did not answer with a completion: {self._scrub(found)}"
        )

    def _refusal(self, response: HttpResponse) -> JudgeUnavailable | JudgeRejected:
        status, text = response.status, _error_text(response.body)
        said = f"judge {self._settings.where} answered {status}: {self._scrub(text)}"
        if status in (408, 409, 429) or status >= 500:
            return JudgeUnavailable(said, retry_after=retry_after(response.headers))
        return JudgeRejected(f"{said}; check the key, the model name and the parameters")

    def _scrub(self, text: str) -> str:
        """Return a server's text without the key, which some servers repeat, shortened to 500 characters."""
        return self._settings.scrub(text)[:500]


def generation_options(config: GenerationConfig) -> dict[str, Any]:
    """Return the request parameters that a generation config sets; never streaming."""
    options = {
        name: value
        for name in _PARAMETERS
        if (value := getattr(config, name)) is not None and value != ""
    }
    if config.stop:
        options["stop"] = config.stop
    return options


def _count(value: object) -> int | None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MOST_TOKENS:
        return None
    return value


def _loads(body: bytes) -> Any:  # any JSON that the server sent
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return json.loads(body)  # also accepts Infinity and NaN, which need not cost the verdict


def _object(value: object, name: str) -> Mapping[str, Any]:
    """Return the object under a name in a server's response; empty if it is anything else."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _words(content: object) -> str:
    """Return the text of a message's content; reasoning models may answer with a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else ()
    texts = (
        part.get("text") for part in parts if isinstance(part, dict) and part.get("type") == "text"
    )
    return "".join(text for text in texts if isinstance(text, str))


def _token_choices(choice: object) -> list[list[TokenChoice]]:
    """Return the tokens of an answer with what might have stood in their place; empty without any."""
    content = _object(choice, "logprobs").get("content")
    found = []
    for token in content if isinstance(content, list) else ():
        others = token.get("top_logprobs") if isinstance(token, dict) else None
        given = [token, *(others if isinstance(others, list) else ())]
        choices = [
            TokenChoice(one["token"], float(one["logprob"]))
            for one in given
            if isinstance(one, dict)
            and isinstance(one.get("token"), str)
            and isinstance(one.get("logprob"), int | float)
            and math.isfinite(one["logprob"])
        ]
        found.append([*dict.fromkeys(choices)])
    return found


def _error_text(body: bytes) -> str:
    """Return the message of an error response, otherwise its text."""
    try:
        error = orjson.loads(body).get("error")
        message = error.get("message") if isinstance(error, dict) else error
    except (ValueError, AttributeError):
        message = None
    return message if isinstance(message, str) else body[:2000].decode("utf-8", "replace")
