"""Decode base64, base32, hex, percent, HTML entities, escapes, and compressed data inside them.

Each decoder runs where a text has its characters. The result is searched like any other text, to a
depth of `MAX_DEPTH`, so that doubly encoded secrets are found with bounded work.
"""

import base64
import html
import quopri
import re
import zlib
from collections.abc import Callable, Iterator
from urllib.parse import unquote_to_bytes

from evaltap.recorder.privacy.lexicon import patterns

_RE = patterns("encodings")

MAX_DEPTH = 3
_LARGEST = 1 << 20
"""Maximum bytes to decompress, as a guard against decompression bombs."""

Decoded = tuple[int, int, str]
"""A span of a text, and its decoded content."""

_SHORTEST = 5
"""Fewer characters match no rule; of an id with many zeros, they are no text."""
_SHORTEST_HEX = 20
"""Seven bytes with a sign between two."""
_SIGNS = {"%": "percent", "&": "entities", "\\": "escapes", "=": "quoted_printable"}


def decoded(text: str, *, words: bool = True) -> Iterator[Decoded]:
    """Yield the encoded parts of a text, decoded; `words`: the text has long words."""
    if words:
        yield from _packed(text)
    for match in _RE.spaced_hex.finditer(text) if len(text) >= _SHORTEST_HEX else ():
        before = _RE.bytes_before.search(text, max(0, match.start() - 400), match.start())
        start = before.start() if before is not None else match.start()
        if (found := text_in_hex(text[start : match.end()])) is not None:
            yield start, match.end(), found
    for sign, name in _SIGNS.items():
        if sign not in text or (encoded := getattr(_RE, name)).search(text) is None:
            continue
        for match in getattr(_RE, f"{name}_token").finditer(text):
            if sign in match[0] and encoded.search(match[0]):
                meaning = _DECODERS[sign](match[0])
                # Not one character of `%DB_PASSWORD%` is encoded: 0xDB begins none.
                if meaning.count("\ufffd") < len(encoded.findall(match[0])):
                    yield *match.span(), meaning


def _packed(text: str) -> Iterator[Decoded]:
    joined = text.encode("utf-8", "surrogatepass").translate(_OF_BASE64)
    if _SHORTEST_BASE64 not in joined:
        return
    if _SHORTEST_LINE in joined:
        for match in _RE.wrapped.finditer(text):
            if (found := _from_base64(match[0])) is not None:
                yield *match.span(), found
    for match in _RE.base64.finditer(text):
        plain = match[0]
        if (plain.isdigit() and len(plain) < 32) or (
            plain.isalpha() and (plain.islower() or len(plain) < 20)
        ):
            continue
        if "g" <= plain[0] <= "v" and "A" not in plain:
            continue  # its first byte begins no character, and it has no byte that is zero
        for decode in (text_in_hex, _from_base32, _from_base64):
            if (found := decode(plain)) is not None:
                yield *match.span(), found
                break


_OF_BASE64 = bytes(
    45 if one < 128 and (chr(one).isalnum() or chr(one) in "+/_-") else 32 for one in range(256)
)
_SHORTEST_BASE64, _SHORTEST_LINE = b"-" * 16, b"-" * 60


def _from_base64(text: str) -> str | None:
    plain = text.encode().rstrip(b"=").translate(_STANDARD, b"\n\r ")
    try:
        return _readable(base64.b64decode(plain + b"=" * (-len(plain) % 4), validate=True))
    except ValueError:
        return None


_STANDARD = bytes.maketrans(b"-_", b"+/")


def _from_base32(text: str) -> str | None:
    if not _RE.base32.fullmatch(text):
        return None
    plain = text.rstrip("=")
    try:
        return _readable(base64.b32decode(plain + "=" * (-len(plain) % 8)))
    except ValueError:
        return None


def text_in_hex(text: str) -> str | None:
    """Return the text that hexadecimal digits spell; None if they spell none."""
    try:
        return _readable(bytes.fromhex(text.removeprefix("0x").replace(":", " ")))
    except ValueError:
        return None


def _readable(content: bytes) -> str | None:
    """Return bytes as text, decompressed if necessary; None when they are not text."""
    if content[:2] == b"\x1f\x8b" or content[:2] in (b"x\x9c", b"x\xda", b"x\x01", b"x^"):
        content = _unpacked(content)
    try:
        if len(content) > 3 and content[1::2].count(0) > len(content) // 3:
            text = content.decode("utf-16-le")  # also one that ends in a zero
            return text if len(text) - text.count("\0") >= _SHORTEST else None
        text = content.decode()
    except ValueError:
        return None
    return text if text.isprintable() or _printable_share(text) else None


def _printable_share(text: str) -> bool:
    return "\0" not in text and sum(map(str.isprintable, text)) > len(text) * 0.8


def _unpacked(content: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=47).decompress(content, _LARGEST)
    except zlib.error:
        return content


def _from_percent(text: str) -> str:
    return unquote_to_bytes(text.replace("+", " ")).decode("utf-8", "replace")


def _from_quoted_printable(text: str) -> str:
    return quopri.decodestring(text.encode()).decode("utf-8", "replace")


def _from_escapes(text: str) -> str:
    text = _RE.bytes.sub(_of_bytes, text)
    return _RE.escape.sub(_character, text)


def _of_bytes(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("\\", "").replace("x", "")).decode("utf-8", "replace")


def _character(match: re.Match[str]) -> str:
    code = int(match[1].strip("uUx{}"), 16)
    return chr(code) if code < 0x110000 else " "


_DECODERS: dict[str, Callable[[str], str]] = {
    "%": _from_percent,
    "&": html.unescape,
    "\\": _from_escapes,
    "=": _from_quoted_printable,
}
