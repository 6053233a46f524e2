"""A gate's verdicts as a side of a comparison: dimensions are its metrics."""

from collections import Counter, defaultdict
from collections.abc import Collection, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from typing import NamedTuple

from evaltap.evaluator.analysis.stats.difference import mean_rate
from evaltap.evaluator.analysis.stats.exchange import Trials
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.origin import case_identity
from evaltap.evaluator.reports.compare.model import Rules
from evaltap.evaluator.reports.compare.pairing import metric_names, names_in_both
from evaltap.evaluator.reports.compare.sides import (
    Recording,
    ScoreRow,
    Side,
    contents_of,
    metrics_of,
    recorded_case,
)
from evaltap.evaluator.reports.evidence import Comparison as Compared
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.gates.gate import Attempt, Gate, GateResult, dimension_verdict
from evaltap.evaluator.scoring.gates.recording import GateWriter, digest_of, dimension_digests
from evaltap.evaluator.scoring.run_metrics import run_metrics
from evaltap.schemas.data import CaseData


class GatedCase(NamedTuple):
    """A case and the gate's result; repetitions of a case are separate trials."""

    case: CaseData
    result: GateResult


def gated_side(
    gate: Gate, cases: Sequence[GatedCase], name: str, varying: Collection[CaseKey] = ()
) -> Side:
    """Return the verdicts of the dimensions and of the metrics on some cases.

    `varying` are those whose texts are others in each run, as of a simulated user.
    """
    digests = {one.metric.metric_name: one.digest for one in run_metrics(gate.scorer)}
    digests |= dimension_digests(gate)
    rows: list[ScoreRow] = []
    made: defaultdict[CaseKey, dict[str, CaseData]] = defaultdict(dict)
    recordings: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    seen: Counter[CaseKey] = Counter()
    for case, result in cases:
        key = case_identity(case, "")[:3]
        seen[key] += 1
        trial = str(seen[key])
        for one in result.dimensions:
            if one.threshold is None:
                continue  # it is only informational
            verdict = (one.status.value, one.score, one.threshold, one.reason)
            rows.append(ScoreRow(key, trial, one.name, digests[one.name], *verdict))
        for metric in result.score.metrics:
            if metric.name in gate.members:
                continue  # the dimension of that name counts instead
            scored = (metric.status.value, metric.score, metric.threshold, metric.reason)
            rows.append(ScoreRow(key, trial, metric.name, digests[metric.name], *scored))
        made[key][trial] = case
        recordings[key].append(recorded_case(trial, case, simulated=key in varying or None))

    return Side(
        name,
        max(seen.values(), default=0),
        metrics_of(rows),
        recordings,
        contents_of(recordings),
        lambda wanted: made,
        rows,
        compared=Compared([one.metric for one in run_metrics(gate.scorer)]),
    )


def dimensions_only(gate: Gate, side: Side) -> Side:
    """Return a side without the metrics that form dimensions."""
    return _only(side, gate.members)


def check_baseline(gate: Gate, base: Side) -> None:
    """Raise InputError if the baseline has neither a dimension of the gate nor one of its metrics."""
    own = [*gate.members, *chain.from_iterable(gate.members.values())]
    names_in_both(base.name, metric_names(base), "the gate", own, Rules())


def gate_sides(gate: Gate, base: Side, head: Side) -> tuple[Side, Side]:
    """Return both sides, restricted to dimensions, or to metrics if base has no dimensions.

    Base's scores are compared with the gate's current thresholds.
    """
    rows = _dimension_rows(gate, base)
    dimensions = set(gate.members)
    if rows:
        base = replace(base, metrics=metrics_of(rows))
    known = {name for name, _ in base.metrics}
    wanted = known & dimensions or known & {name for name, _ in head.metrics}
    return _only(base, wanted), _only(head, wanted)


def pass_rate(cases: Sequence[GatedCase]) -> Rate | None:
    """Return the share of trials that pass every dimension, by case.

    None if the gate could not check more than 5 % of them.
    """
    passed: Counter[CaseKey] = Counter()
    checked: Counter[CaseKey] = Counter()
    for case, result in cases:
        key = case_identity(case, "")[:3]
        checked[key] += result.status != "incomplete"
        passed[key] += result.passed
    trials = [Trials(passed[key], number) for key, number in checked.items() if number]
    if sum(checked.values()) < 0.95 * len(cases) or not trials:
        return None
    return mean_rate(trials)


def _only(side: Side, names: Collection[str]) -> Side:
    metrics = {key: metric for key, metric in side.metrics.items() if key[0] in names}
    return replace(side, metrics=metrics)


def _dimension_rows(gate: Gate, side: Side) -> list[ScoreRow]:
    """Return the verdicts on dimensions, computed from the scores of their metrics if base only has those."""
    digests = dimension_digests(gate)
    trials: defaultdict[tuple[CaseKey, str], dict[str, ScoreRow]] = defaultdict(dict)
    for row in side.rows:
        trials[row.case, row.trial][row.metric] = row
    rows = []
    for scored in trials.values():
        for name, members in gate.members.items():
            own = scored.get(name)
            if own is not None and own.digest == digests[name]:
                rows.append(_dimension_row(gate, name, [own], own.digest))
            elif all(member in scored for member in members):
                found = [scored[member] for member in members]
                rows.append(
                    _dimension_row(gate, name, found, digest_of([row.digest for row in found]))
                )
    return rows


def _dimension_row(gate: Gate, name: str, made_of: Sequence[ScoreRow], digest: str) -> ScoreRow:
    threshold = gate.thresholds[name]
    found = [(Status(row.status or "passed"), row.score) for row in made_of]
    status, score = dimension_verdict(threshold, found)
    key, trial = made_of[0][:2]
    return ScoreRow(key, trial, name, digest, status.value, score, threshold)


def check_cases(gate: Gate, cases: Sequence[CaseData], *, threads: int) -> Generator[GatedCase]:
    """Yield each case with the gate's result."""
    with ThreadPoolExecutor(threads) as pool:
        yield from map(GatedCase, cases, pool.map(gate.evaluate, cases))


ORDER = ("passed", "incomplete", "failed")


def stored(
    checked: Iterable[GatedCase], cases: Sequence[CaseData], writer: GateWriter
) -> Generator[GatedCase]:
    """Store and yield cases, of which each has been checked when its turn comes."""
    keys = [case_identity(case, "")[:3] for case in cases]
    due = Counter(keys)
    trials: defaultdict[CaseKey, list[Attempt]] = defaultdict(list)
    with writer:
        for key, one in zip(keys, checked, strict=True):
            trials[key].append(Attempt(1, None, one.case, one.result))
            if len(trials[key]) == due[key]:
                # The result stored last is the case's status, so the worst trial comes last.
                found = trials.pop(key)
                writer.add(sorted(found, key=lambda one: ORDER.index(one.result.status)))
            yield one
