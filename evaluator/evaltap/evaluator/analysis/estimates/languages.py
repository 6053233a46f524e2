"""Detect the languages of users' messages, and write them to a temporary table for estimates."""

from typing import Final

from evaltap.evaluator.analysis.estimates.scope import Scope
from evaltap.evaluator.cases.language import language_of
from evaltap.evaluator.store.queries import StoreReader

JOIN: Final = "LEFT JOIN estimate_languages g ON g.text = hash(t.user_text)"
_LONGEST: Final = 1_000
"""The number of characters of a text that are analysed."""
_NEW: Final = """
SELECT hash(user_text), any_value(left(user_text, {longest})) FROM {turns} t
WHERE user_text IS NOT NULL
  AND ($since::TIMESTAMP IS NULL OR t.started_at >= $since)
  AND ($until::TIMESTAMP IS NULL OR t.started_at < $until)
  AND hash(user_text) NOT IN (SELECT text FROM estimate_languages)
GROUP BY 1
"""


def write_languages(store: StoreReader, scope: Scope) -> None:
    """Add the texts of a scope to the temporary table `estimate_languages`; each text is analysed once."""
    store.execute(
        "CREATE TEMP TABLE IF NOT EXISTS estimate_languages (text UBIGINT, language VARCHAR)"
    )
    turns = "latest_turns" if scope.run_id is None else "turns"
    found = store.rows(_NEW.format(turns=turns, longest=_LONGEST), scope.window)
    store.append("estimate_languages", [(text, language_of(said)) for text, said in found])
