"""`compare`: takes two sides, and returns what changed and whether head is worse."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.reports.case_files import words_of
from evaltap.evaluator.reports.compare.metrics import (
    MISSING,
    lost_metric,
    metric_changes,
    rates_of_head,
    stratified,
    usage_changes,
    verdict_of,
)
from evaltap.evaluator.reports.compare.model import (
    CaseChange,
    Comparison,
    Difference,
    Finding,
    MetricChange,
    Outcome,
    Rules,
    certainty,
)
from evaltap.evaluator.reports.compare.pairing import (
    PairedCases,
    PairedMetric,
    alike,
    metric_names,
    names_of,
    only_one_side,
    pair_cases,
    pair_metrics,
    slices_of,
)
from evaltap.evaluator.reports.compare.sides import Side
from evaltap.evaluator.reports.compare.wording import figures, p_value, points
from evaltap.evaluator.reports.evidence import Comparison as Compared
from evaltap.evaluator.reports.evidence import evidence_of
from evaltap.evaluator.reports.model import Limits, TurnEvidence, pattern
from evaltap.evaluator.reports.text import diff_lines
from evaltap.evaluator.reports.wording import readable
from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted

_FEW_TRIALS: Final = 10


def compare(base: Side, head: Side, rules: Rules | None = None) -> Comparison:
    """Compare two sides case by case.

    Raises InputError if they have no case or no metric version in common, or if `rules` name a metric that
    does not exist.
    """
    rules = rules or Rules()
    base, head, renamed = alike(base, head, by_id=rules.pair_by_id)
    cases = pair_cases(base, head)
    pairs = pair_metrics(base, head, rules)
    names = names_of([*cases.both, *cases.added, *cases.removed, *cases.changed])
    changes = metric_changes(pairs, {key: names[key] for key in cases.both}, rules)
    metrics = tuple(sorted(changes, key=certainty))
    usage = usage_changes(base.recordings, head.recordings, cases.both, level=rules.alpha)
    lost = [] if rules.subset else [*_lost(cases), *_lost_metrics(base, head, rules)]
    verdict, reasons = verdict_of(metrics, usage, rules, lost, rates_of_head(pairs))
    added, removed, changed = (
        tuple(names[key] for key in keys) for keys in (cases.added, cases.removed, cases.changed)
    )
    return Comparison(
        verdict,
        tuple(reasons),
        rules,
        base.name,
        head.name,
        base.runs,
        head.runs,
        metrics,
        usage,
        added,
        removed,
        changed,
        (*renamed, *_notes(base, head, cases, pairs, metrics, rules), *base.notes, *head.notes),
        differences(base, head, metrics),
        stratified(pairs, slices_of(base, head, cases.both, rules.by), rules),
    )


def _lost(cases: PairedCases) -> list[str]:
    """Return that head lacks cases of base, if it lacks so many that a run may have died."""
    lost, total = len(cases.removed), len(cases.removed) + len(cases.both) + len(cases.changed)
    if lost <= MISSING * total:
        return []
    return [f"{lost:,} of {counted(total, 'case')} of base are not in head (--subset allows that)"]


def _lost_metrics(base: Side, head: Side, rules: Rules) -> Iterator[str]:
    """Yield which metrics gave verdicts in base and are not in head, if all metrics decide."""
    has = metric_names(head)
    judged = {
        name
        for (name, _), one in base.metrics.items()
        if not one.graded and any(counts.trials for counts in one.cases.values())
    }
    for name in sorted(judged.difference(has)):
        if not rules.fail_on_metrics:
            yield lost_metric(name)


def _of_versions(pair: PairedMetric, base: Side, head: Side) -> Iterator[str]:
    ones, others = pair.base.digest, pair.head.digest
    if ones != others and ones and others:
        yield f"{pair.name}: compared across versions, {ones[:8]} and {others[:8]}"
    elif ones != others:
        yield f"{pair.name}: one side does not record which version of the metric it used"
    for side, own in ((base, pair.base), (head, pair.head)):
        scored = {
            key
            for (name, digest), one in side.metrics.items()
            if name == pair.name and digest != own.digest
            for key in one.cases
        }
        if scored:
            yield (
                f"{side.name}: scores of {counted(len(scored), 'case')} under other versions of"
                f" {pair.name} are not compared"
            )


def _failing(pair: PairedMetric, added: Sequence[CaseKey]) -> Iterator[str]:
    found = [one for key in added if (one := pair.head.cases.get(key)) is not None]
    if failing := sum(one.passes < one.trials for one in found):
        yield (
            f"{pair.name}: {failing:,} of {counted(len(found), 'case')} only in head failed; the verdict"
            " does not count them, but --min-pass-rate does"
        )


def _notes(
    base: Side,
    head: Side,
    cases: PairedCases,
    pairs: Sequence[PairedMetric],
    metrics: Sequence[MetricChange],
    rules: Rules,
) -> Iterator[str]:
    yield from only_one_side(base.name, metric_names(base), head.name, metric_names(head))
    for metric in metrics:
        value = metric.adjusted_p
        if value is not None and value <= rules.alpha and metric.drop <= rules.margin:
            yield (
                f"{metric.metric}: at least one case got worse ({p_value(value)}), but the overall pass"
                f" rate did not drop by more than {points(rules.margin)}"
            )
    for pair in pairs:
        yield from _of_versions(pair, base, head)
        yield from _failing(pair, cases.added)
    for side in (base, head):
        if alike_answers := _repeated(side, cases.both):
            yield (
                f"{side.name}: all trials of {counted(alike_answers, 'case')} have identical answers; the"
                " agent is deterministic or its answers were cached, so repeats add no information"
            )
    trials = [metric.base.trials / metric.base.cases for metric in metrics if metric.base.cases]
    if trials and max(trials) < _FEW_TRIALS:
        yield (
            f"base has {counted(round(max(trials)), 'trial')} per case; keep those of the last 10 to 20"
            " runs, because more trials detect smaller changes at no cost"
        )


def _repeated(side: Side, cases: Sequence[CaseKey]) -> int:
    """Return the number of cases with several recordings if the answers of each are all equal, else 0."""
    answers = [
        [one.answers for one in side.recordings.get(key, ()) if one.answers] for key in cases
    ]
    several = [one for one in answers if len(one) > 1]
    return len(several) if all(len(set(one)) == 1 for one in several) else 0


OUTCOMES: Final[Sequence[Outcome]] = (
    "newly_failing",
    "still_failing",
    "newly_passing",
    "flaky",
    "unknown",
)
_WITH_EVIDENCE: Final = OUTCOMES[:3]
MOST_CASES: Final = 200
"""The number of cases whose recordings are read."""
_ANSWER: Final = 400
_Found: TypeAlias = list[tuple[MetricChange, CaseChange]]


def differences(base: Side, head: Side, metrics: Sequence[MetricChange]) -> tuple[Difference, ...]:
    """Return the cases that did not simply pass, by outcome and reason; frequent reasons first."""
    found: dict[tuple[Outcome, CaseKey], _Found] = {}
    for outcome in OUTCOMES:
        for metric in metrics:
            for case in metric.cases:
                if case.outcome == outcome:
                    found.setdefault((outcome, case.key), []).append((metric, case))
    shown = [key for outcome, key in found if outcome in _WITH_EVIDENCE][:MOST_CASES]
    evidence = _Evidence(base, head, list(dict.fromkeys(shown)))
    entries = [evidence.difference(outcome, many) for (outcome, _), many in found.items()]
    reasons = Counter((one.outcome, pattern(one.reason)) for one in entries)

    def place(one: Difference) -> tuple[int, int, str]:
        kind = pattern(one.reason)
        return OUTCOMES.index(one.outcome), -reasons[one.outcome, kind], kind

    return tuple(sorted(entries, key=place))


class _Evidence:
    """The recordings of some cases on both sides, and why trials of head did not pass."""

    def __init__(self, base: Side, head: Side, keys: Sequence[CaseKey]) -> None:
        self._before, self._now = base.trials(keys), head.trials(keys)
        self._compared = head.compared
        self._shown = frozenset(keys)
        self._reasons = {
            (row.case, row.trial, row.metric): row for row in head.rows if row.status != "passed"
        }

    def difference(self, outcome: Outcome, found: _Found) -> Difference:
        case = found[0][1]
        rows = [self._reasons.get((one.key, one.failing, metric.metric)) for metric, one in found]
        crashes = [row.reason for row in rows if row is not None and row.status == "crashed"]
        crash = min(crashes, key=len, default="")
        findings = tuple(
            Finding(
                metric.metric, figures(one), "" if row is None or crash else readable(row.reason)
            )
            for (metric, one), row in zip(found, rows, strict=True)
        )
        entry = Difference(case.name, outcome, findings, crash)
        now = _trial(self._now.get(case.key, {}), case.failing)
        if now is None or case.key not in self._shown:
            return entry
        before = _trial(self._before.get(case.key, {}), case.passing)
        lines = tuple(_lines(before, now, self._compared))
        return replace(entry, question=words_of(now).opening, lines=lines)


def _trial(trials: Mapping[str, CaseData], trial: str) -> CaseData | None:
    """Return a trial, or the first one if that was not recorded."""
    return trials.get(trial) or next(iter(trials.values()), None)


def _turns(case: CaseData | None) -> list[CaseData]:
    return [turn or {} for turn in (case or {}).get("actualConversation") or ()]


def _lines(base: CaseData | None, head: CaseData, compared: Compared) -> Iterator[str]:
    """Yield the calls and the answers of head's turns beside the expected ones, or else beside base's."""
    before = _turns(base)
    evidence, note = evidence_of(head, compared, Limits())
    expected = [turn.expected_answer for turn in evidence]
    if before and not any(turn.compared for turn in evidence):
        against_base = {**head, "source": {}, "conversation": before}
        evidence, note = evidence_of(against_base, compared, Limits())
        yield "- base, + head"
    answers = [Turn(turn).final_text for turn in before]
    for number, turn in enumerate(evidence):
        if len(evidence) > 1:
            yield f"turn {number + 1}:"
        if any(step.kind != "same" for step in turn.steps):
            yield from diff_lines(turn)
        (answered,) = answers[number : number + 1] or [turn.answer]
        (wanted,) = expected[number : number + 1] or [None]
        yield from _answer_lines(turn, answered, wanted)
    if note:
        yield note


def _answer_lines(turn: TurnEvidence, answered: str | None, expected: str | None) -> Iterator[str]:
    """Yield the answer of a turn of head, preceded by that of base and the expected one if they differ."""
    wanted = {answered: "answer of base", expected: "expected answer"}
    others = {text: name for text, name in wanted.items() if text not in (None, turn.answer)}
    for text, name in others.items():
        yield f"- {name}: {one_line(text or '', _ANSWER)}"
    shown = "(none)" if turn.answer is None else one_line(turn.answer, _ANSWER)
    yield f"{'+' if others else ' '} answer: {shown}"
