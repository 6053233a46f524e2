"""Diagnostics of the recorder's process: problems in its environment that would impair recordings.

Call `diagnose()` in the agent's process after tracing is set up, and print the findings.
`evaltap doctor` prints the same findings for its own environment.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from evaltap.recorder.config import RecorderConfig, unknown_variables
from evaltap.recorder.delivery.free_space import shortage
from evaltap.recorder.delivery.spool.spool import (
    SpoolState,
    damaged_spools,
    other_folders,
    spool_states,
)
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.files.settings import DISCOVERED, FILE_NAME
from evaltap.schemas.log.folders import spool_path
from evaltap.schemas.log.local import LocalLog, open_log
from evaltap.schemas.log.location import KafkaLocation, parse_log_location
from evaltap.schemas.log.retention import WARN_SHARE, consumers, limit_of, waiting_bytes

Severity = Literal["ok", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: the subject, what was found, its severity, and what to do about it."""

    about: str
    found: str
    severity: Severity = "ok"
    remedy: str = ""

    @property
    def verdict(self) -> Severity:
        """The severity, under its former name."""
        return self.severity


def diagnose(environment: Mapping[str, str] | None = None) -> list[Diagnostic]:
    """Return findings about this process: provider, packages, switches, settings, log.

    `environment` replaces the variables of the process. Never raises.
    """
    variables = os.environ if environment is None else environment
    installed = _installed()
    return [
        _provider(),
        *_packages(installed),
        *_switches(variables, installed),
        *_settings(variables),
    ]


# -- tracing ---------------------------------------------------------------------------------------


def _provider() -> Diagnostic:
    about = "tracer provider"
    if (trace := sys.modules.get("opentelemetry.trace")) is None:
        return Diagnostic(
            about, "OpenTelemetry is not loaded in this process", "note", _IN_THE_AGENT
        )
    provider = trace.get_tracer_provider()
    kind = type(provider)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if (processors := _processors(provider)) is None:
        return Diagnostic(
            about,
            f"{name}: spans are discarded",
            "note",
            "call opentelemetry.trace.set_tracer_provider with an SDK provider; " + _IN_THE_AGENT,
        )
    if any("evaltap" in one for one in processors):
        return Diagnostic(about, f"{name} with {', '.join(processors)}")
    return Diagnostic(
        about,
        f"{name} with {', '.join(processors) or 'no processor'}",
        "problem",
        "call provider.add_span_processor(CaseSpanProcessor(log=...))",
    )


_IN_THE_AGENT = "to check an agent, call evaltap.recorder.diagnose() in its process"


def _processors(provider: object) -> list[str] | None:
    """Return the names of the provider's processors, None if it does not support processors."""
    if (held := getattr(provider, "_active_span_processor", None)) is None:
        return None
    found: list[str] = []
    for one in getattr(held, "_span_processors", ()):
        exporter = getattr(one, "span_exporter", None)
        for part in (one, exporter):
            if part is not None:
                kind = type(part)
                prefix = "evaltap." if kind.__module__.startswith("evaltap.") else ""
                found.append(prefix + kind.__qualname__)
    return found


_INSTRUMENTATIONS = ("opentelemetry-instrumentation-", "openinference-instrumentation-")
_NAMED = {
    "traceloop-sdk": "instrumentation",
    "logfire": "instrumentation",
    "langfuse": "instrumentation",
    "langsmith": "instrumentation",
    "google-adk": "framework",
    "openai-agents": "framework",
    "langchain-core": "framework",
    "langgraph": "framework",
    "pydantic-ai": "framework",
    "pydantic-ai-slim": "framework",
    "strands-agents": "framework",
    "claude-agent-sdk": "framework",
    "agent-framework-core": "framework",
    "crewai": "framework",
    "autogen-agentchat": "framework",
    "llama-index-core": "framework",
    "smolagents": "framework",
}


def _installed() -> dict[str, str]:
    """Return the versions of the installed distributions, by name."""
    read = (one.metadata for one in metadata.distributions())  # each access reads the file again
    return {(one["Name"] or "").lower().replace("_", "-"): one["Version"] for one in read}


def _packages(installed: Mapping[str, str]) -> list[Diagnostic]:
    found: dict[str, list[str]] = {"framework": [], "instrumentation": []}
    for name, number in installed.items():
        kind = "instrumentation" if name.startswith(_INSTRUMENTATIONS) else _NAMED.get(name)
        if kind is not None:
            found[kind].append(f"{name} {number}")
    return [
        Diagnostic(f"{kind}s installed", ", ".join(sorted(set(names))) or "none known")
        for kind, names in found.items()
    ]


# -- switches of instrumentations ------------------------------------------------------------------

_OFF, _ON = ("", "0", "false", "no", "off", "no_content"), ("1", "true", "yes", "on")


def _switches(variables: Mapping[str, str], installed: Mapping[str, str]) -> list[Diagnostic]:
    """Return the switches that are set or belong to an installed library."""
    return [
        *(
            _content_switch(variables, name, who, by_default, good)
            for name, who, by_default, good, libraries in _CONTENT_SWITCHES
            if name in variables or any(one.startswith(libraries) for one in installed)
        ),
        *(
            Diagnostic(name, f"is {variables[name]!r}: {effect}", "problem", f"unset {name}")
            for name, effect in _HARMFUL.items()
            if variables.get(name, "").strip().lower() not in (*_OFF, *_HARMLESS.get(name, ()))
        ),
    ]


def _content_switch(
    variables: Mapping[str, str], name: str, who: str, by_default: bool, good: str
) -> Diagnostic:
    value = variables.get(name)
    is_on = by_default if value is None else value.strip().lower() not in _OFF
    found = f"is {value!r}" if value is not None else "is not set"
    if is_on:
        return Diagnostic(name, f"{found}: {who} record content")
    # Only a note: without content, trajectories can still be scored; answers cannot.
    return Diagnostic(name, f"{found}: {who} record no content", "note", f"set {name}={good}")


_CONTENT_SWITCHES = (
    (
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT",
        "OpenTelemetry's GenAI instrumentations, and ADK's newer schema,",
        False,
        "SPAN_ONLY",
        ("opentelemetry-instrumentation-", "google-adk"),
    ),
    ("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "Google ADK's spans", True, "true", ("google-adk",)),
    (
        "TRACELOOP_TRACE_CONTENT",
        "OpenLLMetry's instrumentations",
        True,
        "true",
        ("opentelemetry-instrumentation-", "traceloop-sdk"),
    ),
    (
        "ENABLE_SENSITIVE_DATA",
        "Microsoft Agent Framework's spans",
        False,
        "true",
        ("agent-framework",),
    ),
    ("OTEL_LOG_USER_PROMPTS", "Claude Code's events", False, "1", ("claude-agent-sdk",)),
)
"""Name, whose it is, whether content is recorded by default, a good value, how its libraries' names begin."""
_HARMFUL = {
    "OTEL_SDK_DISABLED": "no spans are created",
    "OPENINFERENCE_HIDE_INPUTS": "OpenInference leaves out inputs",
    "OPENINFERENCE_HIDE_OUTPUTS": "OpenInference leaves out outputs",
    "OPENINFERENCE_HIDE_INPUT_MESSAGES": "OpenInference leaves out the messages sent to the model",
    "OPENINFERENCE_HIDE_OUTPUT_MESSAGES": "OpenInference leaves out the model's messages",
    "OTEL_SPAN_ATTRIBUTE_VALUE_LENGTH_LIMIT": "longer texts are truncated",
    "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT": "longer texts are truncated",
    "OTEL_TRACES_SAMPLER": "spans that are sampled out cannot be recorded",
}
_HARMLESS = {"OTEL_TRACES_SAMPLER": ("always_on", "parentbased_always_on")}


# -- evaltap's settings ----------------------------------------------------------------------------


def _settings(variables: Mapping[str, str]) -> list[Diagnostic]:
    # Only the names are shown: values may be secrets.
    unknown = unknown_variables(variables)
    given = [n for n in sorted(variables) if n.startswith("EVALTAP_") and n not in unknown]
    in_file = [name for name in given if name in variables.get(DISCOVERED, "").split()]
    shown = [", ".join(name for name in given if name not in in_file) or "none"]
    shown += [f"from {FILE_NAME}: {', '.join(in_file)}"] if in_file else []
    diagnostics = [Diagnostic("EVALTAP_* variables", "; ".join(shown))]
    diagnostics += (
        Diagnostic(
            name,
            "is not a variable of evaltap and has no effect",
            "problem",
            meant or f"unset {name}",
        )
        for name, meant in unknown.items()
    )
    config = RecorderConfig()
    diagnostics += _effects(config)
    if config.log is not None:
        diagnostics += log_diagnostics(config.log, config.log_max_bytes)
    return diagnostics


def _effects(config: RecorderConfig) -> Iterator[Diagnostic]:
    """Yield which settings keep turns, or their redaction, from being recorded."""
    if config.disabled:
        remedy = "unset EVALTAP_DISABLED"
        yield Diagnostic("EVALTAP_DISABLED", "nothing is recorded", "problem", remedy)
    if config.sample_rate < 1:
        recorded = f"records {config.sample_rate:.1%} of the sessions"
        yield Diagnostic("EVALTAP_SAMPLE_RATE", recorded, "note")
    if not config.redaction:
        off = "is off: personal data and secrets are written unredacted"
        yield Diagnostic("EVALTAP_REDACTION", off, "note")


def log_diagnostics(log: str, max_bytes: int) -> list[Diagnostic]:
    """Return the diagnostic of the log, and those of spools for topics of that name on other brokers."""
    return [log_diagnostic(log, max_bytes), *other_spools(log)]


def log_diagnostic(log: str, max_bytes: int) -> Diagnostic:
    """Check whether a local log can be written, or count the records in the spools for a broker.

    `max_bytes` is the size limit of a local log.
    """
    about = f"log {log}"
    if "://" in log:
        return _spool_diagnostic(log)
    path = Path(log)
    folder = path.absolute().parent
    if not folder.is_dir():
        return Diagnostic(about, f"the folder {folder} does not exist", "problem", "create it")
    if not os.access(folder, os.W_OK):
        return Diagnostic(
            about,
            f"the folder {folder} is not writable",
            "problem",
            "give the agent's user write permission",
        )
    if short := shortage(folder):
        return Diagnostic(about, short, "problem", "free disk space")
    if not path.exists():
        return Diagnostic(about, "does not exist yet; can be created")
    try:
        opened = open_log(path, mode="append")
    except InputError as error:
        return Diagnostic(about, str(error), "problem", "correct the setting in the message")
    with closing(opened):
        return _room_diagnostic(about, opened, limit_of(opened) or max_bytes)


def _room_diagnostic(about: str, log: LocalLog, max_bytes: int) -> Diagnostic:
    """Check whether a log is about to drop turns; only records that consumers landed can be deleted."""
    used, waiting = log.used_bytes(), waiting_bytes(log)
    who = ", ".join(one.name for one in consumers(log)) or "none yet"
    found = f"{used:,} of {max_bytes:,} bytes used, {waiting:,} waiting for consumers ({who})"
    remedy = "start `evaltap consume`, or raise EVALTAP_LOG_MAX_BYTES for the recorder"
    if waiting >= max_bytes:
        return Diagnostic(about, f"is full: {found}", "problem", remedy)
    if waiting >= WARN_SHARE * max_bytes:
        return Diagnostic(about, f"is nearly full: {found}", "problem", remedy)
    return Diagnostic(about, f"writable; {found}")


def _spool_diagnostic(log: str) -> Diagnostic:
    about = f"spool for {log}"
    try:
        location = parse_log_location(log)
    except ConfigurationError as error:
        return Diagnostic(about, str(error), "problem", "correct EVALTAP_LOG")
    assert isinstance(location, KafkaLocation), "a URL names topics"
    folder = spool_path(location)
    states = spool_states(folder)
    waiting = [state for state in states if not state.is_rejected]
    left = _records(state for state in waiting if not state.owned)
    aside = [state for state in states if state.is_rejected]
    broken = next((state.trouble for state in states if state.trouble), "")
    found = f"{_records(waiting):,} records waiting for the broker"
    found += f", {left:,} of them from ended processes" if left else ""
    if broken:
        remedy = "check that file; evaltap does not delete it"
        return Diagnostic(about, f"{found}; {broken}", "problem", remedy)
    if aside:
        lost = _records(aside)
        remedy = f"land them with evaltap consume --log {aside[0].path}"
        return Diagnostic(about, f"{found}; the broker refused {lost:,} more", "problem", remedy)
    if damaged := damaged_spools(folder):
        remedy = (
            f"land their readable records with evaltap consume --log {damaged[0]}, or delete them"
        )
        return Diagnostic(
            about, f"{found}; {len(damaged):,} spools were damaged and set aside", "problem", remedy
        )
    if left:
        return Diagnostic(
            about, found, "note", "the next process that records to this topic sends them"
        )
    return Diagnostic(about, found)


def _records(states: Iterable[SpoolState]) -> int:
    return sum(state.records for state in states)


def other_spools(log: str) -> list[Diagnostic]:
    """Return records that ended processes left for a topic of this name on differently named brokers.

    They are not sent automatically, because they may be meant for another cluster.
    """
    try:
        location = parse_log_location(log)
    except ConfigurationError:
        return []  # reported by log_diagnostic
    if not isinstance(location, KafkaLocation):
        return []
    diagnostics = [_other_spool(location, *other) for other in other_folders(location)]
    return [diagnostic for diagnostic in diagnostics if diagnostic is not None]


def _other_spool(location: KafkaLocation, folder: Path, written_for: str) -> Diagnostic | None:
    """Return the diagnostic of a folder for other brokers, None if the folder has no records."""
    left = [state for state in spool_states(folder) if not state.owned]
    waiting = _records(state for state in left if not state.is_rejected)
    aside = [state for state in left if state.is_rejected and state.records]
    unreadable = next((state.trouble for state in left if state.trouble), "")
    if not any((waiting, aside, unreadable)):
        return None
    whose = "by an older evaltap, which did not note the brokers"
    remedy = f"move {folder}/*.log.db* to {spool_path(location)} if they are for {location}"
    if written_for:
        whose = f"for {written_for}"
        remedy = f"record to {written_for} once, e.g. with evaltap record; or {remedy}"
    found = f"{waiting:,} unsent records that ended processes left {whose}"
    if aside:
        found += f"; the broker refused {_records(aside):,} more"
        remedy += f"; land those with evaltap consume --log {aside[0].path}"
    if unreadable:
        found += f"; {unreadable}"
    return Diagnostic(f"spools in {folder}", found, "problem", remedy)


Sight = Diagnostic
"""The former name."""
look_around = diagnose
"""The former name."""
