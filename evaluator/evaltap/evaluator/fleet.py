"""The sink's side of a fleet of workers: asks for what is pending, and stores what comes back.

Jobs go to a topic, at most so many at a time, and are remembered in the store once the broker has them.
Results are stored in one transaction with the offsets of their topic.  A crash in between asks twice;
the first answer is stored, the second is left out.
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain

from evaltap.evaluator.asked import Asked, AskedJobs
from evaltap.evaluator.asking import Asking, FleetSettings
from evaltap.evaluator.context import Status
from evaltap.evaluator.job_rows import from_wire
from evaltap.evaluator.landed_rows import dead_letter_row
from evaltap.evaluator.log_position import stored_offsets
from evaltap.evaluator.pending import OLDEST, Begin, CaseKey, PendingCases, Touched
from evaltap.evaluator.rows import PackedRows, ScoreRows
from evaltap.evaluator.runs import Run
from evaltap.evaluator.scores import ScoreWriter
from evaltap.evaluator.scoring import CaseScorer
from evaltap.evaluator.sources.base import CaseSource, SourceBatch
from evaltap.evaluator.store import Row, Store
from evaltap.evaluator.topics import Cluster, Place, TopicsAway, TopicWriter
from evaltap.schemas.envelope import RecordError
from evaltap.schemas.job import Result, decode_result

log = logging.getLogger(__name__)

JOBS_PER_WRITE = 200
RESULTS_PER_READ = 500
MOST_WAITING = 20_000
"""Cases that wait to be asked for and are remembered; the rest is looked up when these are done."""
MOST_ATTEMPTS = 3
"""Asks that were taken and brought nothing, until a job is given up."""
CHECK_SECONDS = 10.0
AWAY_SECONDS = 2.0


@dataclass(slots=True)
class FleetCounts:
    """What came of asking since the start."""

    asked: int = 0
    scored: int = 0
    duplicates: int = 0
    """Results for what was answered already, or is no longer wanted."""
    refused: int = 0
    given_up: int = 0
    dead_letters: int = 0
    refusals: dict[str, str] = field(default_factory=dict)
    """The reasons of refusals, with a worker that gave it."""


@dataclass(slots=True)
class _Taken:
    """What a batch of results comes to, before it is stored."""

    rows: list[PackedRows] = field(default_factory=list)
    begins: list[Begin] = field(default_factory=list)
    answered: list[CaseKey] = field(default_factory=list)
    letters: list[Row] = field(default_factory=list)
    refusals: list[Row] = field(default_factory=list)


class Fleet:
    """A duty of the consumer: workers score what `pending` finds for a live run."""

    def __init__(
        self,
        store: Store,
        run: Run,
        pending: PendingCases,
        settings: FleetSettings,
        *,
        scorer: CaseScorer,
        results: CaseSource,
        writer: TopicWriter,
        cluster: Cluster,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._run = run
        self._pending = pending
        self._settings = settings
        self._results = results
        self._writer = writer
        self._cluster = cluster
        self._clock = clock
        self._names = {i: one.metric.metric_name for i, one in enumerate(run.metrics)}
        self._scores = ScoreWriter(store, run)
        self._asked = AskedJobs(store, run)
        self._asking = Asking(pending, scorer, self._scores, run, settings, writer)
        self._waiting: dict[CaseKey, Begin] = {}
        self._deferred: dict[CaseKey, Begin] = {}
        self._more = True
        self._ask_at = self._check_at = 0.0
        self.counts = FleetCounts()

    @property
    def outstanding(self) -> int:
        """How many jobs have no answer yet."""
        return len(self._asked)

    @property
    def idle(self) -> bool:
        """Whether nothing is asked for, and nothing waits to be."""
        return not (self._asked or self._waiting or self._deferred or self._more)

    def begin(self) -> None:
        """Store what has come back since the store was last open, before anything is asked."""
        self._asked.restore()
        offsets = stored_offsets(self._store)
        self._results.seek(offsets)
        ends = {place: bounds.end for place, bounds in self._results.bounds().items()}
        behind = {place for place, end in ends.items() if offsets.get(place, 0) < end}
        patience = self._clock() + AWAY_SECONDS
        while behind and self._clock() < patience:
            batch = self._results.poll(RESULTS_PER_READ, 0.2)
            if batch.records:
                self._take(batch)
                patience = self._clock() + AWAY_SECONDS
            behind -= {at for at, upto in batch.next_offsets.items() if upto >= ends.get(at, 0)}

    def close(self) -> None:
        """Let go of the connections."""
        self._results.close()
        self._writer.close()

    def step(self, touched: Touched | None) -> bool:
        """Store results, ask for what is pending; return whether more may lie ready."""
        batch = self._results.poll(RESULTS_PER_READ, 0)
        if batch.records or batch.next_offsets:
            self._take(batch)
        if touched is not None:
            self._add(touched)
        asked = 0
        if self._clock() >= self._ask_at:
            try:
                self._ask_again()
                asked = self._ask()
            except TopicsAway as problem:
                log.warning("%s; trying again", problem)
                self._ask_at = self._clock() + AWAY_SECONDS
                self._waiting = {
                    key: at for key, at in self._waiting.items() if key not in self._asked
                }
        return bool(batch.records or asked)

    # -- asking --------------------------------------------------------------------------------

    def _add(self, touched: Touched) -> None:
        if len(self._waiting) + len(touched) > MOST_WAITING:
            self._more = True
            return
        for key, begin in touched.items():
            (self._deferred if key in self._asked else self._waiting)[key] = begin

    def _ask(self) -> int:
        if not self._waiting and self._more:
            found = self._pending.names(MOST_WAITING)
            self._waiting = {key: at for key, at in found.items() if key not in self._asked}
            self._more = len(found) >= MOST_WAITING and bool(self._waiting)
        room = min(JOBS_PER_WRITE, self._settings.max_outstanding - len(self._asked))
        chosen = dict(list(self._waiting.items())[: max(0, room)])
        if not chosen:
            return 0
        self._ask_for(chosen)
        for key in chosen:
            del self._waiting[key]
        return len(chosen)

    def _ask_for(self, begins: Mapping[CaseKey, Begin]) -> None:
        """Ask for cases, for fewer at a time where they are large."""
        for cases, _ in self._pending.read(begins, JOBS_PER_WRITE):
            self.counts.asked += self._asking.ask(cases, begins, self._asked)

    def _ask_again(self) -> None:
        """Ask once more for what a worker took and did not answer; give it up after some times."""
        if self._clock() < self._check_at:
            return
        self._check_at = self._clock() + CHECK_SECONDS
        before = self._store.now() - self._settings.ask_again
        late = [one for one in self._asked if one.asked_at <= before]
        if not late:
            return
        settings = self._settings
        # What still lies on the topic needs no second ask: its turn will come.
        taken = self._cluster.taken(
            settings.group, settings.jobs_topic, {one.place for one in late}
        )
        gone = [one for one in late if one.place in taken]
        self._give_up([one for one in gone if one.attempt >= MOST_ATTEMPTS])
        again = [one for one in gone if one.attempt < MOST_ATTEMPTS]
        if again:
            begins = {one.of.key: one.begin for one in again}
            self._ask_for(begins)
            # What was not asked for anew has its scores by now.
            self._done([one.of.key for one in again if self._asked.get(one.of.key) is one])

    def _give_up(self, jobs: list[Asked]) -> None:
        if not jobs:
            return
        rows = ScoreRows()
        for one in jobs:
            reason = one.refusal or "the workers that took the job did not answer; see their logs"
            told = f"given up after {one.attempt} asks: {reason}"
            (turns,) = self._store.rows(_TURN_COUNT, [*one.of.key, one.of.revision])[0]
            error = (None, Status.ERROR.value, told, int(turns or 0))
            of = (*one.of.key, one.of.revision)
            rows.scores.extend((*of, index, *error) for index in one.indexes)
        self._scores.write([rows.packed()])
        self.counts.given_up += len(jobs)
        self._done([one.of.key for one in jobs])

    def _done(self, keys: list[CaseKey]) -> None:
        self._asked.forget(keys)
        for key in keys:
            if (begin := self._deferred.pop(key, None)) is not None:
                self._waiting[key] = begin

    # -- results -------------------------------------------------------------------------------

    def _take(self, batch: SourceBatch) -> None:
        taken = _Taken()
        for gap in batch.gaps:
            log.warning("GAP %s; what is missing is asked for again", gap)
        for record in batch.records:
            try:
                self._take_one(decode_result(record.record), taken)
            except RecordError as error:
                taken.letters.append(dead_letter_row(record, error))
        self._scores.write(
            taken.rows,
            since=min(taken.begins, default=OLDEST),
            beside={
                "offsets": [(*place, next_) for place, next_ in batch.next_offsets.items()],
                "dead_letters": taken.letters,
                "job_refusals": taken.refusals,
            },
        )
        self.counts.scored += len(taken.answered)
        self.counts.refused += len(taken.refusals)
        self.counts.dead_letters += len(taken.letters)
        self._done(taken.answered)

    def _take_one(self, result: Result, taken: _Taken) -> None:
        key = result.of.key
        asked = self._wanted(result) if key not in taken.answered else None
        if asked is None:
            self.counts.duplicates += 1
        elif result.refusal:
            if asked.refusal or asked.attempt != result.attempt:
                return
            asked.refusal = result.refusal
            if result.refusal not in self.counts.refusals:
                log.warning("worker %s refused a job: %s", result.worker, result.refusal)
                self.counts.refusals[result.refusal] = result.worker
            taken.refusals.append((result.job_id, result.attempt, result.worker, result.refusal))
        else:
            wanted = {index: self._names[index] for index in asked.indexes}
            taken.rows.append(from_wire(result, wanted))
            taken.begins.append(asked.begin)
            taken.answered.append(key)

    def _wanted(self, result: Result) -> Asked | None:
        """Return the job that a result answers, None when nobody waits for it any more."""
        asked = self._asked.get(result.of.key)
        if asked is not None:
            return asked if asked.job_id == result.job_id else None
        if result.run_id != self._run.run_id or result.refusal:
            return None
        # Asked for, and killed before that was remembered?  Then it is pending, and this is its score.
        found = self._pending.read({result.of.key: OLDEST}, 1)
        for one in chain.from_iterable(cases for cases, _ in found):
            if one.identity.revision == result.of.revision:
                return Asked(result.job_id, result.of, one.indexes, 1, _NOWHERE, self._store.now())
        return None


_NOWHERE = Place(0, 0)

_TURN_COUNT = """
SELECT max(turn_count) FROM cases
WHERE (app_name, eval_set_id, eval_id, revision) = (?, ?, ?, ?)
"""
