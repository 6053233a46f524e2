"""The recorder runs in the agent's process and turns events from any source into turns on the log.

Importing it opens no file, socket or thread and loads nothing heavy: public names are resolved on
first use.
"""

# ruff: noqa: I001  # it would give each `X as X`, which exports a name to type checkers, a statement of its own

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaltap.recorder.config import RecorderConfig as RecorderConfig
    from evaltap.recorder.delivery.case_ids import IdResolver as IdResolver, RunFacts as RunFacts
    from evaltap.recorder.delivery.counters import Counters as Counters
    from evaltap.recorder.delivery.sinks.base import (
        MemorySink as MemorySink,
        Sink as Sink,
        SinkError as SinkError,
    )
    from evaltap.recorder.delivery.sinks.local_log import LocalLogSink as LocalLogSink
    from evaltap.recorder.diagnostics import (
        Diagnostic as Diagnostic,
        Sight as Sight,
        diagnose as diagnose,
        look_around as look_around,
    )
    from evaltap.recorder.privacy.policy import FieldPolicy as FieldPolicy
    from evaltap.recorder.privacy.redacted_values import RedactionReport as RedactionReport
    from evaltap.recorder.privacy.redactor import (
        PatternRedactor as PatternRedactor,
        Redactor as Redactor,
    )
    from evaltap.recorder.privacy.rules import custom_rule as custom_rule
    from evaltap.recorder.recorder import Recorder as Recorder
    from evaltap.recorder.sources.span_processor import CaseSpanProcessor as CaseSpanProcessor
    from evaltap.recorder.turn_api import ToolCall as ToolCall, Turn as Turn, tool as tool

_HOMES = {
    "config": "RecorderConfig",
    "delivery.case_ids": "IdResolver RunFacts",
    "delivery.counters": "Counters",
    "delivery.sinks.base": "MemorySink Sink SinkError",
    "delivery.sinks.local_log": "LocalLogSink",
    "diagnostics": "Diagnostic Sight diagnose look_around",
    "privacy.policy": "FieldPolicy",
    "privacy.redacted_values": "RedactionReport",
    "privacy.redactor": "PatternRedactor Redactor",
    "privacy.rules": "custom_rule",
    "recorder": "Recorder",
    "sources.span_processor": "CaseSpanProcessor",
    "turn_api": "ToolCall Turn tool",
}
"""The names of this package by the module that defines them, as the imports above tell type checkers."""
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
