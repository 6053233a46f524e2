"""Score the pending cases of a store in blocks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.cases.identity import CaseKey, ChangedCases, FirstPosition
from evaltap.evaluator.cases.references import JoinCount, References
from evaltap.evaluator.ingest.landing.recent_cases import RecentCase
from evaltap.evaluator.pipeline.batch.crash_guard import CrashGuard
from evaltap.evaluator.pipeline.batch.engine import Engine, LocalEngine
from evaltap.evaluator.pipeline.batch.pending import (
    LAST,
    LONG_SESSION,
    NAMES_PER_READ,
    PendingCase,
    PendingCases,
)
from evaltap.evaluator.pipeline.batch.sampling import ScoreSampling
from evaltap.evaluator.scoring.batch import Known, Observer, Progress
from evaltap.evaluator.scoring.results.references import keep_references
from evaltap.evaluator.scoring.results.runs import Run, RunKind, end_run, start_run
from evaltap.evaluator.scoring.results.writer import ScoreWriter
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.selection import Selection
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.monitor import ScoreRule

CASES_PER_READ = 1_000
"""Cases per read."""
READS_PER_CAPACITY = 8
"""... or this multiple of the engine's capacity, part of which is idle at the end of each read."""

RECENT_AT_A_TIME = 2_000
"""Cases still in memory whose scores are stored together."""

READS_IN_BACKLOG = 2
"""The same multiple while other cases land, as landing waits for the end of a read."""

_NOTHING: Final[Mapping[CaseKey, RecentCase]] = {}


def no_progress(_: int) -> None:
    """Report nothing."""


def never() -> bool:
    return False


_Lot: TypeAlias = tuple[list[PendingCase], FirstPosition]
"""Pending cases, and the position of the first."""


class _Scored(NamedTuple):
    run: Run
    cases: int


class PendingScorer:
    """Scores landed cases that have no score yet under the scorer's metrics.

    Scores the latest revision of each case; with `retry`, also cases whose scoring ended in an error.  Use
    several `threads` for metrics that wait for a judge, and an `engine` to score elsewhere.  `rules` select
    the turns to score; turns that they have left out stay left out.  `observe` is called with each case and
    its score, if no engine is given.  Otherwise, of sessions with `long_session` turns, only new turns are
    read and scored, if all metrics score turns separately.
    """

    def __init__(
        self,
        store: Store,
        scorer: CaseScorer,
        *,
        references: References | None = None,
        threads: int = 1,
        selection: Selection | None = None,
        engine: Engine | None = None,
        rules: Sequence[ScoreRule] = (),
        long_session: int = LONG_SESSION,
        observe: Observer | None = None,
    ) -> None:
        self._store = store
        self._references = references
        self._selection = selection or Selection()
        self.metrics = run_metrics(scorer, references, store)
        """The metrics of the run, with their digests."""
        self._sampling = None
        if rules or ScoreSampling.left_anything_out(store):
            self._sampling = ScoreSampling(store, rules, self.metrics)
        self.cases = PendingCases(
            store,
            self.metrics,
            references=references,
            sampled=self._sampling is not None,
            complaints=self._sampling is not None and self._sampling.heeds_complaints,
        )
        """The cases that it finds, and those that it leaves alone."""
        self._engine = engine or LocalEngine(
            scorer, CrashGuard(store.path), threads=threads, settle=store.join, observe=observe
        )
        self._knows = scorer.waits
        self._outlined = scorer.outline_suffices
        self._live: Run | None = None
        plain = (
            self._engine.takes_outlines
            and references is None
            and self.cases.scored_after_landing
            and self._sampling is None
            and not self.cases.reads_feedback
        )
        self.takes_recent = plain and not scorer.waits
        """Whether `score` uses cases that are still in memory."""
        self._continues = plain and scorer.separate_turns and observe is None
        """Whether only the new turns of long sessions are scored."""
        self._long_session = long_session

    @property
    def joined(self) -> JoinCount:
        """How many of the cases scored so far found a reference."""
        return self.cases.joined

    def score(
        self,
        kind: RunKind,
        source: str,
        *,
        changed: ChangedCases | None = None,
        recent: Mapping[CaseKey, RecentCase] = _NOTHING,
        retry: bool = False,
        progress: Progress = no_progress,
        stopped: Callable[[], bool] = never,
    ) -> tuple[Run | None, int]:
        """Score everything pending, with a transaction per block, until `stopped` returns True.  That ends a
        run over landed cases; a live one goes on.

        With `changed`, only these cases are considered, and those with new feedback if that matters; those in
        `recent` have no score yet and are not read from the store.  Returns the run (None if nothing was
        pending) and the number of scored cases.
        """
        run, cases = None, 0
        at_a_time = max(CASES_PER_READ, self._engine.capacity * READS_PER_CAPACITY)
        lots = (
            self._everything(at_a_time, retry=retry)
            if changed is None
            else self._changed(changed, recent, at_a_time)
        )
        for step in self._steps(kind, source, lots):
            for scored in step:
                run, cases = scored.run, cases + scored.cases
                progress(cases)
                if stopped():
                    return run, cases
        if run is not None and kind == "landed":
            end_run(self._store, run, cases)
        return run, cases

    def is_due(self, *, retry: bool = False) -> bool:
        return bool(self.cases.names(1, retry=retry))

    def backlog(self, source: str, *, stopped: Callable[[], bool] = never) -> Iterator[int]:
        """Score everything pending now under the live run, a block at each `next`; yield its size.

        Other cases may land and be scored between two blocks; they are not part of the backlog.
        """
        at_a_time = self._engine.capacity * READS_IN_BACKLOG if self._knows else CASES_PER_READ
        everything = self._everything(at_a_time, until=self.cases.last_place(), ahead=at_a_time)
        for step in self._steps("live", source, everything):
            cases = 0
            for scored in step:
                cases += scored.cases
                if stopped():
                    return
            yield cases

    def _steps(
        self, kind: RunKind, source: str, lots: Iterator[_Lot]
    ) -> Iterator[Iterator[_Scored]]:
        """Yield an iterator for each batch of cases, which scores them as it is consumed."""
        begun = cache(partial(self._begin, kind, source))
        for read, since in lots:
            lot = [
                one
                for one in read
                if self._selection.takes(one.identity.eval_set_id, one.identity.eval_id)
            ]
            yield self._step(begun, lot, since)

    def _begin(self, kind: RunKind, source: str) -> tuple[Run, ScoreWriter]:
        run = self._started(kind, source)
        return run, ScoreWriter(
            self._store, run, sampled=self._sampling is not None, answered=self.cases.heeds_feedback
        )

    def _step(
        self,
        begun: Callable[[], tuple[Run, ScoreWriter]],
        lot: Sequence[PendingCase],
        since: FirstPosition,
    ) -> Iterator[_Scored]:
        for part in self._parts(lot):
            run, writer = begun()  # no run is started before a case is pending
            for rows in self._engine.score(part, partial(self._known_of, since)):
                if rows:
                    # The next cases are scored while these are written.
                    self._store.run_in_background(partial(writer.write, rows, since=since))
                yield _Scored(run, sum(one.case_count for one in rows))

    def _parts(self, chunk: Sequence[PendingCase]) -> Iterator[Sequence[PendingCase]]:
        """Yield cases with the metrics to score; in stages if rules depend on other metrics' scores."""
        if self._sampling is None:
            if chunk:
                yield chunk
            return
        for lot in self._sampling.lots(chunk):
            for stage in self._sampling.stages:
                if part := self._sampling.choose(lot, stage):
                    yield part

    def _known_of(
        self, since: FirstPosition, indexes: Sequence[int], cases: Sequence[PendingCase]
    ) -> Known | None:
        """Return earlier scores of turns; None for metrics without cost, which are faster to recompute."""
        if any(one.scored for one in cases):
            scored = {id(one.identity): one.scored for one in cases if one.scored}
            return lambda identity: {
                number: turns[index]
                for number, index in enumerate(indexes)
                if (turns := scored.get(id(identity)))
            }
        known = self.cases.known(indexes, cases, since) if self._knows else None
        sampling = self._sampling
        if known is None or sampling is None:
            return known
        turns = {id(one.identity): len(one.case["actualConversation"]) for one in cases}
        return lambda identity: sampling.without_left_out(
            identity, indexes, known(identity), turns[id(identity)]
        )

    def _started(self, kind: RunKind, source: str) -> Run:
        if self._live is not None and kind == "live":
            return self._live  # a query would wait for pending writes
        if self._references is not None:
            keep_references(self._store, self._references)
        run = start_run(self._store, kind, source, self.metrics)
        self._live = run if kind == "live" else None
        return run

    def _everything(
        self, at_a_time: int, *, until: int = LAST, ahead: int = NAMES_PER_READ, retry: bool = False
    ) -> Iterator[_Lot]:
        after = -1
        while names := self.cases.names(NAMES_PER_READ, after=after, until=until, retry=retry):
            after = max(begin.landed_seq for begin in names.values())
            yield from self.cases.read(
                names, at_a_time, fewest=self._engine.capacity, ahead=ahead, retry=retry
            )

    def _changed(
        self, changed: ChangedCases, recent: Mapping[CaseKey, RecentCase], at_a_time: int
    ) -> Iterator[_Lot]:
        changed = {**self.cases.answered(), **changed}
        run_id = self._live.run_id if self._continues and self._live is not None else ""
        most = self._long_session if run_id else LAST
        recent = {
            key: recent[key] for key in changed if key in recent and len(recent[key].turns) < most
        }
        whole = [*recent.values()]
        for first in range(0, len(whole), RECENT_AT_A_TIME):
            cases = whole[first : first + RECENT_AT_A_TIME]
            indexes = self.cases.indexes
            begin = min(changed[case.key] for case in cases)
            outlined = self._outlined
            yield [PendingCase(*case.named(outlined=outlined), indexes) for case in cases], begin
        others = {key: at for key, at in changed.items() if key not in recent}
        yield from self.cases.read(
            others,
            at_a_time,
            fewest=self._engine.capacity,
            ahead=at_a_time,
            run_id=run_id,
            long=self._long_session,
        )
