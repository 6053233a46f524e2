"""Store the references with which landed cases were compared.

Scores refer to them by digest, so readers of a score see what was expected without the file of
`--references`.  Users' messages are only needed to join references with cases, so only their hashes are
stored.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.references import References, said_in
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData

_DIGESTS: Final = """
SELECT s.app_name, s.eval_set_id, s.eval_id, arg_max(m.references_digest, s.scored_at)
FROM {scores} s JOIN run_metrics m USING (run_id, metric_digest)
WHERE m.references_digest IS NOT NULL AND s.eval_id IN $ids
GROUP BY ALL
"""
_KEPT: Final = """
SELECT join_by, eval_id, said, turns_json FROM reference_cases
WHERE references_digest = $digest AND (eval_id IN $ids OR said[1] IN $said)
"""


def keep_references(store: Store, references: References) -> None:
    """Write the references, unless they are already stored."""
    digest = references.digest
    if store.rows("SELECT 1 FROM reference_cases WHERE references_digest = ? LIMIT 1", [digest]):
        return
    now = store.now()
    with store.transaction():
        store.append(
            "reference_cases",
            [
                (
                    digest,
                    references.join,
                    eval_id,
                    references.said[eval_id],
                    _without_words(turns),
                    now,
                )
                for eval_id, turns in references.turns.items()
            ],
        )


def _without_words(turns: Sequence[CaseData]) -> str:
    kept = [{name: turn[name] for name in turn if name != "userContent"} for turn in turns]
    return orjson.dumps(kept).decode()


def attach_kept(
    store: StoreReader, cases: Mapping[CaseKey, CaseData], *, scores: str = "latest_scores"
) -> None:
    """Add the references of the latest scores to cases without expected turns; `scores` names the table."""
    without = {key: case for key, case in cases.items() if not case.get("conversation")}
    ids = [eval_id for _, _, eval_id in without]
    by_digest: dict[str, list[CaseKey]] = {}
    for *key, digest in store.rows(_DIGESTS.format(scores=scores), {"ids": ids}) if ids else ():
        by_digest.setdefault(digest, []).append((key[0], key[1], key[2]))
    for digest, keys in by_digest.items():
        found = [without[key] for key in keys if key in without]
        references = _kept(store, digest, found)
        for case in found:
            references.attach(case)


def _kept(store: StoreReader, digest: str, cases: Collection[CaseData]) -> References:
    """Return the references that may belong to one of the cases."""
    said = [said_in(case.get("actualConversation") or []) for case in cases]
    rows = store.rows(
        _KEPT,
        {
            "digest": digest,
            "ids": [case["evalId"] for case in cases],
            "said": [words[0] for words in said if words and words[0]],
        },
    )
    if not rows:
        return References({})
    return References(
        {eval_id: orjson.loads(text) for _, eval_id, _, text in rows},
        rows[0][0],
        {eval_id: tuple(words) for _, eval_id, words, _ in rows},
    )
