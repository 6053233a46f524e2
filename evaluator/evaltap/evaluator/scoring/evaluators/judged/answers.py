"""Parse a judge's answer: one function for each kind of question.

An answer that is not a verdict raises JudgeInvalid; it never becomes a zero.  The kinds, and the deviations
that each tolerates, are those of tRPC-Agent-Go's response scorers.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.aggregation import mean
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.evaluator.scoring.evaluators.judged.answer_text import (
    AGAINST,
    answer_json,
    own_lines,
    strip_fence,
    value_of,
)
from evaltap.schemas.data import Json


class Verdict(NamedTuple):
    """The content of an answer: a score in [0, 1], the reason, the rows of the score, and its typed value."""

    score: float
    reason: str
    rubric_scores: tuple[RubricVerdict, ...] = ()
    value: float | bool | str | None = None


_REASONING: Final = "reasoning:"
_VALID: Final = "is_the_agent_response_valid:"
_NOT_VALID: Final = re.compile(rf"\s*{_VALID}(?!\s*valid\s*$)", re.IGNORECASE)
_FIELD: Final = re.compile(r"\s*(ID|Reason|Label|Verdict)\s*:(.*)")
_WHOLE: Final = re.compile(r"[0-9]{1,9}")
_LABELS: Final = {
    "supported": 1.0,
    "not_applicable": 1.0,
    "unsupported": 0.0,
    "contradictory": 0.0,
    "disputed": 0.0,
}


def read_validity(text: str) -> Verdict:
    """Read `reasoning:` and `is_the_agent_response_valid:`; only the label `valid` scores 1.

    The last label at the beginning of one of the judge's own lines counts.  A label `valid` after an
    `invalid` one is rejected, because it may be a quotation.
    """
    lines = own_lines(text, _NOT_VALID)
    begin = next((n for n, line in enumerate(lines) if line.strip().startswith(_REASONING)), -1)
    places = [n for n, line in enumerate(lines) if line.strip().startswith(_VALID)]
    if begin < 0 or not places or places[-1] < begin:
        raise JudgeInvalid(
            f"expected the lines '{_REASONING}' and '{_VALID}'; found {quoted(text)}"
        )
    labels = [_label(lines, n) for n in places]
    score = float(labels[-1] == "valid")
    if score and any(label != "valid" for label in labels):
        raise JudgeInvalid(f"the answer says {' and then '.join(labels)}; expected one verdict")
    reasoning = "\n".join(lines[begin : places[-1]]).strip()
    return Verdict(score, reasoning[len(_REASONING) :].strip(), value=score)


def _label(lines: Sequence[str], place: int) -> str:
    """Return the label of a line, or the next line with words if that is where it stands."""
    rest = [lines[place].strip()[len(_VALID) :], *lines[place + 1 :]]
    return next((line.strip().lower() for line in rest if line.strip()), "")


def read_rubrics(text: str, ids: Collection[str]) -> Verdict:
    """Read one verdict for each rubric; the score is their mean."""
    verdicts = read_rubric_answer(text, ids)
    score = mean_score(verdicts)
    return Verdict(score, "\n".join(verdict.reason for verdict in verdicts), verdicts, score)


def read_single_score(text: str, low: float = 0, high: float = 1) -> Verdict:
    """Read `{"score": <low to high>, "reason": ...}`; the score is the answer's place between the two.

    >>> read_single_score('{"score": 4, "reason": "polite"}', low=1, high=5).score
    0.75
    """
    answer = _object(text)
    if (score := value_of(answer, "score")) is None:
        raise JudgeInvalid(f"score is required; found {_keys(answer)}")
    if isinstance(score, bool) or not isinstance(score, int | float) or not low <= score <= high:
        raise JudgeInvalid(f"score is {score!r}; expected a number from {low:g} to {high:g}")
    return Verdict((score - low) / (high - low), _reason(answer), value=float(score))


def read_boolean(text: str) -> Verdict:
    """Read `{"passed": <true or false>, "reason": ...}`.

    >>> read_boolean('{"passed": true, "reason": "it names the order"}').score
    1.0
    """
    answer = _object(text)
    passed = value_of(answer, "passed")
    if not isinstance(passed, bool):
        raise JudgeInvalid(f"passed is required; found {passed!r}, expected true or false")
    return Verdict(float(passed), _reason(answer), value=passed)


def read_category(text: str, scores: Mapping[str, float]) -> Verdict:
    """Read `{"category": ..., "reason": ...}`; an unknown label scores 0, and the reason states that.

    >>> read_category('{"category": "rude", "reason": "it shouts"}', {"polite": 1, "rude": 0}).score
    0
    """
    answer = _object(text)
    category = value_of(answer, "category")
    if not isinstance(category, str):
        raise JudgeInvalid(f"category is required; found {category!r}")
    reason = _reason(answer)
    if category not in scores:
        reason = f"unknown category {category!r}, known: {', '.join(scores)}; {reason}"
    return Verdict(scores.get(category, 0.0), reason, value=category)


def read_sentence_labels(text: str, count: int | None = None) -> Verdict:
    """Read blocks of `ID`, `Reason`, `Label`, `Verdict`; the score is the share of good labels.

    Without a label, the verdict yes or no counts; without an id, the block's number is used.  With `count`,
    the blocks must be those of sentences 1 to `count`, each exactly once.
    """
    rows = [_sentence(block, number) for number, block in enumerate(_blocks(text), start=1)]
    if not rows:
        raise JudgeInvalid(f"no sentence blocks found; found {quoted(text)}")
    if count is not None and len(rows) != count:
        raise JudgeInvalid(f"{len(rows)} sentences are labelled, expected {count}")
    numbers = [_WHOLE.search(row.id) for row in rows]
    if count is not None and any(n and int(n[0]) != place for place, n in enumerate(numbers, 1)):
        found = ", ".join(row.id for row in rows)
        raise JudgeInvalid(f"the sentences {found} are labelled; expected 1 to {count}, in order")
    score = mean_score(rows)
    return Verdict(score, "\n".join(row.reason for row in rows), tuple(rows), score)


def _blocks(text: str) -> list[dict[str, str]]:
    """Return the blocks: an ID line begins a block, and its Verdict line ends it.

    Raises JudgeInvalid for a field at a position where only a quotation can have put it.
    """
    blocks: list[dict[str, str]] = []
    open_block: dict[str, str] | None = None
    field = ""
    for line in own_lines(text, AGAINST):
        if match := _FIELD.match(line):
            field = match[1]
            if field == "ID" and open_block is None:
                open_block = {}
            if open_block is None or field in open_block:
                raise JudgeInvalid(
                    f"the line {quoted(line)} is out of place; expected one block of"
                    " ID, Reason, Label and Verdict for each sentence"
                )
            open_block[field] = match[2].strip()
            if field == "Verdict":
                if open_block.keys() >= {"Reason", "Label"}:
                    blocks.append(open_block)
                open_block = None
        elif open_block is not None and field == "Reason" and line.strip():
            open_block[field] += "\n" + line.strip()
    return blocks


def _sentence(block: Mapping[str, str], number: int) -> RubricVerdict:
    label, verdict = block["Label"].lower(), block["Verdict"].lower()
    name = block["ID"] or str(number)
    if label and label not in _LABELS:
        raise JudgeInvalid(
            f"label of sentence {name} is '{label}'; expected one of {', '.join(_LABELS)}"
        )
    score = _LABELS[label] if label else float(verdict == "yes")
    shown = label or f"verdict {verdict or 'missing'}"
    return RubricVerdict(name, score, f"[{shown}] {block['Reason']}")


def _object(text: str) -> dict[str, Json]:
    answer = answer_json(text)
    if not isinstance(answer, dict):
        raise JudgeInvalid(f"found {quoted(text)}, expected a JSON object")
    return answer


def _reason(answer: Mapping[str, Json]) -> str:
    reason = value_of(answer, "reason")
    if not isinstance(reason, str):
        raise JudgeInvalid(f"reason is required; found {_keys(answer)}")
    return reason


def _keys(answer: Mapping[str, Json]) -> str:
    return f"the keys {', '.join(answer)}" if answer else "an empty object"


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
        verdicts = [] if "rubricscores" in text.casefold() else _read_blocks(text)
        if not verdicts:
            raise
    _check_ids([verdict.id for verdict in verdicts], ids)
    return tuple(verdicts)


def mean_score(verdicts: Collection[RubricVerdict]) -> float:
    """Return the mean of the verdicts' scores; there must be at least one."""
    return mean([verdict.score for verdict in verdicts])


def _read_rows(document: Json) -> list[RubricVerdict]:
    rows = value_of(document, "rubricScores") if isinstance(document, dict) else None
    if not isinstance(rows, list) or not rows:
        raise JudgeInvalid("rubricScores is missing or empty; expected one row for each rubric")
    return [_read_row(row, place) for place, row in enumerate(rows)]


def _read_row(row: Json, place: int) -> RubricVerdict:
    where = f"rubricScores[{place}]"
    if not isinstance(row, dict):
        raise JudgeInvalid(f"{where}: found {row!r}, expected an object")
    identifier, score, reason = (value_of(row, name) for name in ("id", "score", "reason"))
    if not isinstance(identifier, str) or not identifier.strip():
        raise JudgeInvalid(f"{where}: rubric id is required; found {identifier!r}")
    if score is None:
        raise JudgeInvalid(f"{where}: rubric score is required")
    if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:
        raise JudgeInvalid(f"{where}: rubric score is {score!r}; expected a number from 0 to 1")
    if not isinstance(reason, str):
        raise JudgeInvalid(f"{where}: rubric reason is required; found {reason!r}")
    evidence = value_of(row, "evidence")
    return RubricVerdict(
        identifier.strip(),
        float(score),
        reason,
        evidence.strip() if isinstance(evidence, str) else "",
        confidence=_confidence(value_of(row, "confidence")),
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
        if match := _BLOCK_FIELD.match(line):
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
    if doubled := sorted({name for name in found if found.count(name) > 1}):
        raise JudgeInvalid(f"duplicate rubric score id: {', '.join(doubled)}")
    if not ids:
        return
    if unknown := [name for name in found if name not in ids]:
        raise JudgeInvalid(f"unknown rubric score id: {', '.join(unknown)}")
    if missing := [name for name in ids if name not in found]:
        raise JudgeInvalid(f"missing rubric score id: {', '.join(missing)}")
