"""Stores of eval sets, metrics and results: one contract for all of them, and what only files can do."""

from collections.abc import Callable
from pathlib import Path

import pytest

from evaltap.experiments.stores import (
    ExistsError,
    FileLocator,
    NotFoundError,
    Stores,
    file_stores,
    memory_stores,
)
from evaltap.schemas.errors import FormatError, InputError
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.result import EvalSetResult

TURN = {"invocationId": "1", "userContent": {"role": "user", "content": "hi"}}
CASE = {"evalId": "c", "conversation": [TURN]}


@pytest.fixture(params=["memory", "files"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    return memory_stores() if request.param == "memory" else file_stores(tmp_path)


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
