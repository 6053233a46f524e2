"""Detect patterns in tool calls without a reference: loops, repetitions, recoveries."""

from collections.abc import Sequence
from typing import NamedTuple

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.scoring.criteria.calls.attempts import failed
from evaltap.evaluator.scoring.criteria.calls.pairs import CallSimilarity


class Loop(NamedTuple):
    """A sequence of `period` calls that occurs `repeats` times in a row, beginning at `start`."""

    start: int
    period: int
    repeats: int


def identities(calls: Sequence[AnyCall], similarity: CallSimilarity) -> list[int]:
    """Number the calls so that equal calls (same tool, similar arguments) have the same number."""
    numbers: list[int] = []
    by_name: dict[object, list[tuple[int, AnyCall]]] = {}
    for place, call in enumerate(calls):
        seen = by_name.setdefault(call.get("name"), [])
        number = next(
            (first for first, other in seen if similarity.weight(other, call) == 1), place
        )
        if number == place:
            seen.append((place, call))
        numbers.append(number)
    return numbers


def find_loop(numbers: Sequence[int], repeats: int, max_period: int) -> Loop | None:
    """Return the shortest sequence repeated at least `repeats` times in a row; None if there is none."""
    for period in range(1, max_period + 1):
        run = 0  # number of consecutive calls that equal the call one period before
        for place in range(period, len(numbers)):
            run = run + 1 if numbers[place] == numbers[place - period] else 0
            if run >= period * (repeats - 1):
                start = place + 1 - period * repeats
                return Loop(start, period, _repeats(numbers, start, period))
    return None


def _repeats(numbers: Sequence[int], start: int, period: int) -> int:
    place = start + period
    while place < len(numbers) and numbers[place] == numbers[place - period]:
        place += 1
    return (place - start) // period


def recoveries(
    calls: Sequence[AnyCall], similarity: CallSimilarity, *, unchanged: bool
) -> list[tuple[int, int]]:
    """Return each failed call with the later call that recovered from it, or -1.

    A recovery is a successful call to the same tool with other arguments; with `unchanged` the same arguments
    also count.
    """
    found = []
    for place, call in enumerate(calls):
        if failed(call):
            later = (
                at
                for at in range(place + 1, len(calls))
                if _makes_up(calls[at], call, similarity, unchanged=unchanged)
            )
            found.append((place, next(later, -1)))
    return found


def _makes_up(
    call: AnyCall, broken: AnyCall, similarity: CallSimilarity, *, unchanged: bool
) -> bool:
    if failed(call) or not call.get("name") or call.get("name") != broken.get("name"):
        return False
    return unchanged or similarity.weight(broken, call) < 1
