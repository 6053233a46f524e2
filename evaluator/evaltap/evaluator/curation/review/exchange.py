"""Export and import of review decisions."""

from pathlib import Path

from evaltap.evaluator.curation.review.queue import DECIDED, decide, edited, item, items
from evaltap.evaluator.store.queries import StoreReader, StoreWriter
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import iter_case_lines


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
