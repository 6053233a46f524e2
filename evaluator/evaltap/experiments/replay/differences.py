"""How the new agent's calls and answers differ from the recorded ones, for sessions that changed."""

import difflib
from collections.abc import Iterable, Iterator, Mapping

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.sessions import read_sessions
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.case import CaseData

_LONGEST = 500


def conversations(store: StoreReader, keys: Iterable[CaseKey]) -> dict[CaseKey, list[CaseData]]:
    """Return the recorded turns of some cases."""
    found = read_sessions(store, [TurnKey(*key, "") for key in keys])
    return {key: [turn.actual for turn in one.turns] for key, one in found.items()}


def difference_of(old: list[CaseData], new: list[CaseData]) -> list[str]:
    """Return the lines of a diff: calls and answers of turns that are not alike, cost and latency.

    Cost and latency are those of the turns that both have.  The tools of the new ones took no time.
    """
    lines: list[str] = []
    for number, turn in enumerate(new):
        before = [*_lines(old[number])] if number < len(old) else []
        after = [*_lines(turn)]
        if before != after:
            lines += [f"  user: {_said(turn.get('userContent'))}"]
            lines += [one for one in difflib.ndiff(before, after) if not one.startswith("?")]
    return [*lines, *_figures(old[: len(new)], new)] if lines else []


def _figures(old: list[CaseData], new: list[CaseData]) -> Iterator[str]:
    for name, key, form in (("cost", "costUsd", "${:.4f}"), ("latency", "latencyMs", "{:,.0f} ms")):
        sums = [_sum(turns, key) for turns in (old, new)]
        if None not in sums:
            yield f"  {name}: {' -> '.join(map(form.format, sums))}"


def _sum(turns: list[CaseData], key: str) -> float | None:
    values = [(turn.get("telemetry") or {}).get(key) for turn in turns]
    known = [one for one in values if isinstance(one, int | float)]
    return float(sum(known)) if len(known) == len(values) else None


def _lines(turn: CaseData) -> Iterator[str]:
    for tool in turn.get("tools") or ():
        if tool:
            arguments = orjson.dumps(tool.get("arguments") or {}, option=orjson.OPT_SORT_KEYS)
            yield _cut(f"{tool.get('name')}({arguments.decode()})")
    yield f"answer: {_said(turn.get('finalResponse'))}"


def _said(message: Mapping[str, object] | None) -> str:
    content = (message or {}).get("content")
    return _cut(" ".join(str(content or "-").split()))


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
