"""Select the cases that an alarm names: the worst ones, and similar cases only if no others remain."""

from collections.abc import Sequence
from typing import Final

from evaltap.evaluator.analysis.estimates.turns import Turns
from evaltap.evaluator.monitoring.turns import EXAMPLES

_MOST_READ: Final = 2_000
"""The number of bad turns that are read, the worst first."""


def example_cases(turns: Turns, *, good: bool) -> tuple[str, ...]:
    """Return eval ids of bad turns; `good`: turns with the signal are not bad.

    Near-duplicates have the same tools and similar words, as in `evaltap duplicates`.
    """
    bad = turns.rows(_BAD, {"good": good, "most": _MOST_READ})
    return tuple(dict.fromkeys([*_unlike(bad), *(case for case, _, _ in bad)]))[:EXAMPLES]


def _unlike(turns: Sequence[tuple[str, str, str]]) -> Sequence[str]:
    from evaltap.evaluator.curation.near import RADIUS
    from evaltap.evaluator.curation.texts import SimilarTexts, normal

    chosen: list[str] = []
    texts_of_path: dict[str, list[str]] = {}
    indexes: dict[str, SimilarTexts] = {}
    for case, path, text in turns:
        if len(chosen) == EXAMPLES:
            break
        words, index = normal(text), indexes.get(path)
        if case in chosen or (index is not None and (index.to_text(words) >= RADIUS).any()):
            continue
        chosen.append(case)
        texts = texts_of_path.setdefault(path, [])
        texts.append(words)
        indexes[path] = SimilarTexts(texts)
    return chosen


_BAD: Final = """
SELECT e.eval_id, coalesce(k.path, ''), coalesce(t.user_text, '')
FROM {turns} e
JOIN latest_turns t ON t.app_name = e.app AND t.eval_set_id = e.eval_set_id AND t.eval_id = e.eval_id
 AND t.invocation_id = e.invocation_id
LEFT JOIN (
  SELECT app_name, eval_set_id, eval_id, invocation_id,
         string_agg(tool_name, ' > ' ORDER BY call_index) AS path
  FROM latest_tool_calls SEMI JOIN {turns} USING (eval_set_id, eval_id, invocation_id)
  GROUP BY ALL
) k ON (k.app_name, k.eval_set_id, k.eval_id, k.invocation_id)
     = (t.app_name, t.eval_set_id, t.eval_id, t.invocation_id)
WHERE e.counts AND coalesce(e.has, false) <> $good AND e.started_at IS NOT NULL
ORDER BY e.score NULLS FIRST, e.started_at, e.eval_id, e.invocation_id
LIMIT $most
"""
