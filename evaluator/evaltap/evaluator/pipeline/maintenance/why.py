"""Explain why a case has no score, from the store and from the log of its origin."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, TypeAlias

from evaltap.evaluator.analysis.filters.listing import IS_CASE, NAMES, nearest
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.ingest.landing.dead_letters import naming
from evaltap.evaluator.ingest.sources.base import Partition
from evaltap.evaluator.ingest.sources.local_log import partition_of
from evaltap.evaluator.ingest.sources.positions import stored_offsets
from evaltap.evaluator.pipeline.maintenance.lag import USED
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import open_log
from evaltap.schemas.log.location import OTLP, KafkaLocation, LogLocation
from evaltap.schemas.text import counted
from evaltap.schemas.wire.record import FEEDBACK_TYPE, MANIFEST_TYPE, WireRecord

RECORDS_PER_READ = 500
SILENT_SECONDS = 60.0
"""How long brokers may return nothing although they report records."""
SHOWN_LETTERS = 5
CASES_PER_READ = 1_000


@dataclass(frozen=True, slots=True)
class MetricAnswer:
    """The status of a case under one metric: that of its score, or `pending`."""

    metric_name: str
    status: str
    reason: str


@dataclass(slots=True)
class Answer:
    """The known facts about a case; if it did not land, `notes` list the places that were searched."""

    case: str
    landed: bool = False
    metrics: list[MetricAnswer] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether the case has a verdict under every metric that was ever applied here."""
        return bool(self.metrics) and all(
            metric.status in ("passed", "failed", "crashed") for metric in self.metrics
        )


def why(store: StoreReader, case: str, log: LogLocation | None = None) -> Answer:
    """Return the status of a case; `case` is its eval id, or eval set id and eval id with a slash.

    Raises InputError for an unreadable `log`, which is only read if the case has not landed.
    """
    parameters = {"case": case}
    keys: list[CaseKey] = [
        (app, eval_set, eval_id)
        for app, eval_set, eval_id in store.rows(
            f"{NAMES} WHERE {IS_CASE} ORDER BY ALL", parameters
        )
    ]
    if keys:
        found = list(explained(store, keys))
        if len(found) > 1:
            for key, one in found:
                one.metrics = [
                    replace(
                        metric, reason=f"{_where(key)}{': ' * bool(metric.reason)}{metric.reason}"
                    )
                    for metric in one.metrics
                ]
                one.notes = [f"{_where(key)}: {note}" for note in one.notes]
        answers = [answer for _, answer in found]
        return Answer(
            case,
            any(one.landed for one in answers),
            [metric for one in answers for metric in one.metrics],
            [note for one in answers for note in one.notes],
        )
    answer = Answer(case)
    answer.notes.append(
        f"this case is not in {store.path}: it has not landed, nor was it scored from a file; similar ids:"
        f" {nearest(store, case)}"
    )
    ((given,),) = store.rows(f"SELECT count(*) FROM feedback WHERE {IS_CASE}", parameters)
    if given:
        answer.notes.append(
            f"{counted(given, 'piece')} of feedback on this case landed, but none of its turns"
        )
    answer.notes.extend(_dead(store, case))
    if log is not None:
        answer.notes.append(_on_log(log, case, store))
    answer.notes.extend(_left_out(store))
    return answer


def _where(key: CaseKey) -> str:
    """Return what tells a case from others with its eval id: its app, and its eval set if it has one."""
    app, eval_set, eval_id = key
    return f"app {app or '(none)'}" + (f", eval set {eval_set}" if eval_set != eval_id else "")


def explained(
    store: StoreReader, keys: Sequence[CaseKey], *, at_a_time: int = CASES_PER_READ
) -> Iterator[tuple[CaseKey, Answer]]:
    """Yield what `statuses` yields; answers without any metric say how to score the case."""
    for key, answer in statuses(store, keys, at_a_time=at_a_time):
        if not answer.metrics:
            answer.notes.append(
                "this case has landed, but no run has scored anything yet; score it with evaltap score"
                f" {store.path} --metrics M.json"
            )
        yield key, answer


def statuses(
    store: StoreReader, keys: Sequence[CaseKey], *, at_a_time: int = CASES_PER_READ
) -> Iterator[tuple[CaseKey, Answer]]:
    """Yield the status of cases that landed or were scored, in the order of `keys`.

    Each query looks at the whole store, and answers for `at_a_time` cases.
    """
    metrics = store.rows(_METRICS)
    for first in range(0, len(keys), at_a_time):
        some = keys[first : first + at_a_time]
        apps, sets, ids = (list(names) for names in zip(*some, strict=True))
        parameters = {"apps": apps, "sets": sets, "ids": ids}
        landed: dict[CaseKey, int] = {
            (app, eval_set, eval_id): revision
            for app, eval_set, eval_id, revision in store.rows(_LANDED, parameters)
        }
        scores: dict[CaseKey, dict[str, _Score]] = {key: {} for key in some}
        for app, eval_set, eval_id, digest, *score in store.rows(_SCORES, parameters):
            scores[app, eval_set, eval_id][digest] = _Score(*score)
        left_out: dict[tuple[CaseKey, str], tuple[int, str]] = {}
        if store.rows("SELECT 1 FROM sampling_decisions LIMIT 1"):
            for app, eval_set, eval_id, digest, turns, said in store.rows(
                _LEFT_OUT_TURNS, parameters
            ):
                left_out[(app, eval_set, eval_id), digest] = turns, said
        for key, scored in scores.items():
            answer = Answer(f"{key[1]}/{key[2]}", key in landed)
            latest = max([landed.get(key, 0), *(one.revision for one in scored.values())])
            for metric, digest in metrics:
                status, reason = _status(scored.get(digest), latest)
                turns, said = left_out.get((key, digest), (0, ""))
                if turns and status == "pending":
                    status, reason = "not_scored", said
                elif turns:
                    answer.notes.append(f"{metric}: {counted(turns, 'turn')} not scored: {said}")
                answer.metrics.append(MetricAnswer(metric, status, reason))
            yield key, answer


class _Score(NamedTuple):
    """The newest score of a case by one version of a metric."""

    revision: int
    status: str
    reason: str


def _status(score: _Score | None, latest: int) -> tuple[str, str]:
    """Return the status of a case whose latest revision is given, with the reason."""
    if score is None:
        reason = "not scored since it landed, or only with another version of the metric"
        return "pending", reason
    if score.revision < latest:
        reason = f"scored up to revision {score.revision}; revision {latest} has landed since"
        return "pending", reason
    return score.status, score.reason


_CHOSEN = """
chosen AS (
  SELECT unnest($apps::VARCHAR[]) AS app_name, unnest($sets::VARCHAR[]) AS eval_set_id,
         unnest($ids::VARCHAR[]) AS eval_id
)
"""

# The turns of cases that rules excluded, by metric version.
_LEFT_OUT_TURNS = f"""
WITH {_CHOSEN}
SELECT app_name, eval_set_id, eval_id, metric_digest, count(*) AS turns,
       string_agg(DISTINCT CASE reason
         WHEN 'no_rule' THEN 'no rule selects this metric for this turn'
         WHEN 'budget' THEN 'rule ' || rule || ', its daily budget was spent'
         ELSE 'rule ' || rule || ', sampled out at rate ' || round(probability, 6)
       END, '; ') AS said
FROM latest_decisions SEMI JOIN chosen USING (app_name, eval_set_id, eval_id)
WHERE decision <> 'score'
GROUP BY ALL
"""

# The version of each metric that was applied here last.
_METRICS = f"""
WITH {USED}
SELECT metric_name, metric_digest
FROM run_metrics JOIN used USING (run_id)
QUALIFY row_number() OVER (PARTITION BY metric_name ORDER BY used_at DESC) = 1
ORDER BY metric_name
"""
_LANDED = f"""
WITH {_CHOSEN}
SELECT app_name, eval_set_id, eval_id, max(revision)
FROM cases SEMI JOIN chosen USING (app_name, eval_set_id, eval_id)
GROUP BY ALL
"""
_SCORES = f"""
WITH {_CHOSEN}
SELECT app_name, eval_set_id, eval_id, metric_digest, revision, status, coalesce(reason, '')
FROM scores SEMI JOIN chosen USING (app_name, eval_set_id, eval_id)
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id, metric_digest ORDER BY revision DESC, scored_at DESC
) = 1
"""

_LEFT_OUT = """
SELECT dropped.key, sum(dropped.value::BIGINT) FROM (
  SELECT drops FROM manifests
  QUALIFY row_number() OVER (PARTITION BY producer_id ORDER BY stated_at DESC) = 1
), json_each(drops) AS dropped
GROUP BY dropped.key ORDER BY dropped.key
"""


def _dead(store: StoreReader, case: str) -> Iterator[str]:
    """Yield the first dead letters that name the case, by their key or in their content."""
    for number, reason, detail in naming(store, case, SHOWN_LETTERS):
        yield f"dead letter {number} ({reason}) names this case: {detail}"


def _left_out(store: StoreReader) -> Iterator[str]:
    for reason, count in store.rows(_LEFT_OUT):
        what = "sampling left out" if _is_sampling(reason) else "the recorder dropped"
        yield f"{what} {counted(count, 'turn')} ({reason}), perhaps of this case; their ids are not stored"


def _is_sampling(reason: str) -> bool:
    return reason.startswith(("sampled_out", "rate_limited"))


def _on_log(log: LogLocation, case: str, store: StoreReader) -> str:
    found = _on_topics(log, case) if isinstance(log, KafkaLocation) else _in_file(log, case)
    if found is None:
        return f"{log} does not contain it"
    partition, offset = found
    of_topic = f" of {partition.topic} {partition.number}" if isinstance(log, KafkaLocation) else ""
    is_passed = offset < stored_offsets(store).get(partition, 0)
    return f"{log} has it at offset {offset}{of_topic}; " + (
        f"{store.path} has read past it: it is a dead letter, was deleted since, or is from before"
        " the store's start (--from now)"
        if is_passed
        else "land it with evaltap consume"
    )


_Place: TypeAlias = tuple[Partition, int]
"""A partition and an offset in it."""


def _in_file(path: Path, case: str) -> _Place | None:
    """Return the place of a case in a local log; None if it is not there."""
    with closing(open_log(path, mode="read")) as log:
        of_log = partition_of(log)
        found = ((of_log, number) for number, record in log.records() if _is_of(record, case))
        return next(found, None)


def _on_topics(location: KafkaLocation, case: str) -> _Place | None:
    """Return the place of a case on topics, up to their current ends; None if it is not there."""
    from evaltap.evaluator.ingest.sources.kafka import KafkaSource

    if location.format == OTLP:
        raise InputError(
            f"{location}: raw telemetry has no case ids yet; evaltap consume makes cases from it"
        )
    source = KafkaSource(location, to_end=True)
    try:
        if not (bounds := source.bounds()):
            raise InputError(f"{location}: the cluster has no such topic; check its name")
        left = {partition: end for partition, (start, end) in bounds.items() if start < end}
        source.seek({})
        deadline = time.monotonic() + SILENT_SECONDS
        while left:
            batch = source.poll(RECORDS_PER_READ, 0.5)
            for one in batch.records:
                if _is_of(one.record, case):
                    return one.partition, one.offset
            for partition, next_offset in batch.next_offsets.items():
                if next_offset >= left.get(partition, 0):
                    left.pop(partition, None)
            if batch.records:
                deadline = time.monotonic() + SILENT_SECONDS
            elif not batch.more:
                break  # the last offsets contain no records, such as the end of a transaction
            elif time.monotonic() > deadline:
                raise InputError(f"{location}: the brokers return no records; try again later")
    finally:
        source.close()
    return None


def _is_of(record: WireRecord, case: str) -> bool:
    key = (record.key or b"").decode("utf-8", "replace")
    named = key == case or key.endswith(f"/{case}")
    return named and record.header("ce_type") not in (MANIFEST_TYPE, FEEDBACK_TYPE)
