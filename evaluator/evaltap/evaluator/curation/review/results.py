"""Results of reviews: decisions by turn for eval sets, labels for judges, agreement of reviewers."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import orjson

from evaltap.evaluator.analysis.stats.agreement import Agreement, agreement
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.curation.review.queue import DECIDED, decide, edited, item, items
from evaltap.evaluator.store.queries import StoreReader, StoreWriter
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import iter_case_lines
from evaltap.schemas.formats.case import CaseData
from evaltap.schemas.formats.model import Json
from evaltap.schemas.text import utc_text


@dataclass(frozen=True, slots=True)
class Decisions:
    """The current decisions on landed turns, by session and turn."""

    approved: Mapping[CaseKey, set[str]] = field(default_factory=dict)
    rejected: Mapping[CaseKey, set[str]] = field(default_factory=dict)
    corrected: Mapping[CaseKey, Mapping[str, CaseData]] = field(default_factory=dict)
    """The edited turns."""
    by: Mapping[CaseKey, Mapping[str, Mapping[str, Json]]] = field(default_factory=dict)
    """State, reviewers and time, for provenance; in the order of the decisions."""


NOTHING_DECIDED: Final = Decisions()


def decisions(store: StoreReader) -> Decisions:
    """Return the reviewers' decisions."""
    approved: dict[CaseKey, set[str]] = defaultdict(set)
    rejected: dict[CaseKey, set[str]] = defaultdict(set)
    corrected: dict[CaseKey, dict[str, CaseData]] = defaultdict(dict)
    by: dict[CaseKey, dict[str, dict[str, Json]]] = defaultdict(dict)
    rows = store.rows(
        "SELECT app_name, eval_set_id, eval_id, invocation_id, verdict, state, after, reviewers,"
        " reviewed_at FROM v_review_items WHERE verdict IS NOT NULL ORDER BY reviewed_at, item_id"
    )
    for app, name, eval_id, turn, verdict, state, after, reviewers, at in rows:
        key = (app, name, eval_id)
        (approved if verdict == "good" else rejected)[key].add(turn)
        if after and verdict == "good":
            corrected[key][turn] = orjson.loads(after)
        stamp = utc_text(at, "seconds")
        by[key].pop(turn, None)  # the newest decision comes last
        by[key][turn] = {"state": state, "by": list(reviewers), "at": stamp}
    return Decisions(approved, rejected, corrected, by)


def agreement_of(store: StoreReader) -> tuple[Agreement, dict[str, Any]]:
    """Return the agreement of all reviewers, and by name that of the two with the most common items."""
    by_item: dict[str, dict[str, str]] = defaultdict(dict)
    rows = store.rows(
        "SELECT item_id, reviewer, if(action = 'reject', 'bad', 'good') FROM v_review_decisions"
        " WHERE action <> 'skip' ORDER BY item_id, reviewer"
    )
    for item_id, reviewer, verdict in rows:
        by_item[item_id][reviewer] = verdict
    shared: dict[tuple[str, str], list[tuple[str, str]]] = defaultdict(list)
    for verdicts in by_item.values():
        for one, other in combinations(sorted(verdicts), 2):
            shared[one, other].append((verdicts[one], verdicts[other]))
    most = max(sorted(shared), key=lambda pair: len(shared[pair]), default=None)
    found = agreement(
        [list(verdicts.values()) for verdicts in by_item.values()], shared[most] if most else []
    )
    return found, {
        "items": found.items,
        "share": found.share,
        "reviewers": list(most or ()),
        "kappa": found.kappa and found.kappa.value,
        "kappa_interval": found.kappa and found.kappa.interval,
        "alpha": found.alpha and found.alpha.value,
        "alpha_interval": found.alpha and found.alpha.interval,
    }


def exported(store: StoreReader, queue: str) -> list[dict[str, object]]:
    """Return the turns of a queue with their decisions."""
    return [one.data() for one in items(store, queue)]


def exported_labels(store: StoreReader, queue: str) -> list[dict[str, object]]:
    """Return the verdicts of a queue as `evaltap calibrate` reads them."""
    return [
        {
            "evalId": one.eval_id,
            "invocationId": one.invocation_id,
            "evalSetId": one.eval_set_id,
            "label": "pass" if one.verdict == "good" else "fail",
        }
        for one in items(store, queue)
        if one.verdict
    ]


def import_decisions(store: StoreWriter, file: Path, reviewer: str) -> int:
    """Store the decisions of a JSON Lines file in one transaction; return their number.

    A line has `item_id` and `action`, and optionally `answer`, `tools`, `comment` and `reviewer`.
    Raises FormatError for a line that is not a decision.
    """
    decided = []
    for number, line in iter_case_lines(file):
        place = f"line {number}"
        row = canonical.loads(line, path=str(file), place=place)
        action = row.get("action") if isinstance(row, dict) else None
        if action not in DECIDED:
            raise FormatError(
                f"action is {action!r}; expected item_id and action, one of {', '.join(DECIDED)}",
                path=str(file), place=place,
            )  # fmt: skip
        one = item(store, str(row.get("item_id")))
        after = None
        if action == "edit":
            after = edited(one, answer=row.get("answer"), tools=row.get("tools"))
        decided.append((one, row.get("reviewer") or reviewer, action, after, row.get("comment")))
    with store.transaction():
        for one, who, action, after, comment in decided:
            decide(store, one, who, action, after=after, comment=comment or "")
    return len(decided)
