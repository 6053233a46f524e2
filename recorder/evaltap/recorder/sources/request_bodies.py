"""Bodies of requests: read and inflated within limits, so that no client can use up the memory."""

import asyncio
import threading
import zlib
from collections.abc import AsyncIterator
from typing import Final

from starlette.requests import Request

from evaltap.recorder.faults import RequestRefusedError

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
