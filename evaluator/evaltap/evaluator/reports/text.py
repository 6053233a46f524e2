"""Texts of a report as people may safely read them, whatever was recorded."""

import re
from typing import Final

from evaltap.evaluator.reports.model import Call, CaseReport, Cell, Step, TurnEvidence

_HIDDEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ufffe\uffff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""Controls, marks that change the direction of text, what has no width, halves of pairs, tags."""

_MARKS: Final = {
    "same": "=",
    "changed": "!",
    "moved": ">",
    "missing": "-",
    "extra": "+",
    "made": " ",
    "left_out": "x",
}


def visible(text: str) -> str:
    """Return a text with every character that hides itself or others replaced by a visible one.

    Line feeds and tabs stay.  The rest of the control characters become their Unicode pictures, all
    others their code in brackets.  What is left may stand in XML.
    """
    return _HIDDEN.sub(_picture, text)


def _picture(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"⟦U+{code:04X}⟧"


def one_line(text: str, limit: int) -> str:
    """Return a text on one line, cut at so many characters."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def call_text(call: Call, limit: int = 160) -> str:
    """Return a call as it would be written: `refund({"amount":5})`."""
    return f"{call.name}({one_line(call.arguments, limit)})"


def diff_lines(turn: TurnEvidence, limit: int = 160) -> list[str]:
    """Return the calls of a turn, one a line, marked as in a `diff`.

    `=` same, `!` other arguments, `>` out of order, `-` missing, `+` extra, `x` failed and not
    counted, no mark where there is nothing to compare with.
    """
    return [line for step in turn.steps for line in _step_lines(step, limit)]


def turn_lines(cell: Cell) -> list[str]:
    """Return why turns did not pass, one a line."""
    return [
        f"turn {turn.turn} {turn.status.replace('_', ' ')}: {turn.reason}"
        for turn in cell.turns
        if turn.status != "passed"
    ]


def difference_lines(case: CaseReport) -> list[str]:
    """Return the calls of the turns in which they differ from the expected ones."""
    lines: list[str] = []
    for number, turn in enumerate(case.evidence, start=1):
        if turn.compared and any(step.kind != "same" for step in turn.steps):
            lines += [f"turn {number}, calls (- expected, + made):", *diff_lines(turn)]
    return lines


def case_lines(case: CaseReport) -> list[str]:
    """Return what there is to know of a case that did not pass: metrics, reasons, calls."""
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
        lines += [f"  {line}" for line in difference_lines(case)]
    return [*lines, f"  {case.evidence_note}"] if case.evidence_note else lines


def _step_lines(step: Step, limit: int) -> list[str]:
    call = step.actual or step.expected
    assert call is not None, "a step has a call on one side at least"
    failed = f"  failed: {one_line(call.error, limit)}" if step.actual and call.error else ""
    lines = [f"{_MARKS[step.kind]} {call_text(call, limit)}{failed}"]
    return [*lines, *(f"!     {one_line(change, limit)}" for change in step.changes)]
