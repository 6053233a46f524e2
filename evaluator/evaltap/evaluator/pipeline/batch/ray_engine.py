"""Score pending cases on a Ray cluster, while the process that owns the database lands and stores.

Actors hold the compiled metrics and no other state.  If one dies, it is restarted, and the cases that it
had in progress are scored again.  The crash guard finds cases that kill their worker: the cases in progress
at a death are scored alone, and a case that is alone at two more deaths gets an error.

Rate limits of judges are divided among the actors.  A budget cannot be divided: one actor on the owner's node
keeps it, and workers reserve from it before each request to a judge.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.pipeline.batch.crash_guard import CrashGuard
from evaltap.evaluator.pipeline.batch.engine import (
    CASES_PER_BATCH,
    KnownOf,
    add_given_up,
    by_metrics,
)
from evaltap.evaluator.pipeline.batch.pending import PendingCase
from evaltap.evaluator.pipeline.batch.ray_cluster import RayCluster, readable
from evaltap.evaluator.scoring.batch import BATCH_SECONDS, score_batches
from evaltap.evaluator.scoring.contract.judge import BudgetSpentError
from evaltap.evaluator.scoring.judges.budget import Budget, BudgetAccount, BudgetLimits, Spending
from evaltap.evaluator.scoring.results.rows import PackedRows, ScoreRows
from evaltap.evaluator.scoring.scorer import CaseScorer, KnownScores
from evaltap.evaluator.scoring.waiting import in_thread, sleep

WAITING_TASKS: Final = 8
"""Tasks in progress in a worker that waits for judges: the others continue while one waits for its slowest
case."""
READY_TASKS: Final = 2
"""Tasks of a worker that does not wait: one running, one queued."""
CASES_PER_TASK: Final = 50
"""Cases in a task without judges: enough that sending it costs little."""
PING_SECONDS: Final = 1.0
"""How long after a death an actor is pinged to find out whether it is back."""
SILENCE_SECONDS: Final = 30.0
"""How often a warning is logged while there is no worker."""

log = logging.getLogger(__name__)

MakeScorer = Callable[[int, BudgetAccount | None], CaseScorer]
"""Builds a worker's scorer, given the number of workers and their shared budget."""


@dataclass(frozen=True, slots=True)
class RayWorkers:
    """How workers score, and their number (`count`); 0 means one for each processor of the cluster."""

    make_scorer: MakeScorer
    threads: int = 1
    """Cases in progress in each worker: more than 1 if they wait for a judge."""
    count: int = 0
    most: int | None = None
    """The maximum number of workers, if a rate limit of the judge cannot be divided further."""
    budget: BudgetLimits | None = None

    @property
    def tasks(self) -> int:
        """Tasks in progress in each worker."""
        return READY_TASKS if self.threads == 1 else min(WAITING_TASKS, self.threads)

    @property
    def task_cases(self) -> int:
        """Cases in a task."""
        return CASES_PER_TASK if self.threads == 1 else -(-self.threads // self.tasks)


class RayEngine:
    """Scores on a cluster.  A context manager; `spending` is set when it is closed."""

    takes_outlines = False

    def __init__(self, workers: RayWorkers, *, address: str | None = None) -> None:
        self._workers = workers
        self._cluster = RayCluster(address)
        self._guard = CrashGuard(Path(":memory:"))
        self._actors: list[_Actor] = []
        self._keeper: Any = None  # an actor handle
        self.spending: tuple[Spending, int] = (Spending(), 0)
        """What the judges cost, and the number of requests that the budget refused."""

    def __enter__(self) -> "RayEngine":
        """Start the workers and wait for the first; raise the error that keeps them from starting."""
        self._cluster.__enter__()
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def capacity(self) -> int:
        return len(self._actors) * self._workers.tasks * self._workers.task_cases

    def close(self) -> None:
        """Read the spending and stop the workers."""
        ray = self._cluster.ray
        try:
            if self._keeper is not None:
                self.spending = ray.get(self._keeper.spending.remote(), timeout=10)
        except ray.exceptions.RayError as error:
            log.warning("the cost of judges is unknown: %s", _first_line(error))
        for actor in self._actors:
            ray.kill(actor.handle)
        self._actors, self._keeper = [], None
        self._cluster.__exit__()

    def score(
        self, cases: Sequence[PendingCase], known_of: KnownOf
    ) -> Iterator[Sequence[PackedRows]]:
        """Yield the rows of cases as they arrive, in batches of a second or of many cases."""
        waiting = deque(self._tasks(cases, known_of))
        rows: list[PackedRows] = []
        yielded_at = time.monotonic()
        try:
            while waiting or any(actor.tasks for actor in self._actors):
                self._submit(waiting)
                for task, result in self._ended():
                    if result is not None:
                        rows.append(result)
                        self._guard.cleared([one.key for one in task.cases])
                    else:
                        rows += self._again(task, waiting)
                late = time.monotonic() - yielded_at >= BATCH_SECONDS
                if late or sum(one.case_count for one in rows) >= CASES_PER_BATCH:
                    yield rows  # possibly empty, so that the caller can stop
                    rows, yielded_at = [], time.monotonic()
            if rows:
                yield rows
        finally:
            # If the caller stops early, the results of running tasks are ignored.
            for actor in self._actors:
                actor.forget()

    # -- tasks ------------------------------------------------------------------------------------

    def _tasks(self, cases: Sequence[PendingCase], known_of: KnownOf) -> "Iterator[_Task]":
        for indexes, group in by_metrics(cases):
            known = known_of(indexes, group)
            size = self._workers.task_cases
            for first in range(0, len(group), size):
                some = group[first : first + size]
                scores = [known(one.identity) if known else None for one in some]
                yield _Task(indexes, some, scores)

    def _submit(self, waiting: "deque[_Task]") -> None:
        """Submit tasks to workers with free capacity; a task that must run alone waits for an idle worker."""
        free = [actor for actor in self._actors if actor.ready and not actor.alone]
        while waiting and free:
            actor = min(free, key=lambda one: len(one.tasks))
            if len(actor.tasks) >= (1 if waiting[0].alone else self._workers.tasks):
                return
            task = waiting.popleft()
            actor.submit(task)
            if actor.alone:
                free.remove(actor)

    def _ended(self) -> "list[tuple[_Task, PackedRows | None]]":
        """Wait until tasks end; return them with their rows, or with None if their worker died."""
        ray = self._cluster.ray
        pings = {actor.ping: actor for actor in self._actors if actor.ping is not None}
        running = {ref: actor for actor in self._actors for ref in actor.tasks}
        refs = [*pings, *running]
        done, _ = ray.wait(refs, num_returns=len(refs), timeout=0) if refs else ([], [])
        if refs and not done:
            done, _ = ray.wait(refs, timeout=PING_SECONDS)
        ended: list[tuple[_Task, PackedRows | None]] = []
        dead: dict[str, tuple[_Actor, Exception]] = {}
        for ref in done:
            if (actor := pings.get(ref)) is not None:
                self._pinged(actor)
                continue
            actor = running[ref]
            try:
                ended.append((actor.tasks[ref], ray.get(ref)))
                del actor.tasks[ref]
            except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError) as error:
                dead[actor.name] = actor, error
            except ray.exceptions.RayError as error:
                raise readable(error) from None
        for actor, why in dead.values():
            ended += [(task, None) for task in self._died(actor, why)]
        self._look_for_workers()
        return ended

    def _died(self, actor: "_Actor", error: Exception) -> "list[_Task]":
        """Record the death of a worker; return the tasks it had in progress."""
        lost = actor.lose()
        log.warning(
            "a worker died with %d cases in progress: %s",
            sum(len(task.cases) for task in lost),
            _first_line(error),
        )
        if self._keeper is not None:
            self._cluster.ray.get(self._keeper.lost.remote(actor.name))
        keys = [one.key for task in lost for one in task.cases]
        self._guard.died(keys, alone=any(task.alone for task in lost))
        return lost

    def _again(self, task: "_Task", waiting: "deque[_Task]") -> list[PackedRows]:
        """Requeue each case of a lost task to be scored alone; return the rows of cases that are given up."""
        given_up = ScoreRows()
        for one, known in zip(task.cases, task.known, strict=True):
            if (reason := self._guard.gives_up(one.key)) is not None:
                add_given_up(given_up, one, reason)
                self._guard.cleared([one.key])
            else:
                waiting.appendleft(_Task(task.indexes, [one], [known], alone=True))
        return [given_up.packed()] if given_up.case_count else []

    # -- workers ----------------------------------------------------------------------------------

    def _start(self) -> None:
        ray, workers = self._cluster.ray, self._workers
        count = workers.count or self._cluster.processors()
        if workers.most is not None:
            count = min(count, workers.most)
        if workers.budget is not None:
            here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
                ray.get_runtime_context().get_node_id(), soft=False
            )
            keeper = ray.remote(num_cpus=0, max_concurrency=1)(BudgetKeeper)
            self._keeper = keeper.options(scheduling_strategy=here).remote(workers.budget)
        worker = ray.remote(
            num_cpus=1,
            max_restarts=-1,
            max_task_retries=0,
            # Evaluators that do not wait need not be thread-safe.
            max_concurrency=1 if workers.threads == 1 else workers.tasks,
        )(CaseWorker)
        for number in range(count):
            name = f"worker-{number}"
            handle = worker.remote(workers, count, name, self._keeper)
            self._actors.append(_Actor(name, handle, handle.ready.remote()))
        self._silent_since = time.monotonic()
        while not any(actor.ready for actor in self._actors):
            self._ended()

    def _pinged(self, actor: "_Actor") -> None:
        """Mark a worker that answered as ready; raise the error that keeps it from starting."""
        ray = self._cluster.ray
        try:
            ray.get(actor.ping)
        except (ray.exceptions.RayActorError, ray.exceptions.WorkerCrashedError):
            actor.ping, actor.ping_at = None, time.monotonic() + PING_SECONDS
        except ray.exceptions.RayError as error:
            raise readable(error) from None
        else:
            actor.ping, actor.ready = None, True

    def _look_for_workers(self) -> None:
        """Ping dead workers; log a warning while there is none."""
        now = time.monotonic()
        for actor in self._actors:
            if not actor.ready and actor.ping is None:
                if now >= actor.ping_at:
                    actor.ping = actor.handle.ready.remote()
                elif all(one.ping is None and not one.tasks for one in self._actors):
                    time.sleep(0.05)  # nothing else to wait for
        if any(actor.ready for actor in self._actors):
            self._silent_since = now
        elif now - self._silent_since >= SILENCE_SECONDS:
            self._silent_since = now
            log.warning(
                "no Ray worker is available; waiting until the cluster has processors for one"
            )


class _Task(NamedTuple):
    """Cases that a worker scores together, or a single case that must run alone."""

    indexes: tuple[int, ...]
    cases: Sequence[PendingCase]
    known: Sequence[KnownScores | None]
    alone: bool = False


@dataclass(slots=True)
class _Actor:
    """A worker as seen by the owner: whether it is ready, and its tasks in progress."""

    name: str
    handle: Any  # Ray's actor handle
    ping: Any  # reference to the pending answer of `ready`; None without one
    ready: bool = False
    ping_at: float = 0.0
    tasks: dict[object, _Task] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether it is scoring a case that must run alone."""
        return any(task.alone for task in self.tasks.values())

    def submit(self, task: _Task) -> None:
        named = [(one.identity, dict(one.case)) for one in task.cases]
        self.tasks[self.handle.score.remote(task.indexes, named, task.known)] = task

    def lose(self) -> list[_Task]:
        """Return the tasks that were in progress when it died."""
        lost, self.tasks = [*self.tasks.values()], {}
        self.ready, self.ping, self.ping_at = False, None, time.monotonic()
        return lost

    def forget(self) -> None:
        self.tasks = {}


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


# -- on the cluster --------------------------------------------------------------------------------


class CaseWorker:
    """An actor that scores cases with the same function as a single process."""

    def __init__(self, workers: RayWorkers, count: int, name: str, keeper: object) -> None:
        self._workers = workers
        self._count = count
        self._budget = (
            None if workers.budget is None else SharedBudget(workers.budget, keeper, name)
        )
        self._scorer: CaseScorer | None = None

    def ready(self) -> None:
        """Build the scorer, unless it is built; raise the error that prevents it."""
        if self._scorer is None:
            self._scorer = self._workers.make_scorer(self._count, self._budget)

    def score(
        self,
        indexes: Sequence[int],
        named: Sequence[tuple[CaseIdentity, dict[str, object]]],
        known: Sequence[KnownScores | None],
    ) -> PackedRows:
        """Score cases under the metrics with these indexes; return the rows."""
        self.ready()
        assert self._scorer is not None
        before = {id(identity): one for (identity, _), one in zip(named, known, strict=True)}
        rows = ScoreRows()
        for part in score_batches(
            self._scorer.only(indexes),
            named,
            indexes,
            CASES_PER_BATCH,
            self._workers.threads,
            known=lambda identity: before[id(identity)] or {},
        ):
            rows.extend(part)
        return rows.packed()


BUDGET_POLL_SECONDS: Final = 0.05


class BudgetKeeper:
    """An actor that keeps the budget of all workers.  Reservations of a worker that died count as spent."""

    def __init__(self, limits: BudgetLimits) -> None:
        self._budget = Budget(limits)
        self._reserved: dict[str, list[Spending]] = {}

    def reserve(self, name: str, worst: Spending) -> tuple[bool, str]:
        """Return whether a request may be made now, and the reason if it never may."""
        try:
            if not self._budget.try_reserve(worst):
                return False, ""
        except BudgetSpentError as spent:
            return False, str(spent)
        self._reserved.setdefault(name, []).append(worst)
        return True, ""

    def settle(self, name: str, worst: Spending, actual: Spending) -> None:
        reserved = self._reserved.get(name, [])
        if worst in reserved:  # otherwise it was counted when the worker died
            reserved.remove(worst)
            self._budget.settle(worst, actual)

    def lost(self, name: str) -> None:
        """Count the reservations of a dead worker as spent."""
        for worst in self._reserved.pop(name, []):
            self._budget.settle(worst, worst)

    def spending(self) -> tuple[Spending, int]:
        """Return the spending, and the number of refused requests."""
        return self._budget.spent, self._budget.refused


class SharedBudget:
    """A worker's access to the shared budget."""

    def __init__(self, limits: BudgetLimits, keeper: Any, name: str) -> None:
        self.limits = limits
        self._keeper = keeper
        self._name = name

    def reserve(self, worst: Spending) -> None:
        """Reserve the worst case of a request; raise BudgetSpentError if it does not fit."""
        import ray

        while True:
            reserved, reason = in_thread(ray.get, self._keeper.reserve.remote(self._name, worst))
            if reserved:
                return
            if reason:
                raise BudgetSpentError(reason)
            sleep(BUDGET_POLL_SECONDS)

    def settle(self, worst: Spending, actual: Spending) -> None:
        self._keeper.settle.remote(self._name, worst, actual)
