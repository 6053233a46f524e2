"""The OTLP receiver: data from real exporters results in the same cases as files."""

import gzip
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.sources.collector import CollectorLimits, application
from evaltap.recorder.sources.otlp_files import read_cases
from evaltap.recorder.telemetry.otlp_json import read_otlp_file
from evaltap.recorder.telemetry.otlp_protobuf import decode_any
from evaltap.schemas.errors import FormatError
from evaltap.schemas.wire.record import DecodedCase, decode_record
from support.builders.span_builders import in_base64

SPANS = Path(__file__).parents[1] / "data/spans"
CASE = SPANS / "adk-v2span/parallel_tools.otlp.json"
Answer = tuple[int, dict[str, str], bytes]


@contextmanager
def serving(recorder: Recorder, limits: CollectorLimits | None = None) -> Iterator[str]:
    """Serve the receiver on a free port; yield its address."""
    import uvicorn

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        server = uvicorn.Server(
            uvicorn.Config(application(recorder, limits), log_level="error", lifespan="off")
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@pytest.fixture
def recorder() -> Iterator[tuple[Recorder, MemorySink]]:
    sink = MemorySink()
    recorder = Recorder(sink=sink, redaction=False)
    yield recorder, sink
    recorder.close()


def post(url: str, body: bytes, kind: str = "application/json", **headers: str) -> Answer:
    given = {
        "content-type": kind,
        **{key.replace("_", "-"): value for key, value in headers.items()},
    }
    request = urllib.request.Request(url, body, given)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, dict(answer.headers), answer.read()
    except urllib.error.HTTPError as error:
        return (
            error.code,
            {key.lower(): value for key, value in error.headers.items()},
            error.read(),
        )


def recorded(recorder: Recorder, sink: MemorySink) -> list[dict[str, Any]]:
    assert recorder.close(10)
    found = [decode_record(record) for record in sink.records]
    return [case.case for case in found if isinstance(case, DecodedCase)]


def essence(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return what cases say, whatever way they came in."""
    kept = ("evalId", "actualConversation", "sessionInput")
    return sorted(({key: case.get(key) for key in kept} for case in cases), key=str)


def protobuf(path: Path) -> bytes:
    """Return an OTLP/JSON file as protobuf."""
    request = ExportLogsServiceRequest() if ".logs." in path.name else ExportTraceServiceRequest()
    document = in_base64(json.loads(path.read_text()))
    message: bytes = ParseDict(document, request, ignore_unknown_fields=True).SerializeToString()
    return message


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("kind", ["application/json", "application/x-protobuf"])
def test_what_is_posted_becomes_the_cases_of_the_file(
    recorder: tuple[Recorder, MemorySink], kind: str, compressed: bool
) -> None:
    body = CASE.read_bytes() if kind == "application/json" else protobuf(CASE)
    headers = {"content_encoding": "gzip"} if compressed else {}
    with serving(recorder[0]) as url:
        status, _, answer = post(
            f"{url}/v1/traces", gzip.compress(body) if compressed else body, kind, **headers
        )

    assert (status, answer) == (200, b"{}" if kind == "application/json" else b"")
    assert essence(recorded(*recorder)) == essence(list(read_cases([CASE])))


@pytest.mark.parametrize("variant", sorted(path.name for path in SPANS.iterdir() if path.is_dir()))
def test_every_captured_trace_comes_out_as_from_its_files(
    recorder: tuple[Recorder, MemorySink], variant: str
) -> None:
    files = sorted((SPANS / variant).glob("*.otlp.json"))
    with serving(recorder[0]) as url:
        for path in files:
            signal_name = "logs" if ".logs." in path.name else "traces"
            assert post(f"{url}/v1/{signal_name}", path.read_bytes())[0] == 200

    assert essence(recorded(*recorder)) == essence(list(read_cases(files)))


def test_the_real_exporter_is_understood(recorder: tuple[Recorder, MemorySink]) -> None:
    with serving(recorder[0]) as url:
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{url}/v1/traces")))
        with provider.get_tracer("t").start_as_current_span(
            "invoke_agent a",
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.conversation.id": "s-1",
                "gen_ai.input.messages": json.dumps(
                    [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
                ),
                "gen_ai.output.messages": json.dumps(
                    [{"role": "assistant", "parts": [{"type": "text", "content": "hello"}]}]
                ),
            },
        ):
            pass
        provider.shutdown()

    (case,) = recorded(*recorder)
    assert case["evalId"] == "s-1"
    assert case["actualConversation"][0]["finalResponse"]["content"] == "hello"


NO_TRACE_ID = b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}]}'


@pytest.mark.parametrize(
    ("body", "kind", "headers", "status"),
    [
        (b"{", "application/json", {}, 400),
        (b'{"resourceSpans": 3}', "application/json", {}, 400),
        (NO_TRACE_ID, "application/json", {}, 400),
        (b"\x0a\xff\xff", "application/x-protobuf", {}, 400),
        (b"{}", "text/plain", {}, 415),
        (b"{}", "application/json", {"content_encoding": "br"}, 415),
        (b"not gzip", "application/json", {"content_encoding": "gzip"}, 400),
        (gzip.compress(b"{}" * 1000, mtime=0)[:-9], "application/json", {"content_encoding": "gzip"}, 400),
        (b" " * 300_000, "application/json", {}, 413),
        (gzip.compress(b" " * 50_000_000, mtime=0), "application/json", {"content_encoding": "gzip"}, 413),
    ],
)  # fmt: skip
def test_what_cannot_be_taken_is_refused_in_the_senders_encoding(
    recorder: tuple[Recorder, MemorySink],
    body: bytes,
    kind: str,
    headers: dict[str, str],
    status: int,
) -> None:
    with serving(recorder[0], CollectorLimits(body=200_000)) as url:
        found, answered, answer = post(f"{url}/v1/traces", body, kind, **headers)

    assert found == status
    if kind == "application/json":
        assert json.loads(answer)["message"]
    if kind == "application/x-protobuf":
        assert answered["content-type"] == kind
    assert recorded(*recorder) == []


@pytest.mark.parametrize(
    "broken", [{"traceId": "00" * 16}, {"traceId": "ab"}, {"startTimeUnixNano": "soon"}]
)
def test_a_span_that_is_invalid_does_not_cost_those_that_a_gateway_sends_with_it(
    recorder: tuple[Recorder, MemorySink], broken: dict[str, Any]
) -> None:
    document = json.loads(CASE.read_text())
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]
    spans.insert(0, spans[0] | broken)
    with serving(recorder[0]) as url:
        status, _, answer = post(f"{url}/v1/traces", json.dumps(document).encode())

    assert status == 200
    told = json.loads(answer)["partialSuccess"]
    assert told["rejectedSpans"] == "1"
    assert "spans[0]" in told["errorMessage"]
    assert len(recorded(*recorder)) == 1


@pytest.mark.parametrize("body", [b"{}", b'{"resourceSpans": []}'])
def test_an_empty_request_is_a_success(recorder: tuple[Recorder, MemorySink], body: bytes) -> None:
    with serving(recorder[0]) as url:
        assert post(f"{url}/v1/traces", body, "application/json; charset=utf-8")[0] == 200
        assert post(f"{url}/v1/logs", b"", "application/x-protobuf")[0] == 200
        with urllib.request.urlopen(f"{url}/health") as health:
            assert json.load(health)["recorded"] == 0


def test_when_too_much_is_waiting_the_sender_is_told_to_try_again(
    recorder: tuple[Recorder, MemorySink],
) -> None:
    with serving(recorder[0], CollectorLimits(waiting=100)) as url:
        status, headers, answer = post(f"{url}/v1/traces", CASE.read_bytes())

    assert (status, headers["retry-after"], json.loads(answer)["code"]) == (503, "1", 14)
    assert recorded(*recorder) == []


def test_sigterm_closes_open_runs_writes_them_and_ends_with_0(tmp_path: Path) -> None:
    program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", program, "collect", "--log", "log.db", "--port", "0"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    address = process.stderr.readline().split()[2]
    spans = json.loads(CASE.read_text())
    for resource in spans["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            scope["spans"] = [span for span in scope["spans"] if "invoke" not in span["name"]]
    assert post(address, json.dumps(spans).encode())[0] == 200
    os.kill(process.pid, signal.SIGTERM)
    _, said = process.communicate(timeout=30)

    assert process.returncode == 0, said
    source = LocalLogSource(tmp_path / "log.db")
    cases = [decode_record(found.record) for found in source.poll(100, 0).records]
    source.close()
    turns = [case for case in cases if isinstance(case, DecodedCase)]
    assert [case.case["actualConversation"][0]["telemetry"]["status"] for case in turns] == [
        "incomplete"
    ]


def test_a_taken_port_is_explained(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from evaltap.cli.main import main

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])

        assert main(["collect", "--log", str(tmp_path / "log.db"), "--port", port]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("framed", [False, True])
def test_protobuf_files_read_like_json_files(tmp_path: Path, packed: bool, framed: bool) -> None:
    data = protobuf(CASE)
    if framed:
        data = len(data).to_bytes(4, "big") + data
    path = tmp_path / "traces.bin"
    path.write_bytes(gzip.compress(data) if packed else data)

    assert essence(list(read_cases([path]))) == essence(list(read_cases([CASE])))


def test_a_gzipped_json_file_is_read_and_a_cut_one_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "traces.json.gz"
    path.write_bytes(gzip.compress(CASE.read_bytes()))
    assert essence(list(read_cases([path]))) == essence(list(read_cases([CASE])))

    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(FormatError, match="not a whole gzip file"):
        list(read_otlp_file(path))


def test_log_requests_are_told_from_traces(tmp_path: Path) -> None:
    logs = SPANS / "adk-v2span/parallel_tools.logs.otlp.json"

    document = decode_any(protobuf(logs))

    assert set(document) == {"resourceLogs"}


def test_json_that_begins_with_a_line_break_is_no_protobuf(tmp_path: Path) -> None:
    path = tmp_path / "traces.json"
    path.write_bytes(b"\n" + CASE.read_bytes())

    assert list(read_otlp_file(path))
