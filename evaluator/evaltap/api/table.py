"""Rows that leave evaltap as a data frame of pandas or polars, or as an Arrow table."""

from collections.abc import Iterator, Mapping
from functools import cached_property
from html import escape
from importlib.util import find_spec
from typing import Any

import duckdb

from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.queries import Record, Rows
from evaltap.schemas.errors import ConfigurationError, InputError


class Table:
    """Rows in memory with the types of DuckDB; also an iterable of dicts.

    Whatever reads the Arrow stream of an object takes it as it is: `polars.DataFrame(table)`.
    """

    def __init__(self, kinds: Mapping[str, str], rows: Rows) -> None:
        self.kinds = kinds
        """The columns, and DuckDB's type of each."""
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record]:
        return (dict(zip(self.kinds, row, strict=True)) for row in self.rows)

    # Any: frames of packages that need not be installed
    def df(self) -> Any:
        """Return a data frame of pandas; raise ConfigurationError if it is not installed."""
        _require("df", "pandas")
        return self._relation.df()

    def polars(self) -> Any:
        """Return a data frame of polars; raise ConfigurationError if it or pyarrow is not installed."""
        _require("polars", "polars", "pyarrow")
        return self._relation.pl()

    def arrow(self) -> Any:
        """Return a table of pyarrow; raise ConfigurationError if it is not installed."""
        _require("arrow", "pyarrow")
        return self._relation.to_arrow_table()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._relation.__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return visible(str(self._relation))

    def _repr_html_(self) -> str:
        return f"<pre>{escape(repr(self))}</pre>"

    @cached_property
    def _relation(self) -> duckdb.DuckDBPyRelation:
        connection = duckdb.connect()
        columns = ", ".join(f"{_quoted(name)} {kind}" for name, kind in self.kinds.items())
        connection.execute(f"CREATE TABLE rows ({columns})")
        appender = connection.appender("rows")
        appender.append_rows(self.rows)
        appender.flush()
        return connection.table("rows")


def table_of(names: list[str], kinds: list[str], rows: Rows) -> Table:
    """Return a table; raise InputError if two columns share a name."""
    if repeated := next((name for name in names if names.count(name) > 1), None):
        raise InputError(f"several columns are named {repeated!r}; rename all but one with AS")
    return Table(dict(zip(names, kinds, strict=True)), rows)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _require(method: str, *packages: str) -> None:
    if missing := [name for name in packages if find_spec(name) is None]:
        needed = " ".join(missing)
        raise ConfigurationError(f".{method}() needs {needed}; pip install {needed}")
