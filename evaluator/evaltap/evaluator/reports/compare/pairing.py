"""Find the cases and metric versions that two sides have in common, and slices of the cases.

Slices (by tool, path, language, app or eval set) are informational and do not affect the verdict.  A case is
in the slice of every tool that any trial of either side called, so that the selection of cases favours
neither side.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

from evaltap.evaluator.analysis.stats.difference import holm
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.compare.model import Rules, Stratum
from evaltap.evaluator.reports.compare.sides import (
    Counts,
    MetricKey,
    MetricSide,
    Recording,
    Side,
    TrialCases,
    contents_of,
    is_same_content,
)
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.known import check_known

CASE_SLICES: Final = ("app", "eval_set", "tool", "tool_path", "language")
MOST_VALUES: Final = 20
OTHER: Final = "other"

Members = Mapping[str, Set[CaseKey]]
"""The cases of each value of a slice."""


@dataclass(frozen=True, slots=True)
class PairedCases:
    """The keys of the cases of two sides, each list sorted."""

    both: Sequence[CaseKey]
    added: Sequence[CaseKey]
    removed: Sequence[CaseKey]
    changed: Sequence[CaseKey]
    """Their input or expectation differs; they are not in `both`."""


@dataclass(frozen=True, slots=True)
class PairedMetric:
    """A metric on both sides."""

    name: str
    base: MetricSide
    head: MetricSide

    @property
    def graded(self) -> bool:
        """Whether the metric has only scores, no verdicts, on both sides."""
        return self.base.graded and self.head.graded


def alike(base: Side, head: Side, *, by_id: bool) -> tuple[Side, Side, list[str]]:
    """Return the sides with comparable case names, and notes on the dropped parts of names.

    Apps are dropped if one side has none.  With `by_id`, or if each side has one eval set and their names
    differ, cases are identified by their eval ids alone.
    """
    if any(key[0] for key in base.cases) != any(key[0] for key in head.cases):
        base, head = _renamed(base, _without_app), _renamed(head, _without_app)
    if by_id:
        return _renamed(base, _only_id), _renamed(head, _only_id), []
    ones, others = ({key[:2] for key in side.cases} for side in (base, head))
    if len(ones) == len(others) == 1 and ones != others:
        before, now = ("/".join(filter(None, sets.pop())) for sets in (ones, others))
        note = f"{before} in base and {now} in head are treated as the same eval set"
        return _renamed(base, _only_id), _renamed(head, _only_id), [note]
    return base, head, []


def pair_cases(base: Side, head: Side) -> PairedCases:
    """Pair cases by app, eval set and eval id; raise InputError if no case is on both sides."""
    ones, others = set(base.cases), set(head.cases)
    if not (both := sorted(ones & others)):
        raise InputError(
            f"no case is in both: {base.name} has {_some(ones)}, {head.name} has {_some(others)}; expected"
            " the same app, eval set (by default the file's name) and eval id; `evaltap compare` and `evaltap"
            " gate` pair by eval id alone with --pair-by-id"
        )
    changed = [
        key
        for key in both
        if key in base.contents
        and key in head.contents
        and not is_same_content(base.contents[key], head.contents[key])
    ]
    if len(changed) == len(both):
        raise InputError(
            f"all {len(both):,} cases that are in both have a different input or reference in {head.name}"
            f" than in {base.name}; make a new baseline from the current cases"
        )
    left = set(changed)
    return PairedCases(
        [key for key in both if key not in left],
        sorted(others - ones),
        sorted(ones - others),
        changed,
    )


def pair_metrics(base: Side, head: Side, rules: Rules) -> list[PairedMetric]:
    """Pair metrics by name and version; raise InputError if no version is on both sides.

    A file without versions (a result file) matches any version with the same thresholds.
    """
    names = names_in_both(base.name, metric_names(base), head.name, metric_names(head), rules)
    return [_pair(name, base, head, across=rules.across_metrics) for name in names]


def names_in_both(
    base: str, ones: Iterable[str], head: str, others: Iterable[str], rules: Rules
) -> list[str]:
    """Return the metrics of both sides; raise InputError without any, and if one that decides is not."""
    ones, others = list(ones), list(others)
    if not (names := [name for name in ones if name in others]):
        raise InputError(
            f"no metric is in both: {base} has {', '.join(ones)}, {head} has {', '.join(others)}"
        )
    for name in rules.fail_on_metrics:
        check_known(name, names, f"--fail-on-metrics {name}: not a metric of both sides")
    return names


def only_one_side(base: str, ones: Iterable[str], head: str, others: Iterable[str]) -> list[str]:
    """Return notes on metrics that only one side has."""
    before, now = set(ones), set(others)
    return [
        f"only in {side}, not compared: {', '.join(sorted(left))}"
        for side, left in ((base, before - now), (head, now - before))
        if left
    ]


def names_of(keys: Iterable[CaseKey]) -> Mapping[CaseKey, str]:
    """Return the display names of cases: their eval id, preceded by eval set and app if ids repeat."""
    every = list(keys)
    ids = Counter(key[2] for key in every)
    sets = Counter(key[1:] for key in every)
    found = {}
    for key in every:
        first = 2 if ids[key[2]] == 1 else 1 if sets[key[1:]] == 1 else 0
        found[key] = "/".join(key[first:])
    return found


def _pair(name: str, base: Side, head: Side, *, across: bool) -> PairedMetric:
    ones, others = _versions(name, base), _versions(name, head)
    same = [digest for digest in others if digest in ones]
    before, now = (one[same[-1]] if same else list(one.values())[-1] for one in (ones, others))
    pair = PairedMetric(name, before, now)
    # The version of a gate's dimension does not include its threshold.
    unknown = bool(same) or not before.digest or not now.digest
    hold_alike = before.thresholds == now.thresholds or not before.thresholds or not now.thresholds
    if across or (unknown and hold_alike):
        return pair
    differ = (
        f"thresholds {_list(pair.base.thresholds)} and {_list(pair.head.thresholds)}"
        if unknown
        else f"{pair.base.digest[:8]} in {base.name}, {pair.head.digest[:8]} in {head.name}"
    )
    raise InputError(
        f"metric '{name}' differs between the sides ({differ}); score both with the same metrics file, judge"
        " and references, or compare them anyway with --across-metrics"
    )


def metric_names(side: Side) -> list[str]:
    """Return the metrics of a side in their order."""
    return list(dict.fromkeys(name for name, _ in side.metrics))


def _versions(name: str, side: Side) -> Mapping[str, MetricSide]:
    return {digest: metric for (found, digest), metric in side.metrics.items() if found == name}


def _without_app(key: CaseKey) -> CaseKey:
    return "", key[1], key[2]


def _only_id(key: CaseKey) -> CaseKey:
    return "", "", key[2]


def _renamed(side: Side, rename: Callable[[CaseKey], CaseKey]) -> Side:
    """Return a side with renamed cases; cases with the same new name become trials of one case."""
    metrics: dict[MetricKey, MetricSide] = {}
    for name, metric in side.metrics.items():
        cases: dict[CaseKey, Counts] = {}
        for key, counts in metric.cases.items():
            known = cases.get(rename(key))
            cases[rename(key)] = counts if known is None else known.plus(counts)
        metrics[name] = replace(metric, cases=cases)
    recordings: defaultdict[CaseKey, list[Recording]] = defaultdict(list)
    for key, found in side.recordings.items():
        recordings[rename(key)] += found

    def trials(cases: Collection[CaseKey]) -> TrialCases:
        chosen = set(cases)
        wanted = {key: rename(key) for key in side.cases if rename(key) in chosen}
        merged: defaultdict[CaseKey, dict[str, CaseData]] = defaultdict(dict)
        for key, found in side.trials(list(wanted)).items():
            if key in wanted:
                merged[wanted[key]] |= found
        return merged

    return replace(
        side,
        metrics=metrics,
        recordings=recordings,
        contents=contents_of(recordings),
        trials=trials,
        rows=[row._replace(case=rename(row.case)) for row in side.rows],
    )


def _some(keys: Collection[CaseKey]) -> str:
    shown = ", ".join("/".join(filter(None, key)) for key in sorted(keys)[:3])
    return f"{len(keys):,} ({shown}{', …' if len(keys) > 3 else ''})"


def _list(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(values)) or "none"


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
    if not {"app", "eval_set"}.issuperset(by) and not (turns := _turns(base, head, cases)):
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
        replace(one, metric=replace(one.metric, adjusted_p=p, q_value=None, cases=()))
        for one, p in zip(found, adjusted, strict=True)
    ]
    return tuple(sorted(ordered, key=lambda one: (one.metric.adjusted_p or 0.0, one.by, one.value)))


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
    paths = [
        [str(call.get("name") or "") for call in one.calls if call] for one in map(Turn, turns)
    ]
    if name == "tool":
        return {tool for path in paths for tool in path}
    return {" > ".join(path) for path in paths}
