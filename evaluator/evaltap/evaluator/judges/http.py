"""POST requests over kept connections, each with one deadline from the first byte to the last.

A judge is asked on many threads at a time, so what counts is the processor time of a request: the
`openai` SDK takes 1.6 ms, and its connection pool more with every connection that is open; this takes
0.2 ms, whatever is open (docs/benchmarks/judge_load.py).
"""

import http.client
import io
import re
import select
import socket
import ssl
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit
from urllib.request import getproxies, proxy_bypass

from evaltap.evaluator.waiting import in_thread, wait_for_socket
from evaltap.schemas.errors import ConfigurationError

IDLE_SECONDS: Final = 15.0
"""A connection that nobody used for so long is not used again: a firewall may have forgotten it."""
BUSY_SECONDS: Final = 0.05
"""One that was used so shortly before is not looked at: no server closes it that soon, but for a fault."""
LARGEST_RESPONSE: Final = 16 << 20
"""Bytes of a response body that are read."""
LONGEST_LINE: Final = 64 << 10
MOST_HEADERS: Final = 200
CHECK_SECONDS: Final = 3.0
"""How long a check waits for a connection."""
CHECK_PAUSE: Final = 0.5
"""Seconds before it tries again."""


class NotSent(Exception):
    """Report a request that the server cannot have seen: there was no connection."""


class TooSlow(Exception):
    """Report a request whose deadline passed; `sent` tells whether the server may have seen it."""

    def __init__(self, *, sent: bool) -> None:
        self.sent = sent
        super().__init__("deadline passed")


class Unreachable(ConfigurationError):
    """Report that nothing answers at an address, as found before anything is asked."""


class TooLarge(Exception):
    """Report a response of more than LARGEST_RESPONSE bytes."""


class Broken(Exception):
    """Report a connection that failed while the server worked on the request."""


class Stale(Broken):
    """Report a kept connection that ended without a response: most likely the server did not want it
    any longer, and has not seen the request."""


class _NoAnswer(Exception):
    """A connection that was closed before anything of a response came."""


class HttpResponse(NamedTuple):
    """What a server answered."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class HttpClient:
    """Posts to one path below a base URL, always with the same headers; used from several threads.

    Honours HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, SSL_CERT_FILE and SSL_CERT_DIR.  Follows no
    redirects: a key must not go to another server.  `refuses` returns why an address that a host's name
    led to must not be talked to, empty where it may.  Raises ConfigurationError for a URL that is none,
    or a header that is none.
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
        self._base = _http_url(base_url)
        self._proxy = _proxy_of(self._base)
        self._context = _tls_context() if self._base.scheme == "https" else None
        self._head = self._request_head(path, headers)
        self._idle: deque[tuple[http.client.HTTPConnection, float]] = deque()

    def post(self, body: bytes, seconds: float) -> HttpResponse:
        """Return the response to a body, whatever its status.

        Raises NotSent, TooSlow, TooLarge, Broken, or Stale where asking again at once makes sense.
        """
        until = time.monotonic() + seconds
        kept = self._kept()
        connection = kept or self._connected(until)
        try:
            response, reusable = self._exchange(connection.sock, body, until)
        except _NoAnswer as silent:
            connection.close()
            raise (Broken if kept is None else Stale)(str(silent)) from None
        except BaseException:
            connection.close()
            raise
        if reusable:
            self._idle.append((connection, time.monotonic()))
        else:
            connection.close()
        return response

    def connect(self, seconds: float) -> None:
        """Open a connection and send nothing; raises NotSent or TooSlow."""
        self._connected(time.monotonic() + seconds).close()

    def check(self) -> str:
        """Return what makes a connection slow, empty when there is none; raise Unreachable without one.

        Tries twice: a name server, or what restarts, may fail once.  Nothing is sent.
        """
        for tries_left in (1, 0):
            try:
                self.connect(CHECK_SECONDS)
            except TooSlow:
                return f"no connection within {CHECK_SECONDS:g} s"
            except NotSent as error:
                if not tries_left:
                    raise Unreachable(str(error)) from None
                time.sleep(CHECK_PAUSE)
            else:
                break
        return ""

    def close(self) -> None:
        """Close the connections that are idle; a later use opens new ones."""
        while self._idle:
            self._idle.pop()[0].close()

    def _exchange(
        self, sock: socket.socket, body: bytes, until: float
    ) -> tuple[HttpResponse, bool]:
        """Return the response, and whether the connection can be used again."""
        try:
            # One call, not one for the head and one for the body: each lets go of the interpreter lock.
            _send(sock, b"%bContent-Length: %d\r\n\r\n%b" % (self._head, len(body), body), until)
            file: io.BufferedReader = io.BufferedReader(_Reader(sock, until))
            if not file.peek(1):
                raise _NoAnswer("the connection was closed without a response")
            return _received(file)
        except TimeoutError:
            raise TooSlow(sent=True) from None
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _NoAnswer(_said(error)) from None
        except (OSError, ValueError) as error:
            raise Broken(_said(error)) from None

    def _request_head(self, path: str, headers: Mapping[str, str]) -> bytes:
        """Return the request line and all headers but the length of the body."""
        target = f"{self._base.path.rstrip('/')}{path}"
        if self._base.query:
            target += f"?{self._base.query}"
        host = self._base.netloc.rpartition("@")[2]
        lines = {"Host": host, **headers}
        if self._proxy is not None and self._context is None:
            target = f"http://{host}{target}"
            lines |= _proxy_headers(self._proxy)
        head = [f"POST {target} HTTP/1.1", *(f"{name}: {value}" for name, value in lines.items())]
        if not all(line.isascii() and line.isprintable() for line in head):
            raise ConfigurationError(
                "the address, or a header such as the key, contains a character that HTTP does not allow;"
                " expected printable ASCII"
            )
        return "".join(f"{line}\r\n" for line in head).encode("ascii")

    def _kept(self) -> http.client.HTTPConnection | None:
        """Return a connection that was used before and can be used again."""
        while self._idle:
            try:
                connection, used = self._idle.pop()
            except IndexError:  # another thread was faster
                return None
            # Something to read before anything is asked: the server has closed it.
            idle = time.monotonic() - used
            if idle < BUSY_SECONDS or (idle < IDLE_SECONDS and not _readable(connection.sock)):
                return connection
            connection.close()
        return None

    def _connected(self, until: float) -> http.client.HTTPConnection:
        connection = self._connection(max(until - time.monotonic(), 0.001))
        try:
            in_thread(connection.connect)
            self._check_address(connection.sock)
            connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sock.setblocking(False)
        except TimeoutError:
            connection.close()
            raise TooSlow(sent=False) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            connection.close()
            raise NotSent(_said(error)) from None
        return connection

    def _check_address(self, sock: socket.socket) -> None:
        """Raise OSError for an address that is refused; only what is connected to cannot change any more."""
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
            connection.set_tunnel(host, port or 443, _proxy_headers(self._proxy))
        return connection


def _received(file: io.BufferedReader) -> tuple[HttpResponse, bool]:
    """Return the response to a POST, and whether the connection can be used again.

    `http.client` would hand the headers to the parser of e-mails, which takes as long as the rest of a
    request.  Raises ValueError for what is not HTTP, and TooLarge.
    """
    status, version = 100, b""
    headers: dict[str, str] = {}
    while 100 <= status < 200:  # 100 Continue and its like announce the response
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
    if length is None:  # it ends where the connection does
        body = file.read(LARGEST_RESPONSE + 1)
        if len(body) > LARGEST_RESPONSE:
            raise TooLarge(f"more than {LARGEST_RESPONSE} bytes")
        return HttpResponse(status, headers, body), False
    return HttpResponse(status, headers, _exactly(file, _whole(length.encode(), 10))), keeps


def _line(file: io.BufferedReader) -> bytes:
    line = file.readline(LONGEST_LINE)
    if not line.endswith(b"\n"):
        raise ValueError("the response ends within its head" if len(line) < LONGEST_LINE
                         else "a line of the response's head is too long")  # fmt: skip
    return line.rstrip(b"\r\n")


def _header_lines(file: io.BufferedReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(MOST_HEADERS):
        line = _line(file)
        if not line:
            return headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    raise ValueError(f"more than {MOST_HEADERS} headers")


def _chunks(file: io.BufferedReader) -> bytes:
    body = bytearray()
    while size := _whole(_line(file).partition(b";")[0].strip(), 16):
        if len(body) + size > LARGEST_RESPONSE:
            raise TooLarge(f"more than {LARGEST_RESPONSE} bytes")
        body += _exactly(file, size)
        _line(file)
    _header_lines(file)  # trailers
    return bytes(body)


def _exactly(file: io.BufferedReader, size: int) -> bytes:
    if size > LARGEST_RESPONSE:
        raise TooLarge(f"more than {LARGEST_RESPONSE} bytes")
    body = file.read(size)
    if len(body) < size:
        raise ValueError(f"the response ends {size - len(body)} bytes too early")
    return body


def _whole(text: bytes, base: int) -> int:
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
            if self._waits:  # what is answered takes a while
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


def _readable(sock: socket.socket) -> bool:
    """Tell whether something waits to be read, without waiting for it."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))


def _http_url(text: str) -> SplitResult:
    try:
        url = urlsplit(text.strip())
        _ = url.port  # raises for one that is no number
    except ValueError as error:
        raise ConfigurationError(
            f"'{text}' is not a URL ({error}); expected http(s)://host"
        ) from None
    # The resolver takes any text for a name, but `http.client` raises for these at the first request.
    is_name = bool(url.hostname) and not re.search(r"[\x00-\x20\x7f]", url.netloc)
    if url.scheme not in ("http", "https") or not is_name:
        raise ConfigurationError(
            f"'{text}' is not the URL of a server; expected http(s)://host/path"
        )
    return url


def _proxy_of(base: SplitResult) -> SplitResult | None:
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


def _proxy_headers(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    given = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(given.encode()).decode()}"}


def _tls_context() -> ssl.SSLContext:
    """Return a context that trusts what the system trusts, where Python itself knows no authority."""
    context = ssl.create_default_context()
    if not context.cert_store_stats()["x509_ca"]:
        try:
            import truststore
        except ImportError:
            return context
        return truststore.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return context


def _said(error: Exception) -> str:
    return str(error) or type(error).__name__
