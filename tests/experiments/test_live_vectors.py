"""Live evaluation agrees with tRPC-Agent-Go, row by row; where it differs, the row says so.

The rows of another file are checked with EVALTAP_LIVE_VECTORS=vectors.json.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from evaltap.schemas.errors import EvaltapError
from live_rows import capture, evaluating, http, managers, runs, simulation, tool_mocks
from live_rows.comparing import Row

OWN = Path(__file__).parents[1] / "data" / "trpc-live" / "vectors.json"
CHECKS: dict[str, Callable[[Row], None]] = {
    "capture": capture.check,
    "evaluate": evaluating.check,
    "http": http.check,
    "locator_list": managers.check_locator_list,
    "locator_path": managers.check_locator_path,
    "manager": managers.check,
    "mysql_tables": managers.check_tables,
    "runs": runs.check,
    "simulation": simulation.check,
    "tool_mock": tool_mocks.check,
}
DEVIATIONS: dict[str, Callable[[Row], None]] = {
    **capture.DEVIATIONS,
    **evaluating.DEVIATIONS,
    **managers.DEVIATIONS,
    **runs.DEVIATIONS,
    **simulation.DEVIATIONS,
}
"""What evaltap does instead, by the id of the row."""


def vectors() -> list[Row]:
    path = Path(os.environ.get("EVALTAP_LIVE_VECTORS") or OWN)
    rows: list[Row] = json.loads(path.read_text())["vectors"]
    return rows


def rows(*, same: bool) -> list[Any]:
    return [pytest.param(one, id=one["id"]) for one in vectors() if (one["ours"] == "same") is same]


@pytest.mark.parametrize("row", rows(same=True))
def test_a_row_has_the_outcome_of_the_peer(row: Row) -> None:
    CHECKS[row["kind"]](row)


@pytest.mark.parametrize("row", rows(same=False))
def test_a_row_that_differs_on_purpose_has_our_outcome(row: Row) -> None:
    check = DEVIATIONS.get(row["id"])
    if check is not None:
        check(row)
        return
    # A row of another file: what it wants is the peer's trap, so only a fault of ours is wrong.
    try:
        CHECKS[row["kind"]](row)
    except (AssertionError, EvaltapError):
        return


def test_every_kind_is_checked() -> None:
    assert {one["kind"] for one in vectors()} <= {*CHECKS}
