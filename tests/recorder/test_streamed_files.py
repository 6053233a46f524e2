"""`stream_cases`: turns of long files are read while the file is, and are those of the file as a whole."""

import gzip
import json
import os
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from evaltap.cli.main import main
from evaltap.recorder.sources.otlp_files import (
    ReadingReport,
    last_documents,
    read_cases,
    stream_cases,
)
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError
from support.builders.span_builders import in_base64
from support.corpora.span_facts import captures, files_of

Request = dict[str, Any]
LANGCHAIN = "langchain-openinference"


def requests(*, langchain: bool = False) -> list[Request]:
    """Return the spans and log records of captures, each as a request of its own, in random order."""
    found: list[Request] = []
    for name in captures():
        if name.startswith(LANGCHAIN) is langchain:
            for path in files_of(name):
                found += apart(json.loads(path.read_text()))
    random.Random(1).shuffle(found)
    return found


def apart(request: Request) -> Iterator[Request]:
    """Yield the parts of a request."""
    for kind, records in (("Spans", "spans"), ("Logs", "logRecords")):
        for resource in request.get(f"resource{kind}", ()):
            for scope in resource[f"scope{kind}"]:
                for record in scope[records]:
                    one = {**resource, f"scope{kind}": [{**scope, records: [record]}]}
                    yield {f"resource{kind}": [one]}


def lines(path: Path, found: list[Request]) -> Path:
    """Write requests as JSON Lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in found))
    return path


def packed(path: Path, found: list[Request]) -> Path:
    """Write requests as gzipped JSON Lines."""
    path.write_bytes(gzip.compress(lines(path, found).read_bytes()))
    return path


def framed(path: Path, found: list[Request]) -> Path:
    """Write requests as a Collector's file exporter writes protobuf: each with its length."""
    with path.open("wb") as file:
        for one in found:
            message = ParseDict(in_base64(one), ExportTraceServiceRequest()).SerializeToString()
            file.write(len(message).to_bytes(4, "big") + message)
    return path


def streamed(*paths: Path, report: ReadingReport | None = None) -> list[CaseData]:
    return list(stream_cases(paths, report=report or ReadingReport()))


def by_turn(cases: list[CaseData]) -> list[Any]:
    """Return the turns in an order of their own, apart from context that a session has already."""
    turns = [(case["evalId"], case["actualConversation"][0]) for case in cases]
    return sorted(
        json.dumps([name, {**turn, "contextMessages": None}], sort_keys=True)
        for name, turn in turns
    )


@pytest.mark.parametrize("langchain", [False, True])
@pytest.mark.parametrize("write", [lines, packed])
def test_traces_that_interleave_are_the_turns_of_the_whole_file(
    tmp_path: Path, write: Callable[[Path, list[Request]], Path], langchain: bool
) -> None:
    path = write(tmp_path / "t.jsonl", requests(langchain=langchain))
    report, whole = ReadingReport(), ReadingReport()

    cases = streamed(path, report=report)

    assert last_documents([path]) is not None
    assert len(cases) > 10
    assert by_turn(cases) == by_turn(list(read_cases([path], report=whole)))
    assert report == whole


def test_a_trace_in_two_files_is_one_turn(tmp_path: Path) -> None:
    found = requests()
    first = lines(tmp_path / "1.jsonl", found[::2])
    second = lines(tmp_path / "2.jsonl", found[1::2])

    assert by_turn(streamed(first, second)) == by_turn(streamed(lines(tmp_path / "t.jsonl", found)))


def test_protobuf_is_read_message_by_message(tmp_path: Path) -> None:
    found = [one for one in requests() if "resourceSpans" in one]
    path = framed(tmp_path / "t.binpb", found)

    assert last_documents([path]) is not None
    assert by_turn(streamed(path)) == by_turn(streamed(lines(tmp_path / "t.jsonl", found)))


def test_a_turn_is_there_before_the_rest_of_the_file_was_read(tmp_path: Path) -> None:
    (path,) = files_of("pydantic-ai-v5/single_tool")
    file = tmp_path / "t.jsonl"
    file.write_text(json.dumps(json.loads(path.read_text())) + '\n{"resourceSpans": 1}\n')

    cases = stream_cases([file], report=ReadingReport())

    assert by_turn([next(cases)]) == by_turn(list(read_cases([path])))
    with pytest.raises(FormatError, match="line 2"):
        next(cases)


def test_a_trace_is_not_done_while_another_file_may_have_more_of_it(tmp_path: Path) -> None:
    (path,) = files_of("pydantic-ai-v5/single_tool")
    parts = list(apart(json.loads(path.read_text())))
    jsonl = lines(tmp_path / "a.jsonl", parts[1:])
    pretty = tmp_path / "b.json"
    pretty.write_text(json.dumps(parts[0], indent=1))

    assert last_documents([jsonl, pretty]) is None
    assert by_turn(streamed(jsonl, pretty)) == by_turn(list(read_cases([path])))


def test_a_link_to_a_trace_does_not_end_it_early(tmp_path: Path) -> None:
    (path,) = files_of("pydantic-ai-v5/single_tool")
    parts = list(apart(json.loads(path.read_text())))
    linking = json.loads(json.dumps(parts[0]))
    (span,) = linking["resourceSpans"][0]["scopeSpans"][0]["spans"]
    trace_id = span["traceId"]
    span.update(
        traceId="f" * 32, parentSpanId="", links=[{"traceId": trace_id, "spanId": "a" * 16}]
    )

    cases = streamed(lines(tmp_path / "t.jsonl", [linking, *parts, linking]))

    whole = by_turn(list(read_cases([path])))
    assert [one for one in by_turn(cases) if one in whole] == whole


def test_runs_whose_model_calls_have_traces_of_their_own_are_read_at_the_end(
    tmp_path: Path,
) -> None:
    found = requests(langchain=True)
    client = json.loads(json.dumps(found[0]))
    client["resourceSpans"][0]["scopeSpans"][0]["scope"] = {"name": "openinference.openai"}
    path = lines(tmp_path / "t.jsonl", [*found, client])

    assert last_documents([path]) is None
    assert by_turn(streamed(path)) == by_turn(list(read_cases([path])))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no named pipes")
def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    pipe, path = tmp_path / "pipe", lines(tmp_path / "t.jsonl", requests())
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(path.read_bytes()))
    writer.start()

    cases = streamed(pipe)

    writer.join()
    assert by_turn(cases) == by_turn(streamed(path))


def test_the_last_line_of_a_file_that_is_being_written_is_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = lines(tmp_path / "t.jsonl", requests())
    path.write_text(path.read_text() + '{"resourceSpans": [{"reso')

    assert main(["record", "otlp", str(path), "--log", str(tmp_path / "l.db")]) == 0

    assert "the last line: it is truncated" in capsys.readouterr().err


def test_a_file_without_runs_leaves_no_log(tmp_path: Path) -> None:
    log = tmp_path / "l.db"
    path = lines(tmp_path / "t.jsonl", [{"resourceSpans": []}, {"resourceSpans": []}])

    assert main(["record", "otlp", str(path), "--log", str(log)]) == 2

    assert not log.exists()
