"""A case as its templates show it: turns with the verdicts on them, verdicts with their turns and votes."""

import itertools
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final, NamedTuple

from evaltap.evaluator.reports.diff_lines import DiffLine, lines_of
from evaltap.evaluator.reports.html.rendering import Quote
from evaltap.evaluator.reports.model import (
    SEVERITY,
    CaseReport,
    Cell,
    JudgeCall,
    TurnCell,
    TurnEvidence,
    VoteCell,
)
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.scoring.evaluators.judged.quotes import places_of
from evaltap.evaluator.store.queries import Record

NOT_PASSED: Final = ("failed", "crashed", "error")
MOST_RUBRICS: Final = 8
"""If there are more rubrics, fulfilled ones are folded."""
MOST_BARE: Final = 30
"""The number of turns with votes, of a case that has no turns to show."""


class TurnLink(NamedTuple):
    """A turn, counted from 1, with its link."""

    place: int
    href: str


@dataclass(frozen=True, slots=True)
class RubricVotes:
    """The votes of a judge's samples on one rubric in one turn."""

    rubric_id: str
    turn: TurnLink | None
    """Set if several turns were judged."""
    votes: tuple[VoteCell, ...]
    folded: bool = False
    """Whether the rubric is fulfilled, and the verdict has too many rubrics to show them all."""
    quote: int | None = None
    """The number of its first vote's quote in the conversation."""


class JudgeAnswer(NamedTuple):
    turn: int | None
    """Set if several turns were judged."""
    call: JudgeCall


@dataclass(frozen=True, slots=True)
class VerdictView:
    """A metric's verdict on the case, the relevant turns, and the votes behind it."""

    cell: Cell
    turns: tuple[TurnLink, ...]
    """The turns that did not pass; empty if the case has no turns to show."""
    told: tuple[TurnCell, ...]
    """Its turns, if there are several and the case has none to show: all that is known of them."""
    rubrics: tuple[RubricVotes, ...]
    """The rubrics of the shown turns."""
    calls: tuple[JudgeAnswer, ...]
    """The judge's answers on the shown turns."""
    compare_href: str
    """The page with calls compared as in this metric; empty if it compares none."""

    @property
    def is_brief(self) -> bool:
        """Whether it passed, and no judge said more about it."""
        return self.cell.status == "passed" and not self.rubrics and not self.cell.calls


class TurnVerdict(NamedTuple):
    metric: str
    status: str
    reason: str


@dataclass(frozen=True, slots=True)
class TurnView:
    """A turn: its texts, the difference of its calls, and its verdicts."""

    place: int
    evidence: TurnEvidence
    started_at: datetime | None
    revisions: int
    paused: bool
    """Whether the run waits for a person, or for the result of a call."""
    lines: tuple[DiffLine, ...]
    verdicts: tuple[TurnVerdict, ...]
    """The verdicts that did not pass in this turn."""
    quotes: tuple[Quote, ...]
    """Judges' quotes from the turn."""
    trace_href: str
    """Its trace in the user's tracing tool; empty if there is no trace or no tool."""


def views_of(
    report: CaseReport,
    *,
    within: str = "",
    first: int = 1,
    elsewhere: Callable[[int], str] | None = None,
    trace_url: TraceUrl | None = None,
    rows: Mapping[str, Record] | None = None,
    compare_hrefs: Mapping[str, str] | None = None,
) -> tuple[tuple[TurnView, ...], tuple[VerdictView, ...]]:
    """Return the turns of a case from the turn `first` on, and its verdicts, worst first.

    `within` begins the ids; `elsewhere` links a turn that is not among these.  `rows` have what the store
    knows of turns, by invocation; `compare_hrefs` link metrics that compare calls.
    """
    shown = range(first, first + (len(report.evidence) or MOST_BARE))

    def link_of(place: int) -> TurnLink:
        if place in shown:
            return TurnLink(place, f"#{within}t{place}")
        return TurnLink(place, elsewhere(place) if elsewhere else "")

    cells = sorted(report.cells, key=lambda cell: SEVERITY.index(cell.status))
    hrefs = compare_hrefs or {}
    verdicts, quotes = _with_quotes(
        [
            _verdict(cell, shown, link_of, hrefs.get(cell.metric_name, ""), bool(report.evidence))
            for cell in cells
        ],
        {one.invocation_id: (one.user or "", one.answer or "") for one in report.evidence},
    )
    turns = []
    for place, evidence in enumerate(report.evidence, first):
        row = (rows or {}).get(evidence.invocation_id, {})
        turn = TurnView(
            place,
            evidence,
            row.get("started_at"),
            row.get("revisions", 1),
            row.get("close_reason") == "paused",
            lines_of(evidence.steps),
            tuple(
                TurnVerdict(cell.metric_name, turn.status, _reason(cell, turn, evidence))
                for cell in cells
                for turn in cell.turns
                if turn.turn == place and turn.status in NOT_PASSED
            ),
            tuple(quotes.get(evidence.invocation_id, ())),
            trace_url.of(evidence.trace_id) if trace_url else "",
        )
        turns.append(turn)
    return tuple(turns), verdicts


def _verdict(
    cell: Cell,
    shown: Container[int],
    link_of: Callable[[int], TurnLink],
    compare_href: str,
    has_turns: bool,
) -> VerdictView:
    numbers = {turn.invocation_id: turn.turn for turn in cell.turns}
    judged: list[VoteCell | JudgeCall] = [*cell.votes, *cell.calls]
    several = len({one.invocation_id for one in judged}) > 1
    failed = (link_of(turn.turn) for turn in cell.turns if turn.status != "passed")
    return VerdictView(
        cell,
        tuple(failed) if has_turns else (),
        () if has_turns or len(cell.turns) < 2 else cell.turns,
        tuple(
            replace(rubric, turn=link_of(turn) if several and turn else None)
            for turn, rubric in _rubrics(cell, numbers, shown)
        ),
        tuple(_answers(cell, numbers, shown, several)),
        compare_href,
    )


def _answers(
    cell: Cell, numbers: Mapping[str, int], shown: Container[int], several: bool
) -> Iterator[JudgeAnswer]:
    for call in cell.calls:
        turn = numbers.get(call.invocation_id)
        if not turn or turn in shown:
            yield JudgeAnswer(turn if several else None, call)


def _rubrics(
    cell: Cell, numbers: Mapping[str, int], shown: Container[int]
) -> Iterator[tuple[int, RubricVotes]]:
    """Yield the votes on each rubric in each shown turn, with its number, and of unknown turns, with 0."""
    rubrics: dict[tuple[int, str], list[VoteCell]] = {}
    for vote in cell.votes:
        at = numbers.get(vote.invocation_id, 0), vote.rubric_id
        rubrics.setdefault(at, []).append(vote)
    for (turn, name), votes in sorted(rubrics.items()):
        if not turn or turn in shown:
            folded = len(rubrics) > MOST_RUBRICS and _is_met(votes)
            yield turn, RubricVotes(name, None, tuple(votes), folded)


def _is_met(votes: Sequence[VoteCell]) -> bool:
    scores = [vote.score for vote in votes if vote.score is not None]
    return bool(scores) and 2 * sum(score >= 1 for score in scores) > len(scores)


def _with_quotes(
    verdicts: Sequence[VerdictView], texts_of: Mapping[str, tuple[str, str]]
) -> tuple[tuple[VerdictView, ...], Mapping[str, list[Quote]]]:
    """Return verdicts with numbered quotes, and the quotes of each turn, given the texts in `texts_of`."""
    quotes: dict[str, list[Quote]] = {}
    numbers = itertools.count(1)
    made = []
    for verdict in verdicts:
        rubrics = []
        for rubric in verdict.rubrics:
            vote = rubric.votes[0]
            texts = texts_of.get(vote.invocation_id, ()) if vote.evidence_found else ()
            if any(places_of(vote.evidence, text) for text in texts):
                quote = Quote(next(numbers), verdict.cell.metric_name, vote.evidence)
                quotes.setdefault(vote.invocation_id, []).append(quote)
                rubric = replace(rubric, quote=quote.number)
            rubrics.append(rubric)
        made.append(replace(verdict, rubrics=tuple(rubrics)))
    return tuple(made), quotes


def _reason(cell: Cell, turn: TurnCell, evidence: TurnEvidence) -> str:
    """Return why a turn did not pass; empty if the error of its run, which is shown once, explains it."""
    crashed = turn.status == "crashed" and evidence.error
    return "" if crashed else turn.reason or cell.reason
