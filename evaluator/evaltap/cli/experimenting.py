"""What the commands that run agents share: the request, the scorer, and lines of progress."""

import sys
import time
from collections import Counter, defaultdict
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from itertools import chain

from evaltap.cli.mocking import choice_of
from evaltap.cli.options.run import (
    AgentOptions,
    CalledAgentOptions,
    PartnerOptions,
    ReplayOptions,
    RunOptions,
)
from evaltap.cli.options.score import GateOptions
from evaltap.cli.options.shared import ReferenceOptions, ScoringOptions
from evaltap.cli.scoring import case_scorer
from evaltap.evaluator.analysis.stats.estimate import rate_of_trials
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.scoring.judge_session import JudgeSession
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.experiments.answered_cases import AnsweredCases, answered_cases
from evaltap.experiments.early_stop import Until
from evaltap.experiments.loop import Progress, Settings, UnitDone
from evaltap.experiments.partners import User
from evaltap.experiments.plan import CaseSet, continued, read_set
from evaltap.experiments.process import AgentProcess
from evaltap.experiments.running import Request, Start
from evaltap.schemas.data import Json
from evaltap.schemas.files.documents import read_option


def request_of(
    options: RunOptions | ReplayOptions,
    cases: CaseSet,
    *,
    until: Until | None = None,
    replays: bool = False,
    user: User | None = None,
    expected_agent: str = "",
) -> Request:
    """Return what to run; raise InputError for an unreadable template or a choice that is none."""
    agent, judges = options.agent, options.judges
    settings = Settings(
        agent.concurrency,
        agent.turn_seconds,
        judges.budget_usd,
        until,
        judges.judge_concurrency or agent.concurrency,
        agent.agent_rpm or 0.0,
        replays,
    )
    return Request(
        cases=cases,
        agent=agent.agent,
        version=agent.version,
        runs=options.runs,
        resume=options.resume,
        settings=settings,
        agent_request=request_template(agent),
        agent_result=agent.agent_result,
        tools=choice_of(options.tools),
        user=user or User(),
        expected_agent=expected_agent,
    )


def request_template(agent: CalledAgentOptions) -> Json:
    """Return what an http:// agent is sent; raise InputError for a file that cannot be read."""
    path = agent.agent_request
    return None if path is None else read_option(path, "--agent-request")


def user_of(options: PartnerOptions, judges: JudgeSession) -> User:
    """Return who plays users; raise InputError for a file that is unreadable, or no model."""
    return replace(
        User.named(options.user),
        seed=options.user_seed,
        check=options.check_user,
        cache=judges.settings.cache,
        variables=judges.settings.variables,
    )


def answered(options: GateOptions, judges: JudgeSession, scorer: CaseScorer) -> AnsweredCases:
    """Run the agent of a gate, whose metrics are those of `scorer`, on its cases."""
    user, tools = user_of(options.partners, judges), choice_of(options.tools)
    tools = replace(tools, latency=tools.latency or scorer.reads_latency)
    found = []
    for path in options.cases:
        request = Request(
            chosen(read_set(path), options.partners),
            options.agent or "",
            runs=options.runs,
            settings=Settings(options.concurrency),
            tools=tools,
            user=user,
            expected_agent=options.partners.expected_agent,
        )
        found.append(answered_cases(path, request))
    return AnsweredCases(
        tuple(chain.from_iterable(one.cases for one in found)),
        tuple(chain.from_iterable(one.invalid for one in found)),
        frozenset().union(*(one.varying for one in found)),
    )


def chosen(cases: CaseSet, options: PartnerOptions) -> CaseSet:
    """Return the cases, with simulated users who go on where that is wanted."""
    turn = options.continue_from
    return cases if turn is None else continued(cases, turn)


def starter_of(agent: AgentOptions) -> Start:
    """Return what starts the agent."""
    if agent.engine == "local":
        return AgentProcess
    from evaltap.experiments.ray_agents import RayAgents

    address, count = agent.ray_address, agent.ray_workers or 0
    return lambda settings, _: RayAgents(settings, address=address, count=count)


def quiet_engine(agent: AgentOptions) -> AbstractContextManager[object]:
    """Keep standard output for results: Ray writes there when a process dies."""
    return redirect_stdout(sys.stderr) if agent.engine == "ray" else nullcontext()


def scorer_of(
    command: str, options: RunOptions | ReplayOptions, judges: JudgeSession
) -> CaseScorer:
    """Return the scorer of the metrics file."""
    scoring = ScoringOptions(
        expected=ReferenceOptions(references=None, join="eval_id"),
        placeholders="auto",
        unknown_metrics="error",
        cost_class=None,
        concurrency=options.agent.concurrency,
        limits=options.limits,
        judges=options.judges,
    )
    return case_scorer(command, options.metrics, scoring, judges).scorer


class ProgressLines:
    """Prints a line for each unit as it ends: the verdict, the pass rate so far, and the time left."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._cases: defaultdict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        """The runs of each case with a verdict, and how many of them passed."""
        self._alike: Counter[tuple[int, int]] = Counter()
        """How many cases have so many runs, of which so many passed."""

    def report(self, done: UnitDone, progress: Progress) -> None:
        """Print the line of a unit."""
        verdict = verdict_of(done)
        number = progress.skipped + len(progress.done)
        if verdict in ("passed", "failed", "crashed"):
            runs, passed = before = self._cases[done.row.eval_id]
            after = runs + 1, passed + (verdict == "passed")
            self._cases[done.row.eval_id] = after
            self._alike -= Counter([before])
            self._alike += Counter([after])
        found = rate_of_trials([(*case, cases) for case, cases in self._alike.items()])
        parts = []
        if found is not None:
            new = " of the new runs" if progress.skipped else ""
            parts.append(f"{found.value:.0%}{new} passed, {found.interval:.0%}")
        if progress.spent_usd:
            parts.append(f"${progress.spent_usd:.2f}")
        if left := self._left(progress):
            parts.append(f"{left} left")
        so_far = f"  [{', '.join(parts)}]" if parts else ""
        seconds = "" if done.row.seconds is None else f" {done.row.seconds:.1f} s"
        reason = f": {done.row.reason}" if done.row.reason else ""
        print(
            visible(
                f"{number}/{progress.planned} {done.row.eval_id} run {done.row.trial}"
                f" {verdict}{seconds}{reason}{so_far}"
            ),
            file=sys.stderr,
            flush=True,
        )

    def _left(self, progress: Progress) -> str:
        done = len(progress.done)
        rest = progress.planned - progress.skipped - done
        if not rest or not done:
            return ""
        seconds = round((time.monotonic() - self._began) / done * rest)
        return str(timedelta(seconds=seconds))


def verdict_of(done: UnitDone) -> str:
    """Return passed, failed, crashed, invalid, forked or not evaluated: a unit passes if all metrics with a
    verdict do.
    """
    if done.row.state in ("crashed", "invalid", "forked"):
        return done.row.state
    statuses = set(done.verdicts.values())
    if statuses & {"failed", "crashed"}:
        return "failed"
    return "passed" if "passed" in statuses else "not evaluated"
