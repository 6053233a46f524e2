"""Say which parts of cases a format cannot represent, and what its tool makes of their absence."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from evaltap.evaluator.cases.datasets.exports.rows import Side, omitted_parts, pairs_of, side
from evaltap.evaluator.cases.datasets.exports.tools import FORMS, WITH_ACTUAL, shows_expected
from evaltap.schemas.data import CaseData
from evaltap.schemas.text import counted


class _Open(NamedTuple):
    """A part of a turn that may not be specified, and what a tool expects then."""

    what: str
    read_as: str
    part: Callable[[Side], object]
    metrics: Mapping[str, str]
    """The metrics of each format's tool that compare it."""


_OPEN: Final = (
    _Open(
        "what a turn should answer",
        "an empty answer",
        lambda expected: expected.content,
        {
            "adk": "response_match_score and final_response_match_v2",
            "trpc": "final_response_avg_score",
        },
    ),
    _Open(
        "which tools a turn should call",
        "none",
        lambda expected: expected.tools,
        {"adk": "tool_trajectory_avg_score", "trpc": "tool_trajectory_avg_score"},
    ),
)


_RECORDED: Final = {form: f"of which {form} gets no answers or calls" for form in FORMS} | {
    "adk": "which adk reads as expected",
    "huggingface": "",  # it has columns for both
}
"""What a format makes of a case that has recorded turns only; the others keep them."""


def losses(form: str, cases: Sequence[CaseData], *, with_actual: bool = False) -> Iterator[str]:
    """Yield a message for each kind of loss, with the number of cases."""
    yield from _left_out(form, cases)
    if form == "deepeval":
        told = [case for case in cases if len(pairs_of(case)) > 1]
        cases = [case for case in cases if len(pairs_of(case)) == 1]
        if told := [case for case in told if shows_expected(case, with_actual=with_actual)]:
            yield f"{_such(told)}: several expected turns, which deepeval reads as what happened"
    kept = with_actual and form in WITH_ACTUAL
    if not kept and (read_as := _RECORDED.get(form)):
        yield from _only_recorded(form, read_as, cases)
    yield from _left_open(form, cases)


def _only_recorded(form: str, read_as: str, cases: Sequence[CaseData]) -> Iterator[str]:
    if recorded := [case for case in cases if _has_only_recorded(case)]:
        more = "; or add --with-actual" if form in WITH_ACTUAL else ""
        yield (
            f"{_such(recorded)}: only recorded, {read_as}; review them first"
            f" (`evaltap curate --as expected` writes what was approved){more}"
        )


def _left_open(form: str, cases: Sequence[CaseData]) -> Iterator[str]:
    for one in _OPEN:
        if form in one.metrics and (found := [case for case in cases if _leaves_open(case, one)]):
            yield (
                f"{_such(found)}: not specified {one.what}, which {form} reads as {one.read_as}; specify"
                f" it, or do not run {one.metrics[form]} on {'it' if len(found) == 1 else 'them'}"
            )


def _left_out(form: str, cases: Sequence[CaseData]) -> Iterator[str]:
    if form not in FORMS and form != "adk":
        return
    names = [name for case in cases for name in omitted_parts(case, form)]
    for name in dict.fromkeys(names):
        yield f"{form} does not support {name}; left out of {counted(names.count(name), 'case')}"


def _such(cases: Sequence[CaseData]) -> str:
    return f"{counted(len(cases), 'case')}, such as {cases[0]['evalId']!r:.40}"


def _has_only_recorded(case: CaseData) -> bool:
    return not case.get("conversation") and bool(case.get("actualConversation"))


def _leaves_open(case: CaseData, one: _Open) -> bool:
    turns = [side(turn) for turn, _ in pairs_of(case) if turn is not None]
    return any(turn is None or one.part(turn) is None for turn in turns)
