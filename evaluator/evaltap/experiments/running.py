"""Run an experiment from start to end: check everything, then run, score and say what was found.

Before the first call of the agent, everything that is wrong is listed at once.
"""

import json
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

from evaltap.evaluator.cases.references import References
from evaltap.evaluator.scoring.batch import needs_expected
from evaltap.evaluator.scoring.contract.judge import JudgeNotConfigured
from evaltap.evaluator.scoring.judges.settings import judge_models_of
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store.database import Store
from evaltap.experiments import units
from evaltap.experiments.agents.base import Abilities
from evaltap.experiments.loop import Experiment, Progress, Settings, UnitDone
from evaltap.experiments.mocks.catalogue import catalogue
from evaltap.experiments.mocks.policy import MockPolicy
from evaltap.experiments.outcome import Outcome, read_outcome
from evaltap.experiments.partners import User, inventor_problems
from evaltap.experiments.plan import CaseSet, Plan, changed_parts, configuration, new_id, refuse
from evaltap.experiments.process import AgentEnd, AgentProcess
from evaltap.experiments.tool_calls import MockChoice
from evaltap.experiments.worker import WorkerSettings, config_for
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted, some_of

_Z_TWO_SIDED: Final = 1.96
_Z_POWER: Final = 0.8416
"""Normal quantiles of 97.5 % and 80 %."""


@dataclass(frozen=True, slots=True)
class Request:
    """What to run: a set, an agent, and how often."""

    cases: CaseSet
    agent: str
    version: str = ""
    runs: int = 1
    resume: bool = False
    settings: Settings = field(default_factory=Settings)
    agent_request: Any = None  # JSON
    """What an HTTP endpoint is sent, with placeholders; None for the default."""
    agent_result: str = ""
    """The path to an HTTP endpoint's answer."""
    tools: MockChoice = field(default_factory=MockChoice)
    """What answers the agent's tool calls."""
    user: User = field(default_factory=User)
    """Who plays the users of cases with a scenario."""
    expected_agent: str = ""
    """The agent that gives the expected turns of cases with `expectedRunnerEnabled`."""

    @property
    def has_users(self) -> bool:
        """Whether a case has a simulated user."""
        return any(one.scenario for one in self.cases.cases)

    @property
    def reference(self) -> str:
        """The agent that gives expected turns, if a case wants them from one."""
        return self.expected_agent if any(one.refers for one in self.cases.cases) else ""

    @property
    def policy(self) -> MockPolicy | None:
        """How tool calls are answered; None lets every tool run."""
        return self.tools.policy(self.cases.cases)

    @property
    def _offered(self) -> list[dict[str, Any]]:
        """The tools that can be answered."""
        cases = self.cases.cases
        return catalogue(
            (one.recording for one in cases), (mock for one in cases for mock in one.declared)
        )

    def worker(self, log: Path) -> WorkerSettings:
        """Return what the agent's process is told."""
        policy = self.policy
        return WorkerSettings(
            agent=self.agent,
            log=str(log.absolute()),
            version=self.version,
            turn_seconds=self.settings.turn_seconds,
            concurrency=self.settings.concurrency,
            request=self.agent_request,
            result=self.agent_result,
            policy=policy,
            tools=self._offered if policy else (),
            turns_per_minute=self.settings.turns_per_minute,
            user=self.user if self.has_users else None,
            expected_agent=self.reference,
            expected_gets=tuple(
                name
                for name in ("context", "state")
                if any(one.refers and getattr(one, name) for one in self.cases.cases)
            ),
        )

    def configuration(self, metrics: Sequence[RunMetric]) -> dict[str, str]:
        """Return the digests of what must stay the same while the experiment goes on."""
        return configuration(
            self.cases,
            self.whole_agent,
            self.version,
            metrics,
            self.policy,
            user=self.user.identity if self.has_users else "",
            expected_agent=self.reference,
        )

    def partner_problems(self) -> list[str]:
        """Return what keeps users from being played, and expected turns from being given."""
        has_budget = self.settings.budget_usd is not None
        found = self.user.problems(has_budget=has_budget) if self.has_users else []
        found += inventor_problems(self.cases.cases, self.policy, has_budget=has_budget)
        lacking = [one.eval_id for one in self.cases.cases if one.refers]
        if lacking and not self.expected_agent:
            found.append(
                f"{counted(len(lacking), 'case')} of the set take their expected turns from another agent:"
                f" {some_of(lacking, 3)}; name it with --expected-agent"
            )
        return found

    @property
    def whole_agent(self) -> str:
        """The agent with what else says which one it is."""
        more = [] if self.agent_request is None else [json.dumps(self.agent_request)]
        return " ".join([self.agent, *more, *([self.agent_result] if self.agent_result else [])])


@dataclass(frozen=True, slots=True)
class Finished:
    """An experiment that has ended, or was stopped in order."""

    plan: Plan
    outcome: Outcome
    progress: Progress
    seconds: float
    """From the first unit to the last, without the start of the agent."""

    @property
    def is_whole(self) -> bool:
        """Whether each run was made that is needed, and is evidence."""
        return self.progress.stopped_by in ("", "until") and not self.outcome.invalid

    def data(self) -> dict[str, Any]:
        """Return it as JSON data, for scripts."""
        outcome, progress = self.outcome, self.progress
        return {
            "run_id": self.plan.experiment_id,
            "set": self.plan.cases.name,
            "version": self.plan.version,
            "units": {
                "planned": progress.planned,
                "scored": outcome.scored,
                "crashed": outcome.crashed,
                "invalid": outcome.invalid,
                "skipped": progress.skipped,
            },
            "agent_calls": progress.agent_calls,
            "judge_calls": outcome.judge_calls,
            "cost_usd": outcome.cost_usd,
            "seconds": round(self.seconds, 3),
            "stopped_by": progress.stopped_by,
            "until": progress.decision,
            "mocks": outcome.mocks,
            "ended_by": outcome.ended_by,
            "metrics": [one.data() for one in outcome.metrics],
            "cases": [one.data() for one in outcome.cases],
        }


Start: TypeAlias = Callable[[WorkerSettings, Path], AgentEnd]
"""Starts the agent; what it prints goes to the file."""


def log_of(db: Path) -> Path:
    """Return the log between agents and store: a file beside the store."""
    return db.with_name(f"{db.name}.runs.log.db")


def references_of(request: Request, log: Path) -> References | None:
    """Return the expected turns, redacted as the recorder will redact the agent's; None if there are none."""
    if not any(one.expected for one in request.cases.cases):
        return None
    return request.cases.references(configured_redactor(config_for(request.worker(log))))


def _metric_problems(scorer: CaseScorer, cases: CaseSet) -> Iterator[str]:
    bare = [one.eval_id for one in cases.cases if not one.has_reference]
    for metric in scorer.metrics:
        if bare and needs_expected(metric):
            yield (
                f"{metric.metric_name} compares with expected turns, which {counted(len(bare), 'case')}"
                f" of the set lacks: {some_of(bare, 3)}"
            )
        for model in judge_models_of(metric):
            try:
                scorer.services.judge(model)
            except JudgeNotConfigured as error:
                yield f"{metric.metric_name}: {error}"


def problems_of(request: Request, scorer: CaseScorer, abilities: Abilities | None) -> list[str]:
    """Return everything that keeps the cases from being run and scored; `abilities` are the agent's."""
    cases = request.cases
    found = [*_metric_problems(scorer, cases)]
    with_context = [one.eval_id for one in cases.cases if one.context]
    if with_context and abilities and not abilities.context:
        found.append(
            f"the agent takes no messages before the conversation, and"
            f" {counted(len(with_context), 'case')} has contextMessages: {with_context[0]}"
        )
    with_state = [one.eval_id for one in cases.cases if one.state]
    if with_state and abilities and not abilities.state:
        found.append(
            f"the agent takes no session state, and {counted(len(with_state), 'case')} has one:"
            f" {with_state[0]}"
        )
    partners = request.partner_problems()
    return [*dict.fromkeys(found), *partners, *request.tools.problems(cases, abilities)]


def planned(request: Request, store: Store, config: Mapping[str, str]) -> Plan:
    """Return the plan of a new experiment, or of the one to resume.

    Raises InputError if there is none to resume, or if something has changed since, and names it.
    """
    name, runs = request.cases.name, request.runs
    if not request.resume:
        return Plan(new_id(), request.cases, runs, request.agent, request.version)
    if (before := units.last_started(store, name)) is None:
        raise InputError(
            f"--resume: no experiment on the set {name!r} in {store.path}; leave it out"
        )
    experiment_id, configuration = before
    if changed := changed_parts(configuration, config):
        raise InputError(
            f"--resume: {experiment_id} cannot go on, because {'; '.join(changed)}. Undo that, or"
            " start anew without --resume"
        )
    return Plan(experiment_id, request.cases, runs, request.agent, request.version)


@contextmanager
def stopping(experiment: Experiment) -> Iterator[None]:
    """Let the first Ctrl-C or SIGTERM end the experiment in order, a second one at once."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}

    def stop(number: int, _: object) -> None:
        experiment.stop()
        signal.signal(number, before[signal.Signals(number)])

    try:
        for one in before:
            signal.signal(one, stop)
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def run_experiment(
    request: Request,
    scorer: CaseScorer,
    store: Store,
    *,
    report: Callable[[UnitDone, Progress], None] = lambda *_: None,
    start: Start = AgentProcess,
) -> Finished:
    """Run and score the units that are not done; return what is known afterwards.

    `start` starts the agent, by default in a process of its own.  Raises InputError that lists all that is
    wrong, before the agent is called.
    """
    if scorer.reads_latency:
        request = replace(request, tools=replace(request.tools, latency=True))
    log = log_of(store.path)
    references = references_of(request, log)
    metrics = run_metrics(scorer, references)
    config = request.configuration(metrics)
    plan = planned(request, store, config)
    output = Path(tempfile.gettempdir()) / f"evaltap-{plan.experiment_id}-{os.getpid()}.txt"
    begin = partial(start, request.worker(log), output)
    try:
        with _checked_agent(request, scorer, begin) as process:
            units.start(store, plan, config)
            experiment = Experiment(
                store,
                plan,
                scorer,
                request.settings,
                references=references,
                log=log,
                tells_at_the_end=request.policy is not None
                or request.has_users
                or bool(request.reference),
                report=report,
            )
        began = time.monotonic()
        with stopping(experiment):
            progress = experiment.run(process, begin)
        seconds = time.monotonic() - began
    finally:
        output.unlink(missing_ok=True)
    digests = {one.metric.metric_name: one.digest for one in metrics}
    order = [one.eval_id for one in request.cases.cases]
    outcome = read_outcome(store, plan.experiment_id, digests, order)
    return Finished(plan, outcome, progress, seconds)


@contextmanager
def _checked_agent(
    request: Request, scorer: CaseScorer, begin: Callable[[], AgentEnd]
) -> Iterator[AgentEnd]:
    """Start the agent, and end it if the block fails; raise InputError that lists all that is wrong."""
    problems: list[str] = []
    process: AgentEnd | None = None
    try:
        try:
            process = begin()
        except InputError as error:
            problems.append(str(error))
        abilities = process.abilities if process else None
        problems += problems_of(request, scorer, abilities)
        refuse("the experiment", problems)
        assert process is not None  # otherwise there was a problem
        yield process
    except BaseException:
        if process is not None:
            process.close()
        raise


@dataclass(frozen=True, slots=True)
class DryRun:
    """What an experiment would do."""

    set: str
    cases: int
    runs: int
    units: int
    """That are still to be run."""
    agent_calls: int
    """With simulated users, at most."""
    simulated: int
    """Cases with a simulated user."""
    cost_usd: float | None
    """As past units of this set cost on average; None without any."""
    smallest_drop: Mapping[str, float]
    """Of the pass rate, that a comparison with as many runs finds with 80 %: if runs of a case tell nothing
    of each other (`independent`), and if they all end alike (`alike`)."""
    supposed_pass_rate: float
    """The pass rate that this supposes: that of the past, otherwise 0.9."""

    def data(self) -> dict[str, Any]:
        return asdict(self)

    def lines(self) -> list[str]:
        """Describe it for people."""
        cost = (
            "unknown" if self.cost_usd is None else f"about ${self.cost_usd:.2f}, as in past runs"
        )
        low, high = self.smallest_drop.values()
        return [
            f"{self.set}: {counted(self.cases, 'case')}, {self.runs} each;"
            f" {counted(self.units, 'run')} to make,{' at most' if self.simulated else ''}"
            f" {counted(self.agent_calls, 'call')} of the agent",
            f"cost: {cost}",
            f"the smallest drop that this finds, from {self.supposed_pass_rate:.0%}: {low:.1%} if runs of a"
            f" case are independent, {high:.1%} if they end alike (more cases help then, more runs do not)",
        ]


def tried_agent(request: Request) -> tuple[Abilities | None, list[str]]:
    """Start the agent's process and end it again; return what it can be given, or why it cannot start."""
    with tempfile.TemporaryDirectory(prefix="evaltap-") as folder:
        try:
            process = AgentProcess(
                request.worker(Path(folder) / "log.db"), Path(folder) / "output.txt"
            )
        except InputError as error:
            return None, [str(error)]
        process.finish()
        process.close()
        return process.abilities, []


def dry_run(request: Request, scorer: CaseScorer, store: Store) -> DryRun:
    """Check what can be checked without calling the agent, and return what would be done.

    Starts the agent's process, which imports the agent.  Raises InputError as `run_experiment` does.
    """
    metrics = run_metrics(scorer, references_of(request, log_of(store.path)))
    config = request.configuration(metrics)
    plan = planned(request, store, config)
    abilities, problems = tried_agent(request)
    refuse("the experiment", problems + problems_of(request, scorer, abilities))
    done = {
        name
        for name, row in units.read_units(store, plan.experiment_id).items()
        if row.state in ("scored", "crashed")
    }
    cases = request.cases.cases
    rest = [
        one
        for one in cases
        for trial in range(1, request.runs + 1)
        if (one.eval_id, trial) not in done
    ]
    cost, rate = units.past(store, request.cases.name)
    supposed = 0.9 if rate is None else min(max(rate, 0.05), 0.95)
    spread = math.sqrt(2 * supposed * (1 - supposed))
    smallest = (_Z_TWO_SIDED + _Z_POWER) * spread
    return DryRun(
        set=request.cases.name,
        cases=len(cases),
        runs=request.runs,
        units=len(rest),
        agent_calls=sum(one.most_turns for one in rest),
        simulated=sum(one.scenario is not None for one in cases),
        cost_usd=None if cost is None else cost * len(rest),
        smallest_drop={
            "independent": min(1.0, smallest / math.sqrt(len(cases) * request.runs)),
            "alike": min(1.0, smallest / math.sqrt(len(cases))),
        },
        supposed_pass_rate=supposed,
    )
