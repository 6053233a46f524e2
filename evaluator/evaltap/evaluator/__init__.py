"""Offline scoring of recorded agent traces: evaluators, the scoring of a case, and their contracts.

Importing this package loads none of it: names are resolved on first use.
"""

# ruff: noqa: I001  # it would give each `X as X`, which exports a name to type checkers, a statement of its own

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from evaltap.evaluator.cases.turn import Case as Case, ToolCall as ToolCall, Turn as Turn
    from evaltap.evaluator.scoring.contract.comparisons import Comparisons as Comparisons
    from evaltap.evaluator.scoring.contract.context import (
        EvaluationContext as EvaluationContext,
        EvaluatorFailure as EvaluatorFailure,
        MetricScore as MetricScore,
        RubricVerdict as RubricVerdict,
        Services as Services,
        Status as Status,
        TurnScore as TurnScore,
        Vote as Vote,
    )
    from evaltap.evaluator.scoring.contract.embedder import (
        Embedder as Embedder,
        EmbeddingError as EmbeddingError,
        ScriptedEmbedder as ScriptedEmbedder,
    )
    from evaltap.evaluator.scoring.contract.errors import (
        MetricError as MetricError,
        UnknownEvaluatorError as UnknownEvaluatorError,
    )
    from evaltap.evaluator.scoring.contract.evaluator import (
        CostClass as CostClass,
        Evaluator as Evaluator,
        Registry as Registry,
    )
    from evaltap.evaluator.scoring.contract.judge import (
        Judge as Judge,
        JudgeError as JudgeError,
        JudgeInvalid as JudgeInvalid,
        JudgeNotConfigured as JudgeNotConfigured,
        JudgeRejected as JudgeRejected,
        JudgeReply as JudgeReply,
        JudgeRequest as JudgeRequest,
        JudgeUnavailable as JudgeUnavailable,
        ScriptedJudge as ScriptedJudge,
    )
    from evaltap.evaluator.scoring.contract.turn_evaluator import (
        Finding as Finding,
        MissingEvidence as MissingEvidence,
        TurnEvaluator as TurnEvaluator,
    )
    from evaltap.evaluator.scoring.evaluators.function import Func as Func
    from evaltap.evaluator.scoring.evaluators.judged.answers import (
        Verdict as Verdict,
        read_boolean as read_boolean,
        read_category as read_category,
        read_single_score as read_single_score,
    )
    from evaltap.evaluator.scoring.evaluators.judged.delimiters import (
        delimited as delimited,
        fresh_nonce as fresh_nonce,
    )
    from evaltap.evaluator.scoring.evaluators.judged.evaluator import (
        Judged as Judged,
        Question as Question,
        TurnView as TurnView,
    )
    from evaltap.evaluator.scoring.gates.gate import (
        Attempt as Attempt,
        Gate as Gate,
        GateResult as GateResult,
    )
    from evaltap.evaluator.scoring.gates.revision import (
        Revision as Revision,
        revise as revise,
        revise_async as revise_async,
    )
    from evaltap.evaluator.scoring.judges.openai import OpenAIJudge as OpenAIJudge
    from evaltap.evaluator.scoring.judges.provider import judge_from as judge_from
    from evaltap.evaluator.scoring.evaluate import (
        evaluate_case as evaluate_case,
        evaluate_case_async as evaluate_case_async,
    )
    from evaltap.evaluator.scoring.scorer import (
        CaseScore as CaseScore,
        CaseScorer as CaseScorer,
        MetricOutcome as MetricOutcome,
    )
    from evaltap.evaluator.scoring.suite import Suite as Suite, SuiteResult as SuiteResult

_HOMES: Final = {
    "cases.turn": "Case ToolCall Turn",
    "scoring.contract.comparisons": "Comparisons",
    "scoring.contract.context": "EvaluationContext EvaluatorFailure MetricScore RubricVerdict"
    " Services Status TurnScore Vote",
    "scoring.contract.embedder": "Embedder EmbeddingError ScriptedEmbedder",
    "scoring.contract.errors": "MetricError UnknownEvaluatorError",
    "scoring.contract.evaluator": "CostClass Evaluator Registry",
    "scoring.contract.judge": "Judge JudgeError JudgeInvalid JudgeNotConfigured JudgeRejected"
    " JudgeReply JudgeRequest JudgeUnavailable ScriptedJudge",
    "scoring.contract.turn_evaluator": "Finding MissingEvidence TurnEvaluator",
    "scoring.evaluators.function": "Func",
    "scoring.evaluators.judged.answers": "Verdict read_boolean read_category read_single_score",
    "scoring.evaluators.judged.delimiters": "delimited fresh_nonce",
    "scoring.evaluators.judged.evaluator": "Judged Question TurnView",
    "scoring.gates.gate": "Attempt Gate GateResult",
    "scoring.gates.revision": "Revision revise revise_async",
    "scoring.judges.openai": "OpenAIJudge",
    "scoring.judges.provider": "judge_from",
    "scoring.evaluate": "evaluate_case evaluate_case_async",
    "scoring.scorer": "CaseScore CaseScorer MetricOutcome",
    "scoring.suite": "Suite SuiteResult",
}
"""The names of this package by the module that defines them, as the imports above tell type checkers."""
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(_HOME)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return __all__
