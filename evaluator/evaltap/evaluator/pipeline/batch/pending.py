"""Landed cases without a score: at their latest revision, with the metrics that they lack.

The whole store is scanned once.  Later scans only read what landing has changed, and no further back in the
file than where those cases begin, so their cost depends on what is new and not on what is stored.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from evaltap.evaluator.cases.identity import (
    OLDEST,
    CaseIdentity,
    CaseKey,
    ChangedCases,
    FirstPosition,
    is_about,
)
from evaltap.evaluator.cases.pairing import UnscorableCaseError, pair_turns
from evaltap.evaluator.cases.references import JoinCount, References
from evaltap.evaluator.cases.turn import Case
from evaltap.evaluator.ingest.landing.cases import (
    PORTION_BYTES,
    DocumentReader,
    LandedTurns,
    TurnDocuments,
    assemble,
)
from evaltap.evaluator.ingest.landing.recent_cases import LandedLines
from evaltap.evaluator.scoring.batch import Known
from evaltap.evaluator.scoring.contract.context import Status, TurnScore
from evaltap.evaluator.scoring.evaluators.catalogue import reference_free
from evaltap.evaluator.scoring.evaluators.user_feedback import reads_feedback
from evaltap.evaluator.scoring.results.runs import RunMetric
from evaltap.evaluator.scoring.scorer import KnownScores, run_failures
from evaltap.evaluator.store.database import STORE, Store, sql
from evaltap.evaluator.store.queries import Row, Rows

NAMES_PER_READ: Final = 50_000
"""Most names of pending cases in memory."""
FIRST_NAMES: Final = 1_000
"""Names of the first query for turns; each such query reads all names that landed later."""

LONG_SESSION: Final = 500
"""Turns from which on looking up scores is cheaper than scoring again (docs/benchmarks/long_sessions.py)."""

LAST: Final = 2**63 - 1
"""A position after every other in the order of landing."""


class PendingCase(NamedTuple):
    """A case revision, and the run's indexes of the metrics that it lacks."""

    identity: CaseIdentity
    document: Case | LandedLines
    indexes: tuple[int, ...]
    scored: Mapping[int, Sequence[TurnScore | None]] = {}
    """By index, the scores of the turns; `case` then lacks the turns that have one."""

    @property
    def case(self) -> Case:
        """The case; one that just landed is decoded each time, so that many may wait in little memory."""
        document = self.document
        return document.case() if isinstance(document, LandedLines) else document

    @property
    def key(self) -> CaseKey:
        return self.identity[:3]


class PendingCases:
    """Finds landed cases that lack scores under a run's metrics.

    With `sampled`, cases that a rule has left out are not pending, unless feedback says since then what rules
    look for that heed `complaints`.
    """

    def __init__(
        self,
        store: Store,
        metrics: Sequence[RunMetric],
        *,
        references: References | None = None,
        sampled: bool = False,
        complaints: bool = False,
    ) -> None:
        self._store = store
        self._references = references
        self._missing = sql(__name__, "pending_cases").format(
            unless_left_out=_UNLESS_LEFT_OUT if sampled else "",
            is_about_scored=is_about("f", "s"),
            is_about_decided=is_about("f", "d"),
        )
        self._documents = DocumentReader(store)
        self.joined = JoinCount()
        """How many of the assembled cases found a reference."""
        self._digests = {metric.digest: index for index, metric in enumerate(metrics)}
        self._names = {index: digest for digest, index in self._digests.items()}
        self._with_references = [
            ""
            if one.references or one.evaluator_name in reference_free()
            else one.metric.metric_name
            for one in metrics
        ]
        self._reads_feedback = [one.digest for one in metrics if reads_feedback([one.metric])]
        self.reads_feedback = bool(self._reads_feedback)
        """Whether a metric needs what users said about the turns."""
        self._complaints = complaints
        self.heeds_feedback = self.reads_feedback or complaints
        """Whether scores may change by feedback that lands later."""
        self._heard = self._last_feedback()
        kinds = set(store.column("SELECT DISTINCT kind FROM runs"))
        self.scored_after_landing = kinds <= {"live", "landed"}
        """Whether scores are always newer than their case; those of files and gates may be older."""

    def read(
        self,
        changed: ChangedCases,
        at_a_time: int,
        *,
        fewest: int = 1,
        ahead: int = NAMES_PER_READ,
        retry: bool = False,
        run_id: str = "",
        long: int = LONG_SESSION,
    ) -> Iterator[tuple[list[PendingCase], FirstPosition]]:
        """Yield the pending ones of these cases in batches, oldest first, with the first position of each.

        A batch has at most `at_a_time` cases, or fewer if they are large, but at least `fewest`.  Whether
        they are pending is decided for at most `ahead` cases at once: what lands later is not seen.

        With `run_id`, whose metrics must score turns separately, only the turns of a session of `long` turns
        are read that the run has not scored.
        """
        batch: list[PendingCase] = []
        size = 0
        for case, characters in self._sized(changed, ahead, retry=retry, run_id=run_id, long=long):
            batch.append(case)
            size += characters
            if len(batch) >= at_a_time or (size >= PORTION_BYTES and len(batch) >= fewest):
                yield batch, min(changed[one.key] for one in batch)
                batch, size = [], 0
        if batch:
            yield batch, min(changed[one.key] for one in batch)

    def _sized(
        self, changed: ChangedCases, ahead: int, *, retry: bool, run_id: str, long: int
    ) -> Iterator[tuple[PendingCase, int]]:
        """Yield the pending ones of some cases in the order of landing, with the length of their turns."""
        if not self._digests:
            return
        oldest_first = sorted(changed.items(), key=lambda item: item[1])
        first, count = 0, min(FIRST_NAMES, ahead)
        while first < len(oldest_first):
            some = dict(oldest_first[first : first + count])
            rows = self._store.with_memory(partial(self._pending_rows, some, retry=retry))
            if run_id:
                for row in rows:
                    if len(row[-1]) >= long:
                        yield self._continued(row, run_id, min(some.values()))
                rows = [row for row in rows if len(row[-1]) < long]
            turns = [LandedTurns((app, name, eval_id), at) for app, name, eval_id, *_, at in rows]
            said = self._feedback([one.case for one in turns]) if self.reads_feedback else {}
            for row, texts in zip(rows, self._documents.read(turns), strict=True):
                one = self._assembled(row, texts)
                attach_feedback(one, said.get(one.identity.eval_id, ()))
                yield one, texts.size
            first += len(some)
            headers = 1 + sum(len(header) for *_, header, _, _, _ in rows)
            count = min(ahead, 4 * count, max(1, count * PORTION_BYTES // headers))

    def _pending_rows(self, changed: ChangedCases, *, retry: bool) -> Rows:
        apps, sets, ids = (list(names) for names in zip(*changed, strict=True))
        since = min(changed.values())
        bounds = {
            "turns": f"landed_seq >= {since.landed_seq}",
            "cases": f"landed_at >= TIMESTAMP '{since.landed_at}'",
            "scores": f"scored_at >= TIMESTAMP '{self._scored_since(since)}'",
        }
        given = {"apps": apps, "sets": sets, "ids": ids}
        with ExitStack() as stack:
            some = {
                table: stack.enter_context(
                    self._store.scratch(
                        _SOME.format(table=table, columns=_COLUMNS.get(table, "*"), bound=bound),
                        given,
                    )
                )
                for table, bound in bounds.items()
            }
            these = ", ".join(f"these_{table} AS (FROM {copy})" for table, copy in some.items())
            query = f"WITH {these}, {sql(STORE, 'newest')}, {self._missing} {_CASES}"
            return self._store.rows(query, self._wanted(retry=retry))

    @property
    def indexes(self) -> tuple[int, ...]:
        """The indexes of all metrics: those that a case without any score lacks."""
        return tuple(sorted(self._digests.values()))

    def names(
        self, limit: int, *, after: int = -1, until: int = LAST, retry: bool = False
    ) -> dict[CaseKey, FirstPosition]:
        """Return the names of the first `limit` pending cases, in the order of landing.

        Only cases whose first position is after `after` and not after `until`.  With `retry`, also cases
        whose scoring ended in an error.  Reads no turns, so it takes little memory.
        """
        if not self._digests:
            return {}
        query = f"WITH {_EVERYTHING} {sql(STORE, 'newest')}, {self._missing} {_NAMES}"
        parameters = {**self._wanted(retry=retry), "limit": limit, "after": after, "until": until}
        return {
            (app, eval_set, eval_id): FirstPosition(*begin)
            for app, eval_set, eval_id, *begin in self._store.large_rows(query, parameters)
        }

    def answered(self) -> ChangedCases:
        """Return the cases on which feedback has landed since the last call, if that may change anything."""
        if not self.heeds_feedback:
            return {}
        before, self._heard = self._heard, self._last_feedback()
        if before == self._heard:
            return {}
        return {
            (app, eval_set, eval_id): FirstPosition(*begin)
            for app, eval_set, eval_id, *begin in self._store.rows(_ANSWERED, {"before": before})
        }

    def invalid(self) -> dict[CaseKey, str]:
        """Return the cases that are never pending, as an experiment found them invalid, with the reasons."""
        return {(row[0], row[1], row[2]): row[3] for row in self._store.rows(_INVALID)}

    def compared(self) -> list[tuple[CaseKey, str, str]]:
        """Return cases that keep the scores of an experiment, which had references; these metrics have none.

        Each with a metric's name and the digest of that score.
        """
        rows = self._store.rows(_COMPARED, {"metrics": self._with_references})
        return [((app, eval_set, eval_id), *score) for app, eval_set, eval_id, *score in rows]

    def last_place(self) -> int:
        """Return the position of the newest turn in the order of landing."""
        ((last,),) = self._store.rows("SELECT coalesce(max(landed_seq), 0) FROM turns")
        return int(last)

    def known(
        self, indexes: Sequence[int], cases: Sequence[PendingCase], since: FirstPosition = OLDEST
    ) -> Known:
        """Return earlier scores of turns, so that only the new turns of a session are judged.

        Scores are keyed by the metric's place in `indexes`.
        """
        digests = [self._names[index] for index in indexes]
        found: dict[tuple[object, ...], TurnScore] = {}
        parameters = {
            "ids": [one.identity.eval_id for one in cases],
            "digests": digests,
            "feedback": self._reads_feedback,
            "scored_at": self._scored_since(since),
        }
        for *key, score, status, reason in self._store.large_rows(_KNOWN, parameters):
            found[tuple(key)] = TurnScore(Status(status), score, reason or "", score)
        turns = {id(one.identity): one.case["actualConversation"] for one in cases}

        def known(identity: CaseIdentity) -> KnownScores:
            case = identity[:3]
            revised = list(zip(turns[id(identity)], identity.turn_revisions, strict=True))
            return {
                number: [
                    found.get((*case, turn.get("invocationId"), revision, digest))
                    for turn, revision in revised
                ]
                for number, digest in enumerate(digests)
            }

        return known

    def _feedback(self, cases: Sequence[CaseKey]) -> Mapping[str, Sequence[Row]]:
        """Return the feedback on cases by eval id, in the order in which it was given."""
        found: dict[str, list[Row]] = {}
        for row in self._store.rows(_FEEDBACK, {"ids": [key[2] for key in cases]}):
            found.setdefault(row[2], []).append(row)
        return found

    def _last_feedback(self) -> datetime:
        ((last,),) = self._store.rows("SELECT max(landed_at) FROM feedback")
        return last or OLDEST.landed_at

    def _wanted(self, *, retry: bool) -> dict[str, object]:
        return {
            "digests": list(self._digests),
            "with_references": self._with_references,
            "retry": retry,
            "feedback": self._reads_feedback,
            "complaints": self._complaints,
        }

    def _scored_since(self, begin: FirstPosition) -> datetime:
        return begin.landed_at if self.scored_after_landing else OLDEST.landed_at

    def _continued(self, row: Row, run_id: str, since: FirstPosition) -> tuple[PendingCase, int]:
        """Return a long session without the turns that a run has scored, or else the whole session."""
        app, eval_set, eval_id, _, digests, _, ids, revisions, positions = row
        key = (app, eval_set, eval_id)
        scored = self._scored(key, run_id, digests, list(zip(ids, revisions, strict=True)), since)
        first, *_ = scored.values()
        new = [at for at, one in zip(positions, first, strict=True) if one is None]
        if 0 < len(new) < len(positions):
            (texts,) = self._documents.read([LandedTurns(key, new)])
            part = self._assembled(row, texts)
            if _is_plain(part.case):
                return part._replace(scored=scored), texts.size
        (texts,) = self._documents.read([LandedTurns(key, positions)])
        return self._assembled(row, texts), texts.size

    def _scored(
        self,
        key: CaseKey,
        run_id: str,
        digests: Sequence[str],
        turns: Sequence[tuple[str, int]],
        since: FirstPosition,
    ) -> dict[int, list[TurnScore | None]]:
        """Return a run's scores of the turns of a session, by index; None for a turn that lacks one of them.

        None for all turns if one of them crashed or could not be scored, as that decides about the session.
        """
        app, eval_set, eval_id = key
        parameters = {
            "app": app,
            "set": eval_set,
            "id": eval_id,
            "run": run_id,
            "since": since.landed_at,
        }
        found: dict[str, dict[tuple[str, int], TurnScore]] = {digest: {} for digest in digests}
        for digest, score, status, reason, names, revisions in self._store.rows(
            _SCORED, parameters
        ):
            if status in ("crashed", "error"):
                found = {one: {} for one in digests}
                break
            if digest in found:
                one = TurnScore(Status(status), score, reason or "", score)
                found[digest].update(dict.fromkeys(zip(names, revisions, strict=True), one))
        complete = set(turns).intersection(*found.values())
        return {
            self._digests[digest]: [scores[turn] if turn in complete else None for turn in turns]
            for digest, scores in found.items()
        }

    def _assembled(self, row: Row, turns: TurnDocuments) -> PendingCase:
        app, eval_set, eval_id, revision, digests, header, _, revisions, _ = row
        case = assemble(header, turns.actual, turns.expected)
        if self._references is not None:
            self.joined.add(self._references.attach(case), case)
        identity = CaseIdentity(app, eval_set, eval_id, revision, revisions)
        return PendingCase(
            identity, case, tuple(sorted(self._digests[digest] for digest in digests))
        )


def _is_plain(case: Case) -> bool:
    """Return whether scoring a case's turns decides about no other turns."""
    if case.get("rubrics"):
        return False
    try:
        return run_failures(pair_turns(case).actual) is None
    except (UnscorableCaseError, TypeError, AttributeError, KeyError, ValueError):
        return False


def attach_feedback(pending: PendingCase, given: Sequence[Row]) -> None:
    """Add feedback to the turns that it is about."""
    turns = {turn.get("invocationId"): turn for turn in pending.case["actualConversation"]}
    for *key, invocation, name, positive, score, comment in given:
        if tuple(key) == pending.key and (turn := turns.get(invocation)) is not None:
            said = {"name": name, "positive": positive, "score": score, "comment": comment}
            stated = {field: value for field, value in said.items() if value is not None}
            turn.setdefault("feedback", []).append(stated)


_FEEDBACK = """
SELECT app_name, eval_set_id, eval_id, invocation_id, name, positive, score, comment
FROM v_feedback WHERE eval_id IN $ids::VARCHAR[] ORDER BY given_at, feedback_id
"""

_EVERYTHING = """
these_cases AS (FROM cases), these_turns AS (FROM turns), these_scores AS (FROM scores),
"""

# Copies the rows first: a single query would reserve memory for the rows that DuckDB expects, a fifth of the
# table.  The bounds let DuckDB skip older rows without reading them.
_SOME = """
SELECT {columns} FROM {table} SEMI JOIN (
  SELECT unnest($apps::VARCHAR[]) AS app_name, unnest($sets::VARCHAR[]) AS eval_set_id,
         unnest($ids::VARCHAR[]) AS eval_id
) USING (app_name, eval_set_id, eval_id)
WHERE {bound}
"""
_COLUMNS: Final[Mapping[str, str]] = {
    "turns": "app_name, eval_set_id, eval_id, invocation_id, turn_revision, started_at, status, landed_seq"
}
"""The columns that are needed of a table, if not all; the turns themselves may be large."""

_CASES = """
SELECT m.app_name, m.eval_set_id, m.eval_id, m.revision, m.digests, c.case_json,
       list(t.invocation_id ORDER BY t.started_at NULLS FIRST, t.first_landed_seq),
       list(t.turn_revision ORDER BY t.started_at NULLS FIRST, t.first_landed_seq),
       list(t.landed_seq    ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM missing m
JOIN newest_cases c USING (app_name, eval_set_id, eval_id)
JOIN newest_turns t USING (app_name, eval_set_id, eval_id)
GROUP BY m.app_name, m.eval_set_id, m.eval_id, m.revision, m.digests, c.case_json
ORDER BY min(t.first_landed_seq)
"""

# A turn without a decision, with the decision to score it, or with one that is outdated.
_UNLESS_LEFT_OUT = """AND (
    (c.app_name, c.eval_set_id, c.eval_id, w.metric_digest) IN (FROM outdated) OR EXISTS (
    FROM newest_turns t
    WHERE t.app_name = c.app_name AND t.eval_set_id = c.eval_set_id AND t.eval_id = c.eval_id
      AND NOT EXISTS (
        FROM latest_decisions d
        WHERE d.app_name = c.app_name AND d.eval_set_id = c.eval_set_id AND d.eval_id = c.eval_id
          AND d.invocation_id = t.invocation_id AND d.turn_revision = t.turn_revision
          AND d.metric_digest = w.metric_digest AND d.decision <> 'score'
      )
  ))"""

_NAMES = """
SELECT app_name, eval_set_id, eval_id, min(landed_seq), min(landed_at)
FROM these_turns SEMI JOIN missing USING (app_name, eval_set_id, eval_id)
GROUP BY ALL HAVING min(landed_seq) > $after AND min(landed_seq) <= $until
ORDER BY min(landed_seq) LIMIT $limit
"""

_ANSWERED = """
SELECT app_name, eval_set_id, eval_id, min(landed_seq), min(landed_at)
FROM turns SEMI JOIN (SELECT eval_id FROM feedback WHERE landed_at > $before) USING (eval_id)
GROUP BY ALL
"""

_INVALID = """
SELECT app_name, eval_set_id, eval_id, coalesce(reason, '') FROM units
SEMI JOIN cases USING (app_name, eval_set_id, eval_id)
WHERE state = 'invalid' ORDER BY written_at
"""

_COMPARED = """
SELECT DISTINCT s.app_name, s.eval_set_id, s.eval_id, s.metric_name, s.metric_digest
FROM scores s JOIN run_metrics m USING (run_id, metric_digest)
SEMI JOIN units USING (app_name, eval_set_id, eval_id)
WHERE m.references_digest IS NOT NULL AND list_contains($metrics::VARCHAR[], s.metric_name)
"""

# Most turns have the same score and reason, so that few rows are returned.
_SCORED = """
SELECT metric_digest, score, status, reason, list(invocation_id), list(turn_revision)
FROM turn_scores
WHERE run_id = $run AND app_name = $app AND eval_set_id = $set AND eval_id = $id AND scored_at >= $since
GROUP BY ALL
"""

_KNOWN = """
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest,
       score, status, reason
FROM turn_scores s
WHERE eval_id IN $ids::VARCHAR[] AND metric_digest IN $digests::VARCHAR[]
  AND status IN ('passed', 'failed') AND scored_at >= $scored_at
  AND NOT (metric_digest IN $feedback::VARCHAR[] AND EXISTS (
    FROM feedback f WHERE f.eval_id = s.eval_id AND f.landed_at > s.scored_at
      AND coalesce(f.invocation_id, s.invocation_id) = s.invocation_id
  ))
"""
