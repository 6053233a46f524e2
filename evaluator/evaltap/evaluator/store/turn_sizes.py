"""How large a store's turns are, which decides how much memory they need and whether they are compressed."""

from typing import Final

from evaltap.evaluator.store.opening import ROWS_PER_GROUP
from evaltap.evaluator.store.queries import StoreReader

COMPRESSED_MEGABYTES: Final = 192
"""The largest row group of turns that is compressed: 4,096 turns of 48 KB.  To read a single value, DuckDB
decompresses 2,048 of them: of turns of 200 KB, this took 0.5 s and 512 MB."""

_LATEST: Final = f"""
SELECT count(*), coalesce(sum(strlen(actual_json) + coalesce(strlen(expected_json), 0)), 0)
FROM turns WHERE landed_seq > (SELECT max(landed_seq) FROM turns) - {ROWS_PER_GROUP}
"""


def size_of_latest_turns(store: StoreReader) -> tuple[int, int]:
    """Return the number of turns that landed last, at most a row group of them, and their size in bytes."""
    ((count, size),) = store.rows(_LATEST)
    return count, size


def compression(megabytes: int) -> str:
    """Return the setting with which texts are compressed, unless a row group of turns is larger than that."""
    disabled = "zstd" if megabytes > COMPRESSED_MEGABYTES else ""
    return f"SET disabled_compression_methods = '{disabled}'"
