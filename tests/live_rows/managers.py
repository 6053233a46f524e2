"""`manager`, `locator_path`, `locator_list`, `mysql_tables`: the stores and where they keep things."""

import copy
import tempfile
from pathlib import Path
from typing import Any

import pytest

from evaltap.experiments.stores import (
    EVAL_SET_FILES,
    METRICS_FILES,
    RESULT_FILES,
    ExistsError,
    NotFoundError,
    Stores,
    file_stores,
    memory_stores,
    table_names,
)
from evaltap.schemas.errors import ConfigurationError, EvaltapError, FormatError, InputError
from evaltap.schemas.formats.result import EvalSetResult
from live_rows.comparing import Row, same


def check(row: Row) -> None:
    given = row["input"]
    with tempfile.TemporaryDirectory() as folder:
        for name, content in (given.get("files") or {}).items():
            path = Path(folder, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        stores = memory_stores() if given["impl"] == "memory" else file_stores(folder)
        operations = Operations(stores, Path(folder))
        for operation, wanted in zip(given["ops"], row["want"]["results"], strict=True):
            found = operations.run(operation)
            same({key: found.get(key) for key in wanted}, wanted)


class Operations:
    """Runs the operations of a row on stores."""

    def __init__(self, stores: Stores, folder: Path) -> None:
        self.stores, self.folder, self.last = stores, folder, ""

    def run(self, operation: list[Any]) -> dict[str, Any]:
        name, *arguments = operation
        arguments = [self.last if one == "$last" else one for one in arguments]
        if name == "files":
            return {"status": "ok", "value": self.files()}
        try:
            return {"status": "ok", **getattr(self, name.replace(".", "_"))(*arguments)}
        except NotFoundError:
            return {"status": "not_found"}
        except ExistsError:
            return {"status": "exists"}
        except FormatError:
            return {"status": "other"}
        except InputError:
            return {"status": "invalid"}
        except EvaltapError:
            return {"status": "other"}

    def files(self) -> list[str]:
        paths = (one for one in self.folder.rglob("*") if one.is_file())
        names = sorted(one.relative_to(self.folder).as_posix() for one in paths)
        return [one.replace(self.last, "$id") if self.last else one for one in names]

    def set_create(self, app: str, name: str) -> dict[str, Any]:
        made = self.stores.sets.create(app, name)
        return {
            "value": {
                "cases": len(made.eval_cases),
                "evalSetId": made.eval_set_id,
                "hasTimestamp": made.creation_timestamp is not None,
                "name": made.name,
            }
        }

    def set_get(self, app: str, name: str) -> dict[str, Any]:
        found = self.stores.sets.get(app, name)
        cases = [one.eval_id for one in found.eval_cases]
        return {"value": {"cases": cases, "evalSetId": found.eval_set_id, "name": found.name}}

    def set_list(self, app: str) -> dict[str, Any]:
        found = self.stores.sets.list(app)
        return {"value": sorted(found), "count": len(found)}

    def set_delete(self, app: str, name: str) -> dict[str, Any]:
        self.stores.sets.delete(app, name)
        return {}

    def case_get(self, app: str, name: str, eval_id: str) -> dict[str, Any]:
        case = self.stores.sets.get_case(app, name, eval_id)
        turns = [one for one in (*case.conversation, *case.actual_conversation) if one is not None]
        stamped = sum(one.creation_timestamp is not None for one in turns)
        return {
            "value": case.model_dump(by_alias=True),
            "caseStamped": case.creation_timestamp is not None,
            "turnsStamped": f"{stamped}/{len(turns)}",
        }

    def case_add(self, app: str, name: str, case: Any) -> dict[str, Any]:
        before = copy.deepcopy(case)
        self.stores.sets.add_case(app, name, case)
        return {"inputUntouched": case == before}

    def case_update(self, app: str, name: str, case: Any) -> dict[str, Any]:
        self.stores.sets.update_case(app, name, case)
        return {}

    def case_delete(self, app: str, name: str, eval_id: str) -> dict[str, Any]:
        self.stores.sets.delete_case(app, name, eval_id)
        return {}

    def metric_list(self, app: str, name: str) -> dict[str, Any]:
        return {"value": self.stores.metrics.list(app, name)}

    def metric_get(self, app: str, name: str, metric: str) -> dict[str, Any]:
        return {"value": self.stores.metrics.get(app, name, metric).model_dump(by_alias=True)}

    def metric_add(self, app: str, name: str, metric: Any) -> dict[str, Any]:
        self.stores.metrics.add(app, name, metric)
        return {}

    def metric_update(self, app: str, name: str, metric: Any) -> dict[str, Any]:
        self.stores.metrics.update(app, name, metric)
        return {}

    def metric_delete(self, app: str, name: str, metric: str) -> dict[str, Any]:
        self.stores.metrics.delete(app, name, metric)
        return {}

    def result_save(self, app: str, result: Any) -> dict[str, Any]:
        given = None if result is None else EvalSetResult.model_validate(result)
        before = copy.deepcopy(given)
        self.last = self.stores.results.save(app, given)  # type: ignore[arg-type]  # null is refused
        return {
            "generatedId": self.last.startswith("app_set_"),
            "inputUntouched": given == before,
            "value": self.last,
        }

    def result_get(self, app: str, result_id: str) -> dict[str, Any]:
        found = self.stores.results.get(app, result_id)
        return {"value": found.model_dump(by_alias=True)}

    def result_list(self, app: str) -> dict[str, Any]:
        found = self.stores.results.list(app)
        value = ["$id" if one == self.last else one for one in sorted(found)]
        return {"value": value, "count": len(found)}


def _locator(kind: str) -> Any:
    if "result" in kind:
        return RESULT_FILES
    return METRICS_FILES if "metric" in kind else EVAL_SET_FILES


def check_locator_path(row: Row) -> None:
    found = _locator(row["input"]["file"]).build(*row["input"]["args"])

    assert found == row["want"]["path"]


def _refuses_the_path(row: Row) -> None:
    with pytest.raises(InputError):
        _locator(row["input"]["file"]).build(*row["input"]["args"])


def check_locator_list(row: Row) -> None:
    given = row["input"]
    with tempfile.TemporaryDirectory() as folder:
        for name in given["files"]:
            path = Path(folder, name)
            if name.endswith("/"):
                path.mkdir(parents=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{}")
        found = _locator(given["file"]).list(folder, given["app"])

    assert sorted(found) == sorted(row["want"].get("ids") or [])


def check_tables(row: Row) -> None:
    if row["want"].get("error"):
        with pytest.raises(ConfigurationError):
            table_names(row["input"]["prefix"])
        return
    assert table_names(row["input"]["prefix"]) == row["want"]["tables"]


DEVIATIONS = {"locator_path/slash_in_id_makes_a_folder_evalset": _refuses_the_path}
