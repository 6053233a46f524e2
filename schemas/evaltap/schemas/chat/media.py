"""Images, audio and files in messages, and in the formats of frameworks and providers.

Supported: OpenTelemetry's blob, uri and file parts, content of OpenAI's chat and responses, blocks
of Anthropic, Bedrock and LangChain, parts of Google GenAI, pydantic-ai and the AI SDK.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["image", "audio", "video", "file"]

DATA_URL: Final = "data:"
_MAX_HEADER: Final = 256
WITHHELD = ("__REDACTED__", "<elided>")
"""Placeholders of OpenInference and Google ADK for hidden content.

A tuple, because a set would hash what is looked up, which takes 50 ms for a text of 100 MB.
"""


@dataclass(frozen=True, slots=True)
class MediaPart:
    """A non-text part of a message; None is *not seen*."""

    kind: Kind = "file"
    mime_type: str | None = None
    url: str | None = None
    filename: str | None = None
    file_id: str | None = None
    """The file's id at the provider."""
    data: object = None
    """Bytes, base64 text or a `data:` URL; never recorded."""
    size_bytes: int | None = None
    sha256: str | None = None
    """Of the bytes, in hexadecimal."""

    @property
    def is_whole(self) -> bool:
        """Whether the record leads to the bytes: a URL, or an id at the provider."""
        return bool(self.url or self.file_id)


def media(
    *,
    kind: Kind | None = None,
    mime_type: str | None = None,
    url: str | None = None,
    data: object = None,
    filename: str | None = None,
    file_id: str | None = None,
) -> MediaPart:
    """Return a part; a `data:` URL is replaced by its bytes.

    Without a `kind` the MIME type decides whether it is an image, audio or video; otherwise it is
    a file.
    """
    if url is not None and url[:5].lower() == DATA_URL:
        header = url[5:_MAX_HEADER].partition(",")[0]
        mime_type = mime_type or header.partition(";")[0] or None
        url, data = None, url
    return MediaPart(kind or _kind_of(mime_type), mime_type, url, filename, file_id, data)


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


def _kind_of(mime_type: str | None) -> Kind:
    major = (mime_type or "").partition("/")[0]
    for kind in _MAJORS:
        if kind == major:
            return kind
    return "file"


_MAJORS: tuple[Kind, ...] = ("image", "audio", "video")
