"""Plant changes in a slice of simulated traffic, and check whether that slice is named first."""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.monitoring.changed import Spans, changed_slices, explaining
from evaltap.evaluator.store.database import Store

DAILY: Final = 100
BEGAN, CHANGED = datetime(2026, 11, 1), datetime(2026, 11, 15)
_NO_TURN: Final = """
SELECT '' AS by_0, 0::BIGINT AS session, '' AS invocation_id, now()::TIMESTAMP AS started_at,
       1.0::DOUBLE AS probability, true AS has, true AS counts LIMIT 0
"""


class Turn(NamedTuple):
    """A turn, which is a session of its own."""

    path: str
    app: str
    model: str
    version: str

    @property
    def values(self) -> Mapping[str, Sequence[str]]:
        """What it has of each slice."""
        tools = ["login", *self.path.split(" > ")]
        return {
            "tool": tools, "tool_path": [" > ".join(tools)], "app": [self.app], "model": [self.model],
            "version": [self.version],
        }  # fmt: skip


PLANTED: Final[Mapping[str, Callable[[Turn], bool]]] = {
    "tool refund": lambda turn: "refund" in turn.path,
    "app desk": lambda turn: turn.app == "desk",
    "model m-2": lambda turn: turn.model == "m-2",
    "version 2": lambda turn: turn.version == "2",
}
"""What breaks, by the name under which it is to be found."""


def named_first(source: random.Random, planted: str, *, rate: float = 0.5, days: int = 4) -> str:
    """Return the slice that is named first when turns that fail 5 times in 100 begin to fail more often.

    The baseline has 14 days, the alarm comes after so many.
    """
    broken = PLANTED[planted]
    sides = {
        BEGAN: [(turn, source.random() < 0.05) for turn in _turns(source, 14, "1")],
        CHANGED: [
            (turn, source.random() < (rate if broken(turn) else 0.05))
            for turn in _turns(source, days, "2")
        ],
    }
    candidates = []
    with Store(":memory:") as store:
        for by in sides[BEGAN][0][0].values:
            rows = [
                (value, number, "t-1", at, 1.0, not bad, True)
                for at, side in sides.items()
                for number, (turn, bad) in enumerate(side)
                for value in turn.values[by]
            ]
            with store.scratch(_NO_TURN, rows=rows) as table:
                turns = Turns(store, table, (by,))
                candidates += changed_slices(turns, Spans(CHANGED, CHANGED), good=True)
    found = explaining(candidates)
    return f"{found[0].by} {found[0].value}" if found and found[0].kind == "rate" else "nothing"


def _turns(source: random.Random, days: int, newest: str) -> list[Turn]:
    """Return turns; a fifth of the newest ones has a version that was there before in a tenth."""
    share = 0.2 if newest == "2" else 0.1
    return [
        Turn(
            source.choice(("search", "search", "order", "order > refund", "refund")),
            source.choice(("shop", "desk", "app")),
            source.choice(("m-1", "m-2")),
            "2" if source.random() < share else "1",
        )
        for _ in range(days * DAILY)
    ]
