"""Landed turns in the form in which near-duplicates are searched."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.analysis.filters.conditions import turns_with
from evaltap.evaluator.curation.grouping import Block, ComparedTurn
from evaltap.evaluator.curation.picks import TurnKey, scope_of
from evaltap.evaluator.curation.recipe import Recipe
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import Row, Scratch, StoreReader

MOST_COMPARED: Final = 20_000
"""The number of turns that are compared with chosen ones; large blocks are sampled."""
LEAST_COMPARED: Final = 500
"""The minimum number of compared turns per block, however many blocks there are."""


@dataclass(frozen=True, slots=True)
class WindowTurns:
    """The turns of a recipe's window, with blocks that are computed once."""

    store: StoreReader
    turns: Scratch

    def all(self) -> list[ComparedTurn]:
        """Return all turns."""
        return self._compared_turns(f"SELECT *, weight AS stands_for FROM {self.turns}")

    def of(self, keys: Sequence[TurnKey]) -> dict[TurnKey, ComparedTurn]:
        """Return the turns with these keys."""
        columns = "app, eval_set_id, eval_id, invocation_id"
        with self._some(columns, keys) as offered:
            found = self._compared_turns(
                f"SELECT *, weight AS stands_for FROM {self.turns} SEMI JOIN {offered} USING ({columns})"
            )
        return {one.key: one for one in found}

    def in_blocks(self, blocks: Sequence[Block]) -> list[ComparedTurn]:
        """Return the turns of some blocks, each with the number of turns that it represents.

        Blocks with many turns are sampled, reproducibly.
        """
        most = max(LEAST_COMPARED, MOST_COMPARED // max(len(blocks), 1))
        with self._some("app, tool_path, outcome", sorted(blocks)) as some:
            drawn = sql(__name__, "drawn_turns").format(turns=self.turns, blocks=some)
            return self._compared_turns(drawn, {"most": most})

    def _some(self, columns: str, rows: Sequence[Row]) -> AbstractContextManager[Scratch]:
        return self.store.scratch(f"SELECT {columns} FROM {self.turns} LIMIT 0", rows=rows)

    def _compared_turns(
        self, chosen: str, parameters: dict[str, object] | None = None
    ) -> list[ComparedTurn]:
        rows = self.store.rows(sql(__name__, "compared_turns").format(chosen=chosen), parameters)
        return [
            ComparedTurn(TurnKey(app, name, eval_id, turn), Block(app, path, outcome), text, weight)
            for app, name, eval_id, turn, path, outcome, text, weight in rows
        ]


@contextmanager
def window_turns(store: StoreReader, recipe: Recipe) -> Iterator[WindowTurns]:
    """Yield the turns of a recipe's window."""
    turns = turns_with(recipe.where, "tool_path outcome")
    source = f"AND (\n{recipe.where}\n)" if recipe.where else ""
    query = sql(__name__, "window_turns").format(turns=turns, source=source)
    with store.scratch(query, scope_of(recipe)) as found:
        yield WindowTurns(store, found)
