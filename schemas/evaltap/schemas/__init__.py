"""The contract between recorder and evaluator: data models, file formats, wire format.

Models load pydantic; importing this package does not, because names are resolved on first use. An
agent's process loads only what it needs.
"""

# ruff: noqa: I001  # it would give each `X as X`, which exports a name to type checkers, a statement of its own

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaltap.schemas.data import CaseData as CaseData
    from evaltap.schemas.errors import (
        ConfigurationError as ConfigurationError,
        EvaltapError as EvaltapError,
        FormatError as FormatError,
        InputError as InputError,
    )
    from evaltap.schemas.files.documents import (
        iter_cases as iter_cases,
        read_eval_set as read_eval_set,
        read_metrics as read_metrics,
        read_result as read_result,
        write_document as write_document,
    )
    from evaltap.schemas.formats.case import (
        CaseRubric as CaseRubric,
        CaseSource as CaseSource,
        EvalCase as EvalCase,
        EvalSet as EvalSet,
        Invocation as Invocation,
        Rubric as Rubric,
        SessionInput as SessionInput,
        Telemetry as Telemetry,
        Tool as Tool,
    )
    from evaltap.schemas.formats.message import Message as Message
    from evaltap.schemas.formats.metric import (
        Criterion as Criterion,
        EvalMetric as EvalMetric,
        JudgeModel as JudgeModel,
    )
    from evaltap.schemas.formats.result import (
        EvalCaseResult as EvalCaseResult,
        EvalMetricResult as EvalMetricResult,
        EvalSetResult as EvalSetResult,
    )

_HOMES = {
    "data": "CaseData",
    "errors": "ConfigurationError EvaltapError FormatError InputError",
    "files.documents": "iter_cases read_eval_set read_metrics read_result write_document",
    "formats.case": "CaseRubric CaseSource EvalCase EvalSet Invocation Rubric SessionInput Telemetry Tool",
    "formats.message": "Message",
    "formats.metric": "Criterion EvalMetric JudgeModel",
    "formats.result": "EvalCaseResult EvalMetricResult EvalSetResult",
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
