"""Parse a judge's answer about rubrics: JSON, or the older blocks of lines with yes or no.

An answer that does not grade exactly the requested rubrics raises JudgeInvalid; it is never a zero.
"""

import re
from collections.abc import Collection
from typing import Final

from evaltap.evaluator.scoring.contract.aggregation import mean
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.evaluator.scoring.evaluators.judged.answer_text import (
    AGAINST,
    answer_json,
    own_lines,
    strip_fence,
)
from evaltap.schemas.data import Json

_BLOCK_FIELD: Final = re.compile(r"^\s*(ID|Rubric|Evidence|Reason|Verdict)\s*:\s?(.*)$")
_VERDICTS: Final = {"yes": 1.0, "no": 0.0}


def read_rubric_answer(text: str, ids: Collection[str]) -> tuple[RubricVerdict, ...]:
    """Return one verdict for each rubric, in the judge's order.

    `ids` are the requested rubrics; an empty collection accepts any ids.  Raises JudgeInvalid.
    """
    if not strip_fence(text):
        raise JudgeInvalid("the judge answered with an empty text; expected rubric scores")
    try:
        verdicts = _read_rows(answer_json(text))
    except JudgeInvalid:
        # Blocks after an attempt at JSON are a quotation.
        verdicts = [] if "rubricScores" in text else _read_blocks(text)
        if not verdicts:
            raise
    _check_ids([verdict.id for verdict in verdicts], ids)
    return tuple(verdicts)


def mean_score(verdicts: Collection[RubricVerdict]) -> float:
    """Return the mean of the verdicts' scores; there must be at least one."""
    return mean([verdict.score for verdict in verdicts])


def _read_rows(document: Json) -> list[RubricVerdict]:
    rows = document.get("rubricScores") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise JudgeInvalid("rubricScores is missing or empty; expected one row for each rubric")
    return [_read_row(row, place) for place, row in enumerate(rows)]


def _read_row(row: Json, place: int) -> RubricVerdict:
    where = f"rubricScores[{place}]"
    if not isinstance(row, dict):
        raise JudgeInvalid(f"{where}: found {row!r}, expected an object")
    identifier, score, reason = row.get("id"), row.get("score"), row.get("reason")
    if not isinstance(identifier, str) or not identifier.strip():
        raise JudgeInvalid(f"{where}: rubric id is required; found {identifier!r}")
    if score is None:
        raise JudgeInvalid(f"{where}: rubric score is required")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise JudgeInvalid(f"{where}: rubric score is {score!r}; expected a number from 0 to 1")
    if not isinstance(reason, str):
        raise JudgeInvalid(f"{where}: rubric reason is required; found {reason!r}")
    evidence = row.get("evidence")
    return RubricVerdict(
        identifier.strip(),
        float(score),
        reason,
        evidence.strip() if isinstance(evidence, str) else "",
        confidence=_confidence(row.get("confidence")),
    )


def _confidence(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        return None
    return float(value)


def _read_blocks(text: str) -> list[RubricVerdict]:
    """Read `ID: / Rubric: / Evidence: / Reason: / Verdict:` blocks; each ID line begins a block.

    A repeated field in a block may be a quotation, so it is unclear which one is the judge's.
    """
    blocks: list[dict[str, str]] = []
    field = ""
    for line in own_lines(text, AGAINST):
        match = _BLOCK_FIELD.match(line)
        if match:
            field = match[1]
            if field == "ID":
                blocks.append({})
            if blocks:
                if field in blocks[-1]:
                    raise JudgeInvalid(f"a rubric block has two {field} lines; expected one")
                blocks[-1][field] = match[2]
        elif blocks and field and line.strip():
            blocks[-1][field] += "\n" + line.strip()
    return [_read_block(block) for block in blocks]


def _read_block(block: dict[str, str]) -> RubricVerdict:
    identifier = block["ID"].strip()
    verdict = block.get("Verdict", "").strip().lower()
    if not identifier:
        raise JudgeInvalid("a rubric block has an empty ID; expected a rubric id")
    if verdict not in _VERDICTS:
        raise JudgeInvalid(f"verdict of rubric {identifier} is '{verdict}'; expected yes or no")
    return RubricVerdict(identifier, _VERDICTS[verdict], block.get("Reason", "").strip())


def _check_ids(found: list[str], ids: Collection[str]) -> None:
    doubled = sorted({name for name in found if found.count(name) > 1})
    if doubled:
        raise JudgeInvalid(f"duplicate rubric score id: {', '.join(doubled)}")
    if not ids:
        return
    unknown = [name for name in found if name not in ids]
    if unknown:
        raise JudgeInvalid(f"unknown rubric score id: {', '.join(unknown)}")
    missing = [name for name in ids if name not in found]
    if missing:
        raise JudgeInvalid(f"missing rubric score id: {', '.join(missing)}")
