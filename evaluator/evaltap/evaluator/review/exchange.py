"""Decisions as rows of files: to work with them elsewhere, and to take what was decided there."""

from pathlib import Path

from evaltap.evaluator.review.queue import DECIDED, decide, edited, item, items
from evaltap.evaluator.store.queries import StoreReader, StoreWriter
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import iter_case_lines


def exported(store: StoreReader, queue: str) -> list[dict[str, object]]:
    """Return the turns of a queue with what was decided."""
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
    """Write the decisions of a file of JSON Lines, all or none; return how many.

    A line holds `item_id`, `action`, perhaps `answer`, `tools`, `comment`, and `reviewer` for another one.
    Raises FormatError for a line that is no decision.
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
