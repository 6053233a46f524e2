"""An OTLP/HTTP receiver: what instrumented agents export becomes turns on a log.

An ASGI application for `/v1/traces` and `/v1/logs`, as the OTLP specification has them: protobuf and
JSON, gzip, answers in the request's own encoding, status codes that tell an exporter whether to try
again.  Size limits hold while a body is inflated, not after.  Unlike a span processor it does not live
in an agent's process, so it may refuse: when its memory is full it answers 503 and the exporter waits.
"""

import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson
from google.protobuf.json_format import ParseDict
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from evaltap.recorder.faults import RequestRefusedError
from evaltap.recorder.observation import Observation
from evaltap.recorder.recorder import Recorder
from evaltap.recorder.telemetry import otlp_protobuf
from evaltap.recorder.telemetry.otlp_json import decode_request
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.source import TraceSource
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import FormatError

RETRY_AFTER_SECONDS = 1
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_INVALID_ARGUMENT, _UNAVAILABLE, _RESOURCE_EXHAUSTED = 3, 14, 8


@dataclass(frozen=True, slots=True)
class CollectorLimits:
    """What the receiver takes and holds, in bytes."""

    body: int = 20 << 20
    """Largest body, also after inflating; the limit that the OTLP specification recommends."""
    waiting: int = 128 << 20
    """Largest sum of bodies that were accepted and are not yet read."""


@dataclass(frozen=True, slots=True)
class Received:
    """The spans or log records of one request."""

    records: tuple[Span | LogRecord, ...]
    size: int


class ReceivedSource:
    """Feeds requests into the gathering of traces, and knows how much is waiting to be fed."""

    def __init__(self, max_waiting_bytes: int) -> None:
        self._source = TraceSource()
        self._max_waiting = max_waiting_bytes
        self._lock = threading.Lock()
        self._waiting = 0

    def admit(self, size: int) -> bool:
        """Count a body as waiting, unless there is no room for it."""
        with self._lock:
            if self._waiting + size > self._max_waiting:
                return False
            self._waiting += size
            return True

    def release(self, size: int) -> None:
        """Count a body as read, or as not taken after all."""
        with self._lock:
            self._waiting -= size

    def process(self, item: object) -> Iterable[Observation]:
        """Take one request."""
        if not isinstance(item, Received):
            yield from self._source.process(item)
            return
        try:
            for record in item.records:
                yield from self._source.process(record)
        finally:
            self.release(item.size)

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return the observations of the traces that are complete or overdue."""
        return self._source.tick(now_ns)

    def close(self) -> Iterable[Observation]:
        """Return the observations of everything still held."""
        return self._source.close()


def application(recorder: Recorder, limits: CollectorLimits | None = None) -> Starlette:
    """Return the ASGI application that records what it receives with `recorder`."""
    limits = limits or CollectorLimits()
    source = ReceivedSource(limits.waiting)
    recorder.register(source)

    def receiver(decode: Callable[[bytes], JsonObject], answer: type[Any]) -> Any:
        async def receive(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            try:
                if kind not in (_JSON, _PROTOBUF):
                    raise RequestRefusedError(
                        415,
                        _INVALID_ARGUMENT,
                        f"content type {kind or '(none)'}; expected {_PROTOBUF} or {_JSON}",
                    )
                body = await _body(request, limits.body)
                _take(recorder, source, body, kind, decode)
            except RequestRefusedError as refused:
                return _refusal(refused, kind)
            return _encoded(answer(), kind)

        return receive

    async def health(_: Request) -> Response:
        counters = recorder.counters()
        data = {
            "recorded": counters.recorded,
            "delivered": counters.delivered,
            "spooled": counters.spooled,
            "dropped": dict(counters.dropped),
            "openTurns": counters.open_turns,
        }
        return Response(orjson.dumps(data), media_type=_JSON)

    traces = receiver(otlp_protobuf.decode_traces, ExportTraceServiceResponse)
    logs = receiver(otlp_protobuf.decode_logs, ExportLogsServiceResponse)
    return Starlette(
        routes=[
            Route("/v1/traces", traces, methods=["POST"]),
            Route("/v1/logs", logs, methods=["POST"]),
            Route("/health", health, methods=["GET"]),
        ]
    )


def _take(
    recorder: Recorder,
    source: ReceivedSource,
    body: bytes,
    kind: str,
    decode: Callable[[bytes], JsonObject],
) -> None:
    """Decode a body and hand its records to the recorder, all of them or none."""
    try:
        document = _document(body) if kind == _JSON else decode(body)
        records = tuple(decode_request(document)) if document else ()
    except FormatError as error:
        raise RequestRefusedError(400, _INVALID_ARGUMENT, str(error)) from None
    if not records:
        return
    if not source.admit(len(body)):
        raise RequestRefusedError(503, _UNAVAILABLE, "too much is waiting to be read; try again")
    if not recorder.submit(source, Received(records, len(body))):
        source.release(len(body))
        raise RequestRefusedError(503, _UNAVAILABLE, "the recorder takes nothing now; try again")


def _document(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"not valid JSON ({error})") from None


async def _body(request: Request, limit: int) -> bytes:
    """Return the body, inflated; never holds more than `limit` bytes of it."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "identity", ""):
        raise RequestRefusedError(
            415, _INVALID_ARGUMENT, f"content encoding {encoding}; expected gzip or none"
        )
    whole = bytearray()
    chunks = _inflated(request, limit) if encoding == "gzip" else request.stream()
    async for chunk in chunks:
        whole += chunk
        if len(whole) > limit:
            raise RequestRefusedError(
                413,
                _RESOURCE_EXHAUSTED,
                f"the body is larger than {limit} bytes; send less at once",
            )
    return bytes(whole)


async def _inflated(request: Request, limit: int) -> AsyncIterator[bytes]:
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    try:
        async for chunk in request.stream():
            pending = chunk
            while pending:
                # At most one byte over the limit is ever produced: a bomb does not go off.
                yield inflater.decompress(pending, limit + 1)
                pending = inflater.unconsumed_tail
    except zlib.error as error:
        raise RequestRefusedError(400, _INVALID_ARGUMENT, f"not gzip: {error}") from None
    if not inflater.eof:
        raise RequestRefusedError(400, _INVALID_ARGUMENT, "the gzip body ends too early")


def _refusal(refused: RequestRefusedError, kind: str) -> Response:
    status = ParseDict({"code": refused.code, "message": str(refused)}, Status())
    response = _encoded(status, kind, refused.status)
    if refused.status == 503:
        response.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return response


def _encoded(message: Any, kind: str, status: int = 200) -> Response:
    if kind == _PROTOBUF:
        return Response(message.SerializeToString(), status, media_type=_PROTOBUF)
    from google.protobuf.json_format import MessageToDict

    return Response(orjson.dumps(MessageToDict(message)), status, media_type=_JSON)
