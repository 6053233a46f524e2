"""Small PNG pictures of pages: a palette of their most common colours instead of true colour."""

import struct
import zlib
from typing import Any, Final

import numpy as np

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
COLOURS: Final = 64


def pixels(png: bytes) -> Any:
    """Return the pixels of a PNG as Chromium writes it, or as `small` does: height, width, RGB."""
    chunks = list(_chunks(png))
    header = next(data for name, data in chunks if name == b"IHDR")
    width, height, _, kind = struct.unpack(">IIBB", header[:10])
    channels = {2: 3, 3: 1, 6: 4}[kind]
    raw = zlib.decompress(b"".join(data for name, data in chunks if name == b"IDAT"))
    lines = np.frombuffer(raw, np.uint8).reshape(height, 1 + width * channels)
    rows = _unfiltered(lines, channels).reshape(height, width, channels)
    if kind == 3:
        palette = next(data for name, data in chunks if name == b"PLTE")
        return np.frombuffer(palette, np.uint8).reshape(-1, 3)[rows[:, :, 0]]
    return rows[:, :, :3]


def small(png: bytes) -> bytes:
    """Return the picture with at most `COLOURS` colours, each pixel the nearest of them."""
    seen = pixels(png)
    packed = (
        seen[:, :, 0].astype(np.uint32) << 16 | seen[:, :, 1].astype(np.uint32) << 8 | seen[:, :, 2]
    )
    colours, inverse, counts = np.unique(packed, return_inverse=True, return_counts=True)
    rgb = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], axis=1).astype(np.int32)
    chosen = _palette(rgb, counts)
    distance = ((rgb[:, None, :] - chosen[None, :, :]) ** 2).sum(axis=2)
    places = distance.argmin(axis=1).astype(np.uint8)[inverse].reshape(packed.shape)
    height, width = places.shape
    lines = np.zeros((height, width + 1), np.uint8)
    lines[:, 1:] = places
    return _SIGNATURE + b"".join(
        _chunk(name, data)
        for name, data in (
            (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            (b"PLTE", chosen.astype(np.uint8).tobytes()),
            (b"IDAT", zlib.compress(lines.tobytes(), 9)),
            (b"IEND", b""),
        )
    )


def _palette(rgb: Any, counts: Any) -> Any:
    """Return colours that are common and far from those taken before: text keeps its shades."""
    weight = np.sqrt(counts.astype(np.float64))
    taken = [int(counts.argmax())]
    nearest = ((rgb - rgb[taken[0]]) ** 2).sum(axis=1).astype(np.float64)
    while len(taken) < min(COLOURS, len(rgb)) and nearest.max() > 0:
        taken.append(int((nearest * weight).argmax()))
        nearest = np.minimum(nearest, ((rgb - rgb[taken[-1]]) ** 2).sum(axis=1))
    return rgb[taken]


def _unfiltered(lines: Any, channels: int) -> Any:
    """Undo the filters of lines: None, Sub, Up, Average, Paeth."""
    height, length = lines.shape[0], lines.shape[1] - 1
    made = np.zeros((height + 1, length // channels, channels), np.uint8)
    for number in range(height):
        kind = lines[number, 0]
        line = lines[number, 1:].reshape(-1, channels)
        above = made[number]
        if kind == 0:
            made[number + 1] = line
        elif kind == 1:
            made[number + 1] = np.cumsum(line, axis=0, dtype=np.uint8)
        elif kind == 2:
            made[number + 1] = line + above
        else:
            made[number + 1] = _by_pixel(kind, line.tolist(), above.tolist(), channels)
    return made[1:]


def _by_pixel(kind: int, line: Any, above: Any, channels: int) -> Any:
    left, corner, made = [0] * channels, [0] * channels, []
    for pixel, up in zip(line, above, strict=True):
        if kind == 3:
            now = [(p + (a + b) // 2) & 255 for p, a, b in zip(pixel, left, up, strict=True)]
        else:
            now = [
                (p + _paeth(a, b, c)) & 255
                for p, a, b, c in zip(pixel, left, up, corner, strict=True)
            ]
        made.append(now)
        left, corner = now, up
    return made


def _paeth(a: int, b: int, c: int) -> int:
    guess = a + b - c
    far = abs(guess - a), abs(guess - b), abs(guess - c)
    return a if far[0] <= far[1] and far[0] <= far[2] else b if far[1] <= far[2] else c


def _chunks(png: bytes) -> Any:
    place = len(_SIGNATURE)
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        yield png[place + 4 : place + 8], png[place + 8 : place + 8 + length]
        place += 12 + length


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
