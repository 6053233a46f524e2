"""Read several DuckDB files as one, each written by a consumer of some of the partitions.

Each table is replaced by a view over all files, so the predefined views and reports need not know about it.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import duckdb

from evaltap.evaluator.store.contents import contents_of, refuse_strange
from evaltap.evaluator.store.database import SCHEMA_VERSION, STORE, Store, layout, sql
from evaltap.evaluator.store.errors import StoreError, StoreHeldError
from evaltap.evaluator.store.file_type import is_archive, is_database, not_a_store
from evaltap.evaluator.store.held import not_held_here
from evaltap.evaluator.store.opening import shut_in
from evaltap.evaluator.store.queries import sql_text
from evaltap.evaluator.store.results_folder import trusted_folder
from evaltap.schemas.files.refused import no_such_file

_ONE_OF: Final[Mapping[str, str]] = {
    "meta": "key",
    "runs": "run_id",
    "run_metrics": "run_id, metric_index",
    "reference_cases": "references_digest, eval_id",
}
"""Tables with the same rows in every file: consumers with the same metrics share the live run."""


class Place(NamedTuple):
    """A partition of a cluster's topic."""

    cluster: str
    topic: str
    partition: int


def shards_sql(paths: Sequence[Path]) -> str:
    """Return SQL that reads these files as one, for the `duckdb` command or any connection.

    Raises StoreError for a file that is not evaltap's, has another layout, or contains a partition that
    another file contains.
    """
    tables = _checked(paths)
    return f"{_attach(paths)}\n{_unions(paths, tables)}\n{sql(STORE, 'views')}"


class ShardedStore(Store):
    """A store that reads several files as one; rows written to it are lost when it is closed."""

    def __init__(self, paths: Sequence[Path]) -> None:
        tables = _checked(paths)
        super().__init__(":memory:")
        try:
            self.execute(_attach(paths))
            shut_in(self._connection)
            for table in tables:
                self.execute(f"DROP TABLE {table}")
            self.execute(_unions(paths, tables))
        except BaseException:
            self.close()
            raise


def _attach(paths: Sequence[Path]) -> str:
    return "\n".join(
        f"ATTACH {sql_text(path.resolve())} AS shard_{number} (READ_ONLY);"
        for number, path in enumerate(paths)
    )


def _unions(paths: Sequence[Path], tables: Sequence[str]) -> str:
    return "\n".join(_union(table, len(paths)) for table in tables)


def _union(table: str, count: int) -> str:
    if table == "page_marks" and count > 1:  # each file's summaries go as far as its own rows
        return f"CREATE OR REPLACE VIEW {table} AS FROM shard_0.{table} WHERE false;"
    parts = "\n  UNION ALL BY NAME ".join(f"FROM shard_{number}.{table}" for number in range(count))
    if (names := _ONE_OF.get(table)) is None:
        return f"CREATE OR REPLACE VIEW {table} AS\n  {parts};"
    return (
        f"CREATE OR REPLACE VIEW {table} AS FROM (\n  {parts}\n)"
        f" QUALIFY row_number() OVER (PARTITION BY {names}) = 1;"
    )


def _checked(paths: Sequence[Path]) -> list[str]:
    """Return the tables of the files; raise StoreError for files that are not shards of one log."""
    tables = layout().tables
    holders: dict[Place, Path] = {}
    if len({path.resolve() for path in paths}) < len(paths):
        raise StoreError(
            f"{', '.join(map(str, paths))}: a file is named twice, so its rows would count twice; name"
            " each once"
        )
    for path in paths:
        for place in _places(path):
            other = holders.setdefault(place, path)
            if other != path:
                raise StoreError(
                    f"{other} and {path} both contain {place.topic}[{place.partition}], so its turns would"
                    " count twice; give each consumer its own --partitions"
                )
    return sorted(tables)


def _places(path: Path) -> list[Place]:
    """Return the partitions from which a file was consumed."""
    if is_archive(path):
        raise StoreError(f"{path}: is an archive; read it alone")
    if not path.is_file():
        raise StoreError(no_such_file(path, "expected a DuckDB file written by evaltap"))
    if not is_database(path):
        raise StoreError(not_a_store(path))
    try:
        with (
            not_held_here(path),
            duckdb.connect(
                str(path), read_only=True, config={"enable_external_access": "false"}
            ) as connection,
        ):
            refuse_strange(connection, path, contents_of(connection), layout().tables)
            if trusted_folder(connection, path) is not None:
                raise StoreError(f"{path}: reads its results from a folder; read it alone")
            version = connection.execute(_VERSION).fetchall()[0][0]
            if version != SCHEMA_VERSION:
                raise StoreError(
                    f"{path}: has layout {version}, this evaltap reads {SCHEMA_VERSION};"
                    f" {_remedy(path, version)}"
                )
            return [Place(*row) for row in connection.execute(_PLACES).fetchall()]
    except duckdb.CatalogException:
        raise StoreError(f"{path}: a DuckDB file, but not evaltap's; name another file") from None
    except duckdb.Error as error:
        if "lock" in str(error).lower():
            raise StoreHeldError(
                f"{path}: open in another process; stop it or wait, or read it alone"
            ) from None
        raise StoreError(f"{path}: {str(error).splitlines()[0]}") from None


def _remedy(path: Path, version: int) -> str:
    if version > SCHEMA_VERSION:
        return "upgrade evaltap"
    return f"`evaltap runs {path}` brings it to this layout"


_VERSION = "SELECT max(value::INTEGER) FROM meta WHERE key = 'schema_version'"

_PLACES = """
SELECT DISTINCT coalesce(m.value, ''), o.topic, o.partition_number
FROM offsets o LEFT JOIN meta m ON m.key = 'cluster:' || o.topic
ORDER BY ALL
"""
