"""The recorder's settings: constructor argument, then `EVALTAP_*` variable, then file, then default.

The file is the `evaltap.toml` named by EVALTAP_CONFIG; the agent's working folder is not searched.

An invalid argument is the programmer's mistake and raises ConfigurationError at the start. An invalid
environment variable may be an operator's mistake in production: it is logged, and the default is used.
If the default could record more than intended, the value that records less is used instead.
"""

import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from evaltap.recorder.privacy.policy import FieldPolicy
from evaltap.recorder.privacy.redactor import PatternRedactor
from evaltap.recorder.privacy.rule_matching import Rule

# Not imported lazily: a fork during an import would hang the child.
from evaltap.recorder.privacy.rules import parse_rules
from evaltap.recorder.sampling.rules import parse_outcome_rules
from evaltap.recorder.sampling.sampler import OutcomeSampler
from evaltap.recorder.sampling.sessions import SessionSampler
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.files.settings import FILE_VARIABLE, read_settings
from evaltap.schemas.log.location import KafkaLocation, parse_log_location
from evaltap.schemas.text import did_you_mean

PREFIX = "EVALTAP_"

_LOG = logging.getLogger("evaltap.recorder")
_T = TypeVar("_T")
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off", "")


def _setting(
    name: str,
    default: _T,
    read: Callable[[str], _T],
    meaning: str,
    *,
    secret: bool = False,
    fallback: _T | None = None,
) -> _T:
    """Declare a setting; its default is read from the environment when a config is built.

    `fallback` is used for an invalid variable if the default would not be safe.
    """
    variable = PREFIX + name.upper()

    def from_environment() -> _T:
        text = os.environ.get(variable)
        if text is None and (text := _of_file().get(variable)) is None:
            return default
        try:
            return read(text)
        except ValueError as error:
            shown = "its value" if secret else repr(text)
            used = default if fallback is None else fallback
            _LOG.warning("%s: invalid value %s (%s); using %r", variable, shown, error, used)
            return used

    value: _T = field(
        default_factory=from_environment,
        repr=not secret,
        metadata={"variable": variable, "default": default, "meaning": meaning, "read": read},
    )
    return value


def _of_file() -> Mapping[str, str]:
    """Return the settings in the file named by EVALTAP_CONFIG; an unusable file turns recording off.

    The file might restrict recording further than the defaults do.
    """
    named = os.environ.get(FILE_VARIABLE, "").strip()
    return _read_file(named) if named else {}


@lru_cache(maxsize=8)
def _read_file(named: str) -> Mapping[str, str]:
    try:
        return read_settings(Path(named), [item.name for item in fields(RecorderConfig)]).variables
    except ConfigurationError as error:
        _LOG.error("%s: %s; nothing is recorded", FILE_VARIABLE, error)
        return {f"{PREFIX}DISABLED": "1"}


def _switch(text: str) -> bool:
    if text.strip().lower() in _TRUE:
        return True
    if text.strip().lower() in _FALSE:
        return False
    raise ValueError(f"expected one of {', '.join((*_TRUE, *_FALSE[:-1]))}")


def _on_unless_off(text: str) -> bool:
    """Read a switch that protects data: an empty value leaves it on."""
    return not text.strip() or _switch(text)


def _text(text: str) -> str | None:
    return text or None


def _number(low: float, high: float) -> Callable[[str], float]:
    def read(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise ValueError(f"expected a number from {low:g} to {high:g}")
        return value

    return read


def _count(low: int, high: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError(f"expected a whole number from {low} to {high}")
        return value

    return read


def _policy(text: str) -> str:
    return _readable(text, FieldPolicy.parse)


def _rules(text: str) -> str:
    return _readable(text, parse_rules) if text else ""


def _outcomes(text: str) -> str:
    return _readable(text, parse_outcome_rules) if text else ""


def _readable(text: str, parse: Callable[[str], object]) -> str:
    try:
        parse(text)
    except ConfigurationError as error:
        raise ValueError(str(error)) from error
    return text


_KIB, _MIB, _GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, kw_only=True)
class RecorderConfig:
    """All settings of a recorder; pass those that differ from the defaults: `RecorderConfig(log=...)`."""

    # fmt: off
    disabled: bool = _setting("disabled", False, _switch,
        "Kill switch: record nothing, start nothing.", fallback=True)
    log: str | None = _setting("log", None, _text,
        "Path of the local log to which turns are appended.")
    app_name: str | None = _setting("app_name", None, _text,
        "Name of the agent application, if the source does not provide it.")
    service: str | None = _setting("service", None, _text,
        "Name of the service, if the source does not provide it.")
    agent_name: str | None = _setting("agent_name", None, _text,
        "Name of the agent, if the source does not provide it.")
    version: str | None = _setting("version", None, _text,
        "Version of the agent, such as a release, commit or prompt. If not set, the spans'"
        " `service.version` is used.")
    environment: str | None = _setting("environment", None, _text,
        "Where the agent runs, such as production. If not set, the spans' `deployment.environment.name` is"
        " used.")
    tags: str = _setting("tags", "", str,
        "Tags to write on each turn, separated by commas: `canary,prompt=b`.")
    run: str | None = _setting("run", None, _text,
        "Name of this recording if eval cases are recorded several times: `nightly-3`.")
    sample_rate: float = _setting("sample_rate", 1.0, _number(0, 1),
        "Share of sessions to record, selected by a hash of the session id.", fallback=0.0)
    sample_rules: str = _setting("sample_rules", "", _outcomes,
        "JSON list of rules that keep more of certain turns, decided after they have ended (see the"
        " how-to).")
    sample_hold_seconds: float = _setting("sample_hold_seconds", 300.0, _number(0, 86_400),
        "How long a session must be idle before rules decide on all of its turns together; 0 decides turn"
        " by turn.")
    sample_max_per_minute: float = _setting("sample_max_per_minute", 0.0, _number(0, 1e9),
        "Maximum number of turns to record per minute on average; beyond it, turns are sampled evenly. 0"
        " for no limit.")
    redaction: bool = _setting("redaction", True, _on_unless_off,
        "Replace personal data and secrets before anything is written.")
    redaction_key: str | None = _setting("redaction_key", None, _text,
        "Secret key for pseudonyms, 16 or more characters. If not set, a random key is stored next to the"
        " log.", secret=True)
    redaction_policy: str = _setting("redaction_policy", "", _policy,
        "Action per field: `field=keep|hash|redact|drop,...`, or `metadata` to keep only names,"
        " structure and hashed arguments.", fallback="metadata")
    redaction_rules: str = _setting("redaction_rules", "", _rules,
        "Your own rules, as a JSON object of names and regular expressions; each match is replaced by"
        " `<name:...>`.", fallback='{"unreadable_rules": "(?s).+"}')
    redaction_entropy: bool = _setting("redaction_entropy", False, _switch,
        "Also replace every long word that looks random: keys of unknown formats, but also hashes.",
        fallback=True)
    capture_content: bool = _setting("capture_content", True, _switch,
        "Record the content of conversations; off keeps only names, structure, times and numbers.",
        fallback=False)
    capture_reasoning: bool = _setting("capture_reasoning", False, _switch,
        "Record the reasoning of models, as `reasoning_content` of their messages.",
        fallback=False)
    field_max_bytes: int = _setting("field_max_bytes", 64 * _KIB, _count(256, 16 * _MIB),
        "Maximum size of a text, arguments or a result; the rest is cut off and marked as truncated.")
    case_max_bytes: int = _setting("case_max_bytes", 900_000, _count(1024, 1_000_000),
        "Maximum size of a turn on the log; the texts of a larger turn are cut further.")
    queue_max_events: int = _setting("queue_max_events", 40_000, _count(10, 10_000_000),
        "Maximum number of events waiting for the background thread; beyond it, whole turns are dropped.")
    queue_max_bytes: int = _setting("queue_max_bytes", 64 * _MIB, _count(64 * _KIB, 16 * _GIB),
        "Maximum amount of content waiting for the background thread; half as much may wait for the log.")
    open_max_turns: int = _setting("open_max_turns", 10_000, _count(1, 1_000_000),
        "Maximum number of open turns; beyond it, the turn idle for longest is closed as incomplete.")
    open_max_bytes: int = _setting("open_max_bytes", 128 * _MIB, _count(64 * _KIB, 16 * _GIB),
        "Maximum memory for open and recently closed turns.")
    idle_timeout_seconds: float = _setting("idle_timeout_seconds", 600.0, _number(0.01, 86_400),
        "A turn without activity for this long is closed as incomplete.")
    flush_interval_seconds: float = _setting("flush_interval_seconds", 0.05, _number(0, 60),
        "Time within which a finished turn is written if the process gets CPU time.")
    manifest_interval_seconds: float = _setting("manifest_interval_seconds", 30.0, _number(0.01, 86_400),
        "How often the recorder writes a manifest: how many turns it wrote and dropped.")
    close_timeout_seconds: float = _setting("close_timeout_seconds", 2.0, _number(0, 3600),
        "How long closing may delay the end of the process without progress. After SIGTERM that is all it"
        " takes; otherwise up to five times as long, while turns are being written.")
    log_max_bytes: int = _setting("log_max_bytes", _GIB, _count(_MIB, 1 << 50),
        "Maximum size of the local log. From three quarters of it, turns that every consumer has landed"
        " are deleted; when full, new turns are dropped.")
    drain_on_sigterm: bool = _setting("drain_on_sigterm", True, _switch,
        "On SIGTERM, write the turns in memory if the program does not handle the signal itself.")
    max_internal_errors: int = _setting("max_internal_errors", 100, _count(1, 1_000_000),
        "Number of internal errors after which the recorder switches itself off.")
    # fmt: on

    def field_policy(self) -> FieldPolicy:
        """Return the policy of each field."""
        return FieldPolicy.parse(self.redaction_policy)

    def redactor(self, key: bytes) -> PatternRedactor:
        """Return a redactor with the policy and the rules of these settings."""
        return PatternRedactor(
            key,
            policy=self.field_policy(),
            rules=self.custom_rules(),
            entropy=self.redaction_entropy,
        )

    def outcome_sampler(self) -> OutcomeSampler:
        """Return a new sampler with the rate, the rules and the limit."""
        rules = parse_outcome_rules(self.sample_rules) if self.sample_rules else ()
        return OutcomeSampler(self.sample_rate, rules, max_per_minute=self.sample_max_per_minute)

    def session_sampler(self) -> SessionSampler | None:
        """Return a new sampler of whole sessions; None if no rule keeps more than the head rate."""
        rules = parse_outcome_rules(self.sample_rules) if self.sample_rules else ()
        if not any(rule.whole and rule.keep > self.sample_rate for rule in rules):
            return None
        return SessionSampler(
            self.sample_rate,
            rules,
            quiet_seconds=self.sample_hold_seconds,
            max_per_minute=self.sample_max_per_minute,
        )

    def custom_rules(self) -> tuple[Rule, ...]:
        """Return the user's own rules."""
        return parse_rules(self.redaction_rules) if self.redaction_rules else ()

    def __post_init__(self) -> None:
        """Validate the passed values; those from the environment have already been validated."""
        for item in fields(self):
            value, default = getattr(self, item.name), item.metadata["default"]
            if value == default:
                continue
            try:
                _check(value, default, item.metadata["read"])
            except (TypeError, ValueError) as error:
                shown = "the value" if not item.repr else repr(value)
                raise ConfigurationError(f"{item.name}: invalid value {shown}: {error}") from error
        if self.redaction_key is not None and len(self.redaction_key) < 16:
            raise ConfigurationError(
                f"redaction_key ({PREFIX}REDACTION_KEY) has {len(self.redaction_key)} characters, expected"
                " 16 or more; use a long random text"
            )
        warn_of_unknown_variables(os.environ)


_OTHER_VARIABLES = (
    "AGENT_API_KEY", "ALLOW_AGENT_ERRORS", "ALLOW_CODE", "ALLOW_KEY_FOR", "ALLOW_VARIABLES",
    "CASE_SECONDS", "COLLECT_TOKEN", "CONFIG", "EMBEDDINGS_API_KEY", "EMBEDDINGS_BASE_URL",
    "EMBEDDINGS_MODEL", "EMBEDDINGS_PROVIDER", "EMBEDDINGS_TIMEOUT", "FAIL_ON", "ITEMS", "JUDGE_API_KEY",
    "JUDGE_BASE_URL", "JUDGE_BUDGET_CALLS", "JUDGE_BUDGET_TOKENS", "JUDGE_BUDGET_USD",
    "GRAPH_BACKEND", "JUDGE_CACHE", "JUDGE_CONCURRENCY", "JUDGE_MODEL", "JUDGE_PRICE_INPUT",
    "JUDGE_PRICE_OUTPUT", "JUDGE_PROVIDER",
    "JUDGE_RETRIES", "JUDGE_RPM", "JUDGE_TIMEOUT", "JUDGE_TPM", "METRICS", "MOCKS_URL", "MONITOR", "P95_MS",
    "PYTHON", "REFERENCES", "REVIEWER", "SERVE_TOKEN", "SETS", "SPOOL_DIR", "STORE", "TASKS", "THRESHOLDS",
    "TRACE_URL", "UI_TOKEN_FILE",
)  # fmt: skip
"""Variables that other parts of evaltap read, without the prefix."""
_OTHER_PREFIXES = tuple(f"{PREFIX}{word}_" for word in ("KAFKA", "GATE", "TEST"))
"""Prefixes of variables whose names other parts check or derive from names in a file."""
_warned_of: set[str] = set()


def check_variables(variables: Mapping[str, str]) -> None:
    """Raise ConfigurationError for an invalid value of a recorder setting.

    For commands that record: they stop with this error. An agent continues with the default and a
    warning.
    """
    for item in fields(RecorderConfig):
        name = item.metadata["variable"]
        if name not in variables:
            continue
        try:
            item.metadata["read"](variables[name])
        except ValueError as error:
            shown = repr(variables[name]) if item.repr else "its value"
            raise ConfigurationError(f"{name}: {shown} cannot be used: {error}") from None


def unknown_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the `EVALTAP_*` names that evaltap does not read, each with a similar known name, if any."""
    known = [item.metadata["variable"] for item in fields(RecorderConfig)]
    known += [f"{PREFIX}{name}" for name in _OTHER_VARIABLES]
    return {
        name: did_you_mean(name, known)
        for name in sorted(names)
        if name.startswith(PREFIX) and name not in known and not name.startswith(_OTHER_PREFIXES)
    }


def warn_of_unknown_variables(names: Iterable[str]) -> None:
    """Log a warning for each unknown `EVALTAP_*` name, once per process."""
    for name, meant in unknown_variables(names).items():
        if name not in _warned_of:
            _warned_of.add(name)
            _LOG.warning(
                "%s is not a variable of evaltap and has no effect; %s",
                name,
                meant or "see `evaltap doctor`",
            )


def _check(value: object, default: object, read: Callable[[str], object]) -> None:
    """Raise TypeError or ValueError unless the value has the setting's type and can be parsed."""
    if isinstance(default, bool):
        if not isinstance(value, bool):
            raise TypeError("expected True or False")
    elif isinstance(default, int | float):
        whole = isinstance(default, int)
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise TypeError("expected a whole number" if whole else "expected a number")
        read(str(value))
    elif not isinstance(value, str):
        raise TypeError("expected a string")
    else:
        read(value)


def with_absolute_log(config: RecorderConfig) -> RecorderConfig:
    """Return the settings with an absolute log path: the agent may change its working directory."""
    if config.log is None:
        return config
    location = parse_log_location(config.log)
    if isinstance(location, KafkaLocation):
        return config
    try:
        return replace(config, log=str(location.absolute()))
    except OSError as error:
        raise ConfigurationError(
            f"log {config.log!r}: the current folder no longer exists ({error.strerror}); name an"
            " absolute path"
        ) from None


def configured(
    log: str | Path | None, config: RecorderConfig | None, settings: JsonObject
) -> RecorderConfig:
    """Return the settings from the arguments of a recorder; raises ConfigurationError."""
    if config is not None:
        if log is not None or settings:
            raise ConfigurationError(
                "Recorder got both config= and other settings: put them all into the config"
            )
        return config
    if log is not None:
        if not isinstance(log, str | os.PathLike):
            raise ConfigurationError(
                f"log is a {type(log).__name__}; expected a path (a plugin takes a recorder as recorder=)"
            )
        settings["log"] = str(log)
    if isinstance(settings.get("tags"), list | tuple):
        settings["tags"] = ",".join(map(str, settings["tags"]))
    try:
        return RecorderConfig(**settings)
    except TypeError as error:
        known = ", ".join(RecorderConfig.__dataclass_fields__)
        raise ConfigurationError(f"{error}; settings are: {known}") from error
