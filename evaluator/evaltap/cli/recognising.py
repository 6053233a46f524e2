"""Read files of any supported format as eval cases, recognised by their content."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from evaltap.evaluator.cases.datasets.columns import Columns
from evaltap.evaluator.cases.datasets.inspect_logs import is_inspect_log, refuse_binary, samples_of
from evaltap.evaluator.cases.datasets.promptfoo import is_results, numbered, promptfoo_result
from evaltap.evaluator.cases.datasets.pydantic_evals import report_rows
from evaltap.evaluator.cases.datasets.results import phoenix_run
from evaltap.evaluator.cases.datasets.rows import row_case
from evaltap.evaluator.cases.datasets.shapes import is_dialogue, is_trajectory
from evaltap.evaluator.cases.datasets.tables import test_run
from evaltap.evaluator.store.file_type import is_database, is_log
from evaltap.recorder.sources.claude_code import read_transcripts
from evaltap.recorder.sources.otlp_files import ReadingReport, cases_of_items
from evaltap.recorder.sources.sessions import conversations_in
from evaltap.recorder.sources.sessions.messages import Conversation, cases_of, value_of
from evaltap.recorder.sources.sessions.openhands import conversation_of, is_event
from evaltap.recorder.sources.sessions.provider_messages import calls_in, messages_in
from evaltap.recorder.telemetry.containers import container_of
from evaltap.recorder.telemetry.flat_spans import objects
from evaltap.recorder.telemetry.otlp_json import items_of, read_documents
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.schemas.data import CaseData, Json, JsonObject
from evaltap.schemas.errors import EvaltapError, FormatError
from evaltap.schemas.files.adk import from_adk, from_adk_result, is_adk_eval_set, is_adk_result
from evaltap.schemas.files.adk_older import is_older_eval_file, newer_eval_set
from evaltap.schemas.files.documents import case_data
from evaltap.schemas.files.refused import log_instead, store_instead
from evaltap.schemas.files.validation import describe
from evaltap.schemas.text import counted, some_of

_KEYS_SHOWN: Final = 6
_PLACES_SHOWN: Final = 5
_CHAT: Final = ("messages", "conversations", "contents", "traj")
_TRANSCRIPT: Final = "Claude Code transcript"
_TRACES: Final = ("Langfuse list of traces", "Opik list of traces")
_AGENTS_SDK: Final = (
    "spans that the OpenAI Agents SDK exported, without the messages of the Responses API; record the agent"
    " with EvaltapTraceProcessor (docs/how-to/record-openai-agents.md)"
)
_REPORTS: Final = ((test_run, "DeepEval test run"), (report_rows, "Pydantic Evals report"))
_EVAL_SETS: Final = ("eval set", "eval result", "ADK eval set", "ADK eval result")


@dataclass(slots=True)
class FileRead:
    """What a file was read as, or why it was skipped."""

    path: Path
    format: str | None = None
    """None: not recognised."""
    contents: str = ""
    """What it contains, such as `12 spans`."""
    skipped: str | None = None
    """Why nothing was read from it; None: something was."""
    notes: list[str] = field(default_factory=list)
    """What was left out of it."""


@dataclass(slots=True)
class Recognised:
    """The turns of files, each as a case, and what each file was read as."""

    cases: list[CaseData]
    files: list[FileRead]


def recognise(paths: Iterable[Path]) -> Recognised:
    """Read files; one that cannot be read is skipped, with the reason.

    Spans of all files are read together, because a trace may be spread over several, and so are transcripts,
    which may repeat lines of others.
    """
    found = Recognised([], [])
    items: list[Span | LogRecord] = []
    spans_of: list[FileRead] = []
    transcripts: list[Path] = []
    names: dict[str, int] = {}
    events: dict[Path, list[tuple[FileRead, JsonObject]]] = {}
    for path in paths:
        file = FileRead(path)
        found.files.append(file)
        names[path.stem] = names.get(path.stem, 0) + 1
        count = names[path.stem]
        name = path.stem if count == 1 else f"{path.stem}-{count}"
        try:
            held = _read(path, file, name)
            if isinstance(held, _Items):
                items += held.items
                spans_of.append(file)
            elif isinstance(held, dict):
                events.setdefault(path.parent, []).append((file, held))
            elif file.format == _TRANSCRIPT:
                transcripts.append(path)
            else:
                found.cases += held
                if not held:
                    file.skipped = f"{file.format}, but without any turn"
        except (RecursionError, orjson.JSONEncodeError):
            file.skipped = "nested too deeply; expected at most 250 levels"
        except EvaltapError as error:
            file.skipped = str(error).removeprefix(f"{path}: ").removeprefix(str(path)).strip()
    for folder, held_events in events.items():
        found.cases += _of_events(folder, held_events)
    report = ReadingReport()
    turns = list(cases_of_items(items, report))
    found.cases += turns
    prompted = list(read_transcripts(transcripts))
    found.cases += prompted
    for file in found.files if not prompted else ():
        if file.format == _TRANSCRIPT:
            file.skipped = f"{_TRANSCRIPT}, but without any turn: no prompt has an answer"
    for file in spans_of if not turns else ():
        file.skipped = (
            f"{file.format}, {file.contents}, but no agent run among the spans of these files"
        )
    return found


@dataclass(frozen=True, slots=True)
class _Items:
    items: Sequence[Span | LogRecord]


def _of_events(folder: Path, events: Sequence[tuple[FileRead, JsonObject]]) -> list[CaseData]:
    """Return the cases of a conversation of OpenHands, whose events are the files of a folder."""
    name = (folder.parent if folder.name == "events" else folder).name
    conversation = conversation_of((event for _, event in events), name)
    made = cases_of(conversation, name=name) if conversation else ()
    cases = list(made)
    for file, _ in events if not cases else ():
        file.skipped = "OpenHands event, but without any turn in the files of its folder"
    return cases


def _refuse_others(path: Path) -> None:
    if is_database(path):
        raise FormatError(store_instead(path))
    if is_log(path):
        raise FormatError(log_instead(path))
    refuse_binary(path)


def _read(path: Path, file: FileRead, name: str) -> Sequence[CaseData] | _Items | JsonObject:
    """Return the cases, the spans or the event of a file; raise EvaltapError if it cannot be read."""
    _refuse_others(path)
    # Some programs write a document as a JSON text within JSON.
    documents = [
        (place, value_of(one) if isinstance(one, str) else one)
        for place, one in read_documents(path, file.notes)
    ]
    contents = [document for _, document in documents]
    whole = contents[0] if len(contents) == 1 and not documents[0][0] else contents
    if isinstance(whole, dict) and is_event(whole):
        file.format, file.contents = "OpenHands events", "1 event"
        return whole
    lines = whole if isinstance(whole, list) else [whole]
    if any(map(_is_transcript, lines)):
        file.format, file.contents = _TRANSCRIPT, counted(len(lines), "line")
        return []
    # A document may also be the only line of a file.
    if (known := conversations_in(whole) or conversations_in(lines)) is not None:
        return _turns(*known, file, name)
    if containers := [*filter(None, map(container_of, contents))]:
        file.format = containers[0][0]
        return _spans(documents, path, file)
    return _chats(whole, [place for place, _ in documents], path, file, name)


def _spans(documents: Sequence[tuple[str, object]], path: Path, file: FileRead) -> _Items:
    items = list(items_of(documents, path=str(path), skipped=file.notes))
    spans = sum(isinstance(item, Span) for item in items)
    file.contents = counted(spans, "span")
    if file.format in _TRACES:
        file.notes.append("calls, which a list of traces does not have; export the spans, too")
    if len(items) > spans:
        file.contents += f", {counted(len(items) - spans, 'log record')}"
    return _Items(items)


def _turns(
    form: str, conversations: Sequence[Conversation], file: FileRead, name: str
) -> list[CaseData]:
    """Return the cases of the conversations in a file; those without an id are named after it."""
    file.format, file.contents = form, counted(len(conversations), "session")
    return [
        case
        for number, one in enumerate(conversations, start=1)
        for case in cases_of(one, name=name if len(conversations) == 1 else f"{name}-{number}")
    ]


def _is_transcript(line: object) -> bool:
    """Return whether a line is a message of a Claude Code session."""
    return (
        isinstance(line, dict)
        and line.get("type") in ("user", "assistant")
        and "sessionId" in line
        and isinstance(line.get("message"), dict)
        and "content" in line["message"]
    )


def _without_messages(empty: Sequence[int], places: Sequence[str]) -> str:
    where = [places[n] if len(places) > 1 else f"[{n}]" for n in empty]
    return f"{counted(len(empty), 'chat')} without messages ({some_of(where, _PLACES_SHOWN)})"


def _case_of(row: Mapping[str, Json], number: int, path: str, place: str, eval_id: str) -> CaseData:
    """Return the case of a row, named `eval_id` if the row does not say."""
    case = row_case(row, Columns(), number=number, app_name="", path=path, place=place)
    if not row.keys() & {"id", "evalId", "eval_id", "session_id"}:
        case["evalId"] = eval_id
    return case


def _chats(
    whole: object, places: Sequence[str], path: Path, file: FileRead, name: str
) -> list[CaseData]:
    """Return the cases of model calls, of a chat, of rows with chats, or of an eval set."""
    numbers: Sequence[int] = ()
    if isinstance(whole, list) and (empty := _empty_chats(whole)):
        file.notes.append(_without_messages(empty, places))
        numbers = sorted({*range(len(whole))} - {*empty})
        whole = [whole[n] for n in numbers]
    if (calls := calls_in(whole)) is not None:
        if bare := calls[1]:
            file.notes.append(f"{counted(bare, 'model call')} without messages, as for embeddings")
        return _turns("model calls", calls[0], file, name)
    if (chat := messages_in(whole)) is not None:
        return _turns("chat messages", chat, file, name)
    rows, file.format = _rows(whole, str(path), name)
    file.contents = counted(len(rows), "chat" if file.format == "chat messages" else "case")
    if file.format == "ADK eval set":
        file.contents += ", with the turns of their conversations"
    made = []
    for number, row in zip(numbers or range(len(rows)), rows, strict=True):
        place = f"[{number}]" if len(rows) > 1 else ""
        if file.format in _EVAL_SETS:
            made.append(case_data(row, path=str(path), place=place))
        else:
            eval_id = f"{name}-{number + 1}" if place else name
            made.append(_case_of(row, number + 1, str(path), place, eval_id))
    cases = [case for case in made if case.get("actualConversation")]
    if rows and not cases:
        raise FormatError(
            f"{file.format}, {file.contents}, but no recorded turns, only questions to run"
        )
    if len(cases) < len(rows):
        file.notes.append(f"{counted(len(rows) - len(cases), 'case')} without recorded turns")
    return cases


def _empty_chats(whole: object) -> list[int]:
    """Return the indexes of empty chats in a list of chats; none if all are empty, or for other documents."""
    chats = [*map(_chat_in, whole)] if isinstance(whole, list) else []
    if not any(chats) or not all(isinstance(one, list) for one in chats):
        return []
    return [n for n, one in enumerate(chats) if not one]


def _chat_in(item: Json) -> Json:
    if isinstance(item, dict):
        return next((item[key] for key in _CHAT if key in item), None)
    return item


_Rows = tuple[list[Mapping[str, Json]], str]


def _rows(whole: object, path: str, name: str) -> _Rows:
    """Return the rows of a document and the name of its format; raise FormatError for other documents."""
    if is_older_eval_file(whole) and isinstance(whole, list):
        whole = newer_eval_set(whole, name, path=path)
    found: _Rows | None = None
    if is_dialogue(whole):
        found = [{"messages": whole}], "chat messages"
    elif isinstance(whole, dict):
        found = _rows_of_object(whole, path, name)
    elif isinstance(whole, list) and whole:
        found = _rows_of_list(whole)
    if found is None:
        first = whole[0] if isinstance(whole, list) and whole else whole
        if isinstance(first, dict) and first.get("object") in ("trace", "trace.span"):
            raise FormatError(_AGENTS_SDK)
        raise FormatError(f"not recognised: {_shown(whole)}")
    return found


def _rows_of_object(whole: JsonObject, path: str, name: str) -> _Rows | None:
    form = "eval result"
    if is_adk_result(whole):
        whole, form = from_adk_result(whole, path=path), "ADK eval result"
    if results := objects(whole.get("evalCaseResults")):
        return [*map(_of_result, results)], form
    if is_adk_eval_set(whole):
        made = _cases_of_adk(whole, path)
        if any("actualConversation" in case for case in made):
            return made, "eval set"
        return _recorded(made), "ADK eval set"
    if is_trajectory(whole):
        return [whole], "chat messages"
    if is_inspect_log(whole):
        return [one for one in samples_of(whole) if isinstance(one, dict)], "Inspect log"
    if is_results(whole):
        return _results(whole["results"]["results"])
    for read, form in _REPORTS:
        if rows := objects(read(whole)):
            return [{"id": row.get("name"), **row} for row in rows], form
    given = whole.get("evalCases")
    return (given, "eval set") if isinstance(given, list) else None


def _of_result(result: JsonObject) -> JsonObject:
    """Return the case of a result that tRPC-Agent-Go or evaltap wrote."""
    turns = objects(result.get("evalMetricResultPerInvocation"))
    case: JsonObject = {
        "evalId": result.get("evalId"),
        "evalMode": "trace",
        "actualConversation": [one.get("actualInvocation") for one in turns],
        "sessionInput": {"userId": result.get("userId") or ""},
    }
    if run := result.get("runId"):
        case["source"] = {"run": f"run-{run}"}
    return case


def _results(results: Sequence[Json]) -> _Rows | None:
    """Return the rows of results of promptfoo or Phoenix; None for others."""
    given = [one for one in numbered(results) if isinstance(one, dict)]
    for shape, form in (
        (promptfoo_result, "promptfoo results"),
        (phoenix_run, "Phoenix experiment"),
    ):
        rows = [row for one in given if (row := shape(one)) is not None]
        if len(rows) == len(results):
            return rows, form
    return None


def _rows_of_list(whole: list[Json]) -> _Rows | None:
    if all(isinstance(one, dict) for one in whole):
        if (results := _results(whole)) is not None:
            return results
        if all("evalId" in one for one in whole):
            return whole, "eval set"
        if all(map(is_trajectory, whole)):
            return whole, "chat messages"
    if all(map(is_dialogue, whole)):
        return [{"messages": one} for one in whole], "chat messages"
    return None


def _cases_of_adk(eval_set: Mapping[str, Json], path: str) -> list[Mapping[str, Json]]:
    return list(from_adk(eval_set, path=path).model_dump(by_alias=True).get("evalCases", []))


def _recorded(cases: Sequence[Mapping[str, Json]]) -> list[Mapping[str, Json]]:
    """Return cases with their conversations as recorded ones."""
    return [
        {**case, "conversation": [], "actualConversation": case.get("conversation")}
        for case in cases
    ]


def _shown(whole: object) -> str:
    """Return what a document is, for an error."""
    if isinstance(whole, list) and whole:
        return f"found {counted(len(whole), 'item')}, the first {_shown(whole[0]).removeprefix('found ')}"
    if isinstance(whole, dict):
        keys = ", ".join(map(str, [*whole][:_KEYS_SHOWN])) or "none"
        more = "…" if len(whole) > _KEYS_SHOWN else ""
        return f"found an object with the keys {keys}{more}"
    return f"found {describe(whole)}"


def files_in(paths: Sequence[Path]) -> Iterator[Path]:
    """Yield the files, and those in folders and below, without hidden ones; each once."""
    files = (file for path in paths for file in _below(path))
    yield from {os.path.realpath(file): file for file in files}.values()


def _below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for file in sorted(path.rglob("*")):
        hidden = any(part.startswith(".") for part in file.relative_to(path).parts)
        if file.is_file() and not hidden:
            yield file
