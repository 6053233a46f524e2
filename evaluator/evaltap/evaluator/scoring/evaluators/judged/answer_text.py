"""Separate a judge's own words from the text that it quotes.

Judges quote the text that they judge, and its author may have planted a verdict in it.  So lines in code
fences and block quotations are ignored, and a JSON object with a repeated key is not an answer, because it is
unclear which of the two values counts.
"""

import json
import re
from collections.abc import Mapping
from typing import Final

from evaltap.evaluator.cases.json_text import parse
from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.schemas.data import Json

_FENCE: Final = re.compile(r"\s*(```+|~~~+)")
_JSON_FENCE: Final = re.compile(r"\s*(?:```+|~~~+)\s*(?:json)?\s*$", re.IGNORECASE)
_OBJECT: Final = re.compile(r"\{\s*\"")
_QUOTATION: Final = re.compile(r"\s*[>|]")
_BEGINS: Final = re.compile(r"\s*(?:(?:```+|~~~+)\w*\s*)?(?:\{|reasoning:|ID\s*:|<sentence>)")
"""The start of an answer."""
_ENDS: Final = re.compile(r"\s*(Verdict|is_the_agent_response_valid)\s*:")
"""The start of a verdict line in the line-based formats."""

AGAINST: Final = re.compile(r"\s*Verdict\s*:\s*no\b", re.IGNORECASE)
"""A negative verdict in a block."""


def strip_fence(text: str) -> str:
    """Return the text without surrounding white space and without a Markdown code fence."""
    body = text.strip()
    if body.startswith("```"):
        for opening in ("```json", "```JSON", "```"):
            if body.startswith(opening):
                body = body[len(opening) :]
                break
        body = body.strip().removesuffix("```")
    return body.strip()


def _unfenced(lines: list[str]) -> list[str]:
    fences = [place for place, line in enumerate(lines) if _FENCE.match(line)]
    return lines[1:-1] if fences == [0, len(lines) - 1] else lines


def own_lines(text: str, against: re.Pattern[str]) -> list[str]:
    """Return the judge's own lines: those outside code fences and block quotations.

    If the whole answer is one code fence, its content is returned.  Raises JudgeInvalid for an unclosed
    fence, and for a quotation at the end with a line that matches `against`, as no later line outside could
    contradict it: the author of the quoted text may have swapped inside and outside.
    """
    own: list[str] = []
    doubtful, mark = "", ""
    for line in _unfenced(own_words(text).strip().splitlines()):
        fence = _FENCE.match(line)
        if fence and not mark:
            mark = fence[1]
        elif fence and fence[1].startswith(mark) and line.strip() == fence[1]:
            mark = ""
        elif mark or _QUOTATION.match(line):
            doubtful = line if against.match(line) else doubtful
        else:
            own.append(line)
            doubtful = "" if _ENDS.match(line) else doubtful
    if mark:
        raise JudgeInvalid(f"a code fence is not closed; found {quoted(text)}")
    if doubtful:
        raise JudgeInvalid(
            f"after the verdict a quotation says {quoted(doubtful)}; expected one verdict"
        )
    return own


def answer_json(text: str) -> Json:
    """Return the answer as a single JSON value; raise JudgeInvalid if it is anything else.

    A judge may talk before or after its answer: then the answer ends or begins the text, in lines of its own,
    and there is no other answer, which could be the one of the judged text.
    """
    body = strip_fence(own_words(text))
    try:
        return _parsed(body)
    except (ValueError, RecursionError) as error:
        found = _at_the_end(body) or _at_the_start(body)
        if found is None:
            raise JudgeInvalid(f"unmarshal response json: {error}; found {quoted(body)}") from None
        return found


def value_of(answer: Mapping[str, Json], name: str) -> Json:
    """Return the value of a key, in upper or lower case as in tRPC-Agent-Go; None without one.

    Raises JudgeInvalid for several such keys, as for one that is repeated.

    >>> value_of({"Score": 1}, "score")
    1
    """
    found = [key for key in answer if key.casefold() == name.casefold()]
    if len(found) > 1:
        raise JudgeInvalid(f"an object has the same key twice: {', '.join(found)}")
    return answer[found[0]] if found else None


def own_words(text: str) -> str:
    """Return what a reasoning model says after its thoughts, which some endpoints leave in the text.

    Thoughts may lack their opening tag, but do not begin like an answer: one that quotes a tag is whole.
    """
    before, ends, after = text.rpartition("</think>")
    begins = before.lstrip().startswith("<think>")
    thought = begins or ("<think>" not in before and not _BEGINS.match(before))
    return after if ends and thought else text


def _parsed(body: str) -> Json:
    answer = parse(body)
    json.loads(body, object_pairs_hook=_once)
    return answer


def _at_the_end(body: str) -> Json | None:
    """Return the only JSON object of a text, which ends it; None if there is none, or another one."""
    lines = body.splitlines()
    fences = [place for place, line in enumerate(lines) if _FENCE.match(line)]
    if len(fences) == 2 and fences[1] == len(lines) - 1 and _JSON_FENCE.match(lines[fences[0]]):
        start, end = fences[0], fences[1]
        words, given = lines[:start], "\n".join(lines[start + 1 : end])
    elif not fences and (start := next((n for n, one in enumerate(lines) if one[:1] == "{"), 0)):
        words, given = lines[:start], "\n".join(lines[start:])
    else:
        return None
    return _only(given.strip(), words)


def _at_the_start(body: str) -> Json | None:
    """Return the only JSON object of a text, which begins it; None if there is none, or another one."""
    try:
        _, end = json.JSONDecoder().raw_decode(body)
    except (ValueError, RecursionError):
        return None
    rest, *words = body[end:].splitlines() or [""]
    if words and _FENCE.fullmatch(words[0]):
        words = words[1:]  # the answer's own, whose beginning is stripped
    return None if rest.strip() or any(map(_FENCE.match, words)) else _only(body[:end], words)


def _only(given: str, words: list[str]) -> Json | None:
    """Return an object beside which the words contain no other answer."""
    if any(_OBJECT.search(line) or _ENDS.match(line) for line in words):
        return None
    try:
        answer = _parsed(given)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else None


def _once(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has the same key twice")
    return found
