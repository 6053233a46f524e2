"""Stores of eval sets, metrics and results: one contract for all of them, and what only files can do."""

import sys
import traceback
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from evaltap.experiments.stores import (
    ChangedError,
    DatabaseError,
    ExistsError,
    FileLocator,
    NotFoundError,
    Stores,
    file_stores,
    memory_stores,
    stores_at,
)
from evaltap.experiments.stores.databases import database_at
from evaltap.schemas.errors import ConfigurationError, EvaltapError, FormatError, InputError
from evaltap.schemas.formats.case import EvalCase, EvalSet
from evaltap.schemas.formats.result import EvalCaseResult, EvalSetResult, EvalSetResultSummary
from support.servers import database_servers

TURN = {"invocationId": "1", "userContent": {"role": "user", "content": "hi"}}
CASE = {"evalId": "c", "conversation": [TURN]}


@pytest.fixture(scope="session")
def mariadb() -> Iterator[str]:
    with database_servers.mariadb() as url:
        yield url


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    with database_servers.postgres() as url:
        yield url


SERVERS = [pytest.param(one, marks=pytest.mark.slow) for one in ("mariadb", "postgres")]


@pytest.fixture(params=["duckdb", *SERVERS])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "duckdb":
        return str(tmp_path / "x.duckdb")
    url: str = request.getfixturevalue(request.param)
    return f"{url}?prefix=t{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["memory", "files", "duckdb", *SERVERS])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    if request.param == "memory":
        return memory_stores()
    if request.param == "files":
        return file_stores(tmp_path)
    if request.param == "duckdb":
        return stores_at(str(tmp_path / "x.duckdb"))
    return stores_at(f"{request.getfixturevalue(request.param)}?prefix=t{uuid.uuid4().hex[:8]}")


def test_a_set_is_created_once_listed_and_deleted_without_its_metrics(stores: Stores) -> None:
    made = stores.sets.create("app", "s")
    stores.metrics.add("app", "s", {"metricName": "m"})

    assert (made.name, made.eval_cases) == ("s", [])
    assert made.creation_timestamp is not None
    with pytest.raises(ExistsError):
        stores.sets.create("app", "s")
    assert stores.sets.list("app") == ["s"]
    stores.sets.delete("app", "s")
    with pytest.raises(NotFoundError):
        stores.sets.delete("app", "s")
    assert stores.sets.list("app") == []
    assert stores.metrics.list("app", "s") == ["m"]


def test_cases_keep_their_order_and_added_ones_are_stamped(stores: Stores) -> None:
    stores.sets.create("app", "s")
    stores.sets.add_case("app", "s", CASE)
    stores.sets.add_case("app", "s", EvalCase(eval_id="a"))
    stamped = stores.sets.get_case("app", "s", "c")

    stores.sets.update_case("app", "s", CASE)

    assert stamped.creation_timestamp is not None
    assert stamped.conversation[0] is not None
    assert stamped.conversation[0].creation_timestamp is not None
    assert stores.sets.get_case("app", "s", "c").creation_timestamp is None
    assert [one.eval_id for one in stores.sets.get("app", "s").eval_cases] == ["c", "a"]


def test_what_is_returned_belongs_to_the_caller(stores: Stores) -> None:
    stores.sets.create("app", "s")
    stores.sets.add_case("app", "s", CASE)

    stores.sets.get("app", "s").eval_cases.clear()

    assert len(stores.sets.get("app", "s").eval_cases) == 1


def test_results_get_an_id_and_the_same_id_replaces_one(stores: Stores) -> None:
    result = EvalSetResult(eval_set_id="s")
    first = stores.results.save("app", result)
    again = stores.results.save("app", result.model_copy(update={"eval_set_result_id": first}))

    found = stores.results.get("app", first)

    assert first == again
    assert first.startswith("app_s_")
    assert stores.results.list("app") == [first]
    assert found.eval_set_result_name == first
    assert found.creation_timestamp is not None
    assert not result.eval_set_result_id


@pytest.mark.parametrize(
    "operation",
    [
        lambda all_of: all_of.sets.get("", "s"),
        lambda all_of: all_of.sets.create("app", ""),
        lambda all_of: all_of.sets.list(""),
        lambda all_of: all_of.sets.get_case("app", "s", ""),
        lambda all_of: all_of.sets.add_case("app", "s", None),
        lambda all_of: all_of.sets.add_case("app", "s", {"evalId": "n", "conversation": [None]}),
        lambda all_of: all_of.metrics.list("app", ""),
        lambda all_of: all_of.metrics.add("app", "s", None),
        lambda all_of: all_of.metrics.add("app", "s", {}),
        lambda all_of: all_of.results.save("app", EvalSetResult()),
        lambda all_of: all_of.results.save("app", None),
        lambda all_of: all_of.results.get("app", ""),
    ],
)
def test_blank_ids_and_nulls_are_invalid(
    stores: Stores, operation: Callable[[Stores], object]
) -> None:
    stores.sets.create("app", "s")

    with pytest.raises(InputError) as caught:
        operation(stores)
    assert not isinstance(caught.value, NotFoundError | ExistsError)


@pytest.mark.parametrize(
    "operation",
    [
        lambda all_of: all_of.sets.get("app", "none"),
        lambda all_of: all_of.sets.get_case("app", "s", "none"),
        lambda all_of: all_of.sets.update_case("app", "s", {"evalId": "none"}),
        lambda all_of: all_of.sets.delete_case("app", "s", "none"),
        lambda all_of: all_of.metrics.get("app", "s", "none"),
        lambda all_of: all_of.metrics.update("app", "s", {"metricName": "none"}),
        lambda all_of: all_of.metrics.delete("app", "s", "none"),
        lambda all_of: all_of.results.get("app", "none"),
    ],
)
def test_what_is_missing_is_not_found(
    stores: Stores, operation: Callable[[Stores], object]
) -> None:
    stores.sets.create("app", "s")

    with pytest.raises(NotFoundError):
        operation(stores)


def test_an_unknown_app_has_nothing(stores: Stores) -> None:
    assert stores.sets.list("none") == stores.metrics.list("none", "s") == []
    assert stores.results.list("none") == []


IDS = ["Set", "set", "Sét", "Set ", "sét", "集", "🦆", "a'b\"c;--%s{x}", "x" * 200]


@pytest.mark.slow
def test_ids_are_compared_byte_by_byte(stores: Stores) -> None:
    for one in IDS:
        stores.sets.create("app", one)
        stores.metrics.add("app", "s", {"metricName": one})
        stores.sets.add_case("app", "Set", {"evalId": one})
        stores.results.save("app", EvalSetResult(eval_set_id="s", eval_set_result_id=one))

    assert {*stores.sets.list("app")} == {*IDS}
    assert stores.metrics.list("app", "s") == IDS
    assert [one.eval_id for one in stores.sets.get("app", "Set").eval_cases] == IDS
    assert len(stores.results.list("app")) == len(IDS)
    assert not stores.sets.get("app", "set").eval_cases
    with pytest.raises(NotFoundError):
        stores.sets.get("App", "Set")
    stores.sets.delete("app", "Set ")
    assert stores.sets.get_case("app", "Set", "sét").eval_id == "sét"


def test_a_case_comes_back_as_it_was(stores: Stores) -> None:
    extra = {"z": 1, "a": {"deep": [None, 1.5, 2**53, "\u2028 \x00 \U0001f986"]}}
    case = EvalCase.model_validate({**CASE, "evalMode": "trace", "note": extra})

    stores.sets.put("app", EvalSet(eval_set_id="s", name="n", description="d", eval_cases=[case]))

    found = stores.sets.get("app", "s")
    assert (found.name, found.description) == ("n", "d")
    assert found.eval_cases == [case]
    with pytest.raises(ExistsError):
        stores.sets.put("app", EvalSet(eval_set_id="s"))


def test_an_update_of_what_has_changed_since_is_refused(stores: Stores) -> None:
    stores.sets.create("app", "s")
    stores.sets.add_case("app", "s", CASE)
    read = stores.sets.get_case("app", "s", "c")
    mine, other = read.model_copy(update={"eval_mode": "trace"}), {**CASE, "note": "other"}

    stores.sets.update_case("app", "s", other, expected=read)

    with pytest.raises(ChangedError):
        stores.sets.update_case("app", "s", mine, expected=read)
    found = stores.sets.get_case("app", "s", "c")
    assert found.eval_mode == ""
    stores.sets.update_case("app", "s", mine, expected=found)
    assert stores.sets.get_case("app", "s", "c") == mine


def test_a_result_comes_back_as_it_was(stores: Stores) -> None:
    summary = EvalSetResultSummary(overall_status="passed", num_runs=2)
    cases = [EvalCaseResult(eval_id="c", run_id=2, score=0.1 + 0.2)]
    given = EvalSetResult(
        eval_set_result_id="r",
        eval_set_result_name="name",
        eval_set_id="s",
        eval_case_results=cases,
        summary=summary,
        creation_timestamp=1700000000.25,
    )

    stores.results.save("app", given)
    assert stores.results.get("app", "r") == given
    stores.results.save("app", given.model_copy(update={"summary": None, "eval_case_results": []}))
    assert stores.results.get("app", "r").summary is None


@pytest.mark.slow
def test_what_many_threads_add_is_all_there(stores: Stores) -> None:
    stores.sets.create("app", "s")

    def add(number: int) -> None:
        stores.sets.add_case("app", "s", {"evalId": str(number)})
        stores.metrics.add("app", "s", {"metricName": str(number)})
        stores.results.save("app", EvalSetResult(eval_set_id="s", eval_set_result_id="same"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(24)))

    wanted = {str(one) for one in range(24)}
    assert {one.eval_id for one in stores.sets.get("app", "s").eval_cases} == wanted
    assert {*stores.metrics.list("app", "s")} == wanted
    assert stores.results.list("app") == ["same"]


def test_two_servers_on_one_folder_lose_nothing(tmp_path: Path) -> None:
    both = [file_stores(tmp_path), file_stores(tmp_path)]
    both[0].sets.create("app", "s")

    def add(number: int) -> None:
        both[number % 2].sets.add_case("app", "s", {"evalId": str(number)})
        both[number % 2].metrics.add("app", "s", {"metricName": str(number)})

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(add, range(40)))

    assert len(both[0].sets.get("app", "s").eval_cases) == 40
    assert len(both[0].metrics.list("app", "s")) == 40


def test_two_openings_of_a_database_see_each_other(database: str) -> None:
    first, second = stores_at(database), stores_at(database)

    first.sets.create("app", "s")

    assert second.sets.list("app") == ["s"]


@pytest.mark.parametrize("name", ["x" * 256, "a\x00b", "a\nb", "\ud800"])
def test_an_id_that_no_column_holds_is_invalid(database: str, name: str) -> None:
    stores = stores_at(database)

    with pytest.raises(InputError):
        stores.sets.create("app", name)
    with pytest.raises(InputError):
        stores.sets.list(name)
    assert stores.sets.list("app") == []


@pytest.mark.parametrize("name", ["..", "../s", "a/b", "a\\b", "a\nb", "x" * 300])
def test_no_id_leaves_its_folder(tmp_path: Path, name: str) -> None:
    stores = file_stores(tmp_path)

    with pytest.raises(InputError):
        stores.sets.create("app", name)
    if name != "x" * 300:
        with pytest.raises(InputError):
            stores.sets.create(name, "s")
    assert not [*tmp_path.rglob("*.json")]


def test_a_broken_file_is_listed_and_cannot_be_used(tmp_path: Path) -> None:
    stores = file_stores(tmp_path)
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "s.evalset.json").write_text("{")

    assert stores.sets.list("app") == ["s"]
    with pytest.raises(FormatError):
        stores.sets.get("app", "s")
    with pytest.raises(FormatError):
        stores.sets.create("app", "s")


def test_results_may_be_kept_under_another_name(tmp_path: Path) -> None:
    stores = file_stores(tmp_path, results=FileLocator(".json"))

    saved = stores.results.save("app", EvalSetResult(eval_set_id="s"))

    assert [one.name for one in (tmp_path / "app").iterdir()] == [f"{saved}.json"]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("oracle://h/db", "oracle://…: expected mysql://"),
        ("mysql://u:secret-1@h", "no name of a database"),
        ("mysql://u:secret-1@h:port/db", "malformed"),
        ("mysql://u:secret-1@[h/db", "malformed"),
        ("mysql://u:secret-1@h/db?colour=red", "no option 'colour'"),
        ("postgresql://u:secret-1@h/db?colour=red", "no such options: colour"),
        ("mysql://u:secret-1@h/db?init=maybe", "expected init=yes or init=no"),
        ("mysql://u:secret-1@h/db?timeout=0", "timeout=SECONDS"),
        ("mysql://u:secret-1@h/db?prefix=1a", "table prefix '1a'"),
        ("mysql://u:secret-1@127.0.0.1:1/db", "mysql://u@127.0.0.1:1/db: "),
        ("postgresql://u:secret-1@127.0.0.1:1/db", "postgresql://u@127.0.0.1:1/db: "),
    ],
)
def test_a_url_that_cannot_be_used_is_explained_without_its_password(where: str, said: str) -> None:
    with pytest.raises(EvaltapError) as caught:
        stores_at(where)

    text = "".join(traceback.format_exception(caught.value))
    assert said in str(caught.value)
    assert "secret-1" not in text.replace(where, "")


def test_a_database_does_not_show_its_password() -> None:
    assert "secret-1" not in repr(database_at("mysql://u:secret-1@h/db"))
    assert "secret-1" not in repr(database_at("postgresql://u:secret-1@h/db"))


@pytest.mark.parametrize(("url", "extra"), [("mysql", "mysql"), ("postgresql", "postgres")])
def test_a_missing_driver_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, url: str, extra: str
) -> None:
    for module in ("pymysql", "psycopg"):
        monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(ConfigurationError, match=rf"pip install .*\[{extra}\]"):
        stores_at(f"{url}://h/db")


@pytest.mark.slow
@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_a_wrong_password_is_refused_and_not_shown(
    request: pytest.FixtureRequest, server: str
) -> None:
    url = urlsplit(request.getfixturevalue(server))
    wrong = url._replace(netloc=f"ann:wr0ng-w0rd@127.0.0.1:{url.port}").geturl()

    with pytest.raises(DatabaseError) as caught:
        stores_at(wrong)
    assert "ann" in str(caught.value)
    assert "wr0ng-w0rd" not in "".join(traceback.format_exception(caught.value)).replace(wrong, "")


@pytest.mark.slow
def test_new_tables_in_mysql_have_the_columns_and_keys_of_the_peer_s(mariadb: str) -> None:
    stores_at(f"{mariadb}?prefix=new")

    with database_at(mariadb).transaction() as transaction:
        rows = transaction.rows(
            "SELECT table_name, index_name, GROUP_CONCAT(column_name ORDER BY seq_in_index)"
            " FROM information_schema.statistics WHERE table_name LIKE 'new%'"
            " AND index_name <> 'PRIMARY' GROUP BY table_name, index_name",
            {},
        )
        columns = transaction.rows(
            "SELECT table_name, GROUP_CONCAT(column_name ORDER BY ordinal_position)"
            " FROM information_schema.columns WHERE table_name LIKE 'new%' GROUP BY table_name",
            {},
        )

    begin = "new_evaluation_"
    assert {(one.removeprefix(begin), key, of) for one, key, of in rows} == {
        ("eval_sets", "new_uniq_eval_sets_app_eval_set", "app_name,eval_set_id"),
        ("eval_sets", "new_idx_eval_sets_app_created", "app_name,created_at"),
        ("eval_cases", "new_uniq_eval_cases_app_set_case", "app_name,eval_set_id,eval_id"),
        ("eval_cases", "new_idx_eval_cases_app_set_order", "app_name,eval_set_id,id"),
        ("metrics", "new_uniq_metrics_app_set_name", "app_name,eval_set_id,metric_name"),
        ("metrics", "new_idx_metrics_app_set", "app_name,eval_set_id"),
        ("eval_set_results", "new_uniq_results_app_result_id", "app_name,eval_set_result_id"),
        ("eval_set_results", "new_idx_results_app_created", "app_name,created_at"),
        ("eval_set_results", "new_idx_results_app_set_created", "app_name,eval_set_id,created_at"),
    }
    both = "created_at,updated_at"
    assert {one.removeprefix(begin): of for one, of in columns} == {
        "eval_sets": f"id,app_name,eval_set_id,name,description,{both}",
        "eval_cases": f"id,app_name,eval_set_id,eval_id,eval_mode,eval_case,{both}",
        "metrics": f"id,app_name,eval_set_id,metric_name,metric,{both}",
        "eval_set_results": "id,app_name,eval_set_result_id,eval_set_id,eval_set_result_name,"
        f"eval_case_results,summary,{both}",
    }


@pytest.mark.slow
@pytest.mark.parametrize("server", ["mariadb", "postgres"])
def test_a_server_that_stops_is_told_without_the_password(server: str) -> None:
    with getattr(database_servers, server)() as url:
        stores = stores_at(url)
        stores.sets.create("app", "s")

    with pytest.raises(DatabaseError) as caught:
        stores.sets.list("app")
    assert "ann@127.0.0.1" in str(caught.value)
    assert database_servers.PASSWORD not in str(caught.value)


PEER_TABLES = """
CREATE TABLE old_evaluation_eval_sets (id BIGINT AUTO_INCREMENT PRIMARY KEY, app_name VARCHAR(255) NOT NULL,
  eval_set_id VARCHAR(255) NOT NULL, name VARCHAR(255) NOT NULL, description TEXT,
  created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY uniq_eval_sets_app_eval_set (app_name, eval_set_id),
  KEY idx_eval_sets_app_created (app_name, created_at))
  ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
CREATE TABLE old_evaluation_eval_cases (id BIGINT AUTO_INCREMENT PRIMARY KEY, app_name VARCHAR(255) NOT NULL,
  eval_set_id VARCHAR(255) NOT NULL, eval_id VARCHAR(255) NOT NULL,
  eval_mode VARCHAR(32) NOT NULL DEFAULT '', eval_case JSON NOT NULL,
  created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY uniq_eval_cases_app_set_case (app_name, eval_set_id, eval_id),
  KEY idx_eval_cases_app_set_order (app_name, eval_set_id, id))
  ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
CREATE TABLE old_evaluation_eval_set_results (id BIGINT AUTO_INCREMENT PRIMARY KEY,
  app_name VARCHAR(255) NOT NULL, eval_set_result_id VARCHAR(255) NOT NULL, eval_set_id VARCHAR(255) NOT NULL,
  eval_set_result_name VARCHAR(255) NOT NULL, eval_case_results JSON NOT NULL, summary JSON NULL,
  created_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  updated_at TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6) ON UPDATE CURRENT_TIMESTAMP(6),
  UNIQUE KEY uniq_results_app_result_id (app_name, eval_set_result_id))
  ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_unicode_ci;
INSERT INTO old_evaluation_eval_sets (app_name, eval_set_id, name) VALUES ('app', 'Set', 'Set');
INSERT INTO old_evaluation_eval_cases (app_name, eval_set_id, eval_id, eval_case) VALUES
  ('app', 'set', 'a', '{"evalId": "a"}'), ('app', 'Set', 'b', '{"evalId": "b", "evalMode": "trace"}');
INSERT INTO old_evaluation_eval_set_results (app_name, eval_set_result_id, eval_set_id, eval_set_result_name,
  eval_case_results) VALUES ('app', 'R2', 'Set', 'R2', '[{"evalId": "a", "finalEvalStatus": "passed"}]')
"""
"""As tRPC-Agent-Go makes them: ids compare without letter case.  Its rows name sets in any letter case."""


@pytest.mark.slow
def test_tables_of_the_peer_are_used_as_they_are(
    mariadb: str, caplog: pytest.LogCaptureFixture
) -> None:
    database = database_at(mariadb)
    with database.transaction() as transaction:
        for statement in PEER_TABLES.split(";"):
            transaction.run(statement, {})

    stores = stores_at(f"{mariadb}?prefix=old")

    assert "utf8mb4_unicode_ci" in caplog.text
    assert [one.eval_id for one in stores.sets.get("app", "Set").eval_cases] == ["a", "b"]
    assert stores.results.get("app", "R2").eval_case_results[0].final_eval_status == "passed"
    with pytest.raises(NotFoundError):
        stores.sets.get("app", "set")
    with pytest.raises(ExistsError):
        stores.sets.create("app", "set")
    with pytest.raises(ExistsError):
        stores.results.save("app", EvalSetResult(eval_set_id="s", eval_set_result_id="r2"))
    stores.sets.add_case("app", "Set", CASE)
    stores.metrics.add("app", "Set", {"metricName": "m"})
    stores.sets.delete("app", "Set")
    assert stores.sets.list("app") == []


def test_times_before_and_beyond_what_a_table_holds_are_refused(database: str) -> None:
    stores = stores_at(database)

    with pytest.raises(EvaltapError):
        stores.sets.put("app", EvalSet(eval_set_id="s", creation_timestamp=1e30))
    assert stores.sets.list("app") == []
