"""Convert rows of a data set to eval cases: map columns to fields, and build turns from a row."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from math import isfinite, isnan
from typing import Final

import orjson

from evaltap.evaluator.cases.datasets.columns import FIELDS, TELEMETRY, Columns, value_at
from evaltap.evaluator.cases.datasets.conversations import (
    fields_of,
    mark_open_tools,
    read_turns,
    spoken,
)
from evaltap.evaluator.cases.datasets.object_rows import CONTEXT, RECORDED, REFERENCE
from evaltap.evaluator.cases.datasets.shapes import OURS, unwrapped
from evaltap.evaluator.cases.identity import BadLine
from evaltap.evaluator.cases.scenarios import described_scenario
from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.documents import case_data, warn_once
from evaltap.schemas.files.validation import describe
from evaltap.schemas.text import counted, did_you_mean

_LISTS: Final = {"context", "retrieval_context", "retrievalContext"}
"""DeepEval's columns that contain a list, joined by `|` in its JSON Lines and CSV."""


class ColumnCheck:
    """Checks that each given column has a value in at least one row."""

    def __init__(self, columns: Columns) -> None:
        self._missing = dict(columns.given)
        self._mapped = columns.mapped
        self._found: dict[str, None] = {}

    def see(self, row: Mapping[str, Json]) -> None:
        """Record the columns of a row."""
        if self._missing:
            row = unwrapped(row, self._mapped)
            self._found |= dict.fromkeys(row)
            for name, column in list(self._missing.items()):
                if value_at(row, column) is not None:
                    del self._missing[name]

    def require(self) -> None:
        """Raise InputError for the given columns without a value in any row."""
        for name, column in self._missing.items():
            found = ", ".join(self._found) or "none"
            near = did_you_mean(column, self._found)
            raise InputError(
                f"--map {name}={column}: no row has a value there; found the columns {found}"
                f"{near and f'; {near}'}"
            )


def row_case(
    row: Mapping[str, Json], columns: Columns, *, number: int, app_name: str, path: str, place: str
) -> CaseData:
    """Return the eval case of a row.

    A row with an output is a recorded case (trace mode), with the expected turn next to it.  A row without an
    output is a case still to be run, with the expected turn as its conversation.  A scenario of DeepEval
    without turns is a case for a simulated user.  Other columns become `sessionInput.state`.  A row that
    contains a whole eval case as JSON becomes that case.  Raises FormatError if the row has no input.
    """
    # NumPy's way to say that a number is missing is NaN.
    row = {key: None if _is_nan(value) else value for key, value in row.items()}
    row = unwrapped(row, columns.mapped)
    reader = _Reader(path, place)
    if _is_eval_case(row):
        raise reader.error(
            "is an eval case, which every command reads unchanged; expected a row of a data set"
        )
    if (whole := columns.value("case", row)) is not None:
        return case_data(reader.parsed(whole), path=path, place=place)
    case: CaseData = {"evalId": reader.id(columns.value("id", row), number)}
    messages = columns.value("messages", row)
    fields: Iterable[str] = FIELDS
    recorded: list[dict[str, Json]] = []
    expected: list[dict[str, Json]] = []
    if scenario := _scenario(row, columns, reader):
        case["conversationScenario"] = scenario
        fields = ("id", "messages")
    elif messages is None:
        recorded, expected = _one_turn(row, columns, reader)
    else:
        recorded, expected, fields = _dialogue(messages, row, columns, reader)
    if recorded:
        case |= {"evalMode": "trace", "conversation": expected, "actualConversation": recorded}
    elif not scenario:
        case["conversation"] = expected
    if (run := columns.value("run", row)) is not None:
        case["source"] = {"run": _plain_text(run)}
    elif recorded and not expected:
        case["source"] = {}  # a row that expects nothing has no reference, rather than an empty one
    if (telemetry := row.get(TELEMETRY)) is not None and recorded:
        _end(recorded[-1], telemetry, whole=len(recorded) == 1)
    used = {OURS, CONTEXT, REFERENCE, TELEMETRY, *(columns.column(name, row) for name in fields)}
    case["sessionInput"] = _session(row, used, reader, app_name)
    return case_data(case, path=path, place=place)


def _end(turn: dict[str, Json], telemetry: Mapping[str, Json], *, whole: bool) -> None:
    """Record the end of a dialogue on its last turn, and the usage if the turn is the `whole` dialogue."""
    status = {name: telemetry[name] for name in ("status", "error") if name in telemetry}
    turn["telemetry"] = {**telemetry} if whole else status
    if status["status"] != "ok" and (said := turn.pop("finalResponse", None)) is not None:
        turn.setdefault("intermediateResponses", []).append(said)


def case_or_bad_line(
    row: Mapping[str, Json], columns: Columns, *, number: int, path: str, place: str
) -> CaseData | BadLine:
    """Return the eval case of a row, or a BadLine with its content; rows are numbered from 0."""
    try:
        return row_case(row, columns, number=number + 1, app_name="", path=path, place=place)
    except FormatError as error:
        raw = orjson.dumps(row, default=str, option=orjson.OPT_NON_STR_KEYS)
        return BadLine(path, number, str(error), raw)


def _scenario(row: Mapping[str, Json], columns: Columns, reader: "_Reader") -> CaseData | None:
    """Return the plan of a conversational golden of DeepEval without turns; None for other rows."""
    is_golden = "turns" in row and row.get("scenario") and not row["turns"]
    if not is_golden or columns.value("input", row) is not None:
        return None
    names = ("scenario", "user_description", "expected_outcome")
    texts = [reader.text(row[name], name) if row.get(name) else "" for name in names]
    return described_scenario(*texts)


def _dialogue(
    messages: Json, row: Mapping[str, Json], columns: Columns, reader: "_Reader"
) -> tuple[list[dict[str, Json]], list[dict[str, Json]], Sequence[str]]:
    """Return the recorded turns, the expected turn if there is one, and the fields that were read."""
    recorded = read_turns(messages, reader)
    if OURS in row:
        mark_open_tools(recorded, reader.parsed(messages))
    if CONTEXT in row:
        recorded[0]["contextMessages"] = reader.messages(row[CONTEXT])
    expected = _expected_of(recorded, row, columns, reader)
    fields = [
        "case",
        "id",
        "run",
        "messages",
        *(("expected", "expected_tools") if expected else ()),
    ]
    acted = any("finalResponse" in turn or "tools" in turn for turn in recorded)
    if (row.get(OURS) or {}).get("turns") == "expected":
        return [], recorded, fields
    if not acted and TELEMETRY not in row:
        # No answer yet: the user's input, for an agent that is still to run.
        return [], expected or recorded, fields
    return recorded, expected, fields


def _expected_of(
    recorded: list[dict[str, Json]], row: Mapping[str, Json], columns: Columns, reader: "_Reader"
) -> list[dict[str, Json]]:
    """Return the expected turns: those of a reference, or the one of a dialogue with one turn.

    For several turns, a single answer would be ambiguous.
    """
    if REFERENCE in row:
        return _reference(row[REFERENCE], recorded, reader)
    wanted, tools = columns.answer(row), columns.value("expected_tools", row)
    if wanted is None and tools is None:
        return []
    if len(recorded) > 1:
        warn_once(
            f"{reader.path}: kept in the state: what is expected of a dialogue with several turns"
        )
        return []
    (turn,) = recorded
    asked = {name: turn[name] for name in ("invocationId", "userContent")}
    return [asked | reader.expected(wanted, tools)]


def _reference(
    said: Json, recorded: Sequence[dict[str, Json]], reader: "_Reader"
) -> list[dict[str, Json]]:
    """Return the turns of a reference; one without an answer expects none in particular."""
    expected = read_turns(said, reader)
    if len(expected) != len(recorded):
        turns = counted(len(expected), "turn")
        raise reader.error(f"reference_outputs: found {turns}; expected {len(recorded)}")
    for turn in expected:
        if not (turn.get("finalResponse") or {}).get("content"):
            turn.pop("finalResponse", None)
            turn["capture"] = {**turn.get("capture", {}), "finalResponse": "missing"}
    return expected


def _is_eval_case(row: Mapping[str, Json]) -> bool:
    turns = row.get("actualConversation") or row.get("conversation")
    first = turns[0] if isinstance(turns, list) and turns else None
    return "evalId" in row and isinstance(first, dict) and "userContent" in first


def _one_turn(
    row: Mapping[str, Json], columns: Columns, reader: "_Reader"
) -> tuple[list[dict[str, Json]], list[dict[str, Json]]]:
    """Return the recorded turn and the expected turn of a row, each in a list with at most one item."""
    _refuse_unclear(row, columns, reader)
    if (asked := columns.value("input", row)) is None:
        raise _no_input(row, columns, reader)
    turn = reader.asked(asked)
    output, wanted = columns.value("output", row), columns.answer(row)
    tools, wanted_tools = columns.value("tools", row), columns.value("expected_tools", row)
    recorded, expected = [], []
    if output is not None or tools is not None or TELEMETRY in row:
        recorded.append(turn | reader.answered(output, tools))
        if tools is None:
            # A table without a column for tools does not mean that none was called.
            recorded[0]["capture"] = {"tools": "missing"}
        if output is None and TELEMETRY not in row:
            recorded[0].setdefault("capture", {})["finalResponse"] = "missing"
    if wanted is not None or wanted_tools is not None or not recorded:
        expected.append(turn | reader.expected(wanted, wanted_tools))
    return recorded, expected


def _no_input(row: Mapping[str, Json], columns: Columns, reader: "_Reader") -> FormatError:
    names = [columns.given["input"]] if "input" in columns.given else FIELDS["input"]
    if empty := next((name for name in (*names, *FIELDS["messages"]) if name in row), None):
        return reader.error(
            f"the column {empty} is empty here, and it is the input; fill it, or leave the row out"
        )
    found = ", ".join(row) or "none"
    return reader.error(
        f"no column for the input; found the columns {found}; expected one of "
        f"{', '.join(FIELDS['input'])}, or --map input={_inner_column(row) or 'COLUMN'}"
    )


def _refuse_unclear(row: Mapping[str, Json], columns: Columns, reader: "_Reader") -> None:
    """Raise FormatError for an object in which no text is known to be the right one."""
    found = {name: columns.column(name, row) for name in ("input", "output", "expected")}
    recorded = not row.keys().isdisjoint(RECORDED)
    if found["output"] is None and "outputs" not in columns.mapped:
        found["output"] = "outputs" if recorded else None
        is_text = "inputs" in row and isinstance(row.get("outputs"), str)
        if is_text and not recorded and not found["expected"]:
            raise reader.error(
                "outputs: found a text, which may be what the agent said, or what is expected; choose"
                " --map output=outputs or --map expected=outputs"
            )
    for name, column in found.items():
        if isinstance(value := value_at(row, column or ""), Mapping):
            texts = [key for key in value if isinstance(value[key], str)]
            option = f"--map {name}={column}.{[*texts, *value, 'KEY'][0]}"
            keys = ", ".join(value) or "no keys"
            raise reader.wrong(
                column or "", value, f"a text; choose one of {keys}, such as {option}"
            )


class _Reader:
    """Reads the cells of one row, and names its position in messages."""

    def __init__(self, path: str, place: str) -> None:
        self.path = path
        self.place = place

    def id(self, value: Json, number: int) -> str:
        text = _plain_text(value).strip() if isinstance(value, str | int | float) else ""
        return text or f"row-{number}"

    def text(self, value: Json, what: str) -> str:
        """Return a cell as text: from a text, a number, or the first of a list of texts."""
        if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
            value = value[0]
        if isinstance(value, bool) or not isinstance(value, str | int | float) or _endless(value):
            raise self.wrong(what, value, "a text")
        return _plain_text(value)

    def asked(self, value: Json) -> dict[str, Json]:
        """Return the user's side of a turn: a text, or a list of messages that ends with the user's."""
        if not isinstance(value, list):
            return {"userContent": {"role": "user", "content": self.text(value, "input")}}
        messages = self.messages(value)
        if not messages or messages[-1]["role"] != "user":
            raise self.wrong("input", value, "messages, the user's last")
        turn: dict[str, Json] = {"userContent": messages[-1]}
        if messages[:-1]:
            turn["contextMessages"] = messages[:-1]
        return turn

    def messages(self, value: Json) -> list[dict[str, Json]]:
        """Return the roles and texts of messages."""
        return [fields_of(spoken(one, self), one) for one in self.plain(value, "input")]

    def answered(self, answer: Json, tools: Json) -> dict[str, Json]:
        """Return the agent's side of a turn."""
        turn: dict[str, Json] = {}
        if answer is not None:
            text = self.text(answer, "the answer")
            turn["finalResponse"] = {"role": "assistant", "content": text}
        if tools is not None:
            turn["tools"] = self.tools(tools)
        return turn

    def expected(self, answer: Json, tools: Json) -> dict[str, Json]:
        """Return the expected turn, with several right answers as alternatives, and missing parts marked."""
        several = (
            isinstance(answer, list) and answer and all(isinstance(one, str) for one in answer)
        )
        first, *others = [self.answered(one, tools) for one in (answer if several else [answer])]
        capture = {
            name: "missing"
            for name, given in (("finalResponse", answer), ("tools", tools))
            if given is None
        }
        if capture and len(capture) < 2:
            first["capture"] = capture
        if others:
            first["references"] = [one | {"capture": capture} if capture else one for one in others]
        return first

    def tools(self, value: Json) -> list[dict[str, Json]]:
        """Return tool calls in the format of DeepEval, evaltap or OpenAI, from a list or its JSON text."""
        value = self.parsed(value)
        if not isinstance(value, list):
            raise self.wrong("tools", value, "a list of tool calls")
        return [self.tool(call) for call in value]

    def tool(self, call: Json) -> dict[str, Json]:
        if isinstance(call, str):
            return {"name": call}
        inner = call.get("function") or call.get("custom") if isinstance(call, Mapping) else None
        if isinstance(inner, Mapping):
            call = {**call, **inner}
        if not isinstance(call, Mapping) or not isinstance(call.get("name"), str):
            raise self.wrong("tools", call, "tool calls with a `name`")
        made: dict[str, Json] = {"name": call["name"]}
        for key, names in (
            ("id", ("id",)),
            ("arguments", ("arguments", "inputParameters", "input_parameters", "args", "input")),
            ("result", ("result", "output")),
        ):
            found = next((call[name] for name in names if call.get(name) is not None), None)
            if found is not None and key == "arguments":
                # Some providers write no arguments as an empty text.
                made[key] = {} if found == "" else self.parsed(found)
            elif found is not None:
                made[key] = self.plain(found, key)
        return made

    def parsed(self, value: Json) -> Json:
        """Return the value of JSON text, because cells of CSV contain lists that way."""
        if not isinstance(value, str):
            return self.plain(value, "tools")
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value

    def plain(self, value: Json, column: str) -> Json:
        """Return a cell as JSON data: times as text; bytes are rejected."""
        if isinstance(value, Mapping):
            return {str(key): self.plain(item, column) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.plain(item, column) for item in value]
        if isinstance(value, datetime | date | time):
            return value.isoformat()
        if isinstance(value, timedelta):
            return value.total_seconds()
        if _endless(value):
            raise self.wrong(f"column {column}", value, "a finite number, or none")
        if value is None or isinstance(value, str | bool | int | float):
            return value
        if isinstance(value, bytes | bytearray | memoryview):
            raise self.wrong(f"column {column}", "bytes", "text, numbers, lists or objects")
        return str(value)  # Decimal, UUID

    def wrong(self, what: str, found: Json, expected: str) -> FormatError:
        shown = found if found == "bytes" else describe(found)
        return self.error(f"{what}: found {shown}; expected {expected}")

    def error(self, text: str) -> FormatError:
        return FormatError(text, path=self.path, place=self.place)


def _session(
    row: Mapping[str, Json], used: Collection[str | None], reader: _Reader, app_name: str
) -> CaseData:
    state = {
        key: reader.plain(_listed(key, value), key)
        for key, value in row.items()
        if key not in used and value is not None
    }
    ours = row.get(OURS) or {}
    state |= reader.plain(ours.get("state") or {}, OURS)
    app_name = app_name or ours.get("appName") or ""
    return {"appName": app_name, "userId": "dataset", "state": state}


def _is_nan(value: Json) -> bool:
    return isinstance(value, float) and isnan(value)


def _endless(value: Json) -> bool:
    """Return whether a value is NaN or infinite, which JSON cannot represent."""
    return isinstance(value, float) and not isfinite(value)


def _plain_text(value: Json) -> str:
    """Return a value as text: 7.0, as tables have whole numbers in columns with gaps, as 7."""
    whole = isinstance(value, float) and value.is_integer()
    return canonical.format_number(value) if whole else str(value)


def _inner_column(row: Mapping[str, Json]) -> str:
    """Return the path to the first text in an object of a row; empty without one."""
    for column, value in row.items():
        for key, text in value.items() if isinstance(value, Mapping) else ():
            if isinstance(text, str):
                return f"{column}.{key}"
    return ""


def _listed(key: str, value: Json) -> Json:
    return value.split("|") if key in _LISTS and isinstance(value, str) else value
