"""JSON in one line."""

import json

import pytest

from evaltap.schemas.data import json_bytes


def nested(levels: int) -> object:
    value: object = "inside"
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize("value", [{"a": [1, 0.5, "ü", None]}, 2**70, "\ud800", nested(600)])
def test_any_json_value_comes_back_as_it_was(value: object) -> None:
    written = json_bytes({"value": value})

    assert json.loads(written) == {"value": value}
    assert b"\n" not in written
