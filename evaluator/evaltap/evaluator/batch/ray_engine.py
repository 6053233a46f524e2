"""Due cases scored on a Ray cluster, while the process that owns the database lands and stores.

Actors hold the compiled metrics and no other state.  If one dies, it is restarted, and the cases that it
had in progress are scored again.  A case that kills its worker is found as in the crash guard: the cases in
progress at a death are scored alone, and one that is alone at two more deaths gets an error.

Limits of judges are divided among the actors.  A budget cannot be divided: one actor on the owner's node
keeps it, and each worker asks that actor before it asks a judge.
"""

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from evaltap.evaluator.batch.crash_guard import CrashGuard
from evaltap.evaluator.batch.engine import CASES_PER_BATCH, KnownOf, add_given_up, by_metrics
from evaltap.evaluator.batch.pending import PendingCase
from evaltap.evaluator.batch.ray_budget import BudgetKeeper, SharedBudget
from evaltap.evaluator.batch.ray_cluster import RayCluster, readable
from evaltap.evaluator.cases.identity import CaseIdentity
from evaltap.evaluator.judges.budget import BudgetAccount, BudgetLimits, Spending
from evaltap.evaluator.results.rows import PackedRows, ScoreRows
from evaltap.evaluator.scoring.batch import BATCH_SECONDS, score_batches
from evaltap.evaluator.scoring.scorer import CaseScorer, KnownScores

WAITING_TASKS: Final = 8
"""Tasks that a worker which waits for judges is at: while the slowest case of one is waited for, others
go on."""
READY_TASKS: Final = 2
"""Tasks that a worker which waits for nobody has: one at work, one ready."""
CASES_PER_TASK: Final = 50
"""Cases of a task that waits for nobody: enough that sending it costs little."""
PING_SECONDS: Final = 1.0
"""How long after a death an actor is asked whether it is back."""
SILENCE_SECONDS: Final = 30.0
"""How often to say that no worker is there."""

log = logging.getLogger(__name__)

MakeScorer = Callable[[int, BudgetAccount | None], CaseScorer]
"""Builds the scorer in a worker, one of so many, with the budget of all."""


@dataclass(frozen=True, slots=True)
class RayWorkers:
    """What the workers do, and how many there are; 0: one for each processor of the cluster."""

    make_scorer: MakeScorer
    threads: int = 1
    """Cases under way at a time in each worker: above 1 where they wait for a judge."""
    count: int = 0
    most: int | None = None
    """No more than so many, as a limit of the judge cannot be divided further."""
    budget: BudgetLimits | None = None

    @property
    def tasks(self) -> int:
        """How many tasks each has at a time."""
        return READY_TASKS if self.threads == 1 else min(WAITING_TASKS, self.threads)

    @property
    def task_cases(self) -> int:
        """How many cases a task has."""
        return CASES_PER_TASK if self.threads == 1 else -(-self.threads // self.tasks)


class RayEngine:
    """Scores on a cluster, from when it is entered until it is closed; `spending` is known then."""

    takes_outlines = False

    def __init__(self, workers: RayWorkers, *, address: str | None = None) -> None:
        self._workers = workers
        self._cluster = RayCluster(address)
        self._guard = CrashGuard(Path(":memory:"))
        self._actors: list[_Actor] = []
        self._keeper: Any = None  # an actor handle
        self.spending: tuple[Spending, int] = (Spending(), 0)
        """What judges were paid for, and how many requests the budget refused."""

    def __enter__(self) -> "RayEngine":
        """Start the workers and wait for the first; raise what keeps them from being built."""
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
        """How many cases are under way at a time."""
        return len(self._actors) * self._workers.tasks * self._workers.task_cases

    def close(self) -> None:
        """Stop the workers, and learn what they spent."""
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
        """Yield the rows of cases as they come, of a second or of many cases at a time."""
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
                    yield rows  # perhaps none: the caller may want to stop
                    rows, yielded_at = [], time.monotonic()
            if rows:
                yield rows
        finally:
            for (
                actor
            ) in self._actors:  # the caller wants no more: what comes back is not waited for
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
        """Give every worker what it may have; a task that goes alone waits for an idle one."""
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
        """Wait for something to end; return tasks with their rows, without them where a worker died."""
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
        """Note the death of a worker; return what it had under way."""
        lost = actor.lose()
        log.warning(
            "a worker died with %d cases in progress: %s",
            sum(len(task.cases) for task in lost), _first_line(error),
        )  # fmt: skip
        if self._keeper is not None:
            self._cluster.ray.get(self._keeper.lost.remote(actor.name))
        keys = [one.key for task in lost for one in task.cases]
        self._guard.died(keys, alone=any(task.alone for task in lost))
        return lost

    def _again(self, task: "_Task", waiting: "deque[_Task]") -> list[PackedRows]:
        """Have each case of a lost task scored alone; return the rows of those that are given up."""
        given_up = ScoreRows()
        for one, known in zip(task.cases, task.known, strict=True):
            reason = self._guard.gives_up(one.key)
            if reason is not None:
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
            # Evaluators that wait for nobody need not be safe to call from several threads.
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
        """Take a worker that answers; raise what keeps it from being built."""
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
        """Ask dead workers whether they are back; say so when there is none."""
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
    """Cases that go to a worker together, or one that goes alone."""

    indexes: tuple[int, ...]
    cases: Sequence[PendingCase]
    known: Sequence[KnownScores | None]
    alone: bool = False


@dataclass(slots=True)
class _Actor:
    """A worker as the owner sees it: whether it is there, and what it has under way."""

    name: str
    handle: Any  # Ray's actor handle
    ping: Any  # the answer that says that it is there; None when nothing is asked
    ready: bool = False
    ping_at: float = 0.0
    tasks: dict[object, _Task] = field(default_factory=dict)

    @property
    def alone(self) -> bool:
        """Whether it is at a case that goes alone."""
        return any(task.alone for task in self.tasks.values())

    def submit(self, task: _Task) -> None:
        named = [(one.identity, dict(one.case)) for one in task.cases]
        self.tasks[self.handle.score.remote(task.indexes, named, task.known)] = task

    def lose(self) -> list[_Task]:
        """Return what was under way when it died."""
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
    """Scores cases with the function that one process scores them with; an actor's class."""

    def __init__(self, workers: RayWorkers, count: int, name: str, keeper: object) -> None:
        self._workers = workers
        self._count = count
        self._budget = (
            None
            if workers.budget is None
            else SharedBudget(workers.budget, keeper, name)
        )  # fmt: skip
        self._scorer: CaseScorer | None = None

    def ready(self) -> None:
        """Build the scorer; raise what keeps it from being built."""
        if self._scorer is None:
            self._scorer = self._workers.make_scorer(self._count, self._budget)

    def score(
        self,
        indexes: Sequence[int],
        named: Sequence[tuple[CaseIdentity, dict[str, object]]],
        known: Sequence[KnownScores | None],
    ) -> PackedRows:
        """Return the rows of cases under the metrics of these numbers."""
        self.ready()
        assert self._scorer is not None
        before = {id(identity): one for (identity, _), one in zip(named, known, strict=True)}
        rows = ScoreRows()
        for part in score_batches(
            self._scorer.only(indexes), named, indexes, CASES_PER_BATCH, self._workers.threads,
            known=lambda identity: before[id(identity)] or {},
        ):  # fmt: skip
            rows.extend(part)
        return rows.packed()
