"""What an evaluation is given besides the agent."""

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.scorer import OnUnknownMetric
from evaltap.experiments.service.aggregation import Aggregator, by_metric_statuses
from evaltap.experiments.service.callbacks import Callbacks
from evaltap.experiments.service.runners import Runner
from evaltap.experiments.service.simulation import Simulator
from evaltap.experiments.stores.documents import Stores, memory_stores
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.formats.metric import EvalMetric


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of an evaluation; those given to one call replace these."""

    stores: Stores = field(default_factory=memory_stores)
    """Of eval sets, metrics and results."""
    callbacks: Callbacks = field(default_factory=Callbacks)
    expected_runner: Runner | None = None
    """Gives the expected turns of cases with `expectedRunnerEnabled`."""
    tool_mock_runner: Runner | None = None
    """Invents the results of mocks with an `llmGenerator`."""
    judge_runner: Runner | None = None
    """Judges in place of the judge model of every metric."""
    judge_samples: int = 1
    """Answers that the judge runner gives to each question."""
    simulator: Simulator | None = None
    """Plays the users of cases with a `conversationScenario`."""
    num_runs: int = 1
    parallel_runs: bool = False
    """Whether all runs happen at once."""
    eval_case_ids: Sequence[str] = ()
    """Only these cases; none means all."""
    parallel_inference: bool = False
    parallel_evaluation: bool = False
    parallelism: int = field(default_factory=lambda: os.cpu_count() or 1)
    """Cases at once, in a step that is parallel."""
    turn_seconds: float | None = None
    """How long an agent may take for a turn; None lets it take any time.  One that hangs fails its case."""
    on_turn: Callable[[str, CaseData], None] | None = None
    """Called on the event loop after each turn of the agent, with its session and the turn."""
    run_details: bool = False
    """Whether the result holds what the agent did in each run."""
    aggregator: Aggregator = by_metric_statuses
    """Makes the score and status of a case of its metrics."""
    unknown_metrics: OnUnknownMetric = "error"
    """`skip` leaves out metrics whose evaluator is not installed, as tRPC-Agent-Go does."""
    check_metrics: Callable[[Sequence[EvalMetric]], None] = lambda metrics: None
    """Called with a set's metrics before the agent runs; raises an EvaltapError to refuse them."""
    services: Services | None = None
    """Judges and embeddings for the metrics."""
    registry: Registry | None = None
    """The evaluators."""
    state: Mapping[str, Any] | None = None
    """Run-time state of cases without their own."""
    context_messages: Sequence[Mapping[str, Any]] = ()
    """Messages before those of the case, at every turn."""
    run_options: Mapping[str, Any] = field(default_factory=dict)
    """Given to the agent at every turn."""
    session_id: Callable[[], str] = lambda: str(uuid.uuid4())
    """Makes the session of a case in a run."""

    def __post_init__(self) -> None:
        for name, value in (("num_runs", self.num_runs), ("judge_samples", self.judge_samples)):
            if value < 1:
                raise ConfigurationError(f"{name} is {value}; expected 1 or more")
        if self.turn_seconds is not None and self.turn_seconds <= 0:
            raise ConfigurationError(f"turn_seconds is {self.turn_seconds}; expected more than 0")
        if (self.parallel_inference or self.parallel_evaluation) and self.parallelism < 1:
            raise ConfigurationError(f"parallelism is {self.parallelism}; expected 1 or more")
        for name in ("stores", "callbacks", "aggregator", "session_id"):
            if getattr(self, name) is None:
                raise ConfigurationError(f"{name} is None; leave it out for the default")
