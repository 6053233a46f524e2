"""Compare with a row: what is missing is zero, and errors are there or not, whatever their words."""

from typing import Any

import pytest

Row = dict[str, Any]
REMOVED = {
    "creationTimestamp",
    "criterion",
    "evalSetResultId",
    "evalSetResultName",
    "executionTime",
    "sessionId",
}
"""What the rows leave out: ids of a run, times."""


def plain(value: Any, name: str = "") -> Any:
    """Return JSON without what is zero or removed; of texts for people only whether they are there."""
    if name in ("errorMessage", "peer_error"):
        return bool(value)
    if name == "reason":
        return value if not (value or "").strip(";") else True
    if isinstance(value, dict):
        cleaned = {key: plain(one, key) for key, one in value.items() if key not in REMOVED}
        return {key: one for key, one in cleaned.items() if not _zero(one)}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    return value


def same(found: Any, wanted: Any) -> None:
    """Assert that two values agree."""
    _agree(plain(found), plain(wanted), "")


def _agree(found: Any, wanted: Any, place: str) -> None:
    if isinstance(wanted, dict) and isinstance(found, dict):
        assert sorted(found) == sorted(wanted), place
        for key in wanted:
            _agree(found[key], wanted[key], f"{place}.{key}")
    elif isinstance(wanted, list) and isinstance(found, list):
        assert len(found) == len(wanted), (place, found, wanted)
        for index, (one, other) in enumerate(zip(found, wanted, strict=True)):
            _agree(one, other, f"{place}[{index}]")
    elif _number(wanted) and _number(found):
        assert found == pytest.approx(wanted, abs=1e-12), place
    else:
        assert (type(found), found) == (type(wanted), wanted), place


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _zero(value: Any) -> bool:
    return value is None or value is False or value in ("", [], {}) or (value == 0)
