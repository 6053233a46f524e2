"""A task of the consumer: compute its metrics from stored rows; counters count since the process started."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from typing import Final, Protocol

from evaltap.evaluator.analysis.estimates.rates import estimate_rates
from evaltap.evaluator.analysis.estimates.scope import Scope
from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.ingest.landing.seq_ranges import size
from evaltap.evaluator.ingest.sources.base import CaseSource
from evaltap.evaluator.ingest.sources.positions import log_positions, stored_offsets
from evaltap.evaluator.ingest.topics.errors import TopicsUnavailableError
from evaltap.evaluator.monitoring.history import firing, read_alerts
from evaltap.evaluator.pipeline.live.background import BackgroundRead
from evaltap.evaluator.pipeline.live.consumer import ConsumerTask
from evaltap.evaluator.pipeline.live.exposition import Family, bounded, exposition
from evaltap.evaluator.pipeline.live.status import LiveStatus
from evaltap.evaluator.pipeline.live.watcher import MOST_OF_TIME
from evaltap.evaluator.pipeline.maintenance.completeness import landed_accounts
from evaltap.evaluator.pipeline.maintenance.lag import oldest_unscored
from evaltap.evaluator.store.database import Store, sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.monitor import MonitorFile

LOOK_SECONDS: Final = 5.0
METRICS_SECONDS: Final = 60.0
WINDOWS: Final = {"1h": timedelta(hours=1), "24h": timedelta(days=1), "7d": timedelta(days=7)}
BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)
"""Seconds."""

NO_EVIDENCE: Final[Mapping[str, float]] = {}


class MetricsWriter(Protocol):
    """Sends metrics to another system, besides their page for Prometheus."""

    def write_metrics(self, families: Iterable[Family], began_ns: int) -> None:
        """Send the current metrics, with counters that began at `began_ns`.

        Raises TopicsUnavailableError if they are not accepted.
        """

    def close(self) -> None:
        """Close the connection."""


class Figures(ConsumerTask):
    """Computes the metrics regularly and publishes them in a status; less often the longer it takes.

    They are computed and sent on a background thread.
    """

    def __init__(
        self,
        store: Store,
        status: LiveStatus,
        otlp: MetricsWriter | None = None,
        *,
        source: CaseSource | None = None,
        rules: MonitorFile | None = None,
        evidence: Callable[[], Mapping[str, float]] = lambda: NO_EVIDENCE,
    ) -> None:
        self._store = store
        self._status = status
        self._otlp = otlp
        self._rules = rules or MonitorFile()
        self._evidence = evidence
        self._source = source
        self._waiting: float | None = None
        self._sent_at = 0.0
        self._look = BackgroundRead(
            store, self._compute, "figures", "the Prometheus figures could not be computed"
        )
        self._began = 0.0
        self._not_before = 0.0

    def begin(self) -> None:
        """Publish the metrics of the rows already stored."""
        self._start(time.monotonic())
        self._take(wait=True)

    def step(self, changed: ChangedCases | None) -> bool:
        """Start recomputing the metrics when they are old."""
        now = time.monotonic()
        if self._look.runs:
            self._take()
        elif now >= self._not_before:
            self._start(now)
        return False

    def _start(self, now: float) -> None:
        self._began = now
        if self._source is not None:
            self._waiting = records_waiting(self._source, self._store)
        self._look.start()

    def _take(self, *, wait: bool = False) -> None:
        if self._look.take(wait=wait) is None:
            return
        now = time.monotonic()
        self._not_before = now + max(LOOK_SECONDS, MOST_OF_TIME * (now - self._began))

    def _compute(self, reader: StoreReader) -> None:
        found = figures(reader, rules=self._rules, evidence=self._evidence(), waiting=self._waiting)
        found = self._status.since_start.of(found)
        self._status.metrics = exposition(found)
        self._send(found)

    def _send(self, found: Sequence[Family]) -> None:
        """Post the metrics once a minute; skip a minute in which the endpoint is unavailable."""
        if self._otlp is None or (
            self._sent_at and time.monotonic() - self._sent_at < METRICS_SECONDS
        ):
            return
        self._sent_at = time.monotonic()
        with suppress(TopicsUnavailableError):
            self._otlp.write_metrics(bounded(found), self._status.since_start.began_ns)

    def close(self) -> None:
        """Compute and send the metrics a last time."""
        self._look.close()
        if self._otlp is not None:
            self._sent_at = 0.0
            with self._store.unlimited_memory():
                self._compute(self._store)
            self._otlp.close()


def records_waiting(source: CaseSource, store: Store) -> float | None:
    """Return how many records of a log have not landed; None while it is away, or there is none yet."""
    try:
        bounds = source.bounds(waits=False)
    except InputError:
        return None
    positions = log_positions(bounds, stored_offsets(store))
    return float(sum(one.waiting for one in positions)) if positions else None


def figures(
    store: StoreReader,
    now: datetime | None = None,
    *,
    rules: MonitorFile | None = None,
    evidence: Mapping[str, float] = NO_EVIDENCE,
    waiting: float | None = None,
) -> list[Family]:
    """Return the metrics of a store; `now` (aware) is the end of the windows of rates.

    `rules` give the budgets.  `evidence` is, for each watch, how close it is to an alarm.  `waiting` is how
    many records of the log have not landed.
    """
    return [
        *_counts(store),
        *_traffic(store),
        *_rates(store, now or datetime.now(UTC)),
        *_judges(store),
        *_state(store),
        _budgets(store, rules or MonitorFile()),
        _evidence(evidence),
        _on_log(waiting),
    ]


def _counts(store: StoreReader) -> list[Family]:
    dropped = Family(
        "evaltap_turns_dropped_total", "counter", "Turns that recorders dropped.", ("reason",)
    )
    letters = Family(
        "evaltap_dead_letters_total", "counter", "Records that could not be landed.", ("reason",)
    )
    scored = Family(
        "evaltap_turns_scored_total",
        "counter",
        "Scores of turns, each time that a turn was scored.",
        ("app", "metric", "status"),
    )
    for family, query in ((dropped, _DROPPED), (letters, _LETTERS), (scored, _SCORED)):
        for *values, figure in store.rows(query):
            family.add(values, figure)
    return [dropped, letters, scored]


def _traffic(store: StoreReader) -> list[Family]:
    landed = Family("evaltap_turns_landed_total", "counter", "Turns landed, as recorded.", ("app",))
    cost = Family(
        "evaltap_turn_cost_usd_total", "counter", "Estimated cost of the traffic.", ("app", "model")
    )
    latency = Family(
        "evaltap_turn_latency_seconds",
        "histogram",
        "Estimated latency of the traffic's turns.",
        ("part", "app", "model", "le"),
        suffixes=True,
    )
    weight = "1 / greatest(coalesce(inclusion_probability, 1), 1e-9)"
    bounds = [f"latency_ms <= {bound * 1000}" for bound in BUCKETS] + ["latency_ms IS NOT NULL"]
    buckets = ", ".join(f"coalesce(sum({weight}) FILTER ({one}), 0)" for one in bounds)
    turns: dict[str, float] = {}
    for app, model, count, dollars, seconds, *counted in store.rows(
        sql(__name__, "turns").format(buckets=buckets)
    ):
        turns[app] = turns.get(app, 0.0) + count
        cost.add((app, model), dollars)
        for bound, figure in zip((*map(_bound, BUCKETS), "+Inf"), counted, strict=True):
            latency.add(("_bucket", app, model, bound), figure)
        latency.add(("_sum", app, model, ""), seconds or 0.0)
        latency.add(("_count", app, model, ""), counted[-1])
    for app, count in turns.items():
        landed.add((app,), count)
    return [landed, cost, latency]


def _bound(seconds: float) -> str:
    return f"{seconds:g}"


def _rates(store: StoreReader, now: datetime) -> list[Family]:
    labels = ("app", "metric", "window")
    disagreement = Family(
        "evaltap_judge_disagreement_ratio",
        "gauge",
        "Share of turns on which judges disagreed.",
        ("metric", "window"),
    )
    found = {
        "rate": Family("evaltap_pass_ratio", "gauge", "Pass rate of the traffic.", labels),
        "low": Family("evaltap_pass_ratio_low", "gauge", "Lower end of its 95 % interval.", labels),
        "high": Family(
            "evaltap_pass_ratio_high", "gauge", "Upper end of its 95 % interval.", labels
        ),
        "effective_turns": Family(
            "evaltap_effective_turns",
            "gauge",
            "Effective sample size of a pass rate, in turns.",
            labels,
        ),
        "covered": Family(
            "evaltap_covered_ratio",
            "gauge",
            "Share of the traffic that had a chance of being scored.",
            labels,
        ),
    }
    for window, length in WINDOWS.items():
        scope = Scope(since=now - length, traffic=True)
        for rate in estimate_rates(store, scope, by=["app"], now=now).rates:
            data = rate.data()
            for name, family in found.items():
                family.add((rate.slice["app"], rate.metric, window), data[name])
        for rate in estimate_rates(store, scope, signal="judge_disagreement", now=now).rates:
            disagreement.add((rate.metric, window), rate.rate.value if rate.rate else None)
    return [*found.values(), disagreement]


def _judges(store: StoreReader) -> list[Family]:
    cost = Family("evaltap_judge_cost_usd_total", "counter", "Cost of judges.", ("metric", "model"))
    calls = Family(
        "evaltap_judge_calls_total",
        "counter",
        "Answers from judges.",
        ("metric", "model", "status"),
    )
    for metric, model, status, count, dollars in store.rows(_CALLS):
        calls.add((metric, model, status), count)
        if dollars is not None:
            cost.add((metric, model), cost.samples.get((metric, model), 0.0) + dollars)
    return [cost, calls]


def _evidence(evidence: Mapping[str, float]) -> Family:
    found = Family(
        "evaltap_watch_evidence_ratio",
        "gauge",
        "Evidence for a change, divided by the evidence that raises an alarm.",
        ("watch",),
    )
    for watch, share in evidence.items():
        found.add((watch,), share)
    return found


def _on_log(records: float | None) -> Family:
    waiting = Family(
        "evaltap_log_records_waiting", "gauge", "Records of the log still to be landed."
    )
    waiting.add((), records)
    return waiting


def _budgets(store: StoreReader, rules: MonitorFile) -> Family:
    left = Family(
        "evaltap_budget_left_usd", "gauge", "Remainder of the rule's budget for today.", ("rule",)
    )
    for rule in rules.score:
        if rule.budget is not None and rule.budget.usd_per_day is not None:
            ((spent,),) = store.rows(_SPENT_TODAY, {"metrics": rule.metrics})
            left.add((rule.name,), max(0.0, rule.budget.usd_per_day - spent))
    return left


def _state(store: StoreReader) -> list[Family]:
    lag = Family(
        "evaltap_scoring_lag_seconds", "gauge", "Age of the oldest case waiting for scores."
    )
    waiting = Family("evaltap_cases_unscored", "gauge", "Cases waiting for scores.")
    behind = oldest_unscored(store)
    waiting.add((), behind.cases)
    lag.add((), behind.seconds)
    missing = Family(
        "evaltap_turns_missing", "gauge", "Turns that producers numbered and that are missing."
    )
    missing.add((), float(sum(size(account.lost) for account in landed_accounts(store))))
    alarms = Family(
        "evaltap_alert_firing", "gauge", "1 while an alarm is firing.", ("watch", "slice")
    )
    alerts = read_alerts(store)
    on = [(one.event.watch, one.event.slice) for one in firing(alerts)]
    for event in (alert.event for alert in alerts):
        slice_ = " ".join(f"{name}={value}" for name, value in event.slice.items())
        alarms.add((event.watch, slice_), float((event.watch, event.slice) in on))
    build = Family("evaltap_build_info", "gauge", "The running version.", ("version",))
    build.add((version("evaltap"),), 1.0)
    return [lag, waiting, missing, alarms, build]


_DROPPED: Final = """
SELECT reason, sum(turns) FROM (
  SELECT m.producer_id, d.key AS reason, max(d.value::BIGINT) AS turns
  FROM manifests m, json_each(m.drops) d GROUP BY ALL
) GROUP BY ALL
"""
_SPENT_TODAY: Final = """
SELECT coalesce(sum(cost_usd), 0) FROM judge_calls
WHERE metric_name IN $metrics::VARCHAR[] AND scored_at >= (now() AT TIME ZONE 'UTC')::DATE
"""
_LETTERS: Final = "SELECT reason, count(*) FROM dead_letters GROUP BY ALL"
# All rows: a turn that is scored again would otherwise lower a counter, which Prometheus takes for a restart.
_SCORED: Final = "SELECT app_name, metric_name, status, count(*) FROM turn_scores GROUP BY ALL"
_CALLS: Final = """
SELECT metric_name, coalesce(model, ''), status, count(*), sum(cost_usd) FROM judge_calls GROUP BY ALL
"""
