"""Rows as Arrow columns, so that the database reads them without a look at each Python value.

Columns are made where the rows are made, perhaps in a worker process, and are cheap to send from
there; `ArrowTable` shows many batches of them to DuckDB as one table.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple, TypeAlias

ColumnKind: TypeAlias = Literal["text", "whole", "real"]
"""A text, a whole number of 64 bits, a number or None."""
ColumnKinds: TypeAlias = Mapping[str, ColumnKind]

Buffers: TypeAlias = tuple[bytes | None, ...]


class Columns(NamedTuple):
    """The columns of some rows, each as the buffers of an Arrow array."""

    rows: int
    buffers: Sequence[Buffers]


def to_columns(kinds: ColumnKinds, rows: Sequence[Sequence[Any]]) -> Columns:
    """Return the columns of rows; raises OverflowError for a number beyond 64 bits."""
    if not rows:
        return Columns(0, ())
    made = zip(kinds.values(), zip(*rows, strict=True), strict=True)
    return Columns(len(rows), [_COLUMN[kind](values) for kind, values in made])


def _text(values: Sequence[str]) -> Buffers:
    whole = "".join(values)
    if whole.isascii():
        return None, _offsets(values), whole.encode()
    encoded = [value.encode("utf-8", "replace") for value in values]
    return None, _offsets(encoded), b"".join(encoded)


def _offsets(values: Sequence[str] | Sequence[bytes]) -> bytes:
    return _packed("q", [*accumulate(map(len, values), initial=0)])


def _whole(values: Sequence[int]) -> Buffers:
    try:
        return None, _packed("q", values)
    except struct.error as error:
        raise OverflowError(str(error)) from None


def _real(values: Sequence[float | None]) -> Buffers:
    if None not in values:
        return None, _packed("d", values)
    numbers = _packed("d", [0.0 if value is None else value for value in values])
    there = "".join("0" if value is None else "1" for value in reversed(values))
    return int(there, 2).to_bytes((len(values) + 7) // 8, "little"), numbers


def _packed(code: str, numbers: Sequence[float | None]) -> bytes:
    # An array takes twice as long: it reads each number like an argument of a call.
    return struct.pack(f"{len(numbers)}{code}", *numbers)


_COLUMN: Final[Mapping[ColumnKind, Callable[[Sequence[Any]], Buffers]]] = {
    "text": _text,
    "whole": _whole,
    "real": _real,
}


class ArrowTable:
    """Batches of columns as one table, by Arrow's C stream interface; read as often as one likes."""

    def __init__(self, kinds: ColumnKinds, batches: Sequence[Columns]) -> None:
        import nanoarrow
        from nanoarrow.c_array import c_array_from_buffers

        types = {
            "text": nanoarrow.large_string(),
            "whole": nanoarrow.int64(),
            "real": nanoarrow.float64(),
        }
        schema = nanoarrow.struct({name: types[kind] for name, kind in kinds.items()})
        self._schema = nanoarrow.c_schema(schema)
        self._arrays = [
            c_array_from_buffers(
                schema,
                batch.rows,
                [None],
                children=[
                    c_array_from_buffers(types[kind], batch.rows, buffers)
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
