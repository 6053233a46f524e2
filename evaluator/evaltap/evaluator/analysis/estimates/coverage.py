"""Traffic that sampling or bounds could not record at all; no estimate covers it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from evaltap.evaluator.analysis.estimates.scope import DIMENSIONS, TIMES, Scope
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader

EVERY_PRODUCER: Final = ""
"""The producer of drops that belong to no recorded turn."""


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Turns that could not be recorded, by reason, and the kinds of turns that were recorded nevertheless.

    Drops are counted by producer and time, not by application, tool or model; they are assumed to be
    distributed like the producer's turns.
    """

    ratios: Mapping[tuple[str, str | None], float] = field(default_factory=dict)
    """By producer and time: the number of such turns for each turn that recorded ones represent."""
    reasons: Mapping[str, float] = field(default_factory=dict)
    kept_for: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for display, if there are such turns."""
        if not self.reasons:
            return ()
        left_out = ", ".join(f"{reason} {turns:,.0f}" for reason, turns in self.reasons.items())
        kept = ", ".join(self.kept_for)
        return (
            f"turns without a chance of being kept: {left_out}; the figures only describe {kept}",
        )

    @property
    def parameters(self) -> dict[str, object]:
        """The ratios as columns."""
        producers, buckets = zip(*self.ratios, strict=True) if self.ratios else ((), ())
        ratios = list(self.ratios.values())
        return {"producers": list(producers), "buckets": list(buckets), "ratios": ratios}


def read_uncovered(store: StoreReader, scope: Scope, by: Sequence[str]) -> Uncovered:
    """Return the turns that could not be recorded, by the finest time in `by`."""
    if not store.rows("SELECT 1 FROM manifests WHERE drops::VARCHAR <> '{}' LIMIT 1"):
        return Uncovered()
    bucket = bucket_of(by)
    query = sql(__name__, "dropped").format(
        bucket_started=bucket, bucket_stated=bucket.replace("started_at", "stated_at")
    )
    left_out: Counter[tuple[str, str | None]] = Counter()
    standing: dict[tuple[str, str | None], float] = {}
    reasons: Counter[str] = Counter()
    for producer, when, reason, turns, of_producer, of_all in store.rows(query, scope.window):
        # The turns of a process without any recorded turn count against the whole traffic.
        key = (producer if of_producer else EVERY_PRODUCER, when)
        left_out[key] += turns
        standing[key] = of_producer or of_all or 0.0
        if turns:
            reasons[reason] += turns
    if not reasons:
        return Uncovered()
    kept = store.column(
        "SELECT DISTINCT coalesce(sampling_reason, 'head') FROM latest_turns ORDER BY 1"
    )
    ratios = {key: turns / standing[key] for key, turns in left_out.items() if standing[key]}
    return Uncovered(ratios, dict(reasons.most_common()), tuple(kept))


def bucket_of(by: Sequence[str]) -> str:
    """Return SQL for the finest time window in `by`; NULL without one."""
    named = [name for name in TIMES if name in by]
    return DIMENSIONS[named[0]].expression if named else "NULL::VARCHAR"
