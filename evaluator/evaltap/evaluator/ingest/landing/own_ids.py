"""Unique eval ids for the cases of a file, if the store holds a case in several versions."""

from collections.abc import Iterable, Iterator, Set
from typing import Final

from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.case import CaseData

_REPEATED: Final = """
SELECT DISTINCT eval_id FROM (
  FROM latest_cases SELECT eval_id
  GROUP BY eval_id, app_name, case_json->>'$.evalSetId', {run} HAVING count(*) > 1)
"""


def repeated_ids(store: StoreReader, *, runs_apart: bool) -> frozenset[str]:
    """Return the eval ids that several cases of the store share.

    With `runs_apart`, repeats (`source.run`) do not count, since evaltap's own files distinguish them.
    """
    run = "case_json->>'$.source.run'" if runs_apart else "''"
    return frozenset(eval_id for (eval_id,) in store.rows(_REPEATED.format(run=run)))


def with_own_ids(cases: Iterable[CaseData], repeated: Set[str]) -> Iterator[CaseData]:
    """Yield the cases; append the version or run to repeated ids: `s-1@v2`."""
    taken = set(repeated)
    for case in cases:
        if case["evalId"] in repeated:
            source = case.get("source") or {}
            app = (case.get("sessionInput") or {}).get("appName")
            marked = f"{case['evalId']}@{source.get('run') or source.get('version') or app or 1}"
            name, number = marked, 1
            while name in taken:
                number += 1
                name = f"{marked}.{number}"
            taken.add(name)
            case = {**case, "evalId": name}
        yield case
