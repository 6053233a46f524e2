"""Rows as Arrow columns, so that DuckDB need not read each Python value.

Columns are built where the rows are created, possibly in a worker process, and are cheap to send.
`ArrowTable` presents many batches of them to DuckDB as one table.
"""

import struct
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, chain
from typing import Any, Final, Literal, TypeAlias, cast, get_args, get_type_hints

from msgspec import Raw, Struct
from msgspec.structs import astuple

ColumnKind: TypeAlias = Literal["text", "whole", "real", "time", "texts"]
"""A text, a 64-bit integer, a double, a time without a zone, or a list of texts; all may be None."""
ColumnKinds: TypeAlias = Mapping[str, ColumnKind]

Buffers: TypeAlias = tuple[bytes | None, ...]
_EPOCH: Final = datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of some rows, each as the buffers of an Arrow array; a list's include its items'."""

    rows: int
    buffers: Sequence[Buffers]


_KINDS: Final[Mapping[type, ColumnKind]] = {
    str: "text",
    int: "whole",
    float: "real",
    datetime: "time",
}


def kinds_of(row: type[Struct]) -> ColumnKinds:
    hints = get_type_hints(row)
    return {
        name: _KINDS[next(kind for kind in (*get_args(hint), hint) if kind in _KINDS)]
        for name, hint in hints.items()
    }


def to_columns(kinds: ColumnKinds, rows: Sequence[Struct] | Sequence[Sequence[object]]) -> Columns:
    """Return the columns of rows; raises OverflowError for a number beyond 64 bits."""
    if not rows:
        return Columns(0, ())
    plain = map(astuple, cast(Sequence[Struct], rows)) if isinstance(rows[0], Struct) else rows
    made = zip(kinds.values(), zip(*plain, strict=True), strict=True)
    return Columns(len(rows), [_COLUMN[kind](values) for kind, values in made])


def _text(values: Sequence[str | Raw | None]) -> Buffers:
    there = _there(values)
    if there and not any(there):
        return there, bytes(8 * (len(values) + 1)), b""
    if type(next((value for value in values if value is not None), None)) is Raw:
        parts = [value or b"" for value in values] if there else values
        return there, _offsets("q", parts), b"".join(parts)  # type: ignore[arg-type]
    texts = [value or "" for value in values] if there else values
    whole = "".join(texts)  # type: ignore[arg-type]
    if whole.isascii():
        return there, _offsets("q", texts), whole.encode()  # type: ignore[arg-type]
    encoded = [value.encode("utf-8", "replace") for value in texts]  # type: ignore[union-attr]
    return there, _offsets("q", encoded), b"".join(encoded)


def _texts(values: Sequence[Sequence[str] | None]) -> Buffers:
    lists = [value or () for value in values]
    return _there(values), _offsets("i", lists), *_text([*chain.from_iterable(lists)])


def _offsets(code: str, values: Sequence[Sized]) -> bytes:
    return _packed(code, [*accumulate(map(len, values), initial=0)])


def _whole(values: Sequence[int | None]) -> Buffers:
    there = _there(values)
    try:
        return there, _packed("q", [value or 0 for value in values] if there else values)
    except struct.error as error:
        raise OverflowError(str(error)) from None


def _real(values: Sequence[float | None]) -> Buffers:
    there = _there(values)
    return there, _packed("d", [value or 0.0 for value in values] if there else values)


def _time(values: Sequence[datetime | None]) -> Buffers:
    return _there(values), _packed(
        "q", [0 if one is None else _microseconds(one) for one in values]
    )


def _microseconds(time: datetime) -> int:
    since = time - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _there(values: Sequence[object]) -> bytes | None:
    """Return the validity bitmap: a bit for each value, 0 for None.  None if no value is None."""
    if not (missing := values.count(None)):
        return None
    if missing == len(values):
        return bytes((missing + 7) // 8)
    bits = "".join("0" if value is None else "1" for value in reversed(values))
    return int(bits, 2).to_bytes((len(values) + 7) // 8, "little")


def _packed(code: str, numbers: Sequence[float | None]) -> bytes:
    # `array.array` takes twice as long, as it parses each number like a call argument.
    return struct.pack(f"{len(numbers)}{code}", *numbers)


_COLUMN: Final[Mapping[ColumnKind, Callable[[Sequence[Any]], Buffers]]] = {
    "text": _text,
    "whole": _whole,
    "real": _real,
    "time": _time,
    "texts": _texts,
}


class ArrowTable:
    """Batches of columns as one table with Arrow's C stream interface; can be read repeatedly."""

    def __init__(self, kinds: ColumnKinds, batches: Sequence[Columns]) -> None:
        import nanoarrow
        from nanoarrow.c_array import c_array_from_buffers

        text = nanoarrow.large_string()
        types = {
            "text": text,
            "whole": nanoarrow.int64(),
            "real": nanoarrow.float64(),
            "time": nanoarrow.timestamp("us"),
            "texts": nanoarrow.list_(text),
        }

        def array(kind: ColumnKind, rows: int, buffers: Buffers) -> Any:
            if kind != "texts":
                return c_array_from_buffers(types[kind], rows, buffers)
            there, offsets, *items = buffers
            count = struct.unpack("i", (offsets or b"")[-4:])[0]
            children = [c_array_from_buffers(text, count, items)]
            return c_array_from_buffers(types[kind], rows, (there, offsets), children=children)

        schema = nanoarrow.struct({name: types[kind] for name, kind in kinds.items()})
        self._schema = nanoarrow.c_schema(schema)
        self._arrays = [
            c_array_from_buffers(
                schema,
                batch.rows,
                [None],
                children=[
                    array(kind, batch.rows, buffers)
                    for kind, buffers in zip(kinds.values(), batch.buffers, strict=True)
                ],
            )
            for batch in batches
            if batch.rows
        ]

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        from nanoarrow.c_array_stream import CArrayStream

        stream = CArrayStream.from_c_arrays(list(self._arrays), self._schema)
        return stream.__arrow_c_stream__(requested_schema)
