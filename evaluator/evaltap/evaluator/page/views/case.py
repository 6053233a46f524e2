"""One case: the conversation with its trajectory difference, next to the verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.listing import around
from evaltap.evaluator.analysis.filters.restricted import restricted_to_case
from evaltap.evaluator.analysis.summaries.summaries import IndexedCase, indexed_case
from evaltap.evaluator.cases.identity import THIS_CASE, CaseKey, named
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.request import (
    PageAnswer,
    PageRequest,
    case_link,
    key_text,
    link,
    problem,
)
from evaltap.evaluator.page.views.cases import chosen
from evaltap.evaluator.page.views.expected import Decided, decided_turns
from evaltap.evaluator.pipeline.maintenance.why import MetricAnswer, statuses
from evaltap.evaluator.reports.html.case import (
    NOT_PASSED,
    TurnLink,
    TurnView,
    VerdictView,
    views_of,
)
from evaltap.evaluator.reports.model import CaseReport, Cell, Limits
from evaltap.evaluator.reports.reader import landed_data, read_case
from evaltap.evaluator.reports.scope import these_cases
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.store.queries import Record, StoreReader


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Links to the list and to the adjacent cases; empty if there is none."""

    list_href: str
    text: str
    """The filter of the list."""
    previous_href: str = ""
    next_href: str = ""
    place: str = ""
    """The position in the list, such as `3 of 1,204`."""


def neighbours(
    reader: StoreReader, request: PageRequest, key: CaseKey, known: IndexedCase | None
) -> Neighbours:
    """Return the neighbours of a case in the list of the parameters `q` and `sort`."""
    found, _ = chosen(request)
    at = around(reader, Choice(found, traffic=True), key, known, now=request.now)
    parameters = {"q": request["q"], "sort": request["sort"]}

    def href(one: CaseKey | None) -> str:
        return case_link(one, **parameters) if one else ""

    place = f"{at.number:,} of {at.of:,}" if at.number else ""
    return Neighbours(
        link("/cases", **parameters), request["q"], href(at.previous), href(at.next), place
    )


TOGETHER: Final = 30
"""The number of turns shown together."""
MOST_FAILING: Final = 12
"""The maximum number of failed turns listed for a range."""


@dataclass(frozen=True, slots=True)
class TurnRange:
    """Consecutive turns of a long case that are shown together."""

    first: int
    last: int
    href: str
    shown: bool
    failing: tuple[TurnLink, ...]
    """The first turns in the range that did not pass."""
    failing_count: int


def first_shown(asked: str, turns: int) -> int:
    """Return the first turn, counted from 1, of the range that contains the requested one."""
    place = int(asked) if asked.isdecimal() and len(asked) < 10 else 1
    return (max(1, min(place, turns)) - 1) // TOGETHER * TOGETHER + 1


class TurnPlaces(NamedTuple):
    """The locations of a case's turns: on this page, or on the page of another range."""

    key: CaseKey
    parameters: Mapping[str, str]
    first: int
    turns: int

    def shows(self, place: int) -> bool:
        """Return whether a turn is on this page."""
        return self.first <= place < self.first + TOGETHER

    def of(self, place: int) -> TurnLink:
        """Return a turn with its link."""
        anchor = f"#t{place}"
        if self.shows(place):
            return TurnLink(place, anchor)
        return TurnLink(place, case_link(self.key, **self.parameters, turn=place) + anchor)

    def ranges(self, cells: Sequence[Cell]) -> tuple[TurnRange, ...]:
        """Return the ranges, with the turns that did not pass some metric; empty for a short case."""
        if self.turns <= TOGETHER:
            return ()
        failing = sorted(
            {turn.turn for cell in cells for turn in cell.turns if turn.status in NOT_PASSED}
        )
        made = []
        for first in range(1, self.turns + 1, TOGETHER):
            last = min(first + TOGETHER - 1, self.turns)
            inside = [place for place in failing if first <= place <= last]
            made.append(
                TurnRange(
                    first,
                    last,
                    case_link(self.key, **self.parameters, turn=first if first > 1 else None),
                    first == self.first,
                    tuple(map(self.of, inside[:MOST_FAILING])),
                    len(inside),
                )
            )
        return tuple(made)


LIMITS: Final = Limits(cases=1, turns=TOGETHER, calls=200, text=20_000, turn_scores=10_000)

# From tables instead of views, so that the rows of one case are found before revisions are compared.
_TURNS: Final = f"""
SELECT invocation_id, turn_revision, started_at, status, version, environment, agent_name, tags, trace_id,
       producer_id, seq, landed_at, sampling_reason, inclusion_probability, close_reason,
       count(*) OVER (PARTITION BY invocation_id) AS revisions
FROM turns WHERE {THIS_CASE}
QUALIFY row_number() OVER (PARTITION BY invocation_id ORDER BY turn_revision DESC, landed_seq) = 1
ORDER BY started_at NULLS FIRST, min(landed_seq) OVER (PARTITION BY invocation_id)
"""
_HEADER: Final = f"""
SELECT app_name, eval_set_id, eval_id, user_id, service, framework, convention, recorder_version, revision,
       landed_at
FROM cases WHERE {THIS_CASE} ORDER BY revision DESC, landed_at DESC LIMIT 1
"""
_RUNS: Final = """
SELECT DISTINCT s.run_id, r.kind, r.started_at
FROM scores s LEFT JOIN runs r USING (run_id)
WHERE s.app_name = $app AND s.eval_set_id = $eval_set AND s.eval_id = $eval_id
ORDER BY r.started_at DESC LIMIT 20
"""
_EVALUATORS: Final = f"SELECT DISTINCT metric_name, evaluator_name FROM scores WHERE {THIS_CASE}"
_IN_REVIEW: Final = f"SELECT 1 FROM review_items WHERE {THIS_CASE} LIMIT 1"
_QUEUED: Final = f"""
SELECT 1 FROM v_review_items WHERE {THIS_CASE} AND verdict IS NULL AND state <> 'outdated' LIMIT 1
"""
_ANY_FEEDBACK: Final = "SELECT 1 FROM feedback WHERE eval_id = $eval_id LIMIT 1"
_FEEDBACK: Final = """
SELECT invocation_id, name, positive, score, comment, correction, given_by, given_at
FROM v_feedback
WHERE app_name IN ('', $app) AND eval_set_id = $eval_set AND eval_id = $eval_id ORDER BY given_at
"""


@dataclass(frozen=True, slots=True)
class CasePage:
    key: CaseKey
    report: CaseReport
    started_at: datetime | None
    turns: tuple[TurnView, ...]
    first_turn: int
    """The number of the first shown turn."""
    turn_count: int
    ranges: tuple[TurnRange, ...]
    """The ranges of a case with more turns than are shown together; otherwise empty."""
    verdicts: tuple[VerdictView, ...]
    pending: tuple[MetricAnswer, ...]
    """Metrics without a verdict, with the reasons."""
    notes: tuple[str, ...]
    differences: int
    provenance: tuple[tuple[str, str], ...]
    turn_provenance: tuple[Mapping[str, object], ...]
    feedback: tuple[Record, ...]
    runs: tuple[Record, ...]
    neighbours: Neighbours
    queued: bool
    """Whether turns of the case are queued for review."""
    picked: bool
    """Whether the case is in the reader's basket."""
    decided: tuple[Decided, ...]
    """The reviewers' decisions on its turns."""
    key_text: str
    """The case as the value of a form field."""
    expected_href: str
    view: str
    raw: str
    """The case as JSON, if requested."""
    raw_href: str
    self_href: str


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read a case; 404 if it does not exist."""
    if (found := read(reader, request, request.key)) is None:
        return problem(404, f"There is no case {request.key[2]!r} in {request.store_path}.")
    return PageAnswer("case.html.j2", request.key[2], found)


def read(reader: StoreReader, request: PageRequest, key: CaseKey) -> CasePage | None:
    """Return the page of a case; None if it neither landed nor was scored."""
    known = indexed_case(reader, key)
    beside = neighbours(reader, request, key, known)
    with restricted_to_case(reader, key, known):
        return _read(reader, request, key, beside)


_PENDING: Final = ("pending", "not_evaluated", "error")


def _feedback(reader: StoreReader, key: CaseKey) -> tuple[Record, ...]:
    # Checked first, as in `_read`, because the view takes longer and most cases have none.
    if not reader.rows(_ANY_FEEDBACK, {"eval_id": key[2]}):
        return ()
    return tuple(reader.records(_FEEDBACK, named(key)))


def _read(
    reader: StoreReader, request: PageRequest, key: CaseKey, beside: Neighbours
) -> CasePage | None:
    statement = named(key)
    rows = reader.records(_TURNS, statement)
    first = first_shown(request["turn"], len(rows))
    report = read_case(
        reader,
        key,
        run_id=request.exact("run"),
        metric=request.exact("metric"),
        references=request.references,
        limits=replace(LIMITS, first_turn=first),
    )
    headers = reader.records(_HEADER, statement)
    if not headers and not report.cells:
        return None
    ((_, answer),) = statuses(reader, [key])
    kept = {"q": request["q"], "sort": request["sort"]}
    places = TurnPlaces(key, {**kept, "run": request.exact("run")}, first, len(rows))
    ranges = places.ranges(report.cells)
    turns, verdicts = views_of(
        report,
        first=first,
        elsewhere=lambda place: places.of(place).href,
        trace_url=request.trace_url,
        rows={row["invocation_id"]: row for row in rows},
        compare_hrefs=_compare_hrefs(reader, key, kept),
    )
    evidence_note = "" if turns else report.evidence_note
    # Checked first, because the views take longer and most cases have none.
    in_review = bool(reader.rows(_IN_REVIEW, statement))
    return CasePage(
        key=key,
        report=report,
        started_at=rows[0]["started_at"] if rows else None,
        turns=turns,
        first_turn=first,
        turn_count=len(rows) or len(turns),
        ranges=ranges,
        verdicts=verdicts,
        pending=tuple(one for one in answer.metrics if one.status in _PENDING),
        notes=(*answer.notes, *filter(None, [evidence_note])),
        differences=sum(line.differs for turn in turns for line in turn.lines),
        provenance=_provenance(headers[0] if headers else {}),
        turn_provenance=tuple(rows[first - 1 :][:TOGETHER]),
        feedback=_feedback(reader, key),
        runs=tuple(reader.records(_RUNS, statement)),
        neighbours=beside,
        queued=in_review and bool(reader.rows(_QUEUED, statement)),
        picked=key in changes.picked(reader, request.person),
        decided=decided_turns(reader, request, key) if in_review else (),
        key_text=key_text(key),
        expected_href=case_link(key, "/expected", **kept),
        view=request["view"],
        raw=_raw(reader, key) if request["view"] == "raw" else "",
        raw_href=case_link(key, **kept, view="raw"),
        self_href=case_link(key),
    )


_INSTALLED: Final = Registry()
"""Kept, because looking through all installed packages takes as long as reading a case."""


def _compare_hrefs(reader: StoreReader, key: CaseKey, kept: Mapping[str, str]) -> Mapping[str, str]:
    """Return links to the case with its calls compared as by a metric, for metrics that compare calls."""
    return {
        metric: case_link(key, **kept, metric=metric)
        for metric, evaluator in reader.rows(_EVALUATORS, named(key))
        if _INSTALLED.compares_calls(evaluator)
    }


def _provenance(header: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(
        (name.replace("_", " "), str(value))
        for name, value in header.items()
        if value is not None and name not in ("app_name", "eval_set_id", "eval_id")
    )


def _raw(reader: StoreReader, key: CaseKey) -> str:
    with these_cases(reader, [key]) as cases:
        data = [case for _, case in landed_data(reader, cases)]
    return orjson.dumps(data[0], option=orjson.OPT_INDENT_2).decode() if data else ""
