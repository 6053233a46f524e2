"""Offline scoring of recorded agent traces: evaluators, the scoring of a case, and their contracts.

Importing this package loads none of it; each name is resolved when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from evaltap.evaluator.context import (
        EvaluationContext,
        EvaluatorFailure,
        MetricScore,
        RubricVerdict,
        Services,
        Status,
        Turn,
        TurnScore,
        Vote,
    )
    from evaltap.evaluator.cost import CostClass
    from evaltap.evaluator.embedding import Embedder, ScriptedEmbedder
    from evaltap.evaluator.errors import (
        EmbeddingError,
        JudgeError,
        JudgeInvalid,
        JudgeNotConfigured,
        JudgeRejected,
        JudgeUnavailable,
        MetricError,
        UnknownEvaluatorError,
    )
    from evaltap.evaluator.evaluation import evaluate_case, evaluate_case_async
    from evaltap.evaluator.func import Func
    from evaltap.evaluator.gate import Gate, GateResult
    from evaltap.evaluator.judge import (
        Judge,
        JudgeReply,
        JudgeRequest,
        ScriptedJudge,
        judge_from,
    )
    from evaltap.evaluator.openai_judge import OpenAIJudge
    from evaltap.evaluator.registry import Evaluator, Registry
    from evaltap.evaluator.revision import Attempt, Revision, revise, revise_async
    from evaltap.evaluator.scoring import CaseScore, CaseScorer, MetricOutcome
    from evaltap.evaluator.suite import Suite, SuiteResult

_HOMES = {
    "context": (
        "EvaluationContext",
        "EvaluatorFailure",
        "MetricScore",
        "RubricVerdict",
        "Services",
        "Status",
        "Turn",
        "TurnScore",
        "Vote",
    ),
    "cost": ("CostClass",),
    "embedding": ("Embedder", "ScriptedEmbedder"),
    "errors": (
        "EmbeddingError",
        "JudgeError",
        "JudgeInvalid",
        "JudgeNotConfigured",
        "JudgeRejected",
        "JudgeUnavailable",
        "MetricError",
        "UnknownEvaluatorError",
    ),
    "evaluation": ("evaluate_case", "evaluate_case_async"),
    "func": ("Func",),
    "gate": ("Gate", "GateResult"),
    "judge": ("Judge", "JudgeReply", "JudgeRequest", "ScriptedJudge", "judge_from"),
    "openai_judge": ("OpenAIJudge",),
    "registry": ("Evaluator", "Registry"),
    "revision": ("Attempt", "Revision", "revise", "revise_async"),
    "scoring": ("CaseScore", "CaseScorer", "MetricOutcome"),
    "suite": ("Suite", "SuiteResult"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Attempt",
    "CaseScore",
    "CaseScorer",
    "CostClass",
    "Embedder",
    "EmbeddingError",
    "EvaluationContext",
    "Evaluator",
    "EvaluatorFailure",
    "Func",
    "Gate",
    "GateResult",
    "Judge",
    "JudgeError",
    "JudgeInvalid",
    "JudgeNotConfigured",
    "JudgeRejected",
    "JudgeReply",
    "JudgeRequest",
    "JudgeUnavailable",
    "MetricError",
    "MetricOutcome",
    "MetricScore",
    "OpenAIJudge",
    "Registry",
    "Revision",
    "RubricVerdict",
    "ScriptedEmbedder",
    "ScriptedJudge",
    "Services",
    "Status",
    "Suite",
    "SuiteResult",
    "Turn",
    "TurnScore",
    "UnknownEvaluatorError",
    "Vote",
    "evaluate_case",
    "evaluate_case_async",
    "judge_from",
    "revise",
    "revise_async",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
