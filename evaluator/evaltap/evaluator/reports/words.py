"""The words by which people recognise a case: the user's first message, and the called tools."""

from typing import Final, NamedTuple

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.scope import ReportedScores
from evaltap.evaluator.store.database import sql
from evaltap.schemas.formats.case import CaseData

OPENING: Final = 200
"""The number of characters of the user's first message."""
TOOLS: Final = 20


class CaseWords(NamedTuple):
    """The user's first message on one line, and the distinct names of tools."""

    opening: str = ""
    tools: tuple[str, ...] = ()


def landed_words(scored: ReportedScores) -> dict[CaseKey, CaseWords]:
    """Return the words of the landed cases that have a score."""
    return {
        (app, eval_set, eval_id): CaseWords(one_line(opening, OPENING), tuple(tools[:TOOLS]))
        for app, eval_set, eval_id, opening, tools in scored.rows(sql(__name__, "report_words"))
    }


def words_of(case: CaseData) -> CaseWords:
    """Return the words of a case, from the recorded or otherwise the expected turns."""
    turns = case.get("actualConversation") or case.get("conversation") or ()
    messages = ((turn or {}).get("userContent") or {} for turn in turns)
    texts = (text for message in messages if isinstance(text := message.get("content"), str))
    opening = next(filter(None, texts), "")
    calls = (call for turn in turns for call in (turn or {}).get("tools") or () if call)
    names = sorted({str(call["name"]) for call in calls if call.get("name")})
    return CaseWords(one_line(opening, OPENING), tuple(names[:TOOLS]))
