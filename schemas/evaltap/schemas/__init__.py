"""The contract between recorder and evaluator: data models, file formats, wire format.

Models load pydantic; importing this package does not, because names are resolved on first use. An
agent's process loads only what it needs.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaltap.schemas.data import CaseData
    from evaltap.schemas.errors import ConfigurationError, EvaltapError, FormatError, InputError
    from evaltap.schemas.files.documents import (
        iter_cases,
        read_eval_set,
        read_metrics,
        read_result,
        write_document,
    )
    from evaltap.schemas.formats.case import (
        CaseRubric,
        CaseSource,
        EvalCase,
        EvalSet,
        Invocation,
        Rubric,
        SessionInput,
        Telemetry,
        Tool,
    )
    from evaltap.schemas.formats.message import Message
    from evaltap.schemas.formats.metric import Criterion, EvalMetric, JudgeModel
    from evaltap.schemas.formats.result import EvalCaseResult, EvalMetricResult, EvalSetResult

_EXPORTS = {
    "data": ("CaseData",),
    "formats.case": (
        "CaseRubric",
        "CaseSource",
        "EvalCase",
        "EvalSet",
        "Invocation",
        "Rubric",
        "SessionInput",
        "Telemetry",
        "Tool",
    ),
    "files.documents": (
        "iter_cases",
        "read_eval_set",
        "read_metrics",
        "read_result",
        "write_document",
    ),
    "errors": ("ConfigurationError", "EvaltapError", "FormatError", "InputError"),
    "formats.message": ("Message",),
    "formats.metric": ("Criterion", "EvalMetric", "JudgeModel"),
    "formats.result": ("EvalCaseResult", "EvalMetricResult", "EvalSetResult"),
}
_MODULE_OF = {name: module for module, names in _EXPORTS.items() for name in names}

__all__ = [
    "CaseData",
    "CaseRubric",
    "CaseSource",
    "ConfigurationError",
    "Criterion",
    "EvalCase",
    "EvalCaseResult",
    "EvalMetric",
    "EvalMetricResult",
    "EvalSet",
    "EvalSetResult",
    "EvaltapError",
    "FormatError",
    "InputError",
    "Invocation",
    "JudgeModel",
    "Message",
    "Rubric",
    "SessionInput",
    "Telemetry",
    "Tool",
    "iter_cases",
    "read_eval_set",
    "read_metrics",
    "read_result",
    "write_document",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)


def __dir__() -> list[str]:
    return __all__
