"""Landed turns in the form in which near-duplicates are searched."""

from collections.abc import Sequence
from typing import Final

from evaltap.evaluator.analysis.filters.turns import turns_with
from evaltap.evaluator.curation.grouping import Block, ComparedTurn
from evaltap.evaluator.curation.picks import TurnKey, scope_of
from evaltap.evaluator.curation.recipe import Recipe
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader

MOST_COMPARED: Final = 20_000
"""The number of turns that are compared with chosen ones; large blocks are sampled."""
LEAST_COMPARED: Final = 500
"""The minimum number of compared turns per block, however many blocks there are."""


class WindowTurns:
    """The turns of a recipe's window; their blocks are computed once and stored in a temporary table."""

    def __init__(self, store: StoreReader, recipe: Recipe) -> None:
        self._store = store
        turns = turns_with(recipe.where, "tool_path outcome")
        source = f"AND (\n{recipe.where}\n)" if recipe.where else ""
        store.execute(
            sql(__name__, "window_turns").format(turns=turns, source=source), scope_of(recipe)
        )

    def all(self) -> list[ComparedTurn]:
        """Return all turns."""
        return self._compared_turns("SELECT *, weight AS stands_for FROM window_turns")

    def of(self, keys: Sequence[TurnKey]) -> dict[TurnKey, ComparedTurn]:
        """Return the turns with these keys."""
        self._store.execute(
            "CREATE OR REPLACE TEMP TABLE offered_turns"
            " (app VARCHAR, eval_set_id VARCHAR, eval_id VARCHAR, invocation_id VARCHAR)"
        )
        self._store.append("offered_turns", keys)
        found = self._compared_turns(
            "SELECT *, weight AS stands_for FROM window_turns"
            " SEMI JOIN offered_turns USING (app, eval_set_id, eval_id, invocation_id)"
        )
        return {one.key: one for one in found}

    def in_blocks(self, blocks: Sequence[Block]) -> list[ComparedTurn]:
        """Return the turns of some blocks, each with the number of turns that it represents.

        Blocks with many turns are sampled, reproducibly.
        """
        self._store.execute(
            "CREATE OR REPLACE TEMP TABLE window_blocks"
            " (app VARCHAR, tool_path VARCHAR, outcome VARCHAR)"
        )
        self._store.append("window_blocks", sorted(blocks))
        most = max(LEAST_COMPARED, MOST_COMPARED // max(len(blocks), 1))
        return self._compared_turns(sql(__name__, "drawn_turns"), {"most": most})

    def _compared_turns(
        self, chosen: str, parameters: dict[str, object] | None = None
    ) -> list[ComparedTurn]:
        rows = self._store.rows(sql(__name__, "compared_turns").format(chosen=chosen), parameters)
        return [
            ComparedTurn(TurnKey(app, name, eval_id, turn), Block(app, path, outcome), text, weight)
            for app, name, eval_id, turn, path, outcome, text, weight in rows
        ]
