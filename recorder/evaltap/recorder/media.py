"""Non-text parts of a message: type, size and digest of an image, audio or file, never its bytes.

A part keeps a reference to its bytes (or their base64 text) until the background thread has
measured them: `digested` replaces them by size and SHA-256. Both types are immutable, so nothing is
copied.
"""

import base64
import binascii
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import unquote_to_bytes

from evaltap.recorder.copying import name, text
from evaltap.schemas.chat.media import DATA_URL, MediaPart
from evaltap.schemas.data import JsonObject

MAX_PARTS: Final = 32
"""Maximum parts per message; further ones are dropped and the message is marked as truncated."""
MAX_DIGESTED_BYTES: Final = 4 * 1024 * 1024
"""Maximum bytes per message waiting to be digested; larger parts get only their size."""
_MAX_URL: Final = 4_096
_BUFFERS: Final = (bytearray, memoryview)


def kept(parts: Sequence[MediaPart]) -> tuple[tuple[MediaPart, ...], int, bool]:
    """Return the parts ready for the queue, their size, and whether any was dropped.

    Runs on the agent's thread: ids and URLs are truncated, bytes are only referenced.
    """
    room = MAX_DIGESTED_BYTES
    weight = 0
    found = []
    for part in parts[:MAX_PARTS]:
        data, size = _measured(part.data, room)
        held = len(data) if data is not None else 0
        room -= held
        url, was_cut = text(part.url, _MAX_URL)
        found.append(
            MediaPart(
                part.kind,
                name(part.mime_type),
                None if was_cut else url,
                name(part.filename),
                name(part.file_id),
                data,
                part.size_bytes if size is None else size,
                part.sha256,
            )
        )
        weight += 200 + held + len(url or "")
    return tuple(found), weight, len(parts) > MAX_PARTS


def digested(parts: Iterable[MediaPart]) -> tuple[MediaPart, ...]:
    """Return the parts with their bytes replaced by size and digest."""
    return tuple(_digested(part) if part.data is not None else part for part in parts)


def written(parts: Iterable[MediaPart]) -> list[JsonObject]:
    """Return the parts as `content_parts` of a message."""
    return [_written(part) for part in digested(parts)]


def _measured(data: object, room: int) -> tuple[bytes | str | None, int | None]:
    """Return the bytes if they fit into `room`, and their size if it is cheap to compute."""
    kind = type(data)
    if kind is bytes or kind is str:
        held: bytes | str = data  # type: ignore[assignment]  # by its type
        size = len(held) if kind is bytes else len(held) * 3 // 4
        return (held, None) if len(held) <= room else (None, size)
    if kind in _BUFFERS:
        # Mutable: they may change while they wait.
        return None, data.nbytes if type(data) is memoryview else len(data)  # type: ignore[arg-type]
    return None, None


def _digested(part: MediaPart) -> MediaPart:
    data = part.data
    content = data if isinstance(data, bytes) else _decoded(data) if isinstance(data, str) else None
    if content is None:
        return replace(part, data=None)
    return replace(
        part, data=None, size_bytes=len(content), sha256=hashlib.sha256(content).hexdigest()
    )


def _decoded(data: str) -> bytes:
    """Return the bytes of base64 text (either alphabet), a `data:` URL, or any other text."""
    if data[:5].lower() == DATA_URL:
        header, _, data = data.partition(",")
        if not header.endswith(";base64"):
            return unquote_to_bytes(data)
    plain = "".join(data.split()).replace("-", "+").replace("_", "/")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        return data.encode("utf-8", "replace")


def _written(part: MediaPart) -> JsonObject:
    place = {"url": part.url} if part.url else {}
    named = {"filename": part.filename, "file_id": part.file_id}
    held: dict[str, Mapping[str, object]] = {
        "file": {key: value for key, value in named.items() if value}
    }
    held[part.kind] = {**held.get(part.kind, {}), **place}
    fields: JsonObject = {
        "type": part.kind,
        **{key: value for key, value in held.items() if value},
        "mime_type": part.mime_type,
        "size_bytes": part.size_bytes,
        "sha256": part.sha256,
    }
    return {key: value for key, value in fields.items() if value is not None}
