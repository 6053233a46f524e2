"""Human labels for the turns of an estimate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.labels import Label
from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.analysis.stats.estimate import Estimate
from evaltap.evaluator.analysis.stats.labelled import Judged, Labels, people
from evaltap.evaluator.store.queries import Scratch, StoreReader
from evaltap.schemas.errors import InputError


class Corrected(NamedTuple):
    """The pass rate that people would find."""

    estimate: Estimate
    flags: tuple[str, ...]
    labels: int


@dataclass(frozen=True, slots=True)
class LabelledTurns:
    """Labels by slice, metric and digest: the judge's verdict, the weight, and the person's verdict."""

    found: Mapping[tuple[object, ...], Sequence[tuple[bool, float, bool]]]
    notes: tuple[str, ...]

    def correct(self, key: tuple[object, ...], judge: Estimate) -> Corrected:
        """Return the judge's estimate of a slice, corrected by its labels."""
        of_slice = self.found.get(key, ())
        passed = Labels.of((weight, good) for verdict, weight, good in of_slice if verdict)
        failed = Labels.of((weight, good) for verdict, weight, good in of_slice if not verdict)
        process, traffic = (
            Judged(judge.rate.value, (end.high - end.low) / 2, passed, failed).rate_of(people)
            for end in (judge.rate.interval, judge.traffic)
        )
        assert process is not None
        assert traffic is not None  # it is defined everywhere
        flags = [
            f"no_labels:{verdict}"
            for verdict, labels in (("passed", passed), ("failed", failed))
            if not labels.count
        ]
        rate = replace(judge.rate, value=process.value, interval=process.interval)
        found = replace(judge, rate=rate, traffic=traffic.interval)
        return Corrected(found, tuple(flags), passed.count + failed.count)


def choose_labels(turns: Turns, labels: Sequence[Label]) -> LabelledTurns:
    """Return the labels of the turns.

    Raises InputError for a label of a turn that never landed, of a session with several turns, or for a
    duplicate label, and if no label is about a turn with a verdict.
    """
    of_turns = [label for label in labels if not label.key.rubric_id]
    notes = []
    if len(of_turns) < len(labels):
        notes.append(f"labels of rubrics, not used here: {len(labels) - len(of_turns):,}")
    rows = [
        (label.line, key.eval_set_id, key.eval_id, key.invocation_id, key.metric_name, label.passes)
        for label in of_turns
        for key in (label.key,)
    ]
    with turns.store.scratch(_NO_LABEL, rows=rows) as given:
        _check_named(turns.store, given)
        matched = turns.rows(_MATCHED, labels=given)
    found: dict[tuple[object, ...], list[tuple[bool, float, bool]]] = {}
    seen: dict[tuple[object, ...], int] = {}
    for *turn, line, verdict, probability, passes in matched:
        first = seen.setdefault(tuple(turn), line)
        if first != line:
            raise InputError(f"line {line}: labels the same turn as line {first}; keep one")
        key = tuple(turn[: len(turns.by) + 2])
        found.setdefault(key, []).append((verdict, 1 / probability, passes))
    used = len(set(seen.values()))
    if not used:
        raise InputError(
            f"none of {len(labels):,} labels is for a turn with a verdict in this selection"
        )
    if used < len(of_turns):
        notes.append(f"labels of turns without a verdict here, not used: {len(of_turns) - used:,}")
    return LabelledTurns(found, tuple(notes))


def _check_named(store: StoreReader, labels: Scratch) -> None:
    """Raise InputError for a label that matches no turn, or more than one."""
    for line, eval_id, invocation_id, turns, sets in store.rows(_UNCLEAR.format(labels=labels)):
        about = f"line {line}: {' '.join(part for part in (eval_id, invocation_id) if part)}"
        if not turns:
            raise InputError(f"{about} never landed here; correct the ids")
        if sets > 1:
            raise InputError(f"{about} is in {sets} eval sets or applications; name evalSetId")
        raise InputError(f"{about} is a session of {turns} turns; name the turn by invocationId")


_NO_LABEL: Final = """
SELECT 0 AS line, '' AS eval_set_id, '' AS eval_id, '' AS invocation_id, '' AS metric_name, true AS passes
LIMIT 0
"""

_NAMED: Final = """
  t.eval_id = l.eval_id AND l.eval_set_id IN ('', t.eval_set_id)
  AND l.invocation_id IN ('', t.invocation_id)"""

_UNCLEAR: Final = f"""
SELECT line, l.eval_id, l.invocation_id, count(t.eval_id) AS turns,
       count(DISTINCT (t.app_name, t.eval_set_id)) FILTER (t.eval_id IS NOT NULL) AS sets
FROM {{labels}} l LEFT JOIN latest_turns t ON {_NAMED}
GROUP BY ALL
HAVING turns <> 1
ORDER BY line
LIMIT 1
"""

_MATCHED: Final = f"""
SELECT {{slices}} t.metric, t.metric_digest, t.session, t.invocation_id, line, has, probability, passes
FROM {{turns}} t JOIN {{labels}} l ON {_NAMED} AND l.metric_name IN ('', t.metric)
WHERE counts
ORDER BY ALL
"""
