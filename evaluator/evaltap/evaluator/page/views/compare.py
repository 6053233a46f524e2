"""Two runs side by side: the change under each metric, its certainty, and the affected cases."""

import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.scope import Scope, condition
from evaltap.evaluator.analysis.filters.language import quoted
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.page.request import PageRequest, Tab, case_link, link
from evaltap.evaluator.page.views.runs import RunLine, newest_first
from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.comparison import compare
from evaltap.evaluator.reports.compare.html import OUTCOMES, MetricLine, metric_lines
from evaltap.evaluator.reports.compare.model import CaseChange, Comparison, MetricChange, Rules
from evaltap.evaluator.reports.compare.reading import compare_selections, side_of
from evaltap.evaluator.reports.compare.sides import Side, no_trials
from evaltap.evaluator.reports.compare.traffic import Selection
from evaltap.evaluator.reports.html.case import TurnView, views_of
from evaltap.evaluator.reports.model import Cell, Limits, pattern
from evaltap.evaluator.reports.reader import read_case
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

PER_PAGE: Final = 50
MOST_SCORES: Final = 50_000
"""Of both runs together; for more, use `evaltap compare`."""
_LIMITS: Final = Limits(cases=1, turns=10, calls=50)
_TABS: Final = {
    "broken": ("newly_failing",),
    "fixed": ("newly_passing",),
    "flaky": ("flaky",),
    "failing": ("still_failing",),
    "all": ("newly_failing", "still_failing", "flaky", "newly_passing", "unknown", "passing"),
}
_GROUPED: Final = ("broken", "failing")
"""The tabs that group their cases by reason."""
_TEXTS: Final = """
SELECT app_name, eval_set_id, eval_id, any_value(opening),
       arg_max(reason, scored_at) FILTER (run_id = $a AND status <> 'passed'),
       arg_max(reason, scored_at) FILTER (run_id = $b AND status <> 'passed')
FROM scores LEFT JOIN case_index USING (app_name, eval_set_id, eval_id)
WHERE eval_id IN $ids AND metric_name = $metric AND run_id IN ($a, $b)
GROUP BY ALL
"""


@dataclass(frozen=True, slots=True)
class CaseLine:
    """A case under the shown metric."""

    case: CaseChange
    sign: str
    word: str
    status: str
    opening: str
    """The beginning of the first user message; empty if no turn of the case is in the store."""
    group: str
    """Above the first case of a group: the reason that its cases share, and how many they are."""
    reason: str
    """The reason of the failing run: B, or A for a fixed case; empty if the group tells it."""
    figures: str
    href: str
    opened: bool


@dataclass(frozen=True, slots=True)
class CaseSide:
    """The opened case, as scored by one run."""

    name: str
    cell: Cell | None
    turns: tuple[TurnView, ...]
    note: str
    """A note on turns that are missing, or not as they were scored."""
    href: str


@dataclass(frozen=True, slots=True)
class ComparePage:
    runs: tuple[RunLine, ...]
    a: RunLine | None = None
    b: RunLine | None = None
    problem: str = ""
    """Why nothing is compared; empty if something is."""
    across_href: str = ""
    """The comparison across versions of the metrics, if only versions prevent a comparison."""
    swap_href: str = ""
    verdict: str = ""
    headline: str = ""
    metrics: tuple[MetricLine, ...] = ()
    metric: str = ""
    usage: tuple[tuple[str, str], ...] = ()
    paired: int = 0
    left_out: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    show: str = "broken"
    tabs: tuple[Tab, ...] = ()
    rows: tuple[CaseLine, ...] = ()
    matched: int = 0
    next_href: str = ""
    previous_href: str = ""
    opened: tuple[CaseSide, ...] = ()
    """Both sides of the opened case."""
    closed_href: str = ""
    versions: tuple[str, ...] = ()
    """The agent's versions, newest first."""
    chosen: tuple[str, str] = ("", "")
    """The values of both sides in the form: a run's id, or `version:` and a version."""
    unpaired: bool = False
    """Whether the sides are versions: there are no rows then, and sessions are only paired if experiments
    ran them."""


VERSION: Final = "version:"
_VERSIONS: Final = """
SELECT version FROM turns WHERE version <> ''
GROUP BY version ORDER BY max(started_at) DESC NULLS LAST, version LIMIT 50
"""


def read(reader: StoreReader, request: PageRequest) -> ComparePage:
    """Return the comparison of two runs, or of the traffic of two versions.

    Without `a` and `b`, of the two newest runs; of the two newest versions with `by=version`, or if there is
    one run only.
    """
    lines = [line for line in newest_first(reader) if line.run.cases]
    versions = tuple(reader.column(_VERSIONS))
    given = request.exact("a"), request.exact("b")
    if not any(given) and len(versions) > 1 and (request["by"] == "version" or len(lines) < 2):
        given = f"{VERSION}{versions[1]}", f"{VERSION}{versions[0]}"
    if any(side.startswith(VERSION) for side in given):
        return _of_versions(reader, lines, versions, given, request)
    found = _of_runs(reader, lines, request)
    runs = [line.run.run_id if line else "" for line in (found.a, found.b)]
    return replace(found, versions=versions, chosen=(runs[0], runs[1]))


def _of_versions(
    reader: StoreReader,
    lines: Sequence[RunLine],
    versions: tuple[str, ...],
    given: tuple[str, str],
    request: PageRequest,
) -> ComparePage:
    page = ComparePage(tuple(lines), versions=versions, chosen=given, unpaired=True)
    if not all(side.startswith(VERSION) for side in given):
        why = "One side is a version, the other a run. Choose two versions, or two runs."
        return replace(page, problem=why)
    base, head = (side.removeprefix(VERSION) for side in given)

    def to(a: str, b: str, across: str = request["across"]) -> str:
        return link("/compare", a=f"{VERSION}{a}", b=f"{VERSION}{b}", across=across)

    def failing(metric: str) -> str:
        q = f"version:{quoted(head)} metric:{quoted(metric)}=failed,crashed"
        return link("/cases", q=q)

    try:
        sides = [
            Selection(f"version {one}", reader.path, Scope(where=where), reader, one)
            for one in (base, head)
            for where in [condition("version", one, where="Compare")]
        ]
        rules = Rules(across_metrics=bool(request["across"]))
        found = compare_selections(sides[0], sides[1], rules)
    except InputError as error:
        across = "" if request["across"] else to(base, head, "1")
        return replace(page, problem=str(error), across_href=across)
    return replace(
        page,
        swap_href=to(head, base),
        verdict=found.verdict,
        headline=wording.headline(found),
        metrics=metric_lines(found, failing),
        paired=len(found.leading.cases),
        left_out=_left_out(found),
        notes=_notes(found),
    )


def _left_out(found: Comparison) -> tuple[tuple[str, tuple[str, ...]], ...]:
    return tuple((title, tuple(names)) for title, names in wording.listed(found))


def _notes(found: Comparison) -> tuple[str, ...]:
    """Return the notes on a comparison, and before them why it decides nothing."""
    return (*(found.reasons if found.verdict == "inconclusive" else ()), *found.notes)


def _of_runs(reader: StoreReader, lines: Sequence[RunLine], request: PageRequest) -> ComparePage:
    by_id = {line.run.run_id: line for line in lines}
    newest = [*by_id][:2]
    a = by_id.get(request.exact("a") or next(iter(newest[1:]), ""))
    b = by_id.get(request.exact("b") or next(iter(newest), ""))
    page = ComparePage(tuple(lines), a, b)
    if a is None or b is None:
        given = request.exact("a"), request.exact("b")
        wrong = next((side for side in given if side and side not in by_id), "")
        why = f"There is no run {wrong!r} with scores." if wrong else "A comparison needs two runs."
        return replace(page, problem=why)
    address = _Address(a.run.run_id, b.run.run_id, request)
    ((scores,),) = reader.rows(
        "SELECT count(*) FROM scores WHERE run_id IN ($a, $b)", {"a": address.a, "b": address.b}
    )
    if scores > MOST_SCORES:
        named = (shlex.quote(f"{reader.path}#{run}") for run in (address.a, address.b))
        command = f"evaltap compare {' '.join(named)}"
        why = (
            f"These runs have {scores:,} scores; the page compares {MOST_SCORES:,}. Run: {command}"
        )
        return replace(page, problem=why)
    try:
        # A case's turns are read when it is opened.
        a_side, b_side = (side_of(reader, [run]) for run in (address.a, address.b))
        sides = replace(a_side, trials=no_trials), replace(b_side, trials=no_trials)
        found = compare(*sides, Rules(across_metrics=bool(request["across"])))
    except InputError as error:
        across = "" if request["across"] else address.to(across="1")
        return replace(page, problem=str(error), across_href=across)
    return _compared(page, reader, found, sides, (a, b), address)


class _Address:
    """The links of a comparison, which preserve its parameters."""

    def __init__(self, a: str, b: str, request: PageRequest) -> None:
        self.a, self.b = a, b
        self.request = request
        self.show = request["show"] if request["show"] in _TABS else "broken"
        self.at = request.count("at")

    def to(self, **changed: str | int | None) -> str:
        """Return the address of this comparison with changed parameters."""
        kept: dict[str, str | int | None] = {
            "a": self.a,
            "b": self.b,
            "metric": self.request.exact("metric"),
            "across": self.request["across"],
            "show": "" if self.show == "broken" else self.show,
        }
        return link("/compare", **(kept | changed))


def _compared(
    page: ComparePage,
    reader: StoreReader,
    found: Comparison,
    sides: tuple[Side, Side],
    runs: tuple[RunLine, RunLine],
    address: _Address,
) -> ComparePage:
    named = {one.metric: one for one in found.metrics}
    metric = named.get(address.request.exact("metric")) or _most_changed(found)
    by_tab = {name: _of(metric, outcomes) for name, outcomes in _TABS.items()}
    chosen = by_tab[address.show]
    told = _told(reader, chosen, sides, metric.metric, address)
    groups: dict[CaseKey, str] = {}
    if address.show in _GROUPED:
        chosen, groups = _by_reason(chosen, told)
    at = min(address.at, len(chosen))
    until = at + PER_PAGE
    shown = chosen[at:until]
    opened = next((one for one in shown if one.key == address.request.key), None)
    return replace(
        page,
        opened=tuple(_opened(reader, opened, sides, runs, metric.metric, address.request)),
        swap_href=address.to(a=address.b, b=address.a),
        verdict=found.verdict,
        headline=wording.headline(found),
        metrics=metric_lines(found, lambda name: address.to(metric=name)),
        metric=metric.metric,
        usage=tuple((one.name, wording.usage(one)) for one in found.usage),
        paired=metric.base.cases,
        left_out=_left_out(found),
        notes=_notes(found),
        show=address.show,
        tabs=tuple(Tab(name, len(many), address.to(show=name)) for name, many in by_tab.items()),
        rows=tuple(_case_lines(shown, told, groups, address, opened)),
        matched=len(chosen),
        next_href=address.to(at=until) if until < len(chosen) else "",
        previous_href=address.to(at=max(at - PER_PAGE, 0) or None) if at else "",
        closed_href=address.to(at=at or None),
    )


def _most_changed(found: Comparison) -> MetricChange:
    """Return the initial metric: the leading one, or if it has no changes, the one with most."""

    def changed(one: MetricChange) -> int:
        return len(_of(one, ("newly_failing", "newly_passing", "flaky")))

    return found.leading if changed(found.leading) else max(found.metrics, key=changed)


def _of(metric: MetricChange, outcomes: Sequence[str]) -> list[CaseChange]:
    """Return the cases with some outcomes, in the order of the outcomes, certain ones first."""
    rank = {name: place for place, name in enumerate(outcomes)}
    cases = [one for one in metric.cases if one.outcome in rank]
    return sorted(
        cases,
        key=lambda one: (rank[one.outcome], 1.0 if one.p_value is None else one.p_value, one.name),
    )


class _Told(NamedTuple):
    """What the store has on a case: its opening, and why it does not pass; empty if unknown."""

    opening: str
    reason: str


def _told(
    reader: StoreReader,
    cases: Sequence[CaseChange],
    sides: tuple[Side, Side],
    metric: str,
    address: _Address,
) -> Mapping[CaseKey, _Told]:
    ids = [one.key[2] for one in cases]
    values = {"ids": ids, "metric": metric, "a": address.a, "b": address.b}
    rows = {tuple(row[:3]): row[3:] for row in reader.rows(_TEXTS, values)}
    found = {}
    for case in cases:
        failing = case.outcome != "newly_passing"  # 0: A, 1: B
        own = _own_key(sides[failing], case.key) or case.key
        opening, *reasons = rows.get(own, ("", "", ""))
        found[case.key] = _Told(opening or "", reasons[failing] or "")
    return found


def _by_reason(
    cases: Sequence[CaseChange], told: Mapping[CaseKey, _Told]
) -> tuple[list[CaseChange], dict[CaseKey, str]]:
    """Return the cases by reason, frequent ones first, and the shared reason of each.

    Cases whose reason nobody shares are last, without one.
    """
    alike: defaultdict[str, list[CaseChange]] = defaultdict(list)
    for case in cases:
        alike[pattern(told[case.key].reason)].append(case)
    ordered = sorted(alike.items(), key=lambda one: -len(one[1]))
    shared: dict[CaseKey, str] = {}
    for general, many in ordered:
        reasons = {told[one.key].reason for one in many}
        title = reasons.pop() if len(reasons) == 1 else general
        if len(many) > 1:
            shared |= {one.key: f"{title or general} ({len(many):,} cases)" for one in many}
    return [case for _, many in ordered for case in many], shared


def _case_lines(
    cases: Sequence[CaseChange],
    told: Mapping[CaseKey, _Told],
    groups: Mapping[CaseKey, str],
    address: _Address,
    opened: CaseChange | None,
) -> Iterator[CaseLine]:
    before = ""
    for case in cases:
        sign, word, status = OUTCOMES[case.outcome]
        app, eval_set, eval_id = case.key
        href = address.to(app=app, set=eval_set, id=eval_id, at=address.at or None)
        group = groups.get(case.key, "other reasons" if groups else "")
        reason = told[case.key].reason
        yield CaseLine(
            case=case,
            sign=sign,
            word=word,
            status=status,
            opening=told[case.key].opening,
            group="" if group == before else group,
            reason="" if group.startswith(f"{reason} (") else reason,
            figures=wording.figures(case),
            href=f"{href}#opened",
            opened=case is opened,
        )
        before = group


def _opened(
    reader: StoreReader,
    case: CaseChange | None,
    sides: Iterable[Side],
    runs: Iterable[RunLine],
    metric: str,
    request: PageRequest,
) -> Iterator[CaseSide]:
    for name, side, line in zip("AB", sides, runs, strict=True):
        key = None if case is None else _own_key(side, case.key)
        if key is None:
            continue
        run_id = line.run.run_id
        report = read_case(
            reader, key, run_id=run_id, metric=metric, references=request.references, limits=_LIMITS
        )
        cell = next((cell for cell in report.cells if cell.metric_name == metric), None)
        turns, _ = views_of(replace(report, cells=()), within=name)  # the verdict stands above them
        note = report.evidence_note
        if line.run.kind == "files":
            turns, note = (), "Its turns are not in this store, because it was scored from a file."
        ((revision,),) = reader.rows(
            "SELECT max(revision) FROM cases WHERE app_name = ? AND eval_set_id = ? AND eval_id = ?",
            list(key),
        )
        if turns and revision != report.revision:
            note = f"The score is for revision {report.revision}; the turns shown are of revision {revision}."
        yield CaseSide(name, cell, turns, note, case_link(key, run=run_id, metric=metric))


def _own_key(side: Side, key: CaseKey) -> CaseKey | None:
    """Return the key of a case in the store; a comparison may have dropped its app or eval set."""
    named = key if key in side.cases else None
    named = named or next((one for one in side.cases if one[2] == key[2]), None)
    return None if named is None else side.stored[named]
