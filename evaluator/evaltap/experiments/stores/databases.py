"""Databases that hold stores: what their SQL has in common with others', and where they are.

A database is named by its URL: `mysql://user@host/name`, `mariadb://…`, `postgresql://…`, or the path of a
DuckDB file, `x.duckdb`.  The query of a URL has options: `prefix` (of the tables), `init=no` (the tables are
there), `timeout` (seconds to connect, 30); for MySQL `unix_socket` and `ssl_ca`; for PostgreSQL those of
libpq, e.g. `sslmode`.  Without a password, MYSQL_PWD, PGPASSWORD or ~/.pgpass has it.
"""

import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import duckdb

from evaltap.experiments.stores.errors import DatabaseError
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.installation import install_command
from evaltap.schemas.known import check_known

Row = tuple[Any, ...]  # values of a driver
_NAMED: Final = re.compile(r"%\((\w+)\)s")
_DUCKDB_TURN: Final = threading.Lock()
"""DuckDB takes a row that another thread has not committed yet for a duplicate."""
_GIVE_UP_SECONDS: Final = 10.0
"""How long a transaction is tried again that another one was in the way of."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """What is particular to a database."""

    connect: Callable[[], Any] = field(repr=False)
    """Opens a connection that commits by itself."""
    failure: type[Exception]
    """The base of its driver's errors."""
    is_duplicate: Callable[[Any], bool]
    is_passing: Callable[[Any], bool]
    """Whether an error is due to another transaction, so that trying again helps."""
    row_id: str
    """The type of a number that grows with each row."""
    json: str
    moment: str
    on_update: str = ""
    keys: bool = False
    """Whether keys that are not unique are part of a table's definition."""
    before_table: str = ""
    after_table: str = ""
    lock: str = " FOR UPDATE"
    same: str = "{column} = %({name})s"
    """Compares an id byte by byte."""
    marker: str = r"%(\1)s"
    """A named parameter."""
    turn: AbstractContextManager[object] = field(default_factory=nullcontext)
    """Held during a transaction."""


@dataclass(frozen=True, slots=True)
class Database:
    """A database; a connection is opened for each transaction."""

    where: str
    """Its URL without the password, for messages."""
    dialect: Dialect
    secret: str = field(default="", repr=False)
    prefix: str = ""
    creates_tables: bool = True

    @contextmanager
    def transaction(self) -> Iterator["Transaction"]:
        """Run statements that all take effect or none; raises DatabaseError and DuplicateError."""
        cursor, connection = None, None
        try:
            connection = self.dialect.connect()
            cursor = connection.cursor()
            cursor.execute("BEGIN")
            yield Transaction(cursor, self.dialect)
            cursor.execute("COMMIT")
        except self.dialect.failure as error:
            if self.dialect.is_passing(error):
                raise PassingError from None
            if self.dialect.is_duplicate(error):
                raise DuplicateError from None
            raise DatabaseError(f"{self.where}: {self._text(error)}") from None
        finally:
            if connection is not None:
                with suppress(self.dialect.failure):  # closing rolls back what was not committed
                    connection.close()

    def run(self, work: Callable[["Transaction"], Any]) -> Any:  # what `work` returns
        """Run a transaction, again while another one is in its way."""
        began, pause = time.monotonic(), 0.01
        while True:
            try:
                with self.dialect.turn, self.transaction() as transaction:
                    return work(transaction)
            except PassingError:
                if time.monotonic() - began > _GIVE_UP_SECONDS:
                    raise DatabaseError(
                        f"{self.where}: another process holds it; try again later"
                    ) from None
                time.sleep(pause)
                pause = min(2 * pause, 0.5)

    def _text(self, error: Exception) -> str:
        text = " ".join(str(error.args[-1]).split()) if error.args else type(error).__name__
        return text.replace(self.secret, "***") if self.secret else text


class Transaction:
    """Runs statements with named parameters, written `%(name)s`."""

    def __init__(self, cursor: Any, dialect: Dialect) -> None:  # a driver's cursor
        self._cursor = cursor
        self.dialect = dialect

    def run(self, statement: str, given: Mapping[str, Any]) -> None:  # values of a driver
        """Run a statement that returns nothing."""
        names = {*_NAMED.findall(statement)}
        text = _NAMED.sub(self.dialect.marker, statement)
        self._cursor.execute(text, {name: given[name] for name in names} or None)

    def rows(self, statement: str, given: Mapping[str, Any]) -> list[Row]:
        """Return the rows of a query."""
        self.run(statement, given)
        return [*self._cursor.fetchall()]


class DuplicateError(Exception):
    """Raised when a row with a unique id is there."""


class PassingError(Exception):
    """Raised when another transaction was in the way."""


def is_database(where: str) -> bool:
    """Return whether a text names a database, not a folder."""
    return "://" in where or where.endswith(".duckdb")


def database_at(where: str) -> Database:
    """Return the database that a URL or a path names, without connecting to it.

    Raises ConfigurationError for a URL that cannot be used or a driver that is not installed.
    """
    if "://" not in where:
        return Database(where, _duckdb(Path(where)))
    try:
        url = urlsplit(where)
        port = url.port
    except ValueError:
        raise ConfigurationError(
            "the URL of the database is malformed; expected mysql://user:password@host:port/name, with"
            " special characters of the password as %XX"
        ) from None
    if url.scheme not in _KINDS:
        raise ConfigurationError(
            f"{url.scheme}://…: expected {', '.join(f'{one}://' for one in _KINDS)}, a file X.duckdb, or a"
            " folder"
        )
    name = unquote(url.path.strip("/"))
    shown = f"{url.scheme}://{url.netloc.rpartition('@')[2]}/{name}"
    if url.username:
        shown = shown.replace("://", f"://{url.username}@", 1)
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if not name:
        raise ConfigurationError(
            f"{shown}: no name of a database; expected {url.scheme}://host/NAME"
        )
    prefix, init = options.pop("prefix", ""), options.pop("init", "yes")
    timeout = options.pop("timeout", "30")
    if init not in ("yes", "no") or not timeout.isdecimal() or not int(timeout):
        raise ConfigurationError(f"{shown}: expected init=yes or init=no, and timeout=SECONDS")
    password = unquote(url.password or "")
    dialect = _KINDS[url.scheme](_Address(url, port, name, password, int(timeout), shown, options))
    return Database(shown, dialect, password, prefix, init == "yes")


@dataclass(frozen=True, slots=True)
class _Address:
    url: SplitResult = field(repr=False)
    port: int | None
    name: str
    password: str = field(repr=False)
    timeout: int
    shown: str
    options: dict[str, str]

    def check_options(self, known: Sequence[str]) -> None:
        for one in self.options:
            check_known(one, known, f"{self.shown}: no option {one!r}")


def _mysql(address: _Address) -> Dialect:
    try:
        import pymysql  # an optional package
        from pymysql.constants import ER
    except ImportError:
        raise _not_installed("mysql") from None
    address.check_options(("prefix", "init", "timeout", "unix_socket", "ssl_ca"))
    url = address.url
    given: dict[str, Any] = {
        "host": url.hostname or "localhost",
        "port": address.port or 3306,
        "user": unquote(url.username or "") or None,
        "password": address.password or os.environ.get("MYSQL_PWD", ""),
        "database": address.name,
        "charset": "utf8mb4",
        "connect_timeout": address.timeout,
        "autocommit": True,
        "init_command": "SET SESSION time_zone = '+00:00', SESSION sql_mode = 'STRICT_ALL_TABLES'",
        **address.options,
    }

    def code(error: Exception) -> object:
        return error.args[0] if error.args else None

    return Dialect(
        connect=lambda: pymysql.connect(**given),
        failure=pymysql.MySQLError,
        is_duplicate=lambda error: code(error) == ER.DUP_ENTRY,
        is_passing=lambda error: code(error) in (ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT),
        row_id="BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",
        json="JSON",
        moment="TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
        on_update=" ON UPDATE CURRENT_TIMESTAMP(6)",
        keys=True,
        after_table=" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={collation}",
        # The first part uses the index, whatever the collation; the second compares bytes.
        same="({column} = %({name})s AND CAST({column} AS BINARY) = CAST(%({name})s AS BINARY))",
    )


def _postgres(address: _Address) -> Dialect:
    try:
        import psycopg.conninfo  # an optional package
        from psycopg.types.string import TextLoader
    except ImportError:
        raise _not_installed("postgres") from None
    url = address.url
    given: dict[str, Any] = {
        "host": url.hostname,
        "port": address.port,
        "user": unquote(url.username or "") or None,
        "password": address.password or None,
        "dbname": address.name,
        "connect_timeout": address.timeout,
        **address.options,
    }
    given = {name: one for name, one in given.items() if one is not None}
    try:
        psycopg.conninfo.make_conninfo(**given)
    except psycopg.Error:
        raise ConfigurationError(
            f"{address.shown}: libpq has no such options: {', '.join(address.options) or 'none given'}"
        ) from None

    def connect() -> Any:
        connection = psycopg.connect(**given, autocommit=True)
        connection.adapters.register_loader("json", TextLoader)  # decoded here
        return connection

    return Dialect(
        connect=connect,
        failure=psycopg.Error,
        is_duplicate=lambda error: isinstance(error, psycopg.errors.UniqueViolation),
        is_passing=lambda error: getattr(error, "sqlstate", "") in ("40001", "40P01"),
        row_id="BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY",
        json="JSON",
        moment="TIMESTAMP(6) NOT NULL",
    )


def _duckdb(path: Path) -> Dialect:
    def connect() -> Any:
        new = not path.exists()
        connection = duckdb.connect(str(path), config={"autoinstall_known_extensions": "false"})
        if new:
            path.chmod(0o600)
        # The file may have a stranger's SQL.
        connection.execute("SET enable_external_access = false")
        return connection

    return Dialect(
        connect=connect,
        failure=duckdb.Error,
        is_duplicate=lambda error: isinstance(error, duckdb.ConstraintException),
        is_passing=lambda error: (
            isinstance(error, duckdb.TransactionException)
            or (isinstance(error, duckdb.IOException) and "set lock on" in str(error))
        ),
        row_id="BIGINT PRIMARY KEY DEFAULT nextval('{table}_id')",
        json="JSON",
        moment="TIMESTAMP NOT NULL",
        before_table="CREATE SEQUENCE IF NOT EXISTS {table}_id",
        lock="",
        marker=r"$\1",
        turn=_DUCKDB_TURN,
    )


def _not_installed(extra: str) -> ConfigurationError:
    return ConfigurationError(
        f"the extra '{extra}' is not installed; install it with {install_command(extra)}"
    )


_KINDS: Final[Mapping[str, Callable[[_Address], Dialect]]] = {
    "mysql": _mysql,
    "mariadb": _mysql,
    "postgresql": _postgres,
    "postgres": _postgres,
}
