"""Store a gate's verdicts as rows: its dimensions are the metrics of a run, so all readers see them.

`scores` has a row for each dimension, `gate_results` the verdict, the feedback and the case itself, and
`gate_dimensions` the parts of each dimension.  A gate ignores the metrics' own thresholds, so no row has
them.
"""

import hashlib
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import count

from evaltap.evaluator.cases.identity import CaseIdentity, CaseKey
from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.scoring.batch import BATCH_SECONDS
from evaltap.evaluator.scoring.contract.context import Status, TurnScore
from evaltap.evaluator.scoring.gates.gate import Attempt, DimensionResult, Gate
from evaltap.evaluator.scoring.gates.gate_judge import METRIC
from evaltap.evaluator.scoring.results.rows import JudgedTurn, ScoreRow, ScoreRows, add_vote_rows
from evaltap.evaluator.scoring.results.runs import RunMetric, end_run, start_run
from evaltap.evaluator.scoring.results.writer import ScoreWriter
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.evaluator.store.database import Store
from evaltap.schemas.formats.gate import GateFile
from evaltap.schemas.formats.metric import EvalMetric, without_key

EVALUATOR = "gate"


def dimension_digests(gate: Gate) -> dict[str, str]:
    """Return the version digest of each dimension: a hash of the rules of its metrics.

    The dimensions of the gate's judge have one metric in common, but each its own digest.
    """
    found = {one.metric.metric_name: one.digest for one in run_metrics(gate.scorer)}
    return {
        name: digest_of(
            [*(found[member] for member in members), *([name] if members == (METRIC,) else [])]
        )
        for name, members in gate.members.items()
    }


def digest_of(members: Sequence[str]) -> str:
    """Return the digest of a dimension from those of its metrics; empty if one is unknown."""
    if not all(members):
        return ""
    return hashlib.sha256("\x1f".join(members).encode()).hexdigest()[:16]


ATTEMPTS_PER_BATCH = 200


class GateWriter:
    """Writes the results of a gate as one run, which is complete when its block ends without an error.

    An answer to a case that was answered before, in this or another run of the file, gets the next revision.
    """

    def __init__(self, store: Store, gate: Gate, source: str) -> None:
        digests = dimension_digests(gate)
        self._store = store
        self._run = start_run(
            store,
            "gate",
            source,
            [
                RunMetric(_metric(name, threshold), EVALUATOR, "1", digests[name])
                for name, threshold in gate.thresholds.items()
            ],
        )
        written = _json(_effective(gate).model_dump(by_alias=True))
        digest = hashlib.sha256(written.encode()).hexdigest()[:16]
        with store.transaction():
            store.append("gate_runs", [(self._run.run_id, written, digest)])
        self._writer = ScoreWriter(store, self._run)
        self._revisions = {tuple(key): last for *key, last in store.rows(_REVISIONS)}
        self._loops: dict[CaseKey, list[str]] = {}
        self._unwritten: list[Attempt] = []
        self._until = time.monotonic() + BATCH_SECONDS

    def __enter__(self) -> "GateWriter":
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        self.write()
        if error is None:
            end_run(self._store, self._run, len(self._loops))

    def add(self, attempts: Iterable[Attempt]) -> None:
        """Store attempts, together with those of a second, or with many others."""
        self._unwritten += attempts
        if len(self._unwritten) >= ATTEMPTS_PER_BATCH or time.monotonic() >= self._until:
            self.write()

    def write(self) -> None:
        """Store what was added, in one transaction."""
        attempts, self._unwritten = self._unwritten, []
        self._until = time.monotonic() + BATCH_SECONDS
        if not attempts:
            return
        rows = ScoreRows()
        results, dimensions = [], []
        now = self._store.now()
        for attempt in attempts:
            identity = case_identity(attempt.case, "")
            key = identity[:3]
            trial = self._trial(key, attempt.loop)
            revision = self._revisions[key] = self._revisions.get(key, 0) + 1
            _add_scores(rows, identity._replace(revision=revision), attempt)
            place = (self._run.run_id, *key, revision, trial, attempt.number)
            results.append((*place, *_result(attempt), now))
            dimensions += [
                (*place, index, *_dimension(one), now)
                for index, one in enumerate(attempt.result.dimensions)
            ]
        with self._store.transaction():
            self._writer.write([rows.packed()])
            self._store.append("gate_results", results)
            self._store.append("gate_dimensions", dimensions)

    def _trial(self, key: CaseKey, loop: str) -> int:
        loops = self._loops.setdefault(key, [])
        if not loop or loop not in loops:
            loops.append(loop)
        return len(loops) if not loop else loops.index(loop) + 1


# Files of older layouts have the scores of gates but no results.
_REVISIONS = """
SELECT app_name, eval_set_id, eval_id, max(revision)
FROM scores SEMI JOIN (FROM runs WHERE kind = 'gate') USING (run_id)
GROUP BY ALL
"""


def _metric(name: str, threshold: float) -> EvalMetric:
    return EvalMetric(metric_name=name, evaluator_name=EVALUATOR, threshold=threshold)


def _effective(gate: Gate) -> GateFile:
    """Return the gate with the effective thresholds, and without keys."""

    def keyless(metric: EvalMetric) -> EvalMetric:
        if metric.criterion is None:
            return metric
        return metric.model_copy(update={"criterion": without_key(metric.criterion)})

    judge = gate.spec.judge_model
    return gate.spec.model_copy(
        update={
            "judge_model": judge and judge.model_copy(update={"api_key": None}),
            "dimensions": [
                one.model_copy(
                    update={
                        "threshold": gate.thresholds.get(one.name),
                        "informs": one.name not in gate.thresholds,
                        "metrics": [keyless(metric) for metric in one.metrics],
                    }
                )
                for one in gate.spec.dimensions
            ],
        }
    )


def _add_scores(rows: ScoreRows, identity: CaseIdentity, attempt: Attempt) -> None:
    """Add a score for each dimension that decides, and the judges' votes under the dimension's name."""
    app, eval_set, eval_id, revision, _ = identity
    score = attempt.result.score
    turns = len(score.turn_ids) or len(attempt.case.get("actualConversation") or ())
    rows.case_count += 1
    deciding = [one for one in attempt.result.dimensions if one.threshold is not None]
    for index, one in enumerate(deciding):
        rows.scores.append(
            ScoreRow(
                app,
                eval_set,
                eval_id,
                revision,
                index,
                one.score,
                one.status.value,
                one.reason,
                turns,
            )
        )
        for place, invocation_id in enumerate(score.turn_ids):
            judged = JudgedTurn(
                app_name=app,
                eval_set_id=eval_set,
                eval_id=eval_id,
                invocation_id=invocation_id,
                turn_revision=revision,
                metric_name=one.name,
            )
            asked = [found.turns[place] for found in one.outcomes if place < len(found.turns)]
            add_vote_rows(rows, judged, _in_one(asked))


def _in_one(turns: Sequence[TurnScore]) -> TurnScore:
    """Combine the judges' votes of a dimension's metrics for a turn, with consecutive sample numbers."""
    numbers = count()
    votes = tuple(replace(vote, sample=next(numbers)) for turn in turns for vote in turn.votes)
    asked = tuple(vote for turn in turns for vote in turn.beforehand)
    return TurnScore(Status.PASSED, votes=votes, beforehand=asked)


def _result(attempt: Attempt) -> tuple[str, bool, str | None, str, str | None, str]:
    result, case = attempt.result, attempt.case
    user = (case.get("sessionInput") or {}).get("userId") or None
    return (
        result.status,
        result.passed,
        attempt.feedback_given and _text(attempt.feedback_given),
        _text(result.feedback),
        user,
        _json(dict(case)),
    )


def _dimension(one: DimensionResult) -> tuple[str, str, float | None, float, str, str]:
    metrics = [
        {"metricName": found.name, "score": found.score, "reason": found.reason}
        for found in one.outcomes
    ]
    threshold = one.threshold or 0.0
    return one.name, one.verdict, one.score, threshold, _text(one.reason), _json(metrics)


def _json(data: object) -> str:
    return _text(json.dumps(data, ensure_ascii=False, separators=(",", ":")))


def _text(text: str) -> str:
    # Lone surrogates are valid in JSON but not in a column.
    return text.encode("utf-8", "replace").decode()
