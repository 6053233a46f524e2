"""Engines score pending cases: in this process, or on a Ray cluster (`ray_engine`)."""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol, TypeAlias

from evaltap.evaluator.pipeline.batch.crash_guard import CrashGuard
from evaltap.evaluator.pipeline.batch.pending import PendingCase
from evaltap.evaluator.scoring.batch import CASES_AHEAD, Known, Observer, add_rows, score_batches
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.results.rows import PackedRows, ScoreRows
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer

KnownOf: TypeAlias = Callable[[Sequence[int], Sequence[PendingCase]], Known | None]
"""Returns earlier scores of the cases' turns under the metrics with these indexes."""

CASES_PER_BATCH: Final = 2_000
"""Most cases whose rows are stored together."""


class Engine(Protocol):
    """Scores cases.  Used by the thread that owns the database."""

    @property
    def capacity(self) -> int:
        """How many cases can be in progress."""
        ...

    @property
    def takes_outlines(self) -> bool:
        """Whether cases may be outlines, which share memory with landed records."""
        ...

    def score(
        self, cases: Sequence[PendingCase], known_of: KnownOf
    ) -> Iterator[Sequence[PackedRows]]:
        """Yield the rows of cases as they arrive, each case exactly once.

        If the generator is closed early, some cases have no rows.
        """
        ...

    def close(self) -> None:
        """Stop scoring."""


class LocalEngine:
    """Scores in this process, on several threads if cases wait for a judge.

    Cases that were in progress when an earlier process died are scored one at a time.  `settle` waits until
    all yielded rows are stored.  `observe` is called with each case and its score.
    """

    takes_outlines = True

    def __init__(
        self,
        scorer: CaseScorer,
        guard: CrashGuard,
        *,
        threads: int = 1,
        settle: Callable[[], None],
        observe: Observer | None = None,
    ) -> None:
        self._scorer = scorer
        self._guard = guard
        self.capacity = threads
        self._settle = settle
        self._observe = observe

    def score(
        self, cases: Sequence[PendingCase], known_of: KnownOf
    ) -> Iterator[Sequence[PackedRows]]:
        """Yield the rows of cases in order, suspects of a crash first."""
        suspected = self._guard.suspects
        if suspects := [one for one in cases if one.key in suspected]:
            yield [self._alone(suspects, known_of).packed()]
            self._settle()
            self._guard.cleared([one.key for one in suspects])
            cases = [one for one in cases if one.key not in suspected]
        for rows in self._together(cases, known_of, self.capacity):
            yield [rows.packed()]
        self._guard.done()

    def close(self) -> None:
        """Do nothing: threads end with each call of `score`."""

    def _together(
        self, cases: Sequence[PendingCase], known_of: KnownOf, threads: int
    ) -> Iterator[ScoreRows]:
        for indexes, group in by_metrics(cases):
            scorer = self._scorer.only(indexes)
            known = known_of(indexes, group)
            watched = self._guard.watched(group, 0 if threads == 1 else threads * CASES_AHEAD)
            named = ((one.identity, one.case) for one in watched)
            yield from score_batches(
                scorer, named, indexes, CASES_PER_BATCH, threads, self._observe, known
            )

    def _alone(self, suspects: Sequence[PendingCase], known_of: KnownOf) -> ScoreRows:
        """Score cases one at a time, since one of them may have killed the previous process."""
        rows = ScoreRows()
        for one in suspects:
            if (reason := self._guard.gives_up(one.key)) is not None:
                add_given_up(rows, one, reason)
                continue
            for part in self._together([one], known_of, threads=1):
                rows.extend(part)
        return rows


def by_metrics(cases: Sequence[PendingCase]) -> Iterator[tuple[tuple[int, ...], list[PendingCase]]]:
    """Group cases by the metrics that they lack."""
    groups: dict[tuple[int, ...], list[PendingCase]] = {}
    for one in cases:
        groups.setdefault(one.indexes, []).append(one)
    yield from groups.items()


def add_given_up(rows: ScoreRows, one: PendingCase, reason: str) -> None:
    """Add an error row for each metric that a case lacks."""
    given_up = CaseScore(one.identity.eval_id, Status.FAILED, None, reason, ())
    add_rows(rows, one.identity, one.case, given_up, one.indexes)
