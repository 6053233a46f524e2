"""The rows of a trajectory difference for the template: the differences, and the parts to fold."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

import orjson

from evaltap.evaluator.reports.model import ArgumentDifference, Call, Step, StepKind

SIGNS: Final[Mapping[StepKind, str]] = {
    "same": "=",
    "changed": "≠",
    "moved": "↕",
    "missing": "−",
    "extra": "+",
    "made": "·",
    "left_out": "×",
}
WORDS: Final[Mapping[StepKind, str]] = {
    "same": "as expected",
    "changed": "different arguments",
    "moved": "out of order",
    "missing": "not called",
    "extra": "not expected",
    "made": "actual call",
    "left_out": "failed, not counted",
}
FOLDED: Final = 6
"""The number of equal calls in a row that are folded."""
_FIRST_KEY: Final = re.compile(r"[^.\[]+")


@dataclass(frozen=True, slots=True)
class Argument:
    """One top-level argument of a call, with its value as JSON text."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Differing:
    """One path that differs between two calls; a text is empty if the side has no value."""

    path: str
    expected: str
    actual: str
    distance: str
    """The difference of two numbers, such as `+90`."""


@dataclass(frozen=True, slots=True)
class DiffLine:
    kind: StepKind
    sign: str
    word: str
    name: str
    expected: Call | None
    actual: Call | None
    expected_place: int | None
    actual_place: int | None
    arguments: tuple[Argument, ...]
    """The arguments that are equal on both sides, or all arguments of a call that is on one side only."""
    differing: tuple[Differing, ...]
    sentence: str
    """The text of the row for screen readers."""
    folds: int = 0
    """The number of equal rows that are folded from this one on."""
    fold_ends: bool = False
    """Whether this is the last folded row."""

    @property
    def differs(self) -> bool:
        """Whether the row is a difference, and thus a target for navigation."""
        return self.kind in ("changed", "moved", "missing", "extra")


def lines_of(steps: Sequence[Step]) -> tuple[DiffLine, ...]:
    """Return the rows for the steps of a turn; many equal ones in a row are folded."""
    lines: list[DiffLine] = []
    for kind, run in groupby(map(_line, steps), key=lambda line: line.kind):
        rows = [*run]
        if kind == "same" and len(rows) >= FOLDED:
            rows[0] = replace(rows[0], folds=len(rows))
            rows[-1] = replace(rows[-1], fold_ends=True)
        lines += rows
    return tuple(lines)


def _sign(step: Step) -> tuple[str, str]:
    """Return the sign and the word of a step."""
    call = step.actual or step.expected
    if step.kind == "made" and call is not None and call.error:
        return "!", "failed"
    return SIGNS[step.kind], WORDS[step.kind]


def _line(step: Step) -> DiffLine:
    call = step.actual or step.expected
    name = call.name if call else ""
    differing = tuple(
        Differing(one.path, one.expected or "", one.actual or "", _distance(one))
        for one in step.differences
    )
    touched = {found[0] for one in step.differences if (found := _FIRST_KEY.match(one.path))}
    whole = any(not one.path for one in step.differences)
    arguments = () if call is None or whole else _arguments(call.arguments)
    return DiffLine(
        step.kind,
        *_sign(step),
        name,
        step.expected,
        step.actual,
        step.expected_place,
        step.actual_place,
        tuple(one for one in arguments if one.name not in touched),
        differing,
        _sentence(step, name, differing),
    )


def _arguments(text: str) -> tuple[Argument, ...]:
    """Return the arguments of a call; a single nameless one if they are not an object, or were truncated."""
    if not text:
        return ()
    try:
        found = orjson.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        return (Argument("", text),)
    texts = {name: orjson.dumps(it, option=orjson.OPT_SORT_KEYS) for name, it in found.items()}
    return tuple(Argument(name, text.decode()) for name, text in texts.items())


def _distance(one: ArgumentDifference) -> str:
    try:
        values = orjson.loads(one.expected or ""), orjson.loads(one.actual or "")
    except ValueError:
        return ""
    if not all(isinstance(value, int | float) and not isinstance(value, bool) for value in values):
        return ""
    return f"{values[1] - values[0]:+g}"


def _sentence(step: Step, name: str, differing: Sequence[Differing]) -> str:
    expected = f"expected call {step.expected_place}, {name}"
    made = f"actual call {step.actual_place}"
    if step.kind == "missing":
        return f"{expected}, was not called"
    if step.kind in ("extra", "made", "left_out"):
        return f"{made}, {name}: {WORDS[step.kind]}"
    details = "; ".join(
        f"{one.path or 'value'}: expected {one.expected or 'nothing'}, found {one.actual or 'nothing'}"
        for one in differing
    )
    return f"{expected}, is {made}" + (f"; {details}" if details else "")
