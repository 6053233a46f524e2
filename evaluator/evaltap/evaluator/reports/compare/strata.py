"""The same comparison within slices of the cases: by tool, path, language, app or eval set.

They are informational and do not affect the verdict.  A case is in the slice of every tool that any trial
of either side called, so that the selection of cases favours neither side.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import Final

from evaltap.evaluator.analysis.stats.difference import holm
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.compare.model import MetricChange, Stratum
from evaltap.evaluator.reports.compare.sides import Side
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known

CASE_SLICES: Final = ("app", "eval_set", "tool", "tool_path", "language")
MOST_VALUES: Final = 20
OTHER: Final = "other"

Members = Mapping[str, Set[CaseKey]]
"""The cases of each value of a slice."""


def check_by(by: Sequence[str], known: Collection[str]) -> None:
    """Raise InputError for an unknown slice."""
    for name in by:
        check_known(name, known, f"--by {name}: unknown slice")


def slices_of(
    base: Side, head: Side, cases: Sequence[CaseKey], by: Sequence[str]
) -> dict[str, Members]:
    """Return the cases by the values of each slice; values beyond the most frequent ones become `other`.

    Raises InputError if a slice reads recorded turns but neither side has any.
    """
    check_by(by, CASE_SLICES)
    turns: Mapping[CaseKey, Sequence[Case]] = {}
    if not {"app", "eval_set"}.issuperset(by):
        turns = _turns(base, head, cases)
        if not turns:
            raise InputError(
                f"--by {','.join(by)}: neither {base.name} nor {head.name} has recorded turns; expected a"
                " DuckDB file with landed turns, or a result file, on at least one side"
            )
    found: dict[str, Members] = {}
    for name in by:
        values: defaultdict[str, set[CaseKey]] = defaultdict(set)
        for key in cases:
            for value in _values(name, key, turns.get(key, ())):
                values[value].add(key)
        found[name] = most_frequent(values)
    return found


def most_frequent(values: Members) -> Members:
    """Return the largest slices by name, and the cases of the remaining ones as one slice."""
    sizes = Counter({value: len(keys) for value, keys in values.items()})
    kept = [value for value, _ in sizes.most_common(MOST_VALUES)]
    found: dict[str, Set[CaseKey]] = {value: values[value] for value in sorted(kept)}
    if rest := {key for value, keys in values.items() if value not in kept for key in keys}:
        found[OTHER] = rest
    return found


def with_holm(found: Sequence[Stratum]) -> tuple[Stratum, ...]:
    """Return the slices with p-values adjusted for their number, the most certain first."""
    values = [one.metric.p_value for one in found]
    adjusted = holm([1.0 if value is None else value for value in values])
    ordered = [
        replace(one, metric=_with_p(one.metric, p)) for one, p in zip(found, adjusted, strict=True)
    ]
    return tuple(sorted(ordered, key=lambda one: (one.metric.adjusted_p or 0.0, one.by, one.value)))


def _with_p(metric: MetricChange, p: float) -> MetricChange:
    return replace(metric, adjusted_p=p, q_value=None, cases=())


def _turns(base: Side, head: Side, cases: Sequence[CaseKey]) -> Mapping[CaseKey, Sequence[Case]]:
    found: defaultdict[CaseKey, list[Case]] = defaultdict(list)
    for side in (base, head):
        for key, trials in side.trials(cases).items():
            found[key] += [
                turn for case in trials.values() for turn in case.get("actualConversation") or ()
            ]
    return found


def _values(name: str, key: CaseKey, turns: Sequence[Case]) -> Collection[str]:
    if name in ("app", "eval_set"):
        return [key[0 if name == "app" else 1]]
    if name == "language":
        texts = {turn.user_text or "": None for turn in map(Turn, turns)}
        return [language_of(" ".join(texts))]
    paths = [list(_calls(turn)) for turn in turns]
    if name == "tool":
        return {tool for path in paths for tool in path}
    return {" > ".join(path) for path in paths}


def _calls(turn: Case) -> Iterator[str]:
    yield from (str(call.get("name") or "") for call in Turn(turn).calls if call)
