"""`estimate_rates`: the share of all traffic that passes, or has another signal, in total and by slice."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from evaltap.evaluator.analysis.estimates.labels import Label, LabelledTurns, choose_labels
from evaltap.evaluator.analysis.estimates.scope import (
    CASE,
    DIMENSIONS,
    TIMES,
    Cluster,
    Scope,
    Unit,
    check_by,
    check_signal,
)
from evaltap.evaluator.analysis.estimates.turns import choose_turns, common_limit
from evaltap.evaluator.analysis.stats.estimate import Estimate, Profile, estimate
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import shifted
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known

FEW_SESSIONS: Final = 10
LEAST_COVERED: Final = 0.99


@dataclass(frozen=True, slots=True)
class SliceRate:
    """The share of a signal in one slice, under one metric version or none."""

    slice: Mapping[str, str | None]
    signal: str
    metric: str | None
    metric_digest: str | None
    estimate: Estimate | None
    """None: no turn of the slice could be evaluated."""
    covered: float
    """The share of the traffic that could be recorded."""
    flags: tuple[str, ...]
    sample_rate: float | None
    """The share among the recorded turns, unweighted."""
    not_counted: float
    """The weighted share of turns without a verdict (not_evaluated, error), which the rate excludes."""
    mean_score: float | None
    """The weighted mean of the existing scores, on the metric's scale."""
    labels: int | None = None
    """The number of human labels behind the rate; None: the rate is the metric's own."""

    @property
    def rate(self) -> Rate | None:
        """The share, with the interval for the general behaviour of agent and users."""
        return self.estimate.rate if self.estimate else None

    def data(self) -> dict[str, Any]:
        found, rate = self.estimate, self.rate
        low, high = rate.interval if rate else (None, None)
        traffic_low, traffic_high = found.traffic if found else (None, None)
        data: dict[str, object] = {
            "slice": dict(self.slice),
            "metric": self.metric,
            "metric_digest": self.metric_digest,
            "rate": rate and rate.value,
            "low": low,
            "high": high,
            "traffic_low": traffic_low,
            "traffic_high": traffic_high,
            "turns": rate.n if rate else 0,
            "sessions": found.sessions if found else 0,
            "estimated_turns": found.estimated_turns if found else 0.0,
            "effective_turns": rate.effective_n if rate else 0.0,
            "design_effect": found and found.design_effect,
            "covered": self.covered,
            "flags": list(self.flags),
            "signal": self.signal,
            "sample_rate": self.sample_rate,
            "not_counted": self.not_counted,
            "mean_score": self.mean_score,
        }
        if self.labels is None:
            return data
        # These are of the judge's verdicts, not of the corrected rate.
        return {**data, "effective_turns": None, "design_effect": None, "labels": self.labels}


class Rates(NamedTuple):
    """Rates by slice, metric and version, the newest version last, with notes for readers."""

    rates: tuple[SliceRate, ...]
    notes: tuple[str, ...]


def estimate_rates(
    store: StoreReader,
    scope: Scope | None = None,
    *,
    by: Sequence[str] = (),
    signal: str = "pass_rate",
    unit: Unit = Unit.TURN,
    labels: Sequence[Label] = (),
    now: datetime | None = None,
    cluster: Cluster = CASE,
) -> Rates:
    """Return the estimated rate of each slice and metric version.

    A session, across its repeats, is one cluster.  Human `labels` correct the judge's verdicts; `now` (aware)
    identifies windows that are not over.  Raises InputError for an invalid slice, signal, condition or label.
    """
    scope = scope or Scope()
    check_by(by, unit)
    found = check_signal(signal)
    if found.of_metric:
        _check_metric(store, scope.metric)
    limit = common_limit(store, found.limit) if found.limit else None
    uncovered = read_uncovered(store, scope, by)
    now = now or datetime.now(UTC)
    rates = []
    with choose_turns(store, scope, by, found, unit, limit=limit, cluster=cluster) as turns:
        labelled = choose_labels(turns, labels) if labels else None
        profiles = turns.profiles()
        spread = not scope.where and all(name in TIMES for name in by)
        for row in turns.rows(
            sql(__name__, "slices"),
            {"every": EVERY_PRODUCER, **uncovered.parameters},
            bucket=bucket_of(by),
            spread=spread,
        ):
            key = tuple(row[: len(by) + 2])
            context = _SliceContext(*row[len(by) + 2 : -1])
            slice_ = dict(zip(by, key[: len(by)], strict=True))
            ended = _ended(scope, slice_, now)
            rates.append(
                _rate(slice_, signal, key, context, profiles.get(key, ()), ended, labelled)
            )
    notes = [*uncovered.notes, *_left_out(rates)]
    if limit is not None:
        notes.append(f"{signal}: the share of turns with {found.limit} above {limit:,.6g}")
    notes += _without_time(store, scope)
    return Rates(tuple(rates), (*notes, *(labelled.notes if labelled else ())))


def _check_metric(store: StoreReader, name: str) -> None:
    if not name:
        return
    known = store.column("SELECT DISTINCT metric_name FROM turn_scores ORDER BY 1")
    if not known:
        raise InputError(
            f"--metric {name}: no turn has a score yet; score some with `evaltap score`"
        )
    check_known(name, known, f"--metric {name}: no turn has a score of it")


def _without_time(store: StoreReader, scope: Scope) -> Iterator[str]:
    if scope.since or scope.until:
        ((timeless,),) = store.rows("SELECT count(*) FROM latest_turns WHERE started_at IS NULL")
        if timeless:
            yield f"turns without a start time, which are in no window: {timeless:,}"


def _left_out(rates: Iterable[SliceRate]) -> Iterator[str]:
    """Yield what the rates of metrics in all do not cover."""
    newest = {one.metric: one for one in rates if one.metric and not one.slice}
    for metric, one in newest.items():
        if one.covered < LEAST_COVERED:
            yield (
                f"{metric}: {1 - one.covered:.1%} of the turns had no chance of being recorded and scored"
                " and are not in the rate"
            )
        if one.not_counted:
            yield (
                f"{metric}: {one.not_counted:.1%} of the turns have no verdict and are not in the rate"
            )


class _SliceContext(NamedTuple):
    turns: int
    having: int
    not_counted: float
    mean_score: float | None
    uncovered: float
    """The number of unrecordable turns for each turn of the traffic that recorded turns represent."""


def _rate(
    slice_: Mapping[str, str | None],
    signal: str,
    key: tuple[str | None, ...],
    context: _SliceContext,
    profiles: Iterable[Profile],
    ended: bool,
    labelled: LabelledTurns | None,
) -> SliceRate:
    found = estimate(profiles)
    covered = 1 / (1 + context.uncovered)
    flags = []
    if covered < LEAST_COVERED:
        flags.append("uncovered")
    if found is not None and found.effective_sessions < FEW_SESSIONS:
        flags.append("few_sessions")
    if not ended:
        flags.append("open")
    number = None
    if labelled is not None and found is not None:
        found, more, number = labelled.correct(key, found)
        flags.extend(more)
    metric, digest = key[-2:]
    return SliceRate(
        slice=slice_,
        signal=signal,
        metric=metric,
        metric_digest=digest,
        estimate=found,
        covered=covered,
        flags=tuple(flags),
        sample_rate=context.having / context.turns if context.turns else None,
        not_counted=context.not_counted,
        mean_score=context.mean_score,
        labels=number,
    )


_LASTS: Final = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(days=7)}


def _ended(scope: Scope, slice_: Mapping[str, str | None], now: datetime) -> bool:
    """Return whether the window, and the period of the slice, are over."""
    ends = [scope.until] if scope.until else []
    for name, lasts in _LASTS.items():
        if begins := slice_.get(name):
            start = datetime.fromisoformat(begins)
            ends.append(shifted(start.replace(tzinfo=start.tzinfo or UTC), lasts))
    return not ends or min(ends) <= now


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
