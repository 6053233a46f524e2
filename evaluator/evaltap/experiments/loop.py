"""Run the units of an experiment: keep the agent busy, land what it records, score what is whole.

Nothing waits for the slowest: a unit is scored as soon as its turns have landed, while others run.  The
store is written by this thread only.  Each step is durable before the next depends on it: a unit is
`begun` before the agent has it, `ran` when its turns are in the store, `scored` when its scores are.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.identity import CaseKey, FirstPosition
from evaltap.evaluator.cases.references import References
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.sources.base import SourceBatch
from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.scoring.selection import Selection
from evaltap.evaluator.store.database import Store
from evaltap.experiments.agents.base import Unit
from evaltap.experiments.early_stop import Decision, Until
from evaltap.experiments.plan import Plan
from evaltap.experiments.process import AgentEnd
from evaltap.experiments.units import (
    NO_TURNS,
    LandedTurns,
    UnitRow,
    UnitState,
    append_units,
    drop_attempts,
    drop_last_turns,
    drop_unjudged,
    judged_usd,
    landed_turns,
    read_units,
    row_of,
    verdicts_of,
)
from evaltap.experiments.worker import UnitEnd, WorkerSettings, config_for, record_crash
from evaltap.recorder import Recorder
from evaltap.schemas.log.local import open_log

POLL_SECONDS: Final = 0.02
SCORE_EVERY_SECONDS: Final = 0.2
MOST_READY: Final = 200
AHEAD: Final = 4
"""Units in the agent's process, as a multiple of those that run: it need not wait for this one."""
PATIENCE_SECONDS: Final = 10.0
"""How long the turns of a unit that has ended may take to land before the unit counts as invalid."""
CRASH_PATIENCE_SECONDS: Final = 1.0
"""The same for a unit that crashed: perhaps nothing was recorded of it."""
MOST_ATTEMPTS: Final = 3
"""Attempts at a trial whose turns do not arrive, or that shared a process with one that died."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to run: the numbers that do not change what is measured."""

    concurrency: int = 8
    turn_seconds: float = 300.0
    budget_usd: float | None = None
    until: Until | None = None
    judge_threads: int = 1
    turns_per_minute: float = 0.0
    """Turns of the agent that may begin in a minute; 0: no limit."""
    replays: bool = False
    """Whether a call without an answer ends a unit as forked, whose turns before are scored; otherwise the
    unit is invalid."""


@dataclass(slots=True)
class UnitDone:
    """A unit that has its final state, for whoever shows progress."""

    row: UnitRow
    verdicts: Mapping[str, str]
    """The status by metric."""
    cost_usd: float | None = None


@dataclass(slots=True)
class Progress:
    """What an experiment has done since it started."""

    planned: int = 0
    """Units of this experiment, those of earlier starts included."""
    skipped: int = 0
    """Units that an earlier start has finished."""
    done: list[UnitDone] = field(default_factory=list)
    agent_calls: int = 0
    """Turns that the agent was asked since this start."""
    spent_usd: float = 0.0
    """By agent and judges, as far as prices are known."""
    stopped_by: str = ""
    """Why it ended before all units were done: interrupted, budget, until; empty if it did not."""
    decision: Decision | None = None


@dataclass(slots=True)
class _Ended:
    """A unit that the agent is done with, whose turns are on their way."""

    unit: Unit
    end: UnitEnd
    at: float
    told: bool = False
    """Whether its crash was recorded here."""

    @property
    def patience(self) -> float:
        """How long to wait for the turns, in seconds."""
        return PATIENCE_SECONDS if self.end.state == "ended" else CRASH_PATIENCE_SECONDS


class Experiment:
    """One experiment over one store; `run` carries it out, `stop` ends it in order, from any thread."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        scorer: CaseScorer,
        settings: Settings,
        *,
        references: References | None,
        log: Path,
        tells_at_the_end: bool = False,
        report: Callable[[UnitDone, Progress], None] = lambda *_: None,
    ) -> None:
        self._store = store
        self._plan = plan
        self._settings = settings
        self._log = log
        self._report = report
        self._waits = scorer.waits
        self._scorable: set[tuple[str, str]] = set()
        self._scorer = PendingScorer(
            store,
            scorer,
            references=references,
            threads=settings.judge_threads if scorer.waits else 1,
            selection=Selection(chosen=self._scorable),
        )
        self._metrics = [one.metric.metric_name for one in self._scorer.metrics]
        self._digests = [one.digest for one in self._scorer.metrics]
        self._tells_at_the_end = tells_at_the_end
        """Whether the end of a unit tells what its turns do not: what its tools were asked, how a simulated
        conversation ended, what was expected.  Without its end, a unit is lost.
        """
        self._lander = Lander(store)
        self._changed: dict[CaseKey, FirstPosition] = {}
        self._ended: dict[CaseKey, _Ended] = {}
        self._ready: dict[CaseKey, UnitRow] = {}
        self._waiting: deque[Unit] = deque()
        self._alone: set[tuple[str, int]] = set()
        """The trials that ran when the agent's process died; each is tried again without others."""
        self._attempts: dict[tuple[str, int], int] = {}
        self._stopping = False
        self._scored_at = 0.0
        self._crashes: Recorder | None = None
        self.progress = Progress()

    def stop(self) -> None:
        """Give the agent no more units; those that run are finished, recorded and scored."""
        self._stopping = True
        self.progress.stopped_by = self.progress.stopped_by or "interrupted"

    def run(self, process: AgentEnd, again: Callable[[], AgentEnd]) -> Progress:
        """Run all units that are not done; `again` starts the agent anew when its process has died."""
        try:
            # Made before the first unit: a log that this store has never read holds nothing of its own.
            open_log(self._log, mode="append").close()
            with closing(LocalLogSource(self._log)) as source:
                self._seek(source)
                self._land_what_waits(source)
                finished = False
                for lot in self._lots(self._take_up()):
                    self._waiting.extend(lot)
                    while self._waiting or process.running or self._ended or self._ready:
                        self._feed(process)
                        self._collect(process)
                        if process.has_ended and (process.running or self._waiting):
                            process = self._after_a_death(process, again)
                        self._land(source)
                        is_over = not (process.running or self._waiting or self._ended)
                        if is_over and self._settings.until is None and not finished:
                            process.finish()  # it ends while its last units are scored
                            finished = True
                        self._score(is_last=is_over)
                    if self._stopping:
                        break
                if not finished:
                    process.finish()
        finally:
            process.close()
            if self._crashes is not None:
                self._crashes.close()
        return self.progress

    # -- what is to be done --

    def _lost(self, begun: Sequence[UnitRow]) -> list[UnitRow]:
        """Take up the units whose turns have landed; drop the others and return them."""
        landed = landed_turns(self._store, [row.key for row in begun])
        lost = []
        for row in begun:
            turns = landed.get(row.key)
            has_end = row.state == "ran" or not self._tells_at_the_end
            if has_end and turns and (turns.failed or turns.whole >= row.turn_count):
                self._is_recorded(row)
            else:
                lost.append(row)
        drop_attempts(self._store, [row.key for row in lost])
        return lost

    def _settle_scored(self, found: Iterable[UnitRow]) -> None:
        """Have trials scored again that lack the verdict of a metric."""
        scored = {row.key: row for row in found if row.state == "scored"}
        drop_unjudged(self._store, scored, self._digests)
        for key, verdicts in verdicts_of(self._store, scored, self._digests).items():
            if len(verdicts) < len(self._digests):
                self._is_recorded(scored[key])

    def _take_up(self) -> dict[tuple[str, int], UnitRow]:
        """Return the trials that are done; settle those that an earlier start left half done, or without the
        verdict of a metric.
        """
        found = read_units(self._store, self._plan.experiment_id)
        cases = {one.eval_id for one in self._plan.cases.cases}
        open_ = [
            row for row in found.values() if row.state in ("begun", "ran") and row.eval_id in cases
        ]
        for row in self._lost(open_):
            self._attempts[row.eval_id, row.trial] = row.attempt
            del found[row.eval_id, row.trial]
        self._settle_scored(found.values())
        for row in found.values():
            if row.state == "invalid":
                self._attempts[row.eval_id, row.trial] = row.attempt
        done = {name: row for name, row in found.items() if row.state != "invalid"}
        ours = [
            row for row in done.values() if row.trial <= self._plan.runs and row.eval_id in cases
        ]
        self.progress.planned = len(cases) * self._plan.runs
        self.progress.skipped = sum(row.key not in self._ready for row in ours)
        return done

    def _lots(self, done: Mapping[tuple[str, int], UnitRow]) -> Iterator[list[Unit]]:
        """Yield the units that are not done: all at once or, with a target, a round of all cases at a
        time.
        """
        trials = range(1, self._plan.runs + 1)
        lots = [[trial] for trial in trials] if self._settings.until else [[*trials]]
        for lot in lots:
            yield [
                self._plan.unit(case, trial, self._attempts.get((case.eval_id, trial), 0) + 1)
                for trial in lot
                for case in self._plan.cases.cases
                if (case.eval_id, trial) not in done
            ]
            if self._settings.until is not None and not self._stopping:
                self.progress.decision = self._decided(lot[-1])
                if self.progress.decision != "open":
                    self.progress.stopped_by = "until"
                    return

    def _decided(self, rounds: int) -> Decision:
        """Return what the whole rounds so far say; a unit passes if all metrics with a verdict do."""
        assert self._settings.until is not None  # asked only with a target
        passed, units = self._store.rows(
            _PASSED, {"id": self._plan.experiment_id, "digests": self._digests, "rounds": rounds}
        )[0]
        return self._settings.until.decide(passed, units)

    # -- the steps --

    def _feed(self, process: AgentEnd) -> None:
        """Give the agent what it has room for; one unit at a time while a culprit is looked for."""
        budget = self._settings.budget_usd
        if budget is not None and self.progress.spent_usd >= budget and self._waiting:
            self._stopping, self.progress.stopped_by = True, "budget"
        if self._stopping:
            self._waiting.clear()
        most = 1 if self._alone else AHEAD * self._settings.concurrency
        unscored = 0
        if budget is not None:  # nothing waits that could not be called back once it is spent
            most = min(most, self._settings.concurrency)
            unscored = len(self._ended) + len(self._ready)  # which may still cost something
        begun: list[Unit] = []
        while self._waiting and not process.has_ended:
            if len(process.running) + len(begun) + unscored >= most:
                break
            begun.append(self._waiting.popleft())
        append_units(self._store, [row_of(self._plan, unit, "begun") for unit in begun])
        for unit in begun:
            process.start(unit)

    def _collect(self, process: AgentEnd) -> None:
        """Take the units that the agent is done with."""
        for unit, end in process.take(POLL_SECONDS):
            self._alone.discard((unit.eval_id, unit.trial))
            self.progress.agent_calls += end.turns
            key = row_of(self._plan, unit, "begun").key
            self._ended[key] = _Ended(unit, end, time.monotonic())

    def _after_a_death(self, process: AgentEnd, again: Callable[[], AgentEnd]) -> AgentEnd:
        """Start the agent anew: of several units that ran, each is tried again alone, to find the culprit."""
        how = process.death()
        lost = [unit for name, unit in process.running.items() if name in process.begun]
        untouched = [unit for name, unit in process.running.items() if name not in process.begun]
        process.close()
        self._waiting.extendleft(reversed(untouched))
        self.progress.agent_calls += len(lost)
        if len(lost) == 1:
            self._alone.discard((lost[0].eval_id, lost[0].trial))
            end = UnitEnd(
                lost[0].run, lost[0].eval_id, "crashed", f"the agent's process {how}", 0, None
            )
            key = row_of(self._plan, lost[0], "begun").key
            self._ended[key] = _Ended(lost[0], end, time.monotonic())
        else:
            self._alone.update((unit.eval_id, unit.trial) for unit in lost)
            for unit in reversed(lost):
                self._again(row_of(self._plan, unit, "begun"))
        return again()

    def _seek(self, source: LocalLogSource) -> None:
        """Go on where the store stopped, or at the end of a log that it has never read: of another store."""
        offsets = self._lander.offsets()
        new = {one: bounds.end for one, bounds in source.bounds().items() if one not in offsets}
        if new:
            self._lander.land(SourceBatch(next_offsets=new))
        source.seek({**offsets, **new})

    def _land_what_waits(self, source: LocalLogSource) -> None:
        """Land what an earlier start has left on the log."""
        while (batch := source.poll(1_000, 0.0)).records:
            self._lander.land(batch)
        self._changed.update(self._lander.take_changed())

    def _settled(self) -> Iterator[tuple[CaseKey, _Ended, LandedTurns]]:
        """Take and yield the ended units whose turns are all there, or did not come in time."""
        landed = landed_turns(self._store, [*self._ended])
        now = time.monotonic()
        for key, ended in list(self._ended.items()):
            turns = landed.get(key, NO_TURNS)
            arrived = turns.whole + turns.failed
            if arrived < ended.end.turns and now - ended.at < ended.patience:
                continue
            if ended.end.state == "crashed" and not (turns.failed or ended.told):
                self._ended[key] = self._recorded_crash(ended, arrived)
                continue
            yield key, self._ended.pop(key), turns

    def _land(self, source: LocalLogSource) -> None:
        """Land what has arrived, and take up the units whose turns are all there."""
        batch = source.poll(1_000, 0.0)
        if batch.records or batch.next_offsets:
            self._lander.land(batch)
            self._changed.update(self._lander.take_changed())
        if not self._ended:
            return
        rows, forked, expected = [], [], {}
        for key, ended, turns in self._settled():
            wanted, arrived = ended.end.turns, turns.whole + turns.failed
            row = self._arrived(ended, arrived, wanted)
            self.progress.spent_usd += ended.end.partners_usd + (turns.cost_usd or 0.0)
            if ended.end.expected and row.state == "ran":
                expected[key] = ended.end.expected
            if row.state == "forked":
                row = row._replace(state="ran" if row.turn_count else "forked")
                forked += [key] * (arrived == wanted)
            rows.append(row)
        drop_last_turns(self._store, forked)
        append_units(self._store, [row for row in rows if row.state == "ran"], expected)
        for row in rows:
            self._take(row)

    def _recorded_crash(self, ended: _Ended, arrived: int) -> _Ended:
        """Record the crash of a unit of which no turn failed."""
        if self._crashes is None:
            settings = WorkerSettings(log=str(self._log.absolute()), version=self._plan.version)
            self._crashes = Recorder(config=config_for(settings))
        record_crash(self._crashes, ended.unit, ended.end.reason, arrived)
        end = replace(ended.end, turns=arrived + 1)
        return _Ended(ended.unit, end, time.monotonic(), told=True)

    def _take(self, row: UnitRow) -> None:
        """Go on with a unit whose turns have arrived."""
        if row.state == "ran":
            self._is_recorded(row)
        elif row.attempt < MOST_ATTEMPTS and row.state == "invalid" and row.may_be_tried:
            self._again(row)
        else:
            append_units(self._store, [row])
            self._tell(row, {})

    def _arrived(self, ended: _Ended, arrived: int, wanted: int) -> UnitRow:
        """Return the row of a unit whose turns have arrived, or will not."""
        end = ended.end

        def row(state: UnitState, reason: str = end.reason, turns: int = wanted) -> UnitRow:
            given = {
                "reason": reason,
                "seconds": end.seconds,
                "mocks": end.mocks,
                "ended_by": end.ended_by,
                "partners_usd": end.partners_usd,
            }
            return row_of(self._plan, ended.unit, state, turn_count=turns, **given)

        if end.state == "refused":
            return row("invalid", f"the provider had too many requests: {end.reason}")
        if end.state == "invalid":
            return row("invalid")
        if end.state == "missed":
            whole = max(0, wanted - 1)
            return row("forked", turns=whole) if self._settings.replays else row("invalid")
        if arrived >= wanted and (arrived or end.state == "ended"):
            return row("ran")
        if end.state == "crashed":  # before or without a recorded turn: it is a crash all the same
            return row("crashed")
        return row("invalid", f"the recorder delivered {arrived} of {wanted} turns")

    def _again(self, row: UnitRow) -> None:
        """Make the next attempt at a trial before anything else; what this one has delivered is dropped."""
        drop_attempts(self._store, [row.key])
        case = next(one for one in self._plan.cases.cases if one.eval_id == row.eval_id)
        self._waiting.appendleft(self._plan.unit(case, row.trial, row.attempt + 1))

    def _is_recorded(self, row: UnitRow) -> None:
        self._ready[row.key] = row
        self._scorable.add((row.eval_set_id, row.eval_id))

    def _score(self, *, is_last: bool) -> None:
        """Score the units that are recorded whole, and settle them."""
        if not self._ready or not (is_last or self._is_due()):
            return
        self._scored_at = time.monotonic()
        positions = {
            key: self._changed.pop(key, FirstPosition(0, _LONG_AGO)) for key in self._ready
        }
        ready, self._ready = self._ready, {}
        self._scorer.score("live", str(self._log), changed=positions)
        self._store.join()
        verdicts = verdicts_of(self._store, ready, self._digests)
        if self._waits:
            self.progress.spent_usd += judged_usd(self._store, ready)
        rows = []
        for key, row in ready.items():
            # An agent may have answered, and failed or hung all the same when it was to end.
            crashed = row.reason or "crashed" in verdicts[key].values()
            state: UnitState = "forked" if row.missed else "crashed" if crashed else "scored"
            reason = None if state == "scored" else row.reason
            rows.append(row._replace(state=state, reason=reason))
        append_units(self._store, rows)
        for row in rows:
            self._tell(row, verdicts[row.key])

    def _is_due(self) -> bool:
        """Return whether enough units wait for their scores, or the budget depends on them."""
        if self._settings.budget_usd is not None and not self._ended:
            return True
        waited = time.monotonic() - self._scored_at
        return len(self._ready) >= MOST_READY or waited >= SCORE_EVERY_SECONDS

    def _tell(self, row: UnitRow, verdicts: Mapping[str, str]) -> None:
        done = UnitDone(row, verdicts)
        self.progress.done.append(done)
        self._report(done, self.progress)


_LONG_AGO: Final = datetime(1970, 1, 1)
_PASSED: Final = """
SELECT count(*) FILTER (u.state = 'scored' AND s.passed), count(*) FROM latest_units u
LEFT JOIN (
  SELECT app_name, eval_set_id, eval_id, bool_and(status = 'passed') AS passed FROM latest_scores
  WHERE metric_digest IN $digests::VARCHAR[] AND status IN ('passed', 'failed', 'crashed') GROUP BY ALL
) s USING (app_name, eval_set_id, eval_id)
WHERE u.experiment_id = $id AND u.trial <= $rounds
  AND (u.state = 'crashed' OR (u.state = 'scored' AND s.passed IS NOT NULL))
"""
