"""What became of each turn of a replay: faithful, forked, off script, or invalid."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.queries import StoreReader
from evaltap.experiments.units import NAMED, UnitRow, named

Fate: TypeAlias = Literal["faithful", "forked", "off_script", "invalid"]
"""faithful: the recording answered every call, here and in the turns before, which made the recorded calls;
forked: a call without a recorded result; off_script: after a fork, or after a turn with fewer calls, so that
the next user message is an answer to something else; invalid: evaltap's fault, such as a result that was not
recorded."""
_LOST: Final = ("result of ", "arguments of ")


@dataclass(frozen=True, slots=True)
class Fork:
    """The call at which a session left its recording."""

    tool: str
    arguments: Any  # JSON
    why: str


@dataclass(frozen=True, slots=True)
class TurnFate:
    """A turn of one run of a session."""

    fate: Fate
    fork: Fork | None = None
    """The call, in the turn that forked, or whose result was not recorded."""


def fates(row: UnitRow | None, turns: int) -> Iterator[TurnFate]:
    """Yield what became of each recorded turn in a run; without a row it was not run."""
    answers = (row and row.answers) or {"turns": []}
    asked: Sequence[Mapping[str, Any]] = answers["turns"]
    if row is None or (row.state == "invalid" and not row.missed):
        yield from [TurnFate("invalid")] * turns
        return
    left = False
    for place in range(turns):
        if left or place >= len(asked):
            yield TurnFate("off_script")
            continue
        turn = asked[place]
        fork = _fork(turn)
        left = fork is not None or bool(turn["unused"])
        if fork is None:
            yield TurnFate("faithful")
        else:
            yield TurnFate("invalid" if fork.why.startswith(_LOST) else "forked", fork)


def _fork(turn: Mapping[str, Any]) -> Fork | None:
    if turn["misses"]:
        first = turn["misses"][0]
        return Fork(first["tool"], first["arguments"], first["why"])
    for names, why in ((turn["real"], "ran for real"), (turn["invented"], "was invented")):
        if names:
            return Fork(names[0], None, why)
    return None


def verdicts(
    store: StoreReader, keys: Sequence[CaseKey], digests: Mapping[str, str]
) -> dict[CaseKey, dict[int, dict[str, bool]]]:
    """Return whether each turn passed each metric, by case, number of the turn from 0, and metric."""
    found: dict[CaseKey, dict[int, dict[str, bool]]] = {key: {} for key in keys}
    given = named(keys) | {"digests": list(digests.values())}
    for app, eval_set, eval_id, place, metric, status in store.rows(_VERDICTS, given):
        if status in ("passed", "failed", "crashed"):
            turn = found[app, eval_set, eval_id].setdefault(place, {})
            turn[metric] = status == "passed"
    return found


_VERDICTS: Final = f"""
SELECT app_name, eval_set_id, eval_id, turn_index, metric_name, status FROM latest_turn_scores
WHERE metric_digest IN $digests::VARCHAR[] AND {NAMED}
"""
