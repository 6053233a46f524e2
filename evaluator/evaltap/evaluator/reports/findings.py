"""What went wrong in a case, step by step, most telling first: crash, loop, calls, answer."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import orjson

from evaltap.evaluator.cases.pairing import placeholder
from evaltap.evaluator.cases.turn import run_failure
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.model import Limits, Step, TurnEvidence
from evaltap.evaluator.scoring.criteria.calls.patterns import find_loop
from evaltap.schemas.data import CaseData

FindingKind = Literal[
    "crash",
    "loop",
    "wrong_arguments",
    "missing_call",
    "extra_call",
    "moved_call",
    "failed_call",
    "different_answer",
]
_KINDS: Final[Mapping[str, FindingKind]] = {
    "changed": "wrong_arguments",
    "missing": "missing_call",
    "extra": "extra_call",
    "moved": "moved_call",
}
_REPEATS: Final = 3
_LONGEST_PERIOD: Final = 4
_NOTHING_EXPECTED: Final = {"finalResponse": "missing", "tools": "missing"}
"""The capture of an expected turn of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that went wrong."""

    kind: FindingKind
    turn: int
    """From 1."""
    call: int | None
    """The number of the call in the turn, from 1; of a missing call, that of the expected one."""
    detail: str


def findings_of(data: Mapping[str, Any]) -> list[Finding]:
    """Return what went wrong in a case, as `read_case` returns it.

    Without an expected turn, only what needs none is found: crashes, loops and failed calls.
    """
    turns = data["turns"]
    case: CaseData = {
        "evalMode": "trace",
        "sessionInput": {},
        "actualConversation": [turn["actual"] for turn in turns],
    }
    if any(turn["expected"] for turn in turns):
        case["conversation"] = [
            turn["expected"]
            or {**(placeholder(turn["actual"]) or {}), "capture": _NOTHING_EXPECTED}
            for turn in turns
        ]
    evidence, _ = evidence_of(case, Comparison(), Limits(turns=len(turns)))
    found = [
        one
        for number, (turn, shown) in enumerate(zip(turns, evidence, strict=False), 1)
        for one in _of_turn(number, turn["actual"], shown)
    ]
    order: list[FindingKind] = ["crash", "loop"]
    return sorted(
        found, key=lambda one: (one.kind == "different_answer", one.kind not in order, one.turn)
    )


def _of_turn(number: int, actual: CaseData, shown: TurnEvidence) -> Iterator[Finding]:
    calls = actual.get("tools") or []
    if failure := run_failure(actual):
        yield Finding("crash", number, len(calls) or None, failure)
    same: dict[bytes, int] = {}
    numbers = [same.setdefault(_identity(call), len(same)) for call in calls]
    if loop := find_loop(numbers, _REPEATS, _LONGEST_PERIOD):
        names = [str(call.get("name")) for call in calls[loop.start : loop.start + loop.period]]
        detail = f"{', '.join(names)}: {loop.repeats} times in a row"
        yield Finding("loop", number, loop.start + 1, detail)
    for step in shown.steps:
        if step.kind in _KINDS:
            place = step.actual_place or step.expected_place
            yield Finding(_KINDS[step.kind], number, place, _detail(step))
        elif step.actual and step.actual.error:
            detail = f"{step.actual.name}: {step.actual.error}"
            yield Finding("failed_call", number, step.actual_place, detail)
    if shown.expected_answer is not None and shown.expected_answer != shown.answer:
        detail = f"answered {shown.answer!r}, expected {shown.expected_answer!r}"
        yield Finding("different_answer", number, None, detail)


def _identity(call: CaseData) -> bytes:
    given: Sequence[object] = (call.get("name"), call.get("arguments"))
    return orjson.dumps(given, option=orjson.OPT_SORT_KEYS | orjson.OPT_NON_STR_KEYS)


def _detail(step: Step) -> str:
    call = step.actual or step.expected
    assert call is not None  # a step has at least one of them
    changes = "; ".join(step.changes)
    return f"{call.name}({call.arguments}){': ' if changes else ''}{changes}"
