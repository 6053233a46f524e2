"""Parse a judge's answer: one function for each kind of question.

An answer that is not a verdict raises JudgeInvalid; it never becomes a zero.  The kinds, and the deviations
that each tolerates, are those of tRPC-Agent-Go's response scorers.
"""

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.context import RubricVerdict
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.evaluator.scoring.evaluators.judged.answer_text import AGAINST, answer_json, own_lines
from evaltap.evaluator.scoring.evaluators.judged.rubric_answer import mean_score, read_rubric_answer
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
    labels = [lines[n].strip()[len(_VALID) :].strip().lower() for n in places]
    score = float(labels[-1] == "valid")
    if score and any(label != "valid" for label in labels):
        raise JudgeInvalid(f"the answer says {' and then '.join(labels)}; expected one verdict")
    reasoning = "\n".join(lines[begin : places[-1]]).strip()
    return Verdict(score, reasoning[len(_REASONING) :].strip(), value=score)


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
    score = answer.get("score")
    if score is None:
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
    passed = answer.get("passed")
    if not isinstance(passed, bool):
        raise JudgeInvalid(f"passed is required; found {passed!r}, expected true or false")
    return Verdict(float(passed), _reason(answer), value=passed)


def read_category(text: str, scores: Mapping[str, float]) -> Verdict:
    """Read `{"category": ..., "reason": ...}`; an unknown label scores 0, and the reason states that.

    >>> read_category('{"category": "rude", "reason": "it shouts"}', {"polite": 1, "rude": 0}).score
    0
    """
    answer = _object(text)
    category = answer.get("category")
    if not isinstance(category, str) or not category.strip():
        raise JudgeInvalid(f"category is required; found {category!r}")
    label, reason = category.strip(), _reason(answer)
    if label not in scores:
        reason = f"unknown category {label!r}, known: {', '.join(scores)}; {reason}"
    return Verdict(scores.get(label, 0.0), reason, value=label)


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
        match = _FIELD.match(line)
        if match:
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
    reason = answer.get("reason")
    if not isinstance(reason, str):
        raise JudgeInvalid(f"reason is required; found {_keys(answer)}")
    return reason


def _keys(answer: Mapping[str, Json]) -> str:
    return f"the keys {', '.join(answer)}" if answer else "an empty object"
