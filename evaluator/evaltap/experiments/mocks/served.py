"""Recorded tools over HTTP on this machine: an MCP server and plain requests, for agents in any language.

POST URL/mcp           JSON-RPC, as an MCP server over streamable HTTP
GET  URL/tools         [{"name", "description", "inputSchema"}]
POST URL/tools/NAME    arguments as JSON; {"result": …}, {"error": text, "result": …} or 404, {"miss": why}
"""

import json
import re
import secrets
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException, parse_headers
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from evaltap.experiments.mocks.mcp import Answer, reply_to
from evaltap.recorder.answering import RecordedError, ToolMiss
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.canonical import loads

MOCKS_URL: Final = "EVALTAP_MOCKS_URL"
"""The variable that tells a command where its recorded tools are."""
_MOST_BYTES: Final = 16 * 1024 * 1024
_LONGEST_LINE: Final = 4096
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
_CHUNK: Final = re.compile(rb"([0-9A-Fa-f]+)[ \t]*(;.*)?\r?\n")
Tools = Sequence[Mapping[str, Any]]


class MockServer:
    """Serves the tools of any number of runs, each under an address that nobody else can guess."""

    def __init__(self, port: int = 0) -> None:
        self._served: dict[str, tuple[Tools, Answer]] = {}
        outer = self

        class Handler(_Handler):
            served = outer._served

        self._server = _Server(("127.0.0.1", port), Handler)
        address, number = self._server.server_address[:2]
        self.url = f"http://{address!s}:{number}"
        threading.Thread(
            target=self._server.serve_forever, name="evaltap-mocks", daemon=True
        ).start()

    @contextmanager
    def offering(self, tools: Tools, answer: Answer, name: str | None = None) -> Iterator[str]:
        """Offer tools while the block lasts; yield their address."""
        name = name or secrets.token_urlsafe(16)
        self._served[name] = tools, answer
        try:
            yield f"{self.url}/{name}"
        finally:
            del self._served[name]

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512
    """Connections that wait: agents that run at once would have those above it refused."""

    def handle_error(self, request, client_address) -> None:  # type: ignore[no-untyped-def]  # as socketserver's
        """Write nothing about an agent that does not wait for its answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Unreadable(Exception):
    """A request whose body cannot be read: where the next request begins is not known."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Handler(BaseHTTPRequestHandler):
    served: Mapping[str, tuple[Tools, Answer]] = {}
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        found, path = self._found()
        if found is None:
            self._send(404, {"error": "nothing is offered here"})
        elif path == ["tools"]:
            self._send(200, [*found[0]])
        else:  # a client that wants a stream of events may do without
            self._send(405, {"error": "expected POST"})

    def do_DELETE(self) -> None:
        """End a session of MCP, of which there is none."""
        self._send(405, {"error": "there are no sessions"})

    def do_POST(self) -> None:
        found, path = self._found()
        try:
            given = loads(self._body() or b"{}")
        except _Unreadable as error:
            self._send(error.status, {"error": str(error)}, ends=True)
            return
        except FormatError:
            self._send(400, {"error": "expected JSON"})
            return
        if found is None:
            self._send(404, {"error": "nothing is offered here"})
        elif path == ["mcp"]:
            self._mcp(given, *found)
        elif len(path) == 2 and path[0] == "tools":
            self._call(path[1], given, found[1])
        else:
            self._send(404, {"error": "expected /mcp or /tools/NAME"})

    def _body(self) -> bytes:
        if (coding := self.headers.get("Transfer-Encoding")) is not None:
            if coding.strip().lower() != "chunked":
                raise _Unreadable(501, f"Transfer-Encoding is {coding}; expected chunked")
            return b"".join(self._chunks())
        size = self.headers.get("Content-Length") or "0"
        if not _LENGTH.fullmatch(size):
            raise _Unreadable(400, f"Content-Length is {size}; expected a number")
        return self._read(int(size))

    def _chunks(self) -> Iterator[bytes]:
        left = _MOST_BYTES
        while size := self._chunk_size():
            yield self._read(size, left)
            left -= size
            if self.rfile.readline(_LONGEST_LINE).strip():
                raise _Unreadable(400, "a chunk is longer than it says")
        try:
            parse_headers(self.rfile)  # trailers
        except HTTPException as error:
            raise _Unreadable(400, f"the trailers cannot be read: {error}") from error

    def _chunk_size(self) -> int:
        if (line := _CHUNK.fullmatch(self.rfile.readline(_LONGEST_LINE))) is None:
            raise _Unreadable(400, "expected the size of a chunk")
        return int(line[1], 16)

    def _read(self, size: int, most: int = _MOST_BYTES) -> bytes:
        if size > most:
            raise _Unreadable(413, f"expected at most {_MOST_BYTES} bytes")
        found = self.rfile.read(size)
        if len(found) < size:
            raise _Unreadable(400, "the request ends too early")
        return found

    def _mcp(self, given: Any, tools: Tools, answer: Answer) -> None:
        messages = given if isinstance(given, list) else [given]
        replies = [one for message in messages if (one := reply_to(message, tools, answer))]
        if not replies:
            self._send(202, None)
        else:
            self._send(200, replies if isinstance(given, list) else replies[0])

    def _call(self, name: str, given: Any, answer: Answer) -> None:
        try:
            found = answer(name, given)
        except RecordedError as error:
            told = {} if error.result is None else {"result": error.result}
            self._send(200, {"error": str(error), **told})
        except ToolMiss as miss:
            self._send(404, {"miss": str(miss)})
        else:
            self._send(200, {"result": found})

    def _found(self) -> tuple[tuple[Tools, Answer] | None, list[str]]:
        name, *path = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
        return self.served.get(name), path

    def _send(self, status: int, data: Any, *, ends: bool = False) -> None:
        body = b"" if data is None else json.dumps(data).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if ends:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing: the agent's output is read by people."""


_SERVER: list[MockServer] = []
_LOCK: Final = threading.Lock()


def mock_server() -> MockServer:
    """Return the server of this process, started at the first call."""
    with _LOCK:
        if not _SERVER:
            _SERVER.append(MockServer())
        return _SERVER[0]
