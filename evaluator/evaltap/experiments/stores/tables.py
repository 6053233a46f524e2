"""Stores in tRPC-Agent-Go's tables, read and written as they are: eval sets, cases, metrics, results.

Ids are compared byte by byte and kept in the order in which they came; each operation is one transaction.
"""

import logging
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from evaltap.experiments.stores.databases import Database, DuplicateError, Row, Transaction
from evaltap.experiments.stores.errors import ExistsError, NotFoundError, required
from evaltap.experiments.stores.eval_sets import case_of, check_unchanged, stamped
from evaltap.experiments.stores.metrics import metric_of
from evaltap.experiments.stores.results import to_store
from evaltap.schemas.data import Json, json_bytes
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.files.canonical import loads
from evaltap.schemas.files.validation import Model, parse
from evaltap.schemas.formats.case import EvalCase, EvalSet
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.model import WireModel
from evaltap.schemas.formats.result import EvalSetResult

_LOG = logging.getLogger("evaltap.stores")
TABLES: Final = (
    "evaluation_eval_sets",
    "evaluation_eval_cases",
    "evaluation_metrics",
    "evaluation_eval_set_results",
)
_LONGEST: Final = 64
"""Characters of a table's name, in MySQL."""
_LONGEST_ID: Final = 255
_COLUMNS: Final = (
    "app_name {id}, eval_set_id {id}, name {id}, description TEXT",
    "app_name {id}, eval_set_id {id}, eval_id {id}, eval_mode VARCHAR(32) NOT NULL DEFAULT '',"
    " eval_case {json} NOT NULL",
    "app_name {id}, eval_set_id {id}, metric_name {id}, metric {json} NOT NULL",
    "app_name {id}, eval_set_result_id {id}, eval_set_id {id}, eval_set_result_name {id},"
    " eval_case_results {json} NOT NULL, summary {json} NULL",
)
_UNIQUE: Final = (
    ("uniq_eval_sets_app_eval_set", "app_name, eval_set_id"),
    ("uniq_eval_cases_app_set_case", "app_name, eval_set_id, eval_id"),
    ("uniq_metrics_app_set_name", "app_name, eval_set_id, metric_name"),
    ("uniq_results_app_result_id", "app_name, eval_set_result_id"),
)
_KEYS: Final = (
    (("idx_eval_sets_app_created", "app_name, created_at"),),
    (("idx_eval_cases_app_set_order", "app_name, eval_set_id, id"),),
    (("idx_metrics_app_set", "app_name, eval_set_id"),),
    (
        ("idx_results_app_created", "app_name, created_at"),
        ("idx_results_app_set_created", "app_name, eval_set_id, created_at"),
    ),
)

_IDS: Final[Mapping[str, tuple[str, str]]] = {
    "app": ("app_name", "app name"),
    "set": ("eval_set_id", "eval set id"),
    "case": ("eval_id", "eval id"),
    "metric": ("metric_name", "metric name"),
    "result": ("eval_set_result_id", "result id"),
}
"""By the name of a statement's parameter: the column, and what messages call the id."""


def table_names(prefix: str = "") -> list[str]:
    """Return the names of the tables of sets, cases, metrics and results; raise ConfigurationError for a
    prefix that is no name.

    An underscore is added to a prefix without one.
    """
    if prefix and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", prefix):
        raise ConfigurationError(
            f"table prefix {prefix!r}; expected letters, digits and underscores, no digit first"
        )
    full = prefix if not prefix or prefix.endswith("_") else f"{prefix}_"
    if len(full) + max(map(len, TABLES)) > _LONGEST:
        most = _LONGEST - max(map(len, TABLES)) - 1
        raise ConfigurationError(
            f"table prefix {prefix!r} makes names that are too long; {most} characters fit"
        )
    return [f"{full}{table}" for table in TABLES]


class Tables:
    """The tables of a database, created if they are not there; raises DatabaseError.

    `now` gives the time in Unix seconds.
    """

    def __init__(self, database: Database, now: Callable[[], float]) -> None:
        self.sets, self.cases, self.metrics, self.results = table_names(database.prefix)
        self._database, self.now = database, now
        try:
            database.run(self._open)
        except DuplicateError:  # another process made the tables at the same moment
            database.run(self._open)

    def run(self, work: Callable[["Statements"], Any]) -> Any:  # what `work` returns
        return self._database.run(lambda transaction: work(Statements(transaction, self)))

    def rows(self, statement: str, missing: str = "", **given: Any) -> list[Row]:
        """Return the rows of a query, as `Statements.rows` does."""
        found: list[Row] = self.run(lambda sql: sql.rows(statement, missing, **given))
        return found

    def add(self, work: Callable[["Statements"], None], exists: str) -> None:
        """Run a transaction that adds rows; raise ExistsError if one of them is there."""
        try:
            self.run(work)
        except DuplicateError:
            raise ExistsError(exists) from None

    def change(
        self,
        find: str,
        statement: str,
        missing: str,
        check: Callable[[Row], None] = lambda row: None,
        **given: Any,
    ) -> None:
        """Run a statement for the `%(row)s` that a query finds, once it is checked; raise NotFoundError if
        there is none.
        """

        def work(sql: "Statements") -> None:
            row = sql.rows(find + "{lock}", missing, **given)[0]
            check(row)
            sql.run(statement, row=row[0], **given)

        self.run(work)

    def _open(self, transaction: Transaction) -> None:
        dialect = self._database.dialect
        collation = _collation(transaction) if dialect.keys else ""
        if self._database.creates_tables:
            for statement in self._definitions(collation):
                transaction.run(statement, {})
        if dialect.keys:
            self._warn_of(transaction, collation)

    def _definitions(self, collation: str) -> list[str]:
        dialect = self._database.dialect
        names = (self.sets, self.cases, self.metrics, self.results)
        begin = self.sets.removesuffix(TABLES[0])  # names of keys are the schema's in PostgreSQL
        types = {"id": "VARCHAR(255) NOT NULL", "json": dialect.json}
        found = []
        for table, columns, (unique, of), keys in zip(names, _COLUMNS, _UNIQUE, _KEYS, strict=True):
            if dialect.before_table:
                found.append(dialect.before_table.format(table=table))
            parts = [
                f"id {dialect.row_id.format(table=table)}",
                columns.format(**types),
                f"created_at {dialect.moment}",
                f"updated_at {dialect.moment}{dialect.on_update}",
                f"CONSTRAINT {begin}{unique} UNIQUE ({of})",
            ]
            if dialect.keys:
                parts += [f"KEY {begin}{key} ({columns_of})" for key, columns_of in keys]
            after = dialect.after_table.format(collation=collation)
            found.append(f"CREATE TABLE IF NOT EXISTS {table} ({', '.join(parts)}){after}")
        return found

    def _warn_of(self, transaction: Transaction, collation: str) -> None:
        found = transaction.rows(
            "SELECT TABLE_COLLATION FROM information_schema.TABLES"
            " WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = %(table)s",
            {"table": self.sets},
        )
        if found and found[0][0] != collation:
            _LOG.warning(
                "%s: the tables compare ids as %s does, so two ids that differ only in letter case, accents"
                " or blanks at the end cannot both exist",
                self._database.where,
                found[0][0],
            )


def _collation(transaction: Transaction) -> str:
    """Return the collation that compares bytes: PAD SPACE would ignore blanks at the end."""
    version = str(transaction.rows("SELECT VERSION()", {})[0][0])
    return "utf8mb4_nopad_bin" if "MariaDB" in version else "utf8mb4_0900_bin"


class Statements:
    """The statements of one transaction, with the names of the tables and of ids in them."""

    def __init__(self, transaction: Transaction, tables: Tables) -> None:
        self._transaction = transaction
        same, lock = transaction.dialect.same, transaction.dialect.lock
        self._words = {
            "sets": tables.sets,
            "cases": tables.cases,
            "metrics": tables.metrics,
            "results": tables.results,
            "lock": lock,
            **{
                f"same_{name}": same.format(column=column, name=name)
                for name, (column, _) in _IDS.items()
            },
        }

    def run(self, statement: str, **given: Any) -> None:  # values of a driver
        """Run a statement that returns nothing."""
        _check_ids(given)
        self._transaction.run(statement.format(**self._words), given)

    def rows(self, statement: str, missing: str = "", **given: Any) -> list[Row]:
        """Return the rows of a query; without any, raise NotFoundError for what is missing."""
        _check_ids(given)
        found = self._transaction.rows(statement.format(**self._words), given)
        if missing and not found:
            raise NotFoundError(f"no {missing}")
        return found


class _InTables:
    """What the stores in tables share."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def close(self) -> None:
        """Do nothing: connections live for one transaction."""


class EvalSetTables(_InTables):
    """Eval sets in tables; see `EvalSetStoring`."""

    def get(self, app: str, eval_set_id: str) -> EvalSet:
        rows = self._tables.rows(
            "SELECT s.name, s.description, s.created_at, c.eval_id, c.eval_case FROM"
            " (SELECT * FROM {sets} WHERE {same_app} AND {same_set}) s LEFT JOIN {cases} c"
            " ON c.app_name = s.app_name AND c.eval_set_id = s.eval_set_id ORDER BY c.id",
            f"eval set {eval_set_id!r} in app {app!r}; create it",
            app=app,
            set=eval_set_id,
        )
        name, description, created, *_ = rows[0]
        return EvalSet(
            eval_set_id=eval_set_id,
            name=name,
            description=description or "",
            eval_cases=[_read(EvalCase, text, f"case {one!r}") for *_, one, text in rows if text],
            creation_timestamp=_seconds(created),
        )

    def create(self, app: str, eval_set_id: str) -> EvalSet:
        return self.put(app, EvalSet(eval_set_id=eval_set_id, name=eval_set_id))

    def put(self, app: str, eval_set: EvalSet) -> EvalSet:
        for case in eval_set.eval_cases:
            case_of(case)
        now = self._tables.now()
        made = now if eval_set.creation_timestamp is None else eval_set.creation_timestamp

        def work(sql: Statements) -> None:
            sql.run(
                "INSERT INTO {sets} (app_name, eval_set_id, name, description, created_at, updated_at)"
                " VALUES (%(app)s, %(set)s, %(name)s, %(description)s, %(made)s, %(now)s)",
                app=app,
                set=eval_set.eval_set_id,
                name=eval_set.name,
                description=eval_set.description or None,
                made=_moment(made),
                now=_moment(now),
            )
            for case in eval_set.eval_cases:
                self._insert(sql, app, eval_set.eval_set_id, case, now)

        self._tables.add(work, f"eval set {eval_set.eval_set_id!r} exists in app {app!r}")
        return self.get(app, eval_set.eval_set_id)

    def list(self, app: str) -> list[str]:
        rows = self._tables.rows(
            "SELECT eval_set_id FROM {sets} WHERE {same_app} ORDER BY id", app=app
        )
        return [one for (one,) in rows]

    def delete(self, app: str, eval_set_id: str) -> None:

        def work(sql: Statements) -> None:
            self._lock(sql, app, eval_set_id)
            for table in ("{cases}", "{sets}"):
                sql.run(
                    f"DELETE FROM {table} WHERE app_name = %(app)s AND eval_set_id = %(set)s",
                    app=app,
                    set=eval_set_id,
                )

        self._tables.run(work)

    def get_case(self, app: str, eval_set_id: str, eval_id: str) -> EvalCase:
        rows = self._tables.rows(
            "SELECT eval_case FROM {cases} WHERE {same_app} AND {same_set} AND {same_case}",
            f"case {eval_id!r} in eval set {eval_set_id!r}",
            app=app,
            set=eval_set_id,
            case=eval_id,
        )
        return _read(EvalCase, rows[0][0], f"case {eval_id!r}")

    def add_case(self, app: str, eval_set_id: str, case: EvalCase | Mapping[str, Any]) -> None:
        now = self._tables.now()
        added = stamped(case_of(case), now)

        def work(sql: Statements) -> None:
            self._lock(sql, app, eval_set_id)
            self._insert(sql, app, eval_set_id, added, now)

        self._tables.add(work, f"case {added.eval_id!r} exists in eval set {eval_set_id!r}")

    def update_case(
        self,
        app: str,
        eval_set_id: str,
        case: EvalCase | Mapping[str, Any],
        *,
        expected: EvalCase | None = None,
    ) -> None:
        """Replace a case whole, if it is still the expected one."""
        changed = case_of(case)
        place = f"case {changed.eval_id!r}"
        self._change(
            app,
            eval_set_id,
            changed.eval_id,
            "UPDATE {cases} SET eval_mode = %(mode)s, eval_case = %(text)s, updated_at = %(now)s"
            " WHERE id = %(row)s",
            check=lambda row: check_unchanged(_read(EvalCase, row[1], place), expected),
            mode=changed.eval_mode,
            text=_text(changed),
            now=_moment(self._tables.now()),
        )

    def delete_case(self, app: str, eval_set_id: str, eval_id: str) -> None:
        self._change(app, eval_set_id, eval_id, "DELETE FROM {cases} WHERE id = %(row)s")

    def _change(
        self, app: str, eval_set_id: str, eval_id: str, statement: str, **values: Any
    ) -> None:
        self._tables.change(
            "SELECT id, eval_case FROM {cases} WHERE {same_app} AND {same_set} AND {same_case}",
            statement,
            f"case {eval_id!r} in eval set {eval_set_id!r}",
            app=app,
            set=eval_set_id,
            case=eval_id,
            **values,
        )

    @staticmethod
    def _lock(sql: Statements, app: str, eval_set_id: str) -> None:
        """Keep a set from being deleted, or being added to, until the transaction ends."""
        sql.rows(
            "SELECT id FROM {sets} WHERE {same_app} AND {same_set}{lock}",
            f"eval set {eval_set_id!r} in app {app!r}; create it",
            app=app,
            set=eval_set_id,
        )

    @staticmethod
    def _insert(sql: Statements, app: str, eval_set_id: str, case: EvalCase, now: float) -> None:
        sql.run(
            "INSERT INTO {cases} (app_name, eval_set_id, eval_id, eval_mode, eval_case, created_at,"
            " updated_at) VALUES (%(app)s, %(set)s, %(case)s, %(mode)s, %(text)s, %(now)s, %(now)s)",
            app=app,
            set=eval_set_id,
            case=case.eval_id,
            mode=case.eval_mode,
            text=_text(case),
            now=_moment(now),
        )


class MetricTables(_InTables):
    """Metrics in a table; see `MetricStoring`."""

    def list(self, app: str, eval_set_id: str) -> list[str]:
        rows = self._tables.rows(
            "SELECT metric_name FROM {metrics} WHERE {same_app} AND {same_set} ORDER BY id",
            app=app,
            set=eval_set_id,
        )
        return [one for (one,) in rows]

    def get(self, app: str, eval_set_id: str, name: str) -> EvalMetric:
        rows = self._tables.rows(
            "SELECT metric FROM {metrics} WHERE {same_app} AND {same_set} AND {same_metric}",
            f"metric {name!r} in eval set {eval_set_id!r}",
            app=app,
            set=eval_set_id,
            metric=name,
        )
        return _read(EvalMetric, rows[0][0], f"metric {name!r}")

    def add(self, app: str, eval_set_id: str, metric: EvalMetric | Mapping[str, Any]) -> None:
        added = metric_of(metric)

        def work(sql: Statements) -> None:
            sql.run(
                "INSERT INTO {metrics} (app_name, eval_set_id, metric_name, metric, created_at, updated_at)"
                " VALUES (%(app)s, %(set)s, %(metric)s, %(text)s, %(now)s, %(now)s)",
                app=app,
                set=eval_set_id,
                metric=added.metric_name,
                text=_text(added),
                now=_moment(self._tables.now()),
            )

        self._tables.add(work, f"metric {added.metric_name!r} exists in {eval_set_id!r}")

    def update(self, app: str, eval_set_id: str, metric: EvalMetric | Mapping[str, Any]) -> None:
        changed = metric_of(metric)
        self._change(
            app,
            eval_set_id,
            changed.metric_name,
            "UPDATE {metrics} SET metric = %(text)s, updated_at = %(now)s WHERE id = %(row)s",
            text=_text(changed),
            now=_moment(self._tables.now()),
        )

    def delete(self, app: str, eval_set_id: str, name: str) -> None:
        self._change(app, eval_set_id, name, "DELETE FROM {metrics} WHERE id = %(row)s")

    def _change(self, app: str, eval_set_id: str, name: str, statement: str, **values: Any) -> None:
        self._tables.change(
            "SELECT id FROM {metrics} WHERE {same_app} AND {same_set} AND {same_metric}",
            statement,
            f"metric {name!r} in eval set {eval_set_id!r}",
            app=app,
            set=eval_set_id,
            metric=name,
            **values,
        )


class ResultTables(_InTables):
    """Results in a table; see `ResultStoring`."""

    def save(self, app: str, result: EvalSetResult) -> str:
        """Store a result under its id, or under a new one; name and time are set if absent."""
        now = self._tables.now()
        stored = to_store(app, result, now)
        result_id = stored.eval_set_result_id
        summary = None if stored.summary is None else _text(stored.summary)
        given = {
            "app": app,
            "result": result_id,
            "set": stored.eval_set_id,
            "name": stored.eval_set_result_name,
            "cases": json_bytes(
                [one.model_dump(by_alias=True) for one in stored.eval_case_results]
            ).decode(),
            "summary": summary,
            "made": _moment(stored.creation_timestamp or now),
            "now": _moment(now),
        }

        def work(sql: Statements) -> None:
            rows = sql.rows(
                "SELECT id FROM {results} WHERE {same_app} AND {same_result}",
                app=app,
                result=result_id,
            )
            if rows:
                sql.run(
                    "UPDATE {results} SET eval_set_id = %(set)s, eval_set_result_name = %(name)s,"
                    " eval_case_results = %(cases)s, summary = %(summary)s, updated_at = %(now)s"
                    " WHERE id = %(row)s",
                    **given,
                    row=rows[0][0],
                )
                return
            sql.run(
                "INSERT INTO {results} (app_name, eval_set_result_id, eval_set_id, eval_set_result_name,"
                " eval_case_results, summary, created_at, updated_at) VALUES (%(app)s, %(result)s, %(set)s,"
                " %(name)s, %(cases)s, %(summary)s, %(made)s, %(now)s)",
                **given,
            )

        try:
            self._tables.run(work)
        except DuplicateError:  # another process was faster, or the tables do not compare bytes
            self._tables.add(work, f"a result like {result_id!r} exists in app {app!r}")
        return result_id

    def get(self, app: str, result_id: str) -> EvalSetResult:
        rows = self._tables.rows(
            "SELECT eval_set_id, eval_set_result_name, eval_case_results, summary, created_at"
            " FROM {results} WHERE {same_app} AND {same_result}",
            f"result {result_id!r} in app {app!r}",
            app=app,
            result=result_id,
        )
        eval_set_id, name, cases, summary, made = rows[0]
        place = f"result {result_id!r}"
        data = {
            "evalSetResultId": result_id,
            "evalSetResultName": name,
            "evalSetId": eval_set_id,
            "evalCaseResults": _json(cases, place),
            "summary": None if summary is None else _json(summary, place),
            "creationTimestamp": _seconds(made),
        }
        return parse(EvalSetResult, data, place=place)

    def list(self, app: str) -> list[str]:
        rows = self._tables.rows(
            "SELECT eval_set_result_id FROM {results} WHERE {same_app} ORDER BY id", app=app
        )
        return [one for (one,) in rows]


def _check_ids(given: Mapping[str, Any]) -> None:  # values of a driver
    """Raise InputError for an id that is blank or that a column cannot hold as it is."""
    for name in [one for one in _IDS if one in given]:
        value, what = given[name], _IDS[name][1]
        required(**{what: value})
        if len(value) > _LONGEST_ID:
            raise InputError(f"{what} {value[:40]!r}… is too long; {_LONGEST_ID} characters fit")
        if any(ord(one) < 32 or ord(one) == 127 or 0xD800 <= ord(one) < 0xE000 for one in value):
            raise InputError(f"{what} {value!r} has characters that no id may have")


def _text(model: WireModel) -> str:
    return json_bytes(model.model_dump(by_alias=True)).decode()


def _json(text: str | bytes, place: str) -> Json:
    return loads(text.encode() if isinstance(text, str) else text, place=place)


def _read(model: type[Model], text: str | bytes, place: str) -> Model:
    return parse(model, _json(text, place), place=place)


def _moment(seconds: float) -> datetime:
    """Return Unix seconds as UTC without a zone, as the tables have it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None)
    except (OverflowError, ValueError, OSError):
        raise InputError(f"creation time {seconds!r}: expected Unix seconds") from None


def _seconds(moment: datetime) -> float:
    return moment.replace(tzinfo=UTC).timestamp()
