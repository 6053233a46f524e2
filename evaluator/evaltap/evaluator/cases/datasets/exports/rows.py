"""Cases in the form that most tools use: one row for each turn, with the preceding messages."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Final

import orjson

from evaltap.evaluator.cases.evalsets.content import message_text
from evaltap.schemas.data import CaseData, Json

_OF_CASES: Final = {
    "adk": ("rubrics", "contextMessages", "toolMock"),
    "": ("rubrics", "conversationScenario", "toolMock"),
}
_OF_TURNS: Final = {
    "adk": ("references", "contextMessages", "toolMock"),
    "": ("references", "state", "toolMock"),
}
"""Of expected turns."""
_OF_ADK_SCENARIOS: Final = {"startingPrompt", "conversationPlan"}
_OF_CALLS: Final = {
    "error": "errors of tools",
    "after": "the order of tools (after)",
    "optional": "optional tools",
    "alternative": "alternative tools",
}
_MESSAGES: Final = ("userContent", "finalResponse")


@dataclass(frozen=True, slots=True)
class Side:
    """The recorded or the expected actions of an agent in a turn."""

    content: str | None
    tools: tuple[dict[str, Json], ...] | None
    """`name`, `arguments`, `result`; None if it is not specified which tools are called."""

    @property
    def says_nothing(self) -> bool:
        """Whether there is neither an answer nor a call."""
        return self.content is None and not self.tools


@dataclass(frozen=True, slots=True)
class Row:
    id: str
    eval_id: str
    messages: tuple[dict[str, str], ...]
    """The preceding messages, ending with the user's last message."""
    expected: Side | None
    actual: Side | None
    metadata: dict[str, Json]

    @property
    def text(self) -> str:
        """The user's message."""
        return self.messages[-1]["content"]


def rows_of(cases: Sequence[CaseData], set_name: str) -> list[Row]:
    """Return the rows of cases, sorted by id."""
    ordered = sorted(cases, key=lambda case: str(case["evalId"]))
    taken = {str(case["evalId"]) for case in ordered}
    return [row for case in ordered for row in _rows(case, set_name, taken)]


def _rows(case: CaseData, set_name: str, taken: Set[str]) -> Iterator[Row]:
    """Yield the rows of a case, none with the id of another case: tools would replace that one."""
    pairs = pairs_of(case)
    name, slash = str(case["evalId"]), "/"
    while any(f"{name}{slash}{number}" in taken for number in range(1, len(pairs) + 1)):
        slash += "/"
    said = [_message(one) for one in case.get("contextMessages") or ()]
    for number, (expected, actual) in enumerate(pairs, start=1):
        turn = expected or actual or {}
        said += [_message(one) for one in turn.get("contextMessages") or ()]
        said.append({"role": "user", "content": message_text(turn.get("userContent"))})
        yield Row(
            name if len(pairs) == 1 else f"{name}{slash}{number}",
            name,
            tuple(said),
            side(expected),
            side(actual),
            metadata(case, set_name, number if len(pairs) > 1 else None),
        )
        if answer := turn.get("finalResponse"):
            said.append({"role": "assistant", "content": message_text(answer)})


def pairs_of(case: CaseData) -> list[tuple[CaseData | None, CaseData | None]]:
    """Return the pairs of expected and recorded turns; what only one says was asked, both do."""
    expected, actual = case.get("conversation") or [], case.get("actualConversation") or []
    return [
        (wanted and {"userContent": (done or {}).get("userContent")} | wanted, done)
        for wanted, done in zip_longest(expected, actual)
    ]


def with_questions(case: CaseData) -> CaseData:
    """Return a case whose expected turns say what was asked, as `pairs_of` does."""
    turns = [wanted for wanted, _ in pairs_of(case) if wanted]
    return case | {"conversation": turns} if turns else case


def side(turn: CaseData | None) -> Side | None:
    """Return the actions in a turn; None if nothing is specified."""
    if turn is None:
        return None
    answer = turn.get("finalResponse")
    calls = tuple(_call(tool) for tool in turn.get("tools") or () if tool)
    unknown = not calls and (turn.get("capture") or {}).get("tools") == "missing"
    found = Side(message_text(answer) if answer else None, None if unknown else calls)
    return None if found.says_nothing else found


def calls_of(one: Side | None) -> list[Json] | None:
    """Return the calls of a side as a list; None if they are not specified."""
    return None if one is None or one.tools is None else list(one.tools)


def _call(tool: CaseData) -> dict[str, Json]:
    return {"name": tool.get("name") or ""} | {
        key: tool[key] for key in ("arguments", "result") if tool.get(key) is not None
    }


def _message(message: Mapping[str, Json]) -> dict[str, str]:
    return {"role": str(message.get("role") or "user"), "content": message_text(message)}


def metadata(case: CaseData, set_name: str, turn: int | None = None) -> dict[str, Json]:
    """Return metadata for other tools: origin, labels, and parts of the case that rows cannot represent."""
    curation = (case.get("source") or {}).get("curation") or {}
    session = case.get("sessionInput") or {}
    ours: dict[str, object] = {"evalSetId": set_name, "evalId": case["evalId"]}
    if turn is not None:
        ours["turn"] = turn
    ours |= {
        key: curation[key]
        for key in ("labels", "weight", "members", "contentHash")
        if curation.get(key) is not None
    }
    if session.get("appName"):
        ours["appName"] = session["appName"]
    if session.get("state"):
        ours["state"] = session["state"]
    if omitted := omitted_parts(case):
        ours["omitted"] = omitted
    return {"evaltap": ours}


def omitted_parts(case: CaseData, form: str = "") -> list[str]:
    """Return the names of the parts of a case that a format, rows unless it is adk, cannot represent."""
    own = _omitted_by(form, case)
    form = form if form in _OF_CASES else ""
    pairs = pairs_of(case)
    turns = [*filter(None, chain.from_iterable(pairs))]
    expected = [*filter(None, (turn for turn, _ in pairs))]
    names = [name for name in _OF_CASES[form] if case.get(name)]
    names += [name for name in _OF_TURNS[form] if any(turn.get(name) for turn in expected)]
    if any(_has_parts(turn, form) for turn in turns):
        names.append("images and other content_parts")
    calls = _calls(turns)
    names += [what for key, what in _OF_CALLS.items() if any(call.get(key) for call in calls)]
    return list(dict.fromkeys([*names, *own]))


def _calls(turns: Iterable[CaseData]) -> list[CaseData]:
    return [call for turn in turns for call in turn.get("tools") or () if call]


def _omitted_by(form: str, case: CaseData) -> Iterator[str]:
    """Yield the names of what one format cannot represent and the others can."""
    pairs = pairs_of(case)
    expected = [wanted or {} for wanted, _ in pairs]
    if form == "langsmith":
        if any(call.get("result") is not None for call in _calls(expected)):
            yield "results of tools"
    elif form == "deepeval" and len(pairs) > 1:
        if any(one.get("contextMessages") for one in (case, *expected)):
            yield "contextMessages of several turns"
    elif form == "adk":
        yield from _omitted_by_adk(case, expected)


def _omitted_by_adk(case: CaseData, expected: Sequence[CaseData]) -> Iterator[str]:
    planned = case.get("conversationScenario") or {}
    if planned and (expected or planned.keys() - _OF_ADK_SCENARIOS):
        yield "all of conversationScenario"
    if case.get("conversation"):
        if case.get("actualConversation"):
            yield "recorded turns beside expected ones"
        if any(one.get("state") for one in expected[:-1]):
            yield "the state of turns before the last"


def _has_parts(turn: CaseData, form: str) -> bool:
    """Return whether a message of a turn is more than text."""
    left_out = () if form else ("parts",)
    messages = [turn.get(name) or {} for name in _MESSAGES]
    return any(_has_more_than_text(one) or one.keys() & left_out for one in messages)


def _has_more_than_text(message: Mapping[str, Json]) -> bool:
    return any(part.get("type") != "text" for part in message.get("content_parts") or ())


def json_lines(rows: Sequence[Json]) -> bytes:
    """Return JSON Lines without letters that some readers treat as line ends."""
    return b"".join(_one_line(orjson.dumps(row)) for row in rows)


def _one_line(text: bytes) -> bytes:
    for letter in ("\u2028", "\u2029", "\x85"):
        text = text.replace(letter.encode(), f"\\u{ord(letter):04x}".encode())
    return text + b"\n"


def json_text(value: Json) -> str:
    return orjson.dumps(value).decode()
