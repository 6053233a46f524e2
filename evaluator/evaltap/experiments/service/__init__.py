"""The evaluation service of tRPC-Agent-Go: inference and evaluation as separate steps over a request."""

from evaltap.experiments.mocks.turn_mocks import (
    GeneratorAnswer,
    GeneratorCall,
    TurnMocks,
    turn_mocks,
)
from evaltap.experiments.service.capture import CapturedTurn, TurnCapture, capture_turn
from evaltap.experiments.service.runs import CaseOverRuns, cases_over_runs, set_status

__all__ = [
    "CapturedTurn",
    "CaseOverRuns",
    "GeneratorAnswer",
    "GeneratorCall",
    "TurnCapture",
    "TurnMocks",
    "capture_turn",
    "cases_over_runs",
    "set_status",
    "turn_mocks",
]
