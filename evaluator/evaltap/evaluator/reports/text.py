"""Lines about cases, calls and differences, shared by text formats."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import quote, urlsplit

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.diff_lines import FOLDED
from evaltap.evaluator.reports.model import CaseReport, Cell, Step, TurnEvidence
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

_LONGEST: Final = 160
"""Characters of arguments, of an error and of a change in a line."""
_MARKS: Final = {
    "same": "=",
    "changed": "!",
    "moved": ">",
    "missing": "-",
    "extra": "+",
    "made": " ",
    "left_out": "x",
}


def diff_lines(turn: TurnEvidence) -> list[str]:
    """Return the calls of a turn, one per line, marked as in a `diff`: `= refund({"amount":5})`.

    Many equal calls in a row are one line.  `=` same, `!` other arguments, `>` out of order, `-` missing, `+`
    extra, `x` failed and not counted; no mark if there is nothing to compare with.
    """
    lines: list[str] = []
    for kind, run in groupby(turn.steps, key=lambda step: step.kind):
        steps = [*run]
        if kind == "same" and len(steps) >= FOLDED:
            lines.append(f"= {len(steps):,} equal calls")
        else:
            lines += [line for step in steps for line in _step_lines(step)]
    if turn.omitted_calls:
        what = "more equal call" if turn.compared else "more call"
        lines.append(f"  {counted(turn.omitted_calls, what)} not shown")
    return lines


def turn_lines(cell: Cell) -> list[str]:
    """Return why turns did not pass, one line for each."""
    return [
        f"turn {turn.turn} {turn.status.replace('_', ' ')}: {turn.reason}"
        for turn in cell.turns
        if turn.status != "passed"
    ]


def difference_lines(turns: Sequence[TurnEvidence]) -> list[str]:
    """Return the calls of the turns that differ from the expected ones."""
    lines: list[str] = []
    for number, turn in enumerate(turns, start=1):
        if turn.compared and any(step.kind != "same" for step in turn.steps):
            lines += [f"turn {number}, tool calls (- expected, + made):", *diff_lines(turn)]
    return lines


def case_lines(case: CaseReport) -> list[str]:
    """Return the details of a case that did not pass: metrics, reasons, calls."""
    bad = [cell for cell in case.cells if cell.status != "passed"]
    outcome = f"{len(bad)} of {len(case.cells)} metrics did not pass" if case.cells else "no score"
    lines = [f"eval case {'/'.join(filter(None, (case.eval_set_id, case.eval_id)))}: {outcome}"]
    for cell in bad:
        score = (
            "" if cell.score is None else f", score {cell.score:.4g}, threshold {cell.threshold:g}"
        )
        lines.append(f"  {cell.metric_name} {cell.status.replace('_', ' ')}{score}")
        reasons = turn_lines(cell) or [cell.reason]
        lines += [f"    {line}" for reason in reasons for line in reason.strip().splitlines()]
    if any(cell.status == "failed" for cell in bad):
        lines += [f"  {line}" for line in difference_lines(case.evidence)]
    return [*lines, f"  {case.evidence_note}"] if case.evidence_note else lines


def _step_lines(step: Step) -> list[str]:
    call = step.actual or step.expected
    assert call is not None, "a step has a call on one side at least"
    made = f"{_MARKS[step.kind]} {call.name}({one_line(call.arguments, _LONGEST)})"
    if step.actual and call.error:
        made += f"  failed: {one_line(call.error, _LONGEST)}"
    return [made, *(f"!     {one_line(change, _LONGEST)}" for change in step.changes)]


_FIELD: Final = "{trace_id}"


@dataclass(frozen=True, slots=True)
class TraceUrl:
    """The address of a trace, with the placeholder `{trace_id}`."""

    template: str

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.template)
        except ValueError:  # an incomplete IPv6 address
            parts = urlsplit("")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise InputError(f"--trace-url {self.template}: expected an http or https address")
        if _FIELD not in parts.path + parts.query + parts.fragment or _FIELD in parts.netloc:
            raise InputError(
                f"--trace-url {self.template}: expected {_FIELD} in its path, query or fragment, e.g."
                f" http://localhost:16686/trace/{_FIELD}"
            )

    def of(self, trace_id: str | None) -> str:
        """Return the address of a trace; empty for a turn without one."""
        return self.template.replace(_FIELD, quote(trace_id, safe="")) if trace_id else ""
