"""The finding for each case from its repeats: broken, flaky, or unchanged."""

from collections.abc import Collection, Mapping
from typing import Final

from evaltap.evaluator.analysis.stats.exchange import Pair, Trials, worse
from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.reports.compare.model import CaseChange, Change, Outcome
from evaltap.evaluator.reports.compare.sides import Counts

_SUSPECT: Final = 0.05
_STEADY: Final = 10
"""The number of trials without a failure after which a failure counts as new."""
_NONE: Final = Counts(0, 0)
_LASTING: Final = frozenset({"newly_failing", "still_failing"})


def case_changes(
    base: Mapping[CaseKey, Counts],
    head: Mapping[CaseKey, Counts],
    names: Mapping[CaseKey, str],
    regressed: Collection[CaseKey],
) -> tuple[CaseChange, ...]:
    """Return the change of each case of either side; `regressed` are the cases that the test named."""
    return tuple(
        _case_change(key, name, base.get(key, _NONE), head.get(key, _NONE), key in regressed)
        for key, name in names.items()
        if key in base or key in head
    )


def _case_change(
    key: CaseKey, name: str, base: Counts, head: Counts, regressed: bool
) -> CaseChange:
    before, now = base.verdicts, head.verdicts
    if not base.trials or not head.trials:
        change = _without_verdict(base, head)
        return CaseChange(key, name, before, now, None, change, "unknown")
    pair = Pair(before, now)
    p_value = worse(pair)
    change = _change(pair, p_value, regressed)
    outcome = _outcome(pair, change)
    flaky = change in ("flaky", "newly_flaky")
    return CaseChange(
        key,
        name,
        before,
        now,
        p_value,
        change,
        outcome,
        Rate.of_counts(*now, "trials") if flaky else None,
        base.passing or base.failing,
        head.failing or head.passing,
    )


def _without_verdict(base: Counts, head: Counts) -> Change:
    gaps = base.missing + head.missing
    nothing_tried = base.not_evaluated + head.not_evaluated == gaps
    return (
        "not_evaluated" if gaps and nothing_tried and not base.trials + head.trials else "missing"
    )


def _change(pair: Pair, p_value: float, regressed: bool) -> Change:
    base, head = pair
    if regressed:
        return "regressed"
    if p_value <= _SUSPECT:
        return "suspect"
    if worse(pair.swapped) <= _SUSPECT:
        return "improved"
    if _mixed(head) and base.passes == base.trials >= _STEADY:
        return "newly_flaky"
    return "flaky" if _mixed(base) or _mixed(head) else "same"


def _outcome(pair: Pair, change: Change) -> Outcome:
    base, head = pair
    if change in ("regressed", "suspect"):
        return "newly_failing"
    if change == "improved":
        return "newly_passing"
    if change in ("flaky", "newly_flaky"):
        return "flaky"
    if not head.passes:
        return "newly_failing" if base.passes else "still_failing"
    return "passing" if base.passes else "newly_passing"


def _mixed(trials: Trials) -> bool:
    return 0 < trials.passes < trials.trials
