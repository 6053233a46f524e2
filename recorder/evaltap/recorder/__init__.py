"""The recorder runs in the agent's process and turns events from any source into turns on the log.

Importing it opens no file, socket or thread and loads nothing heavy: public names are resolved on
first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaltap.recorder.config import RecorderConfig
    from evaltap.recorder.delivery.case_ids import IdResolver, RunFacts
    from evaltap.recorder.delivery.counters import Counters
    from evaltap.recorder.delivery.sinks.base import MemorySink, Sink, SinkError
    from evaltap.recorder.delivery.sinks.local_log import LocalLogSink
    from evaltap.recorder.diagnostics import Diagnostic, Sight, diagnose, look_around
    from evaltap.recorder.privacy.policy import FieldPolicy
    from evaltap.recorder.privacy.redacted_values import RedactionReport
    from evaltap.recorder.privacy.redactor import PatternRedactor, Redactor
    from evaltap.recorder.privacy.rules import custom_rule
    from evaltap.recorder.recorder import Recorder
    from evaltap.recorder.sources.span_processor import CaseSpanProcessor
    from evaltap.recorder.turn_api import ToolCall, Turn, tool

_EXPORTS = {
    "config": ("RecorderConfig",),
    "delivery.case_ids": ("IdResolver", "RunFacts"),
    "delivery.counters": ("Counters",),
    "delivery.sinks.base": ("MemorySink", "Sink", "SinkError"),
    "delivery.sinks.local_log": ("LocalLogSink",),
    "diagnostics": ("Diagnostic", "Sight", "diagnose", "look_around"),
    "privacy.policy": ("FieldPolicy",),
    "privacy.redacted_values": ("RedactionReport",),
    "privacy.redactor": ("PatternRedactor", "Redactor"),
    "privacy.rules": ("custom_rule",),
    "recorder": ("Recorder",),
    "sources.span_processor": ("CaseSpanProcessor",),
    "turn_api": ("ToolCall", "Turn", "tool"),
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "CaseSpanProcessor",
    "Counters",
    "Diagnostic",
    "FieldPolicy",
    "IdResolver",
    "LocalLogSink",
    "MemorySink",
    "PatternRedactor",
    "Recorder",
    "RecorderConfig",
    "RedactionReport",
    "Redactor",
    "RunFacts",
    "Sight",
    "Sink",
    "SinkError",
    "ToolCall",
    "Turn",
    "custom_rule",
    "diagnose",
    "look_around",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Return a public name, importing its module on first use."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
