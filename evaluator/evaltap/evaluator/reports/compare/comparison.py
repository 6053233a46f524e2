"""`compare`: takes two sides, and returns what changed and whether head is worse."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.compare.metrics import (
    metric_changes,
    stratified,
    usage_changes,
    verdict_of,
)
from evaltap.evaluator.reports.compare.model import (
    CaseChange,
    Comparison,
    Difference,
    MetricChange,
    Rules,
)
from evaltap.evaluator.reports.compare.pairing import (
    PairedCases,
    PairedMetric,
    alike,
    names_of,
    only_one_side,
    pair_cases,
    pair_metrics,
)
from evaltap.evaluator.reports.compare.sides import Recording, Side
from evaltap.evaluator.reports.compare.strata import slices_of
from evaltap.evaluator.reports.compare.wording import p_value, points
from evaltap.evaluator.reports.evidence import Comparison as Compared
from evaltap.evaluator.reports.evidence import evidence_of
from evaltap.evaluator.reports.model import Limits
from evaltap.evaluator.reports.text import diff_lines
from evaltap.schemas.known import check_known
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
    pairs = pair_metrics(base, head, across=rules.across_metrics)
    _check(rules, pairs)
    names = names_of([*cases.both, *cases.added, *cases.removed, *cases.changed])
    metrics = metric_changes(pairs, {key: names[key] for key in cases.both}, rules)
    usage = usage_changes(base.recordings, head.recordings, cases.both, level=rules.alpha)
    verdict, reasons = verdict_of(metrics, usage, rules)
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
        _named(cases.added, names),
        _named(cases.removed, names),
        _named(cases.changed, names),
        (*renamed, *_notes(base, head, cases, pairs, metrics, rules)),
        differences(base, head, metrics),
        stratified(pairs, slices_of(base, head, cases.both, rules.by), rules),
    )


def _check(rules: Rules, pairs: Sequence[PairedMetric]) -> None:
    known = [pair.name for pair in pairs]
    for name in rules.fail_on_metrics:
        check_known(name, known, f"--fail-on-metrics {name}: not a metric of both sides")


def _named(keys: Sequence[CaseKey], names: Mapping[CaseKey, str]) -> tuple[str, ...]:
    return tuple(names[key] for key in keys)


def _notes(
    base: Side,
    head: Side,
    cases: PairedCases,
    pairs: Sequence[PairedMetric],
    metrics: Sequence[MetricChange],
    rules: Rules,
) -> Iterator[str]:
    yield from only_one_side(base, head)
    for metric in metrics:
        value = metric.adjusted_p
        if value is not None and value <= rules.alpha and metric.drop <= rules.margin:
            yield (
                f"{metric.metric}: at least one case got worse ({p_value(value)}), but the overall pass"
                f" rate did not drop by more than {points(rules.margin)}"
            )
    for pair in pairs:
        ones, others = pair.base.digest, pair.head.digest
        if ones != others:
            known = ones and others
            yield (
                f"{pair.name}: compared across versions, {ones[:8]} and {others[:8]}"
                if known
                else f"{pair.name}: one side does not record which version of the metric it used"
            )
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
    several = [
        answers for key in cases if len(answers := _answers(side.recordings.get(key, ()))) > 1
    ]
    return len(several) if several and all(len(set(one)) == 1 for one in several) else 0


def _answers(recordings: Sequence[Recording]) -> list[str]:
    return [one.answers for one in recordings if one.answers]


SHOWN: Final = ("newly_failing", "still_failing", "newly_passing")
MOST_CASES: Final = 200
_ANSWER: Final = 400


def differences(base: Side, head: Side, metrics: Sequence[MetricChange]) -> tuple[Difference, ...]:
    """Return the recorded differences of cases that fail or newly pass, newly failing ones first."""
    wanted: dict[CaseKey, CaseChange] = {}
    for outcome in SHOWN:
        for metric in metrics:
            for case in metric.cases:
                if case.outcome == outcome:
                    wanted.setdefault(case.key, case)
    chosen = dict(list(wanted.items())[:MOST_CASES])
    before, now = base.turns(list(chosen)), head.turns(list(chosen))
    found = []
    for key, case in chosen.items():
        ones = _turns(before.get(key, {}), case.passing)
        others = _turns(now.get(key, {}), case.failing)
        if ones and others:
            found.append(Difference(case.name, case.outcome, tuple(_lines(ones, others))))
    return tuple(one for one in found if one.lines)


def _turns(trials: Mapping[str, Sequence[Case]], trial: str) -> Sequence[Case]:
    """Return the turns of a trial, or of the first trial if that one was not recorded."""
    return trials.get(trial) or next(iter(trials.values()), ())


def _lines(base: Sequence[Case], head: Sequence[Case]) -> list[str]:
    case = {
        "evalMode": "trace",
        "sessionInput": {"appName": "compare", "userId": "compare"},
        "conversation": list(base),
        "actualConversation": list(head),
    }
    evidence, note = evidence_of(case, Compared(), Limits())
    lines: list[str] = []
    for number, turn in enumerate(evidence, start=1):
        found = diff_lines(turn) if any(step.kind != "same" for step in turn.steps) else []
        before, after = Turn(base[number - 1]).final_text, turn.answer
        if before != after:
            found += [f"- answer: {_shown(before)}", f"+ answer: {_shown(after)}"]
        lines += [f"turn {number}:", *found] if found and len(evidence) > 1 else found
    return [*lines, note] if note else lines


def _shown(text: str | None) -> str:
    return "(none)" if text is None else one_line(text, _ANSWER)
