"""Receivers: deliver a notification to a web service or a program."""

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, Protocol
from urllib.parse import urlsplit

from evaltap.evaluator.monitoring.alerting.notice import (
    Notice,
    alertmanager,
    pagerduty,
    slack,
    webhook,
)
from evaltap.evaluator.monitoring.rules import (
    PAGERDUTY,
    address_is,
    address_problem,
    host_of,
    is_local,
)
from evaltap.evaluator.scoring.evaluators.external.command import PASSED_ON
from evaltap.evaluator.scoring.evaluators.external.subprocess_runner import (
    CommandError,
    Limits,
    run_command,
)
from evaltap.evaluator.scoring.judges.http import (
    BrokenResponseError,
    HttpClient,
    NoAnswerInTimeError,
    NotSentError,
    ResponseTooLargeError,
)
from evaltap.evaluator.scoring.judges.retry_after import retry_after
from evaltap.schemas.data import Json
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.formats.monitor import AlertReceiver

SECONDS: Final = 10.0
COMMAND_SECONDS: Final = 30.0
_COMMAND_MEMORY: Final = 1 << 30
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class NotDeliveredError(Exception):
    """Report a notice that a receiver did not accept; the message contains neither address nor key.

    `retry_after` is the delay that the receiver requested.
    """

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Receiver(Protocol):
    """Delivers notices; `deliver` is called from the receiver's own thread, for one notice at a time."""

    name: str
    repeat_seconds: float
    """The interval between notifications about an alarm that continues."""
    keeps_all: bool
    """Whether repeated notifications are stored as deliveries."""
    content: bool
    """Whether notices include excerpts of cases."""

    def deliver(self, notice: Notice) -> None:
        """Deliver a notice within a few seconds, or raise NotDeliveredError."""


@dataclass(slots=True)
class HttpReceiver:
    """Posts JSON to one address, with headers; does not follow redirects."""

    name: str
    client: HttpClient
    body: Callable[[Notice], Json]
    repeat_seconds: float
    keeps_all: bool = True
    content: bool = False

    def deliver(self, notice: Notice) -> None:
        """Post the notice; any response other than 2xx is a failure."""
        try:
            response = self.client.post(json.dumps(self.body(notice)).encode(), SECONDS)
        except NoAnswerInTimeError:
            raise NotDeliveredError(f"no answer within {SECONDS:g} s") from None
        except NotSentError as error:
            raise NotDeliveredError(f"no connection ({error})") from None
        except (BrokenResponseError, ResponseTooLargeError) as error:
            raise NotDeliveredError(f"no answer ({type(error).__name__})") from None
        status = response.status
        if 300 <= status < 400:
            raise NotDeliveredError(
                f"answered {status}; redirects are not followed: name the final address"
            )
        if not 200 <= status < 300:
            asked = retry_after(response.headers)
            raise NotDeliveredError(f"answered {status}", retry_after=asked)


@dataclass(slots=True)
class CommandReceiver:
    """Runs a program with the notice on its standard input, as the JSON of a webhook."""

    name: str
    argv: Sequence[str]
    repeat_seconds: float
    keeps_all: bool = True
    content: bool = False

    def deliver(self, notice: Notice) -> None:
        """Run the program; any exit code other than 0 is a failure."""
        environ = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        given = json.dumps(webhook(notice)).encode()
        try:
            run_command(tuple(self.argv), given, Limits(COMMAND_SECONDS, _COMMAND_MEMORY), environ)
        except (CommandError, OSError) as error:
            raise NotDeliveredError(str(error)) from None


def make_receiver(
    settings: AlertReceiver, place: str, environ: Mapping[str, str], *, name: str
) -> Receiver:
    """Return the receiver for some settings; raise InputError that names `place` but no secret."""
    seconds, content = settings.repeat_hours * 3600, settings.content
    if settings.type == "command":
        if not hasattr(os, "killpg"):  # Windows
            raise InputError(
                f"{place}: commands need a POSIX system (process groups, resource limits)"
            )
        return CommandReceiver(name, settings.argv, seconds, content=content)
    filled = partial(_filled, environ, place)
    url = filled(settings.url) if settings.url else PAGERDUTY
    if settings.type == "alertmanager" and not url.rstrip("/").endswith("/api/v2/alerts"):
        url = f"{url.rstrip('/')}/api/v2/alerts"
    headers = {key: filled(value) for key, value in settings.headers.items()}
    client = _client(url, headers, place, private=settings.allow_private)
    if settings.type == "alertmanager":
        return HttpReceiver(name, client, alertmanager, 60.0, keeps_all=False, content=content)
    if settings.type == "pagerduty":
        key = filled(settings.routing_key)
        incident = partial(pagerduty, routing_key=key)
        return HttpReceiver(name, client, incident, seconds, content=content)
    body = slack if settings.type == "slack" else webhook
    return HttpReceiver(name, client, body, seconds, content=content)


def _filled(environ: Mapping[str, str], place: str, text: str) -> str:
    """Return a text with names of environment variables replaced by their values."""

    def value(found: re.Match[str]) -> str:
        if not (given := environ.get(found[1], "").strip()):
            raise InputError(
                f"{place}: the environment variable {found[1]} is not set; set it, or remove the receiver"
            )
        return given

    return _VARIABLE.sub(value, text)


def _client(url: str, headers: Mapping[str, str], place: str, *, private: bool) -> HttpClient:
    """Return a client for an address: https, or http within this machine and allowed networks."""
    parts = urlsplit(url)
    if problem := address_problem(parts, private=private):
        raise InputError(f"{place}: {problem}")
    local = is_local(host_of(parts))

    def refuses(address: str) -> str:
        near = not address_is(address, "is_global")
        if near and not (local or private):
            return "its host is in a private network; set `allowPrivate` to allow it"
        if not near and parts.scheme == "http":
            return "its host is not in a private network; expected https"
        return ""

    given = {"Content-Type": "application/json", "User-Agent": "evaltap", **headers}
    path = parts._replace(scheme="", netloc="", path=parts.path or "/", fragment="").geturl()
    try:
        return HttpClient(f"{parts.scheme}://{parts.netloc}", path, given, refuses=refuses)
    except ConfigurationError:
        raise InputError(
            f"{place}: the address or a header contains characters that HTTP does not allow"
        ) from None
