"""The recorder: in the agent's process, from events of any source to turns on the log.

Importing it opens no file, socket or thread and loads nothing heavy; names are resolved when they
are first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaltap.recorder.config import RecorderConfig
    from evaltap.recorder.custom_rules import custom_rule
    from evaltap.recorder.field_policy import FieldPolicy
    from evaltap.recorder.ledger import Counters
    from evaltap.recorder.recorder import Recorder
    from evaltap.recorder.redaction import PatternRedactor, RedactionReport, Redactor
    from evaltap.recorder.sinks.base import Sink, SinkError
    from evaltap.recorder.sinks.local_log import LocalLogSink
    from evaltap.recorder.sinks.memory import MemorySink
    from evaltap.recorder.spans import CaseSpanProcessor
    from evaltap.recorder.surroundings import Sight, look_around
    from evaltap.recorder.tool_decorator import tool
    from evaltap.recorder.turn_api import ToolCall, Turn

_HOMES = {
    "config": ("RecorderConfig",),
    "custom_rules": ("custom_rule",),
    "field_policy": ("FieldPolicy",),
    "ledger": ("Counters",),
    "recorder": ("Recorder",),
    "redaction": ("PatternRedactor", "RedactionReport", "Redactor"),
    "sinks.base": ("Sink", "SinkError"),
    "sinks.local_log": ("LocalLogSink",),
    "sinks.memory": ("MemorySink",),
    "spans": ("CaseSpanProcessor",),
    "surroundings": ("Sight", "look_around"),
    "tool_decorator": ("tool",),
    "turn_api": ("ToolCall", "Turn"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "CaseSpanProcessor",
    "Counters",
    "FieldPolicy",
    "LocalLogSink",
    "MemorySink",
    "PatternRedactor",
    "Recorder",
    "RecorderConfig",
    "RedactionReport",
    "Redactor",
    "Sight",
    "Sink",
    "SinkError",
    "ToolCall",
    "Turn",
    "custom_rule",
    "look_around",
    "tool",
]


def __getattr__(name: str) -> Any:
    """Return a public name from the module where it lives, loaded at the first use."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return sorted(__all__)
