"""Hashes of an agent's behaviour in a trial: input, expectation and answers, independent of their storage."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import Case, Turn

TrialTurns: TypeAlias = Mapping[CaseKey, Mapping[str, Sequence[Case]]]
"""The recorded turns of cases, by trial."""


class RecordedTurn(NamedTuple):
    """The parts of a turn that comparisons read for all turns."""

    user_text: str | None
    answer: str | None
    expected: Case | None
    cost_usd: float | None
    latency_ms: float | None


@dataclass(frozen=True, slots=True)
class Recording:
    """The agent's behaviour in one trial of a case."""

    trial: str
    content: str
    """Hash of input and expectation; empty if unknown."""
    answers: str
    """Hash of the answers; empty if unknown."""
    cost_usd: float | None
    """The total of all turns; None if it is unknown for a turn."""
    latency_ms: float | None
    """The sum over turns; None if it is unknown for a turn."""


def recording_of(trial: str, turns: Sequence[RecordedTurn]) -> Recording:
    """Return the recording of a session; ids, times and telemetry are not part of its content hash."""
    content = [
        (turn.user_text, None if turn.expected is None else _expected(turn.expected))
        for turn in turns
    ]
    return Recording(
        trial,
        _named(content),
        _named([turn.answer for turn in turns]),
        _total([turn.cost_usd for turn in turns]),
        _total([turn.latency_ms for turn in turns]),
    )


def contents_of(recordings: Mapping[CaseKey, Sequence[Recording]]) -> dict[CaseKey, str]:
    """Return the content hash of each case whose recordings agree on it."""
    found = {key: {one.content for one in many} for key, many in recordings.items()}
    agreed = {key: contents.pop() for key, contents in found.items() if len(contents) == 1}
    return {key: content for key, content in agreed.items() if content}


def _expected(turn: Case) -> object:
    calls = [
        (call.get("name"), call.get("arguments"), call.get("result"))
        for call in turn.get("tools") or ()
        if call
    ]
    references = [_expected(one) for one in turn.get("references") or ()]
    return Turn(turn).final_text, calls, references


def _named(value: object) -> str:
    text = json.dumps(value, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None
