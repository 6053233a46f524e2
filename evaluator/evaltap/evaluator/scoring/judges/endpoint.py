"""The address, model and key of a judge.

The environment is trusted; a metrics file may come from an untrusted person.  A key from the environment goes
to servers that the environment or the command line names, and to the provider that issued it, whatever a
file says: a variable in its `apiKey` is only expanded for a server to which its value may go.  It must be
named like a key, and a file that a discovered evaltap.toml names gets none at all.  EVALTAP_ALLOW_VARIABLES
(`--allow-variables`) trusts the file instead.
"""

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.scoring.contract.hosts import (
    KNOWN_URLS,
    OPENAI_URL,
    PROVIDERS,
    among,
    host_of,
)
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured
from evaltap.evaluator.scoring.judges.settings import (
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    NO_LIMITS,
    JudgeLimits,
    judge_limits,
    judge_prices,
    judge_retries,
    timeout_of,
)
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.files.settings import DISCOVERED
from evaltap.schemas.formats.metric import JudgeModel, JudgePrices, OtherJudge
from evaltap.schemas.text import did_you_mean

ALLOW_VARIABLES: Final = "EVALTAP_ALLOW_VARIABLES"
ALLOW_KEY_FOR: Final = "EVALTAP_ALLOW_KEY_FOR"
"""Hosts, separated by commas, to which a metrics file may have any key-like variable sent."""
AUTO: Final = "auto"
"""EVALTAP_JUDGE_PROVIDER for the first provider whose key is set."""
AUTOMATIC: Final = ("gemini", "openai", "anthropic")
_ALIASES: Final = {
    "EVALTAP_JUDGE_PROVIDER": "EVAL_JUDGE_PROVIDER",
    "EVALTAP_JUDGE_MODEL": "EVAL_JUDGE_MODEL",
}
_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_VARIABLE: Final = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_KEY_ENDINGS: Final = ("_API_KEY", "_TOKEN")
_OTHER_SECRETS: Final = ("EVALTAP_KAFKA_", "EVALTAP_REDACTION_", "EVALTAP_COLLECT_")
_SHORTEST_SECRET: Final = 6
"""Shorter values may be words of any text and are not replaced."""


@dataclass(frozen=True, slots=True)
class JudgeSettings:
    """The address and model of a judge, with all references expanded."""

    model: str
    base_url: str = field(repr=False)
    api_key: str = field(repr=False)
    timeout: timedelta = DEFAULT_TIMEOUT
    extra_body: Mapping[str, object] = field(default_factory=dict)
    provider: str = ""
    prices: JudgePrices | None = None
    """The prices of a million tokens; None to look them up."""
    limits: JudgeLimits = NO_LIMITS
    retries: int = DEFAULT_RETRIES
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """Values of variables, which must not appear in any text."""
    key_from: str = ""
    """The origin of the key, or the reason why none is sent, for display."""

    @property
    def where(self) -> str:
        """The model and its host, without the parts of the address that may contain a secret."""
        return f"{self.model} at {host_of(self.base_url)}"

    @property
    def announcement(self) -> str:
        """A notice for users before the first request."""
        return f"asks {self.where}" + (f" ({self.key_from})" if self.key_from else "")

    def scrub(self, text: str) -> str:
        """Return a text without the key and the values of variables, whether plain or in base64."""
        for secret in {self.api_key, *self.secrets}:
            if (len(secret) < _SHORTEST_SECRET and secret != self.api_key) or not secret:
                continue
            raw = secret.encode("utf-8", "surrogatepass")
            encoded = (base64.b64encode(raw), base64.urlsafe_b64encode(raw))
            for form in (secret, *(one.decode().rstrip("=") for one in encoded)):
                text = text.replace(form, "***")
        return text


class _Key(NamedTuple):
    value: str
    source: str


def judge_settings(model: JudgeModel | None, environ: Mapping[str, str]) -> JudgeSettings:
    """Return the settings of a metric's judge; the environment overrides the metric's own.

    EVALTAP_JUDGE_PROVIDER, EVALTAP_JUDGE_BASE_URL, EVALTAP_JUDGE_MODEL, EVALTAP_JUDGE_API_KEY override.  For
    a judge in addition to the metric's own (`OtherJudge`) the environment only supplies missing settings;
    otherwise all judges of a panel would be the same model.  The default address is the provider's
    (OPENAI_BASE_URL takes precedence over OpenAI's own), and the default key is the provider's own variable.
    Raises JudgeNotConfigured if there is no model, or neither an address nor a key, and ConfigurationError
    for a variable that is invalid or that a file may not read.
    """
    own = model or JudgeModel()
    reading = _FileValues(environ)
    own_first = isinstance(model, OtherJudge)
    provider, name = _provider_and_model(own, reading, environ, own_first=own_first)
    url = _chosen(environ, reading, "EVALTAP_JUDGE_BASE_URL", "baseURL", own.base_url, own_first)
    url, known = (url, True) if url else (_address_of(provider, environ), False)
    key = _key(own, own_first, url, reading, environ)
    if not key.value and not known:
        names = " or ".join(PROVIDERS[provider or "openai"].keys)
        unset = reading.unset(own.api_key.get_secret_value()) if own.api_key else ""
        raise JudgeNotConfigured(
            f"judge not configured: {unset or 'no base URL and no API key'}; set judgeModel.baseURL or"
            f" apiKey, EVALTAP_JUDGE_BASE_URL or EVALTAP_JUDGE_API_KEY, or {names}"
        )
    return JudgeSettings(
        name,
        url,
        key.value,
        timeout_of("EVALTAP_JUDGE_TIMEOUT", environ),
        dict(own.extra_fields),
        provider,
        judge_prices(own, environ),
        judge_limits(environ),
        judge_retries(environ),
        tuple(reading.expanded),
        key.source,
    )


def _chosen(
    environ: Mapping[str, str],
    reading: "_FileValues",
    variable: str,
    key: str,
    given: str,
    own_first: bool,
) -> str:
    """Return a variable, or the metric's value, which goes first for another judge of a panel."""
    if (stated := _stated(environ, variable)) and not (own_first and given.strip()):
        return stated
    return reading.text(key, given)


def _provider_and_model(
    own: JudgeModel, reading: "_FileValues", environ: Mapping[str, str], *, own_first: bool
) -> tuple[str, str]:
    """Return the names of the provider and of the model; raise JudgeNotConfigured without a model."""
    given = reading.text("providerName", own.provider_name).lower()
    stated = _stated(environ, "EVALTAP_JUDGE_PROVIDER").lower()
    if own_first and own.model_name.strip():
        stated = ""
    provider = stated or given
    if provider == AUTO:
        provider = _with_a_key(environ)
    name = _chosen(environ, reading, "EVALTAP_JUDGE_MODEL", "modelName", own.model_name, own_first)
    if provider != given and (provider != "openai" or given):
        name = _stated(environ, "EVALTAP_JUDGE_MODEL")  # the metric's is another provider's
    if not name and stated and provider in PROVIDERS:
        name = PROVIDERS[provider].judge
    if not name:
        raise JudgeNotConfigured(
            "judge not configured: no model; set judgeModel.modelName or EVALTAP_JUDGE_MODEL"
        )
    return provider, name


def _stated(environ: Mapping[str, str], variable: str) -> str:
    """Return a variable, or the one without evaltap's name that other pipelines read."""
    return (environ.get(variable, "") or environ.get(_ALIASES.get(variable, ""), "")).strip()


def _with_a_key(environ: Mapping[str, str]) -> str:
    """Return the first provider whose key is set; raise JudgeNotConfigured if there is none."""
    for name in AUTOMATIC:
        if any(environ.get(key, "").strip() for key in PROVIDERS[name].keys):
            return name
    keys = ", ".join(key for name in AUTOMATIC for key in PROVIDERS[name].keys)
    raise JudgeNotConfigured(
        f"judge not configured: EVALTAP_JUDGE_PROVIDER is {AUTO}, and no key is set ({keys})"
    )


def _address_of(provider: str, environ: Mapping[str, str]) -> str:
    if provider in ("", "openai"):
        return environ.get("OPENAI_BASE_URL", "").strip() or OPENAI_URL
    if provider in PROVIDERS:
        return PROVIDERS[provider].url
    meant = did_you_mean(provider, PROVIDERS)
    raise JudgeNotConfigured(
        f"judge not configured: provider '{provider}' has no known address;"
        f" {meant + ' If not, ' if meant else ''}set judgeModel.baseURL or EVALTAP_JUDGE_BASE_URL to its"
        " OpenAI-compatible endpoint"
    )


def _key(
    own: JudgeModel, own_first: bool, url: str, reading: "_FileValues", environ: Mapping[str, str]
) -> _Key:
    """Return the key for the server at the URL, and its origin."""
    given = own.api_key.get_secret_value() if own.api_key else ""
    of_environment = environ.get("EVALTAP_JUDGE_API_KEY", "").strip()
    may_go = among(url, _trusted(environ))
    if own_first and given.strip() and (value := reading.key(given, url)):
        return _Key(value, reading.source(given))
    if of_environment and may_go:
        return _Key(of_environment, "")
    if given.strip() and (value := reading.key(given, url)):
        return _Key(value, reading.source(given))
    if found := next(_providers_keys(url, environ), None):
        return found
    if unset := reading.unset(given):
        return _Key("", f"without a key, as {unset}")
    if of_environment:
        return _Key(
            "",
            "without EVALTAP_JUDGE_API_KEY, as only the metrics file names this server;"
            " name it in EVALTAP_JUDGE_BASE_URL to send it",
        )
    return _Key("", "")


def _providers_keys(url: str, environ: Mapping[str, str]) -> Iterator[_Key]:
    """Yield the keys of the provider at the URL."""
    for provider in PROVIDERS.values():
        addresses = [provider.url]
        if provider.url == OPENAI_URL:
            addresses.append(environ.get("OPENAI_BASE_URL", ""))
        for name in provider.keys if among(url, addresses) else ():
            if value := environ.get(name, "").strip():
                yield _Key(value, f"key: {name}")


def _trusted(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses to which EVALTAP_JUDGE_API_KEY may be sent."""
    named = environ.get("EVALTAP_JUDGE_BASE_URL", "").strip()
    return (named,) if named else (*KNOWN_URLS, environ.get("OPENAI_BASE_URL", "").strip())


def _servers_of(name: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses to which the value of a variable may be sent, whatever file names it."""
    issuers = [provider.url for provider in PROVIDERS.values() if name in provider.keys]
    if OPENAI_URL in issuers:
        issuers.append(environ.get("OPENAI_BASE_URL", "").strip())
    if issuers:
        return tuple(issuers)
    if name == "EVALTAP_JUDGE_API_KEY":
        return _trusted(environ)
    return (environ.get("EVALTAP_JUDGE_BASE_URL", "").strip(),)


class _FileValues:
    """Expands the values of a metrics file, as far as it may read the environment."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = environ
        self._all = environ.get(ALLOW_VARIABLES, "").strip().lower() in _TRUE
        self._is_discovered = "EVALTAP_METRICS" in environ.get(DISCOVERED, "").split()
        self.expanded: list[str] = []

    def text(self, key: str, text: str) -> str:
        """Return a value that is sent in the clear; its variables are only expanded if that is allowed."""
        found = next((one for one in _VARIABLE.finditer(text) if self._value(one)), None)
        if found and not self._all:
            raise ConfigurationError(
                f"judgeModel.{key} contains the variable {found[0]}, whose value would be sent wherever the"
                " metrics file says; write the value itself, set EVALTAP_JUDGE_BASE_URL and"
                " EVALTAP_JUDGE_MODEL instead, or trust the file with --allow-variables"
                f" ({ALLOW_VARIABLES}=1)"
            )
        return self._expand(text)

    def key(self, text: str, url: str) -> str:
        """Return the file's own key for the server at `url`; it may name variables that hold keys.

        Raises ConfigurationError for a variable that is no key, or that may not be sent to this server.
        """
        for match in _VARIABLE.finditer(text):
            if self._all or not self._value(match):
                continue
            name = match[1] or match[2]
            if not _names_a_key(name):
                raise ConfigurationError(
                    f"judgeModel.apiKey contains the variable {match[0]}; expected a name that ends in"
                    " _API_KEY or _TOKEN or begins with EVALTAP_: rename the variable, or trust the file"
                    f" with --allow-variables ({ALLOW_VARIABLES}=1)"
                )
            if self._is_discovered and among(url, _servers_of(name, self._environ)):
                return (
                    ""  # what the environment sends to this server is sent without the file's word
                )
            if self._is_discovered or not self._may_go(name, url):
                raise ConfigurationError(self._refusal(match[0], name, url))
        return self._expand(text)

    def _may_go(self, name: str, url: str) -> bool:
        allowed = self._environ.get(ALLOW_KEY_FOR, "").split(",")
        return host_of(url) in map(str.strip, allowed) or among(
            url, _servers_of(name, self._environ)
        )

    def _refusal(self, variable: str, name: str, url: str) -> str:
        host = host_of(url)
        if self._is_discovered:
            return (
                f"judgeModel.apiKey contains the variable {variable}, but nobody named this metrics file: it"
                " comes from an evaltap.toml that was found; pass --metrics, or remove apiKey"
            )
        return (
            f"judgeModel.apiKey would send {name} to {host}, which only the metrics file names; to allow"
            f" that, pass --allow-key-for {host} ({ALLOW_KEY_FOR}), or name the server in"
            " EVALTAP_JUDGE_BASE_URL and its key in EVALTAP_JUDGE_API_KEY"
        )

    def source(self, text: str) -> str:
        """Return the origin of a file's key."""
        names = [match[1] or match[2] for match in _VARIABLE.finditer(text)]
        return f"key: {', '.join(names)}" if names else ""

    def unset(self, text: str) -> str:
        """Return the unset variables of a file's key, as part of a sentence."""
        names = [
            match[1] or match[2] for match in _VARIABLE.finditer(text) if not self._value(match)
        ]
        return f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} not set" if names else ""

    def _expand(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            if found := self._value(match):
                self.expanded.append(found)
            return found

        return _VARIABLE.sub(value, text).strip()

    def _value(self, match: re.Match[str]) -> str:
        """Return the value of a variable; empty if it is not set."""
        return self._environ.get(match[1] or match[2], "")


def _names_a_key(name: str) -> bool:
    """Return whether a variable's name is that of a key for a model; evaltap's own other secrets are not."""
    if name.startswith("EVALTAP_"):
        return not name.startswith(_OTHER_SECRETS)
    return name.endswith(_KEY_ENDINGS)
