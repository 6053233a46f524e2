"""Differences in the agent's behaviour in failing cases: calls and answers of base and head."""

from collections.abc import Mapping, Sequence
from typing import Final

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.reports.compare.model import CaseChange, Difference, MetricChange
from evaltap.evaluator.reports.compare.sides import Side
from evaltap.evaluator.reports.evidence import Comparison, evidence_of
from evaltap.evaluator.reports.model import Limits
from evaltap.evaluator.reports.text import diff_lines

SHOWN: Final = ("newly_failing", "still_failing", "newly_passing")
MOST_CASES: Final = 200
_ANSWER: Final = 400


def differences(base: Side, head: Side, metrics: Sequence[MetricChange]) -> tuple[Difference, ...]:
    """Return the recorded differences of cases that fail or newly pass, newly failing ones first."""
    wanted: dict[CaseKey, CaseChange] = {}
    for outcome in SHOWN:
        for metric in metrics:
            for case in metric.cases:
                if case.outcome == outcome:
                    wanted.setdefault(case.key, case)
    chosen = dict(list(wanted.items())[:MOST_CASES])
    before, now = base.turns(list(chosen)), head.turns(list(chosen))
    found = []
    for key, case in chosen.items():
        ones = _turns(before.get(key, {}), case.passing)
        others = _turns(now.get(key, {}), case.failing)
        if ones and others:
            found.append(Difference(case.name, case.outcome, tuple(_lines(ones, others))))
    return tuple(one for one in found if one.lines)


def _turns(trials: Mapping[str, Sequence[Case]], trial: str) -> Sequence[Case]:
    """Return the turns of a trial, or of the first trial if that one was not recorded."""
    return trials.get(trial) or next(iter(trials.values()), ())


def _lines(base: Sequence[Case], head: Sequence[Case]) -> list[str]:
    case = {
        "evalMode": "trace",
        "sessionInput": {"appName": "compare", "userId": "compare"},
        "conversation": list(base),
        "actualConversation": list(head),
    }
    evidence, note = evidence_of(case, Comparison(), Limits())
    lines: list[str] = []
    for number, turn in enumerate(evidence, start=1):
        found = diff_lines(turn) if any(step.kind != "same" for step in turn.steps) else []
        before, after = Turn(base[number - 1]).final_text, turn.answer
        if before != after:
            found += [f"- answer: {_shown(before)}", f"+ answer: {_shown(after)}"]
        lines += [f"turn {number}:", *found] if found and len(evidence) > 1 else found
    return [*lines, note] if note else lines


def _shown(text: str | None) -> str:
    return "(none)" if text is None else one_line(text, _ANSWER)
