"""The evaluation service of tRPC-Agent-Go: run an agent on the cases of a set, score it, over several runs.

evaluator = AgentEvaluator("my-app", agent, stores=file_stores("data"), num_runs=3)
evaluator.evaluate("golden").overall_status
"""

from evaltap.experiments.mocks.turn_mocks import (
    GeneratorAnswer,
    GeneratorCall,
    TurnMocks,
    turn_mocks,
)
from evaltap.experiments.service.aggregation import Aggregated, Aggregator, weighted_mean
from evaltap.experiments.service.best_of import BestOf, Chosen, Compare, NoBestError
from evaltap.experiments.service.callbacks import (
    POINTS,
    Callback,
    CallbackCall,
    CallbackResult,
    Callbacks,
)
from evaltap.experiments.service.capture import CapturedTurn, TurnCapture, capture_turn
from evaltap.experiments.service.evaluator import (
    AgentEvaluator,
    EvaluationResult,
    LocalService,
    Service,
)
from evaltap.experiments.service.options import Options
from evaltap.experiments.service.recorded import RecordedAgent
from evaltap.experiments.service.remote import RemoteAgent
from evaltap.experiments.service.requests import (
    EvaluateRequest,
    InferenceRequest,
    InferenceResult,
    ServiceError,
    SetRunResult,
)
from evaltap.experiments.service.runners import AgentCall, Runner
from evaltap.experiments.service.runs import CaseOverRuns, RunDetails, cases_over_runs, set_status
from evaltap.experiments.service.simulation import (
    SimulatedConversation,
    SimulationError,
    SimulationStart,
    Simulator,
    UserSimulator,
)

__all__ = [
    "POINTS",
    "AgentCall",
    "AgentEvaluator",
    "Aggregated",
    "Aggregator",
    "BestOf",
    "Callback",
    "CallbackCall",
    "CallbackResult",
    "Callbacks",
    "CapturedTurn",
    "CaseOverRuns",
    "Chosen",
    "Compare",
    "EvaluateRequest",
    "EvaluationResult",
    "GeneratorAnswer",
    "GeneratorCall",
    "InferenceRequest",
    "InferenceResult",
    "LocalService",
    "NoBestError",
    "Options",
    "RecordedAgent",
    "RemoteAgent",
    "RunDetails",
    "Runner",
    "Service",
    "ServiceError",
    "SetRunResult",
    "SimulatedConversation",
    "SimulationError",
    "SimulationStart",
    "Simulator",
    "TurnCapture",
    "TurnMocks",
    "UserSimulator",
    "capture_turn",
    "cases_over_runs",
    "set_status",
    "turn_mocks",
    "weighted_mean",
]
