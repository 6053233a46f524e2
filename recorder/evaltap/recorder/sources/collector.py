"""An OTLP/HTTP receiver: telemetry exported by instrumented agents becomes turns on a log.

An ASGI application for `/v1/traces` and `/v1/logs` following the OTLP specification: protobuf and
JSON, gzip, responses in the request's encoding, status codes that tell an exporter whether to
retry. Size limits apply while a body is inflated, not after. Unlike a span processor it does not
live in an agent's process, so it may refuse: when more waits than it can write soon it answers 503
and the exporter waits.
"""

import asyncio
import hmac
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final

import orjson
from google.protobuf.json_format import ParseDict
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from evaltap.recorder.faults import RequestRefusedError
from evaltap.recorder.observation import Observation
from evaltap.recorder.pacing import set_pace
from evaltap.recorder.recorder import Recorder
from evaltap.recorder.telemetry import otlp_protobuf, parts
from evaltap.recorder.telemetry.otlp_json import decode_request
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.source import TraceSource
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import FormatError

RETRY_AFTER_SECONDS = 1
_FIRST_TURN_SECONDS = 0.003
"""What a turn is taken to cost before any was written: more than on most machines."""
_WEIGHT_OF_A_TURN = 0.02
TOKEN_VARIABLE = "EVALTAP_COLLECT_TOKEN"
_JSON, _PROTOBUF = "application/json", "application/x-protobuf"
_UNAUTHENTICATED = 16
_NAMES_OF_THIS_MACHINE = frozenset({"localhost", "127.0.0.1", "[::1]"})


@dataclass(frozen=True, slots=True)
class CollectorLimits:
    """The receiver's limits, in bytes."""

    body: int = 20 << 20
    """Largest body, also after inflating; the limit recommended by the OTLP specification."""
    json_body: int = 4 << 20
    """Largest JSON body, which is costlier to read."""
    reading: int = 64 << 20
    """Largest total size of bodies being received."""
    waiting: int = 48 << 20
    """Largest total size of accepted bodies not yet read."""
    unread_seconds: float = 2.0
    """How long the oldest accepted body may wait to be read before others are refused."""
    work_seconds: float = 3.0
    """How much work may wait: what is accepted must be written when the process is told to end."""
    seconds: float = 30.0
    """Time limit for receiving a body."""


@dataclass(frozen=True, slots=True)
class CollectorAccess:
    """Who may send.

    `token` is the required bearer token; `local` accepts only requests addressed to this machine.
    """

    token: str = field(default="", repr=False)
    local: bool = False

    def check(self, request: Request) -> None:
        """Raise RequestRefusedError for a request that is not allowed."""
        host = request.headers.get("host", "").strip().lower()
        if self.local and re.sub(r":\d+$", "", host) not in _NAMES_OF_THIS_MACHINE:
            # DNS rebinding: a web page in a local browser may use its own host name for this
            # address.
            raise RequestRefusedError(403, INVALID_ARGUMENT, "the request is for another host")
        if not self.knows(request):
            raise RequestRefusedError(
                401, _UNAUTHENTICATED, f"no valid bearer token; expected that of {TOKEN_VARIABLE}"
            )

    def knows(self, request: Request) -> bool:
        """Return whether the request has the token, or none is required."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return not self.token or (right and kind.lower() == "bearer")


@dataclass(frozen=True, slots=True)
class Received:
    """The spans or log records of one request."""

    records: tuple[Span | LogRecord, ...]
    size: int
    traces: int
    """How many traces they belong to."""


class ReceivedSource:
    """Feeds requests to the trace source, and refuses them when too much waits.

    A turn costs its reading, redaction and writing: the time from one turn to the next while several are due.
    """

    def __init__(self, limits: CollectorLimits) -> None:
        self._source = TraceSource()
        self._limits = limits
        self._budget = ByteBudget(limits.waiting)
        self._unread: deque[tuple[float, int]] = deque()
        """When each request that waits was accepted, and its traces."""
        self._unread_traces = 0
        self._turn_seconds = _FIRST_TURN_SECONDS

    def reserve(self, size: int) -> None:
        """Make room for a body; raises RequestRefusedError when it would wait for too long."""
        waits = self._unread_traces + self._source.buffer.ended
        if waits * self._turn_seconds > self._limits.work_seconds or self._oldest_waits_too_long():
            raise RequestRefusedError(
                503, UNAVAILABLE, "too many turns are not written yet; retry later"
            )
        if not self._budget.reserve(size):
            raise RequestRefusedError(503, UNAVAILABLE, "too many bodies are queued; retry later")

    def release(self, size: int) -> None:
        """Return the room of a body that is not submitted."""
        self._budget.release(size)

    def submit(self, recorder: Recorder, records: tuple[Span | LogRecord, ...], size: int) -> bool:
        """Submit the records of a request; only one thread calls it."""
        traces = len({record.trace_id for record in records})
        self._unread.append((time.monotonic(), traces))
        self._unread_traces += traces
        if recorder.submit(self, Received(records, size, traces)):
            return True
        self._unread.pop()
        self._unread_traces -= traces
        return False

    def process(self, item: object) -> Iterable[Observation]:
        """Process one request."""
        set_pace(None)  # no agent waits for this process, so its recorder never rests
        if not isinstance(item, Received):
            yield from self._source.process(item)
            return
        try:
            for record in item.records:
                yield from self._source.process(record)
        finally:
            self._budget.release(item.size)
            self._unread.popleft()
            self._unread_traces -= item.traces

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return the observations of complete or overdue traces."""
        before: float | None = None
        for run in self._source.tick(now_ns):
            now = time.monotonic()
            if before is not None:
                self._turn_seconds += (now - before - self._turn_seconds) * _WEIGHT_OF_A_TURN
            before = now
            yield run

    def close(self) -> Iterable[Observation]:
        """Return the observations of everything still held."""
        return self._source.close()

    def _oldest_waits_too_long(self) -> bool:
        try:
            accepted, _ = self._unread[0]
        except IndexError:
            return False
        return time.monotonic() - accepted > self._limits.unread_seconds

    def abandon(self, items: Sequence[object]) -> int:
        """Discard everything held and these requests; count each trace that an agent may have written."""
        requests = [item.records for item in items if isinstance(item, Received)]
        return self._source.abandon(list(chain.from_iterable(requests)))


def application(
    recorder: Recorder, limits: CollectorLimits | None = None, access: CollectorAccess | None = None
) -> Starlette:
    """Return the ASGI application that records what it receives with `recorder`.

    Bodies are decoded one at a time on a separate thread, so that a large one does not block
    requests.
    """
    limits, access = limits or CollectorLimits(), access or CollectorAccess()
    source, reading = ReceivedSource(limits), ByteBudget(limits.reading)
    recorder.register(source)
    decoder = ThreadPoolExecutor(1, thread_name_prefix="evaltap-decode")

    def receiver(
        decode: Callable[[bytes], JsonObject], table: Any, answer: Callable[[Sequence[str]], Any]
    ) -> Any:
        async def receive(request: Request) -> Response:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            try:
                access.check(request)
                if kind not in (_JSON, _PROTOBUF):
                    raise RequestRefusedError(
                        415,
                        INVALID_ARGUMENT,
                        f"content type {kind or '(none)'}; expected {_PROTOBUF} or {_JSON}",
                    )
                limit = min(limits.body, limits.json_body) if kind == _JSON else limits.body
                body = await read_body(request, limit, reading, limits.seconds)
                read = _json if kind == _JSON else partial(_protobuf, decode=decode, table=table)
                source.reserve(len(body))
                taking = partial(_take, recorder, source, body, read)
                rejected = await asyncio.get_running_loop().run_in_executor(decoder, taking)
            except RequestRefusedError as refused:
                return _refusal(refused, kind)
            except ClientDisconnect:
                return Response(status_code=400)  # the client is gone
            except asyncio.CancelledError:  # the server stops before the body arrives
                return Response(status_code=503)
            return _encoded(answer(rejected), kind)

        return receive

    spans = partial(_answer, ExportTraceServiceResponse, "rejected_spans")
    log_records = partial(_answer, ExportLogsServiceResponse, "rejected_log_records")
    traces = receiver(otlp_protobuf.decode_traces, parts.TRACES, spans)
    logs = receiver(otlp_protobuf.decode_logs, parts.LOGS, log_records)
    return Starlette(
        routes=[
            Route("/v1/traces", traces, methods=["POST"]),
            Route("/v1/logs", logs, methods=["POST"]),
            Route("/health", _health(recorder, access), methods=["GET"]),
        ]
    )


def _health(recorder: Recorder, access: CollectorAccess) -> Any:
    """Return the handler for `/health`: counters for authorized senders."""

    async def health(request: Request) -> Response:
        data: JsonObject = {"status": "ok"}
        if access.knows(request):
            counters = recorder.counters()
            data |= {
                "recorded": counters.recorded,
                "delivered": counters.delivered,
                "spooled": counters.spooled,
                "dropped": dict(counters.dropped),
                "openTurns": counters.open_turns,
            }
        return Response(orjson.dumps(data), media_type=_JSON)

    return health


def _take(
    recorder: Recorder, source: ReceivedSource, body: bytes, read: Callable[[bytes], JsonObject]
) -> Sequence[str]:
    """Decode a body for which there is room and submit its records; return why some were rejected.

    Raises RequestRefusedError if none is taken.
    """
    taken, rejected = False, list[str]()
    try:
        records = tuple(decode_request(read(body), rejected=rejected))
        taken = bool(records) and source.submit(recorder, records, len(body))
    except FormatError as error:
        raise RequestRefusedError(400, INVALID_ARGUMENT, str(error)) from None
    finally:
        if not taken:
            source.release(len(body))
    if records and not taken:
        raise RequestRefusedError(503, UNAVAILABLE, "the recorder is busy; try again")
    if rejected and not records:
        raise RequestRefusedError(400, INVALID_ARGUMENT, rejected[0])
    return rejected


def _answer(kind: type[Any], count: str, rejected: Sequence[str]) -> Any:
    """Return a response; its field `count` is of what was rejected."""
    answer = kind()
    if rejected:
        setattr(answer.partial_success, count, len(rejected))
        answer.partial_success.error_message = rejected[0]
    return answer


def _json(body: bytes) -> JsonObject:
    parts.check_json_text(body)
    document = _document(body)
    if not isinstance(document, dict):
        raise FormatError(f"found JSON {type(document).__name__}; expected an export request")
    parts.check_document(document)
    return document


def _protobuf(body: bytes, decode: Callable[[bytes], JsonObject], table: Any) -> JsonObject:
    parts.check_protobuf(body, table)
    return decode(body)


def _document(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FormatError(f"not valid JSON ({error})") from None


def _refusal(refused: RequestRefusedError, kind: str) -> Response:
    status = ParseDict({"code": refused.code, "message": str(refused)}, Status())
    response = _encoded(status, kind, refused.status)
    response.headers["connection"] = "close"  # the rest of the body is not read
    if refused.status == 503:
        response.headers["retry-after"] = str(RETRY_AFTER_SECONDS)
    return response


def _encoded(message: Any, kind: str, status: int = 200) -> Response:
    if kind == _PROTOBUF:
        return Response(message.SerializeToString(), status, media_type=_PROTOBUF)
    from google.protobuf.json_format import MessageToDict

    return Response(orjson.dumps(MessageToDict(message)), status, media_type=_JSON)


# -- bodies: read and inflated within limits, so that no client can use up the memory ---------------

INVALID_ARGUMENT: Final = 3
RESOURCE_EXHAUSTED: Final = 8
UNAVAILABLE: Final = 14
_DEADLINE_EXCEEDED: Final = 4
_MAX_MEMBERS: Final = 1_000


class ByteBudget:
    """A byte budget; used from several threads."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._reserved = 0
        self._lock = threading.Lock()

    def reserve(self, size: int) -> bool:
        """Reserve bytes; return False if the budget does not allow it."""
        with self._lock:
            if self._reserved + size > self._limit:
                return False
            self._reserved += size
            return True

    def release(self, size: int) -> None:
        """Release reserved bytes."""
        with self._lock:
            self._reserved -= size


async def read_body(request: Request, limit: int, budget: ByteBudget, seconds: float) -> bytes:
    """Return the inflated body; never holds more than `limit` bytes, nor more than the budget allows.

    Releases its budget after reading; raises RequestRefusedError.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("gzip", "identity", ""):
        raise RequestRefusedError(
            415, INVALID_ARGUMENT, f"content encoding {encoding}; expected gzip or none"
        )
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > limit:
        raise _too_large(limit)
    whole = bytearray()
    chunks = _inflated(request, limit) if encoding == "gzip" else request.stream()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in chunks:
                if not budget.reserve(len(chunk)):
                    raise RequestRefusedError(
                        503, UNAVAILABLE, "too many bodies are being received; retry later"
                    )
                whole += chunk
                if len(whole) > limit:
                    raise _too_large(limit)
    except TimeoutError:
        raise RequestRefusedError(
            408, _DEADLINE_EXCEEDED, f"the body did not arrive within {seconds:g} s"
        ) from None
    finally:
        budget.release(len(whole))
    return bytes(whole)


def _too_large(limit: int) -> RequestRefusedError:
    return RequestRefusedError(
        413, RESOURCE_EXHAUSTED, f"the body is larger than {limit} bytes; send smaller requests"
    )


async def _inflated(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the inflated body: one gzip member, or several in sequence."""
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    begun, members = True, 1
    try:
        async for chunk in request.stream():
            pending = chunk
            while pending:
                if inflater.eof:
                    members += 1
                    if members > _MAX_MEMBERS:  # empty members could continue forever
                        raise RequestRefusedError(
                            400, INVALID_ARGUMENT, f"more than {_MAX_MEMBERS} gzip members"
                        )
                    inflater, begun = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), True
                # Produces at most one byte over the limit: safe against decompression bombs.
                yield inflater.decompress(pending, limit + 1)
                pending = inflater.unused_data if inflater.eof else inflater.unconsumed_tail
                begun = not inflater.eof
    except zlib.error as error:
        raise RequestRefusedError(400, INVALID_ARGUMENT, f"not gzip: {error}") from None
    if begun:
        raise RequestRefusedError(400, INVALID_ARGUMENT, "the gzip body is truncated")
