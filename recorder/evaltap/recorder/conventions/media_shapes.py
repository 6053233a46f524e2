"""Images, audio and files in the message formats of frameworks and providers, as `MediaPart`s.

Supported: OpenTelemetry's blob, uri and file parts, content of OpenAI's chat and responses, blocks
of Anthropic, Bedrock and LangChain, parts of Google GenAI, pydantic-ai and the AI SDK.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from evaltap.recorder.conventions.evidence import WITHHELD
from evaltap.recorder.media import Kind, MediaPart, media

TYPES: Final[Mapping[str, Kind | None]] = {
    "blob": None,
    "uri": None,
    "file": None,
    "media": None,
    "binary": None,
    "image": "image",
    "image_url": "image",
    "image-url": "image",
    "input_image": "image",
    "audio": "audio",
    "audio_url": "audio",
    "audio-url": "audio",
    "input_audio": "audio",
    "output_audio": "audio",
    "video": "video",
    "video_url": "video",
    "video-url": "video",
    "document": "file",
    "document-url": "file",
    "input_file": "file",
}
"""The kind by a part's `type`; None where the MIME type decides."""
_LONGEST_TYPE: Final = max(map(len, TYPES))
"""Longer texts are not looked up: their hash takes time."""
BLOCKS: Final[Mapping[str, Kind | None]] = {
    "inline_data": None,
    "inlineData": None,
    "file_data": None,
    "fileData": None,
    "image": "image",
    "audio": "audio",
    "video": "video",
    "document": "file",
}
"""The kind by the key that holds a part without a type."""
_NESTED: Final = (
    *BLOCKS,
    "image_url",
    "audio_url",
    "video_url",
    "input_audio",
    "file",
    "source",
    "location",
    "s3Location",
)
_URLS: Final = (
    "url",
    "uri",
    "file_uri",
    "fileUri",
    "file_url",
    "image_url",
    "audio_url",
    "video_url",
)
_DATA: Final = ("data", "base64", "bytes", "content", "file_data", "image", "audio")
_MIME_TYPES: Final = ("mime_type", "mimeType", "media_type", "mediaType")
_NAMES: Final = ("filename", "display_name", "displayName", "name", "title")
_IDS: Final = ("file_id", "fileId")
_KINDS: Final[Mapping[str | None, Kind]] = {"image": "image", "audio": "audio", "video": "video"}
_DEPTH: Final = 3


def media_in(item: Mapping[str, object]) -> MediaPart | None:
    """Return the media in a message part, or None.

    May run on the agent's thread, so only values of exact types are read: others may run code.
    """
    stated = item.get("type")
    if type(stated) is str:
        if len(stated) > _LONGEST_TYPE or stated not in TYPES:
            return None
        kind = TYPES[stated]
    else:
        held = next((key for key in BLOCKS if type(item.get(key)) is dict), None)
        if held is None:
            return None
        kind = BLOCKS[held]
    levels = list(_levels(item, _DEPTH))
    url = _first(levels, _URLS)
    data = _content(levels)
    if url is None and type(data) is str and data.startswith(("http://", "https://", "data:")):
        url, data = data, None
    return media(
        kind=kind or _KINDS.get(_first(levels[:1], ("modality",))),
        mime_type=_first(levels, _MIME_TYPES) or _by_format(kind, levels),
        url=None if url in WITHHELD else url,
        data=data,
        filename=_first(levels, _NAMES),
        file_id=_first(levels, _IDS),
    )


def _levels(item: Mapping[str, object], depth: int) -> Iterator[Mapping[str, object]]:
    yield item
    for key in _NESTED if depth else ():
        inner = item.get(key)
        if type(inner) is dict:
            yield from _levels(inner, depth - 1)


def _first(levels: list[Mapping[str, object]], keys: tuple[str, ...]) -> str | None:
    found = (level[key] for level in levels for key in keys if key in level)
    return next((value for value in found if type(value) is str and value), None)


def _content(levels: list[Mapping[str, object]]) -> object:
    found = (level[key] for level in levels for key in _DATA if key in level)
    return next(
        (
            value
            for value in found
            if type(value) in (bytes, bytearray, memoryview)
            or (type(value) is str and value and value not in WITHHELD)
        ),
        None,
    )


def _by_format(kind: Kind | None, levels: list[Mapping[str, object]]) -> str | None:
    """Return the MIME type for a `format` (`png`), if the part's kind completes it."""
    written = _first(levels, ("format",))
    if written is None or "/" in written:
        return written
    return f"{kind}/{written}" if kind in _KINDS else None
