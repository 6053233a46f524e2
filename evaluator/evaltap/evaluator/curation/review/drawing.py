"""Draw turns for labelling: half fails and half passes of a judge, at random within each verdict.

`calibrate` and `estimate --labels` need labels that are a random sample within each verdict.  Drawing half of
them from the fails is the right design, because failures are rare and most informative.
"""

from typing import Final

from evaltap.evaluator.curation.review.queue import Wanted
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean_one_of

TWICE: Final = 5
"""Every n-th item is assigned to two people, to measure their agreement."""

_DRAWN: Final = """
SELECT app_name, eval_set_id, eval_id, invocation_id, status = 'passed' AS passes,
       count(*) OVER (PARTITION BY status = 'passed') AS of_verdict
FROM latest_turn_scores JOIN (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision FROM latest_turns
) USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
WHERE metric_name = $metric AND status IN ('passed', 'failed')
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id, invocation_id ORDER BY scored_at DESC
) = 1
ORDER BY sha256('evaltap labels' || chr(0) || $metric || chr(0) || eval_id || chr(0) || invocation_id)
"""


def draw_for_labels(store: StoreReader, metric: str, count: int) -> list[Wanted]:
    """Return turns for labelling; raise InputError if the metric has no verdicts.

    If one verdict has too few turns, more are drawn from the other.  A larger count contains the smaller
    draw.
    """
    drawn: dict[bool, list[tuple[str, str, str, str]]] = {True: [], False: []}
    for *key, passes, _ in store.rows(_DRAWN, {"metric": metric}):
        drawn[passes].append((key[0], key[1], key[2], key[3]))
    if not any(drawn.values()):
        known = store.column("SELECT DISTINCT metric_name FROM latest_turn_scores ORDER BY 1")
        hint = did_you_mean_one_of(metric, known) if known else "score some first"
        raise InputError(f"--draw {metric}: no turn has a verdict of this metric; {hint}")
    half = count // 2
    fails = min(len(drawn[False]), max(half, count - len(drawn[True])))
    shares = {False: fails, True: min(len(drawn[True]), count - fails)}
    wanted = []
    for passes, taken in shares.items():
        keys = drawn[passes]
        for place, turn in enumerate(keys[:taken]):
            needed = 2 if place % TWICE == 0 else 1
            # Reviewers must not see the verdict, so it is not the reason.
            wanted.append(Wanted(*turn, f"label:{metric}", 0.0, needed, taken / len(keys)))
    return wanted
