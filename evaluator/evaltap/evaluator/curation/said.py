"""Landed turns as near-duplicates are looked for among them."""

from collections.abc import Sequence
from typing import Any, Final

from evaltap.evaluator.curation.grouping import Block, Said
from evaltap.evaluator.curation.picks import TurnKey, scope_of
from evaltap.evaluator.curation.recipe import Recipe
from evaltap.evaluator.filters.turns import turns_with
from evaltap.evaluator.store.database import sql
from evaltap.evaluator.store.queries import StoreReader

MOST_COMPARED: Final = 200_000
"""Turns of the traffic that are counted to near-duplicates; of more, a draw of so many."""

_SCOPE: Final = """($since::TIMESTAMP IS NULL OR started_at >= $since)
  AND ($until::TIMESTAMP IS NULL OR started_at < $until) AND ($app::VARCHAR = '' OR app = $app)"""


def all_said(store: StoreReader, recipe: Recipe) -> list[Said]:
    """Return every turn of a recipe's window."""
    return _said(store, f"WHERE {_within(recipe)}", recipe.where, scope_of(recipe))


def said_by(store: StoreReader, keys: Sequence[TurnKey]) -> dict[TurnKey, Said]:
    """Return these turns."""
    store.execute(
        "CREATE OR REPLACE TEMP TABLE curation_offered"
        " (app VARCHAR, eval_set_id VARCHAR, eval_id VARCHAR, invocation_id VARCHAR)"
    )
    store.append("curation_offered", keys)
    narrowed = "SEMI JOIN curation_offered USING (app, eval_set_id, eval_id, invocation_id)"
    return {one.key: one for one in _said(store, narrowed, "", {})}


def said_in(store: StoreReader, recipe: Recipe, blocks: Sequence[Block]) -> list[Said]:
    """Return the turns of a recipe's window in some blocks, each with the traffic that it stands for."""
    store.execute(
        "CREATE OR REPLACE TEMP TABLE curation_blocks"
        " (app VARCHAR, tool_path VARCHAR, outcome VARCHAR)"
    )
    store.append("curation_blocks", sorted(blocks))
    narrowed = f"SEMI JOIN curation_blocks USING (app, tool_path, outcome) WHERE {_within(recipe)}"
    parameters = scope_of(recipe)
    turns = turns_with(recipe.where, "tool_path outcome")
    ((count,),) = store.rows(f"SELECT count(*) FROM ({turns}) {narrowed}", parameters)
    thinned = 1.0
    if count > MOST_COMPARED:
        thinned = count / MOST_COMPARED
        narrowed += f""" AND ('0x' || left(sha256(eval_id || invocation_id), 13))::BIGINT
          < {int(4503599627370496 / thinned)}"""
    found = _said(store, narrowed, recipe.where, parameters)
    return found if thinned == 1 else [one._replace(weight=one.weight * thinned) for one in found]


def _within(recipe: Recipe) -> str:
    return f"{_SCOPE} AND (\n{recipe.where}\n)" if recipe.where else _SCOPE


def _said(store: StoreReader, narrowed: str, where: str, parameters: dict[str, Any]) -> list[Said]:
    query = sql(__name__, "said").format(
        turns=turns_with(where, "tool_path outcome"), narrowed=narrowed
    )
    return [
        Said(TurnKey(app, name, eval_id, turn), Block(app, path, outcome), text, weight)
        for app, name, eval_id, turn, path, outcome, text, weight in store.rows(query, parameters)
    ]
