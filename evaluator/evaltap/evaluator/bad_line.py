"""What a file or a table holds in the place of an eval case; kept as a dead letter."""

from typing import NamedTuple


class BadLine(NamedTuple):
    """A line of a file, or a row of a table, that holds no usable case."""

    path: str
    offset: int
    """The byte where a line begins, the number of a row from 0."""
    message: str
    raw: bytes
    """The line as it stands there, the row as JSON."""
