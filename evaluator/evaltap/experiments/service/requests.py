"""What the two steps of an evaluation are asked, and what they return.

Requests and inference results may be edited by callbacks; everything else is frozen.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.result import EvalCaseResult


class ServiceError(EvaltapError):
    """Raised when a step ends as a whole: a callback at a set point failed, or a request cannot be served."""


@dataclass(slots=True)
class InferenceRequest:
    """Asks for the agent to be run on cases of a set."""

    app_name: str
    eval_set_id: str
    eval_case_ids: list[str] = field(default_factory=list)
    """Only these cases; none means all."""
    run_id: int = 0
    """Which of the evaluation's runs it is, from 1."""


@dataclass(slots=True)
class InferenceResult:
    """What the agent did for one case."""

    app_name: str
    eval_set_id: str
    eval_case_id: str
    eval_mode: str
    session_id: str
    user_id: str
    status: str = ""
    """passed, or failed: then `error_message` says why, and the turns that had ended are kept."""
    error_message: str = ""
    inferences: list[CaseData | None] = field(default_factory=list)
    """The actual turns."""
    expected_inferences: list[CaseData | None] = field(default_factory=list)
    """What the expected runner did, if the case asks for it."""
    execution_traces: list[Any] = field(default_factory=list)
    """The traces that the events brought, as JSON; also of a turn that failed."""
    ended_by: str = ""
    """How a simulated conversation ended: stop_signal, limit, simulator_error or agent_error."""
    eval_case: EvalCase | None = None
    """The case as it was run: it is evaluated as such, even if it is edited meanwhile."""

    def failed(self, why: str) -> "InferenceResult":
        """Mark the case as failed, and return it."""
        self.status, self.error_message = "failed", why
        return self


@dataclass(slots=True)
class EvaluateRequest:
    """Asks for the scores of inference results."""

    app_name: str
    eval_set_id: str
    inference_results: list[InferenceResult]
    metrics: Sequence[EvalMetric]
    run_id: int = 0
    """Which of the evaluation's runs it is, from 1."""


@dataclass(slots=True)
class SetRunResult:
    """The scores of one run of a set, in the order of the inference results."""

    app_name: str
    eval_set_id: str
    eval_case_results: list[EvalCaseResult]
