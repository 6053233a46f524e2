"""POST requests over persistent connections, each with one deadline for the whole exchange.

Judges are called on many threads concurrently, so the processor time of a request matters: the `openai` SDK
takes 1.6 ms, and its connection pool more with every open connection; this module takes 0.2 ms, regardless of
open connections (docs/benchmarks/judge_load.py).
"""

import http.client
import io
import re
import socket
import ssl
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from evaltap.evaluator.scoring.contract.judge import UnreachableError
from evaltap.evaluator.scoring.waiting import in_thread, poll_socket, wait_for_socket
from evaltap.schemas.errors import ConfigurationError

IDLE_SECONDS: Final = 15.0
"""A connection that was idle for longer is not reused: a firewall may have dropped it."""
BUSY_SECONDS: Final = 0.05
"""A connection that was used this recently is not checked: no server closes it that soon, except after a
fault."""
LARGEST_RESPONSE: Final = 16 << 20
"""The maximum number of bytes read from a response body."""
LONGEST_LINE: Final = 64 << 10
MOST_HEADERS: Final = 200
CHECK_SECONDS: Final = 3.0
"""The time limit for a connection in a check."""
CHECK_PAUSE: Final = 0.5
"""Seconds before the check retries."""


class HttpError(Exception):
    """Base of the errors of a request."""


class NotSentError(HttpError):
    """Report a request that the server cannot have received: there was no connection."""


class NoAnswerInTimeError(HttpError):
    """Report a request whose deadline passed; `sent` is whether the server may have received it."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent
        super().__init__("deadline passed")


class ResponseTooLargeError(HttpError):
    """Report a response of more than LARGEST_RESPONSE bytes."""


class BrokenResponseError(HttpError):
    """Report a connection that failed while the server worked on the request."""


class StaleConnectionError(BrokenResponseError):
    """Report a persistent connection that ended without a response.

    Most likely the server had closed it and did not receive the request.
    """


class _ClosedError(Exception):
    """A connection that was closed before the first byte of a response."""


class HttpResponse(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Posts to one path below a base URL, always with the same headers; for several threads.

    Honours HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR.  Does not follow
    redirects: a key must not be sent to another server.  `refuses` returns why a resolved address must not be
    connected to, or an empty string.  Raises ConfigurationError for an invalid URL or header.
    """

    def __init__(
        self,
        base_url: str,
        path: str,
        headers: Mapping[str, str],
        *,
        refuses: Callable[[str], str] = lambda _: "",
    ) -> None:
        self._refuses = refuses
        self._base = http_url(base_url)
        self._proxy = proxy_of(self._base)
        self._context = tls_context() if self._base.scheme == "https" else None
        self._head = self._request_head(path, headers)
        self._idle: deque[tuple[http.client.HTTPConnection, float]] = deque()

    def post(self, body: bytes, seconds: float) -> HttpResponse:
        """Return the response to a body, whatever its status.

        Raises NotSentError, NoAnswerInTimeError, ResponseTooLargeError, BrokenResponseError, or
        StaleConnectionError if an immediate retry makes sense.
        """
        until = time.monotonic() + seconds
        idle = self._reusable()
        connection = idle or self._open_connection(until)
        try:
            response, reusable = self._exchange(connection.sock, body, until)
        except _ClosedError as silent:
            connection.close()
            raise (BrokenResponseError if idle is None else StaleConnectionError)(
                str(silent)
            ) from None
        except BaseException:
            connection.close()
            raise
        if reusable:
            self._idle.append((connection, time.monotonic()))
        else:
            connection.close()
        return response

    def connect(self, seconds: float) -> None:
        """Open a connection and send nothing; raise NotSentError or NoAnswerInTimeError."""
        self._open_connection(time.monotonic() + seconds).close()

    def check(self) -> str:
        """Return why connections are slow, or an empty string; raise UnreachableError if none can be opened.

        Tries twice, because name servers and restarting services may fail once.  Sends nothing.
        """
        for tries_left in (1, 0):
            try:
                self.connect(CHECK_SECONDS)
            except NoAnswerInTimeError:
                return f"no connection within {CHECK_SECONDS:g} s"
            except NotSentError as error:
                if not tries_left:
                    raise UnreachableError(str(error)) from None
                time.sleep(CHECK_PAUSE)
            else:
                break
        return ""

    def close(self) -> None:
        """Close idle connections; a later request opens new ones."""
        while self._idle:
            self._idle.pop()[0].close()

    def _exchange(
        self, sock: socket.socket, body: bytes, until: float
    ) -> tuple[HttpResponse, bool]:
        """Return the response, and whether the connection can be used again."""
        try:
            # One call instead of one each for head and body, because each releases the interpreter
            # lock.
            _send(sock, b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body), until)
            file: io.BufferedReader = io.BufferedReader(_Reader(sock, until))
            if not file.peek(1):
                raise _ClosedError("the connection was closed without a response")
            return _received(file)
        except TimeoutError:
            raise NoAnswerInTimeError(sent=True) from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _ClosedError(_describe(error)) from None
        except (OSError, ValueError) as error:
            raise BrokenResponseError(_describe(error)) from None

    def _request_head(self, path: str, headers: Mapping[str, str]) -> bytes:
        """Return the request line and all headers except the length of the body."""
        target = f"{self._base.path.rstrip('/')}{path}"
        if self._base.query:
            target += f"?{self._base.query}"
        host = self._base.netloc.rpartition("@")[2]
        lines = {"Host": host, **headers}
        if self._proxy is not None and self._context is None:
            target = f"http://{host}{target}"
            lines |= proxy_headers(self._proxy)
        head = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
        if not all(line.isascii() and line.isprintable() for line in head):
            raise ConfigurationError(
                "the address, or a header such as the key, contains a character that HTTP does not allow;"
                " expected printable ASCII"
            )
        return "".join(f"{line}\r\n" for line in head).encode("ascii")

    def _reusable(self) -> http.client.HTTPConnection | None:
        """Return an idle connection that can be reused."""
        while self._idle:
            try:
                connection, used = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            # If there is data before a request is sent, the server has closed the connection.
            idle = time.monotonic() - used
            if idle < BUSY_SECONDS or (
                idle < IDLE_SECONDS and not poll_socket(connection.sock, 0.0)
            ):
                return connection
            connection.close()
        return None

    def _open_connection(self, until: float) -> http.client.HTTPConnection:
        connection = self._connection(max(until - time.monotonic(), 0.001))
        try:
            in_thread(connection.connect)
            self._check_address(connection.sock)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock.setblocking(False)
        except TimeoutError:
            connection.close()
            raise NoAnswerInTimeError(sent=False) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise NotSentError(_describe(error)) from None
        return connection

    def _check_address(self, sock: socket.socket) -> None:
        """Raise OSError if the address is refused; only that of an open connection can no longer change."""
        reason = "" if self._proxy is not None else self._refuses(sock.getpeername()[0])
        if reason:
            raise OSError(reason)

    def _connection(self, seconds: float) -> http.client.HTTPConnection:
        host, port = self._base.hostname or "", self._base.port
        at, at_port = host, port
        if self._proxy is not None:
            at, at_port = self._proxy.hostname or "", self._proxy.port or 80
        if self._context is None:
            return http.client.HTTPConnection(at, at_port, timeout=seconds)
        connection = http.client.HTTPSConnection(
            at, at_port, timeout=seconds, context=self._context
        )
        if self._proxy is not None:
            connection.set_tunnel(host, port or 443, proxy_headers(self._proxy))
        return connection


def _received(file: io.BufferedReader) -> tuple[HttpResponse, bool]:
    """Return the response to a POST, and whether the connection can be used again.

    `http.client` would parse the headers with the e-mail parser, which takes as long as the rest of a
    request.  Raises ValueError for anything that is not HTTP, and ResponseTooLargeError.
    """
    status, version = 100, b""
    headers: dict[str, str] = {}
    while 100 <= status < 200:  # 100 Continue and similar ones precede the response
        version, _, rest = _line(file).partition(b" ")
        if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit():
            raise ValueError(f"no HTTP response: {(version + b' ' + rest)[:40]!r}")
        status, headers = int(rest[:3]), _header_lines(file)
    keeps = version == b"HTTP/1.1" and "close" not in headers.get("connection", "").lower()
    if status in (204, 304):
        return HttpResponse(status, headers, b""), keeps
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return HttpResponse(status, headers, _chunks(file)), keeps
    length = headers.get("content-length")
    if length is None:  # the body ends with the connection
        body = file.read(LARGEST_RESPONSE + 1)
        if len(body) > LARGEST_RESPONSE:
            raise ResponseTooLargeError(f"more than {LARGEST_RESPONSE} bytes")
        return HttpResponse(status, headers, body), False
    return HttpResponse(status, headers, _exactly(file, _parse_int(length.encode(), 10))), keeps


def _line(file: io.BufferedReader) -> bytes:
    line = file.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise ValueError(
            "the response ends within its head"
            if len(line) < LONGEST_LINE
            else "a line of the response's head is too long"
        )
    return line.rstrip(b"\r\n")


def _header_lines(file: io.BufferedReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        if not (line := _line(file)):
            return headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    raise ValueError(f"more than {MOST_HEADERS} headers")


def _chunks(file: io.BufferedReader) -> bytes:
    body = bytearray()
    while size := _parse_int(_line(file).partition(b";")[0].strip(), 16):
        if len(body) + size > LARGEST_RESPONSE:
            raise ResponseTooLargeError(f"more than {LARGEST_RESPONSE} bytes")
        body += _exactly(file, size)
        _line(file)
    _header_lines(file)  # trailers
    return bytes(body)


def _exactly(file: io.BufferedReader, size: int) -> bytes:
    if size > LARGEST_RESPONSE:
        raise ResponseTooLargeError(f"more than {LARGEST_RESPONSE} bytes")
    body = file.read(size)
    if len(body) < size:
        raise ValueError(f"the response ends {size - len(body)} bytes too early")
    return body


def _parse_int(text: bytes, base: int) -> int:
    size = int(text, base)
    if size < 0 or not text.isalnum():
        raise ValueError(f"the response's length is {text[:20]!r}")
    return size


class _Reader(io.RawIOBase):
    def __init__(self, sock: socket.socket, until: float) -> None:
        self._sock = sock
        self._until = until
        self._waits = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # the protocol of RawIOBase
        while True:
            if self._waits:  # the server takes a while to answer
                wait_for_socket(self._sock, self._until - time.monotonic())
            _check_time(self._until)
            try:
                self._waits = False
                return self._sock.recv_into(buffer)
            except (BlockingIOError, ssl.SSLWantReadError):
                self._waits = True
            except ssl.SSLWantWriteError:
                wait_for_socket(self._sock, self._until - time.monotonic(), writable=True)


def _send(sock: socket.socket, data: bytes, until: float) -> None:
    left = memoryview(data)
    while left:
        _check_time(until)
        try:
            left = left[sock.send(left) :]
        except (BlockingIOError, ssl.SSLWantWriteError):
            wait_for_socket(sock, until - time.monotonic(), writable=True)
        except ssl.SSLWantReadError:
            wait_for_socket(sock, until - time.monotonic())


def _check_time(until: float) -> None:
    if time.monotonic() >= until:
        raise TimeoutError


def _describe(error: Exception) -> str:
    return str(error) or type(error).__name__


def http_url(text: str) -> SplitResult:
    """Return a server's URL; raises ConfigurationError if the text is not one."""
    try:
        url = urlsplit(text.strip())
        _ = url.port  # raises for one that is no number
    except ValueError as error:
        raise ConfigurationError(
            f"'{text}' is not a URL ({error}); expected http(s)://host"
        ) from None
    # The parser takes any text as a host, but `http.client` raises for these at the first request.
    is_host = bool(url.hostname) and not re.search(r"[\x00-\x20\x7f]", url.netloc)
    if url.scheme not in ("http", "https") or not is_host:
        raise ConfigurationError(
            f"'{text}' is not the URL of a server; expected http(s)://host/path"
        )
    return url


def proxy_of(base: SplitResult) -> SplitResult | None:
    """Return the proxy that the environment sets for a server, if any.

    Raises ConfigurationError for a proxy that is not http://.
    """
    host = base.hostname or ""
    if proxy_bypass(host if base.port is None else f"{host}:{base.port}"):
        return None
    proxies = getproxies()
    found = proxies.get(base.scheme) or proxies.get("all")
    if not found:
        return None
    proxy = urlsplit(found if "://" in found else f"http://{found}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise ConfigurationError(
            f"the proxy for {base.scheme}://{host} is {proxy.scheme}://{proxy.hostname}; expected"
            " http://host:port (or name the judge in NO_PROXY)"
        )
    return proxy


def proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(given.encode()).decode()}"}


def tls_context() -> ssl.SSLContext:
    """Return a context that trusts what the system trusts, where Python itself knows no authority."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        try:
            import truststore
        except ImportError:
            return context
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context
