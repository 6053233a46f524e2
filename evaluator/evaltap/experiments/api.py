"""`evaluate`: the command `evaltap run` as a function."""

from pathlib import Path

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.given import Metrics, scorer_of
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store, TemporaryStore
from evaltap.experiments.early_stop import parse_until
from evaltap.experiments.in_process import AgentThread
from evaltap.experiments.loop import Settings
from evaltap.experiments.partners import User
from evaltap.experiments.plan import read_set
from evaltap.experiments.process import AgentEnd, AgentProcess
from evaltap.experiments.running import Finished, Request, run_experiment
from evaltap.experiments.tool_calls import MockChoice
from evaltap.experiments.worker import WorkerSettings
from evaltap.schemas.errors import InputError


def evaluate(
    cases: str | Path,
    metrics: Metrics | CaseScorer,
    *,
    agent: object,
    runs: int = 1,
    db: str | Path | Store | None = None,
    version: str = "",
    until: str = "",
    resume: bool = False,
    concurrency: int = 8,
    turn_seconds: float = 300.0,
    budget_usd: float | None = None,
    services: Services | None = None,
    tools: MockChoice | None = None,
    user: object = None,
    expected_agent: object = "",
) -> Finished:
    """Run an agent on the cases of a set, score it, and return what was found.

    `metrics` are a file, or a list as in `evaltap.api.evaluate`.  `agent` is a function, a factory or an
    agent object, run in this process; or the text of `--agent`, run in a process of its own.  Without `db`,
    nothing is kept.  Nothing more is run once agent and judges have cost `budget_usd`.  `tools` says what
    answers tool calls; by default those of cases from production are answered by their recording.  `user`
    plays the users of cases with a `conversationScenario`: an agent like `agent`, or a `User` with a model,
    by default that of EVALTAP_JUDGE_MODEL; `expected_agent` gives the expected turns where a case wants that.
    Raises EvaltapError as the command does.

        found = evaluate("golden.evalset.json", "metrics.json", agent=answer, runs=5)
        found.outcome.metrics[0].rate.interval
    """
    _check(runs, concurrency, turn_seconds, tools)
    user = User.named(user) if isinstance(user, str) else user
    scorer = metrics if isinstance(metrics, CaseScorer) else scorer_of(metrics, services)
    name = _text_of(agent)
    settings = Settings(
        concurrency, turn_seconds, budget_usd, parse_until(until) if until else None
    )
    request = Request(
        read_set(Path(cases)),
        name,
        version,
        runs,
        resume,
        settings,
        tools=tools or MockChoice(),
        user=user if isinstance(user, User) else User(_text_of(user)) if user else User(),
        expected_agent=_text_of(expected_agent),
    )

    def start(worker: WorkerSettings, output: Path) -> AgentEnd:
        if agent == name:
            return AgentProcess(worker, output)
        return AgentThread(agent, worker, user, expected_agent)

    if isinstance(db, Store):
        return run_experiment(request, scorer, db, start=start)
    with TemporaryStore() if db is None else Store(db) as store:
        return run_experiment(request, scorer, store, start=start)


def _check(runs: object, concurrency: object, turn_seconds: object, tools: object) -> None:
    """Raise InputError for what the command line would refuse."""
    for option, count in (("runs", runs), ("concurrency", concurrency)):
        if not isinstance(count, int) or count < 1:
            raise InputError(f"{option}: found {count!r}; expected a whole number from 1 on")
    if not isinstance(turn_seconds, int | float) or turn_seconds <= 0:
        raise InputError(f"turn_seconds: found {turn_seconds!r}; expected a number above 0")
    if tools is not None and not isinstance(tools, MockChoice):
        raise InputError(f"tools: found {tools!r}; expected a MockChoice")


def _text_of(agent: object) -> str:
    return agent if isinstance(agent, str) else _name_of(agent)


def _name_of(agent: object) -> str:
    kind = agent if hasattr(agent, "__qualname__") else type(agent)
    return f"{getattr(kind, '__module__', '')}:{getattr(kind, '__qualname__', repr(kind))}"
