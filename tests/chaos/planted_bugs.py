"""Known bugs of other systems, planted in the product one at a time: the simulation must find each.

A bug is a function that breaks the product through pytest's monkeypatch, or describes a fault of its
environment.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.simulated_agent import Agent
from chaos.simulated_evaluator import CrashingStore
from chaos.simulation import Planted
from evaltap.evaluator.ingest.landing import lander as landing
from evaltap.evaluator.ingest.landing import reading
from evaltap.evaluator.ingest.landing.lander import Lander
from evaltap.evaluator.ingest.landing.turns import LandedTurn
from evaltap.evaluator.ingest.sources.base import CaseSource, Partition
from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.results import writer as scores
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.evaluator.store import database as store
from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.delivery import record_writer
from evaltap.recorder.delivery.counters import LiveCounters
from evaltap.recorder.delivery.retrying_writer import RetryingWriter
from evaltap.recorder.delivery.spool import forwarder
from evaltap.recorder.delivery.spool.spool import Spool, SpoolReader
from evaltap.schemas.log.local import LocalLog
from evaltap.schemas.wire import envelope, record
from evaltap.schemas.wire.envelope import Envelope, WireRecord

Patch = pytest.MonkeyPatch
Bug = Callable[[Patch], Planted | None]


def offsets_before_rows(patch: Patch) -> None:
    """Commit where to go on before what was read."""
    land = Lander.land

    def early(self: Lander, batch: Any, **given: Any) -> Any:
        now = store.utc_now()
        with self._store.transaction():
            self._store.append(
                "offsets", [(*place, next_, now) for place, next_ in batch.next_offsets.items()]
            )
        return land(self, batch, **given)

    patch.setattr(Lander, "land", early)


def offsets_never(patch: Patch) -> None:
    """Do not store where to go on."""
    _leave_out(patch, "offsets")


def dead_letters_swallowed(patch: Patch) -> None:
    """Count a bad record, and keep nothing of it."""
    _leave_out(patch, "dead_letters")


def tool_calls_forgotten(patch: Patch) -> None:
    """Land turns without their calls."""
    _leave_out(patch, "tool_calls")


def _leave_out(patch: Patch, left_out: str) -> None:
    tables = Lander._tables

    def most(self: Lander, *given: Any) -> Any:
        return [one for one in tables(self, *given) if one[0] != left_out]

    patch.setattr(Lander, "_tables", most)


def no_transaction(patch: Patch) -> None:
    """Write table by table, each for itself."""

    @contextmanager
    def none(self: CrashingStore) -> Iterator[None]:
        self.step()
        yield
        self.step()

    patch.setattr(CrashingStore, "transaction", none)


def deduplication_off(patch: Patch) -> None:
    """Land every delivery of a turn."""
    add = Lander._add

    def always(self: Lander, landed: LandedTurn, rows: Any) -> bool:
        known = self._known.get(landed.origin.key)
        if known is not None:
            known.turns.pop(landed.origin.invocation_id, None)
        return add(self, landed, rows)

    patch.setattr(Lander, "_add", always)


def revision_ignored(patch: Patch) -> None:
    """Take a turn that grew for one that is there already."""
    add = Lander._add

    def once(self: Lander, landed: LandedTurn, rows: Any) -> bool:
        known = self._known.get(landed.origin.key)
        if known is not None and landed.origin.invocation_id in known.turns:
            return False
        return add(self, landed, rows)

    patch.setattr(Lander, "_add", once)


def revision_of_late_turns_stuck(patch: Patch) -> None:
    """Send a turn that grew under the revision that it had."""
    revise = Assembler._revise

    def stuck(self: Assembler, *given: Any) -> Any:
        made = revise(self, *given)
        return [{**case, "source": {**case["source"], "revision": 1}} for case in made]

    patch.setattr(Assembler, "_revise", stuck)


def memory_ahead_of_the_file(patch: Patch) -> None:
    """Remember an old revision over a newer one."""
    add = Lander._add

    def older(self: Lander, landed: LandedTurn, rows: Any) -> bool:
        known = self._known.get(landed.origin.key)
        if (
            known is not None
            and known.turns.get(landed.origin.invocation_id, 0) > landed.origin.revision
        ):
            known.turns[landed.origin.invocation_id] = 0
        return add(self, landed, rows)

    patch.setattr(Lander, "_add", older)


def hash_not_checked(patch: Patch) -> None:
    """Believe whatever a record holds."""

    def trusting(record: WireRecord, types: Sequence[str]) -> Envelope:
        headers = tuple(one for one in record.headers if one[0] != "content_sha256")
        return envelope.open_envelope(record._replace(headers=headers), types)

    patch.setattr(reading, "open_envelope", trusting)


def every_schema_accepted(patch: Patch) -> None:
    """Read records of a later major version as if nothing had changed."""
    patch.setattr(envelope, "_minor", lambda schema, event_type: 0)


def gap_kept_quiet(patch: Patch) -> None:
    """Go on after records that were deleted, and say nothing."""
    patch.setattr(Consumer, "_pass_gaps", lambda self, offsets, report: offsets)


def begin_at_the_end(patch: Patch) -> Planted:
    """Begin with what comes from now on, where nothing was read yet."""

    def latest(source: CaseSource) -> CaseSource:
        seek = source.seek

        def at_the_end(offsets: Mapping[Partition, int]) -> None:
            ends = {
                place: bounds.end
                for place, bounds in source.bounds().items()
                if offsets.get(place, 0) <= bounds.start
            }
            seek({**offsets, **ends})

        patch.setattr(source, "seek", at_the_end)
        return source

    return Planted(source=latest)


def cursor_before_acknowledgement(patch: Patch) -> None:
    """Move on when records are read, not when the broker has them."""
    following = SpoolReader.next

    def eager(self: SpoolReader) -> Any:
        window = following(self)
        if window:
            self.sent(window[-1][0])
        return window

    patch.setattr(SpoolReader, "next", eager)


def time_out_taken_for_yes(patch: Patch) -> None:
    """Take no answer for a good one."""
    taken = forwarder.SpoolSender._is_acknowledged

    def optimist(*given: Any) -> bool:
        try:
            return taken(*given)
        except TimeoutError:
            return True

    patch.setattr(forwarder.SpoolSender, "_is_acknowledged", optimist)


def refused_thrown_away(patch: Patch) -> None:
    """Set nothing aside of what the broker refuses."""
    patch.setattr(SpoolReader, "reject", lambda self, one: None)


def trimmed_too_early(patch: Patch) -> None:
    """Free the space of some records that were not sent."""
    trim = LocalLog.trim
    patch.setattr(LocalLog, "trim", lambda self, before: trim(self, before + 2))


def spool_deleted_unsent(patch: Patch) -> None:
    """Clean up behind a process that ended."""
    patch.setattr(Spool, "release", Spool.remove)


def drop_not_counted(patch: Patch) -> None:
    """Drop a turn without a word."""
    patch.setattr(LiveCounters, "dropped", lambda self, reason, turns=1: None)


def numbered_before_dropped(patch: Patch) -> None:
    """Give a number to a turn that is not kept."""
    add = RetryingWriter.add

    def greedy(self: RetryingWriter, case: Any) -> None:
        before = self.records._seq
        add(self, case)
        if self.records._seq == before:
            self.records._seq += 1

    patch.setattr(RetryingWriter, "add", greedy)


def manifest_miscounts(patch: Patch) -> None:
    """State one more than there is."""
    encode = record.encode_manifest

    def more(manifest: Any) -> Any:
        raised = record.Manifest(
            manifest.producer_id, manifest.highest_seq + 1, manifest.time, manifest.drops,
            manifest.closing,
        )  # fmt: skip
        return encode(raised)

    patch.setattr(record_writer, "encode_manifest", more)


def failed_write_forgotten(patch: Patch) -> None:
    """Let go of a batch that the disk did not take."""
    append = RetryingWriter._append

    def careless(self: RetryingWriter, batch: Any) -> None:
        with suppress(Exception):
            append(self, batch)

    patch.setattr(RetryingWriter, "_append", careless)


def child_counts_on(patch: Patch) -> Planted:
    """Let the child of a fork go on with its parent's numbers, under its name."""

    def inherit(parent: Agent, child: Agent) -> None:
        child.writer.records.producer_id = parent.writer.records.producer_id
        child.writer.records._seq = parent.writer.records._seq

    return Planted(seq_after_fork=inherit)


def random_score_ids(patch: Patch) -> None:
    """Name a score by chance instead of by what it was made of."""
    text = store.sql

    def random_ids(module: str, name: str) -> str:
        return text(module, name).replace("md5(concat_ws(", "md5(concat_ws(uuid()::VARCHAR, ")

    patch.setattr(scores, "sql", random_ids)


def score_invented(patch: Patch) -> None:
    """Make a failure of the evaluator a score of 0."""
    evaluate = CaseScorer._evaluate

    def inventive(self: CaseScorer, *given: Any) -> Any:
        outcome = evaluate(self, *given)
        if outcome.status is Status.ERROR:
            return replace(outcome, status=Status.FAILED, score=0.0)
        return outcome

    patch.setattr(CaseScorer, "_evaluate", inventive)


def every_second_case_scored(patch: Patch) -> None:
    """Lose a part of what is pending."""
    step = PendingScorer._step

    def half(self: PendingScorer, begun: Any, lot: Any, since: Any) -> Iterator[Any]:
        return step(self, begun, lot[1::2] or lot, since)

    patch.setattr(PendingScorer, "_step", half)


def case_revision_counts_turns(patch: Patch) -> None:
    """Give a case the number of its turns as its revision."""
    patch.setattr(landing._Known, "revision", property(lambda self: len(self.turns)))


BUGS: dict[str, Bug] = {
    bug.__name__: bug
    for bug in (
        offsets_before_rows, offsets_never, dead_letters_swallowed, tool_calls_forgotten,
        no_transaction, deduplication_off, revision_ignored, revision_of_late_turns_stuck,
        memory_ahead_of_the_file, hash_not_checked, every_schema_accepted, gap_kept_quiet,
        begin_at_the_end, cursor_before_acknowledgement, time_out_taken_for_yes,
        refused_thrown_away, trimmed_too_early, spool_deleted_unsent, drop_not_counted,
        numbered_before_dropped, manifest_miscounts, failed_write_forgotten, child_counts_on,
        random_score_ids, score_invented, every_second_case_scored, case_revision_counts_turns,
    )
}  # fmt: skip
