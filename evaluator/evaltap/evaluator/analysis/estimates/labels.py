"""Human labels of cases, turns or rubrics, and the rates that they correct."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.analysis.stats.estimate import Estimate
from evaltap.evaluator.analysis.stats.labelled import Judged, Labels, people
from evaltap.evaluator.store.queries import Parameters, Scratch, StoreReader
from evaltap.schemas.errors import InputError


class LabelKey(NamedTuple):
    """The subject of a label; an empty part means any, or the whole."""

    eval_id: str
    invocation_id: str = ""
    rubric_id: str = ""
    metric_name: str = ""
    eval_set_id: str = ""
    app_name: str = ""


class Label(NamedTuple):
    """A person's verdict, and its line in the file."""

    key: LabelKey
    passes: bool
    line: int
    weight: float | None = 1.0
    """How many turns with a verdict it was drawn from; None: it was picked, and counts for its turn alone."""
    stored: bool = False
    """Whether it is of a turn in the store, so that it may lack a score although its ids are right."""


def reviewed_labels(store: StoreReader, queue: str = "") -> list[Label]:
    """Return the verdicts of reviewers about turns; one that they had to edit fails."""
    return _labels(store, _REVIEWED, {"queue": queue})


def feedback_labels(store: StoreReader) -> list[Label]:
    """Return the thumbs of users as verdicts on turns; one that is down outweighs others that are up."""
    return _labels(store, _THUMBS)


# A turn passes if all of its rows do.
_REVIEWED: Final = """
SELECT eval_id, invocation_id, eval_set_id, app_name, bool_and(verdict = 'good' AND after IS NULL),
       max(inclusion_probability)
FROM v_review_items WHERE verdict IS NOT NULL AND ($queue::VARCHAR = '' OR queue = $queue)
GROUP BY ALL ORDER BY ALL
"""
_THUMBS: Final = """
SELECT eval_id, invocation_id, eval_set_id, app_name, bool_and(positive), NULL
FROM v_feedback WHERE positive IS NOT NULL AND invocation_id IS NOT NULL
GROUP BY ALL ORDER BY ALL
"""


def _labels(store: StoreReader, query: str, parameters: Parameters = None) -> list[Label]:
    return [
        Label(LabelKey(eval_id, turn, "", "", *place), passed, number, p and 1 / p, stored=True)
        for number, (eval_id, turn, *place, passed, p) in enumerate(
            store.rows(query, parameters), start=1
        )
    ]


class Corrected(NamedTuple):
    """The pass rate that people would find."""

    estimate: Estimate
    flags: tuple[str, ...]
    labels: int


@dataclass(frozen=True, slots=True)
class LabelledTurns:
    """Labels by slice, metric and digest: the judge's verdict, session, weight, the person's verdict."""

    found: Mapping[tuple[object, ...], Sequence[tuple[bool, Hashable, float, bool]]]
    notes: tuple[str, ...]

    def correct(self, key: tuple[object, ...], judge: Estimate) -> Corrected:
        """Return the judge's estimate of a slice, corrected by its labels."""
        of_slice = self.found.get(key, ())
        passed = Labels.of(row[1:] for row in of_slice if row[0])
        failed = Labels.of(row[1:] for row in of_slice if not row[0])
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
    if picked := sum(label.weight is None for label in of_turns):
        notes.append(f"labels that were picked, not drawn, so each counts for one turn: {picked:,}")
    rows = [
        (
            label.line,
            key.app_name,
            key.eval_set_id,
            key.eval_id,
            key.invocation_id,
            key.metric_name,
            label.passes,
            label.weight or 1.0,
        )
        for label in of_turns
        for key in (label.key,)
    ]
    with turns.store.scratch(_NO_LABEL, rows=rows) as given:
        _check_named(turns.store, given)
        matched = turns.rows(_MATCHED, labels=given)
    found: dict[tuple[object, ...], list[tuple[bool, Hashable, float, bool]]] = {}
    seen: dict[tuple[object, ...], int] = {}
    for *turn, line, verdict, probability, passes, weight in matched:
        first = seen.setdefault(tuple(turn), line)
        if first != line:
            raise InputError(f"line {line}: labels the same turn as line {first}; keep one")
        key = tuple(turn[: len(turns.by) + 2])
        session = turn[-2]
        found.setdefault(key, []).append((verdict, session, weight / probability, passes))
    if not (used := len(set(seen.values()))):
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
            raise InputError(
                f"{about} is in {sets} eval sets or applications; name evalSetId or appName"
            )
        raise InputError(f"{about} is a session of {turns} turns; name the turn by invocationId")


_NO_LABEL: Final = """
SELECT 0 AS line, '' AS app_name, '' AS eval_set_id, '' AS eval_id, '' AS invocation_id, '' AS metric_name,
       true AS passes, 1.0::DOUBLE AS weight
LIMIT 0
"""

_NAMED: Final = """
  t.eval_id = l.eval_id AND l.eval_set_id IN ('', t.eval_set_id) AND l.app_name IN ('', t.{app})
  AND l.invocation_id IN ('', t.invocation_id)"""

_UNCLEAR: Final = f"""
SELECT line, l.eval_id, l.invocation_id, count(t.eval_id) AS turns,
       count(DISTINCT (t.app_name, t.eval_set_id)) FILTER (t.eval_id IS NOT NULL) AS sets
FROM {{labels}} l LEFT JOIN latest_turns t ON {_NAMED.format(app="app_name")}
GROUP BY ALL
HAVING turns <> 1
ORDER BY line
LIMIT 1
"""

_MATCHED: Final = f"""
SELECT {{slices}} t.metric, t.metric_digest, t.session, t.invocation_id, line, has, probability, passes,
       weight
FROM {{turns}} t JOIN {{labels}} l ON {_NAMED.format(app="app")} AND l.metric_name IN ('', t.metric)
WHERE counts
ORDER BY ALL
"""
