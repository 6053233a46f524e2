"""A repeated key in a file: the last value is used, as in Go, and a warning names the place."""

import json
from pathlib import Path

import pytest

from evaltap.schemas.files.documents import (
    iter_cases,
    read_eval_set,
    read_gate,
    read_metrics,
    repeated_key,
)

CASE = """{"evalId": "a", "evalId": "b", "conversation": [
    {"invocationId": "1", "userContent": {"role": "user", "content": "x"}}]}"""


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"a": 1, "a": 2}', "a"),
        ('{"a": 1, "A": 2}', None),
        ('[{"a": 1}, {"a": {"b": [0, {"c": 1, "d": 2, "c": 3}]}}]', "[1].a.b[1].c"),
        ('{"a": {"x": 1}, "b": {"x": 1}}', None),
        ('{"a": {"x": 1, "x": 1}, "b": 1, "b": 2}', "a.x"),
        ('{"\\u0061": 1, "a": 2}', "a"),
        ("[" * 5_000 + "]" * 5_000, None),
    ],
)
def test_the_first_repeated_key_is_named(text: str, place: str | None) -> None:
    assert repeated_key(text.encode()) == place


def test_an_eval_set_with_a_repeated_key_is_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.evalset.json"
    path.write_text(f'{{"evalSetId": "s", "evalCases": [{CASE}]}}')

    assert [case["evalId"] for case in iter_cases(path)] == ["b"]
    assert [case.eval_id for case in read_eval_set(path).eval_cases] == ["b"]

    assert caplog.messages == [
        f"{path}: evalCases[0].evalId occurs more than once in its object; only the last value is used"
    ]


def test_metrics_and_gates_with_a_repeated_key_are_read_with_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metrics, gate = tmp_path / "m.json", tmp_path / "gate.json"
    metrics.write_text(
        '[{"metricName": "final_response_avg_score", "threshold": 1, "threshold": 0.5}]'
    )
    gate.write_text('{"dimensions": [], "dimensions": []}')

    assert read_metrics(metrics)[0].threshold == 0.5
    read_gate(gate)

    assert [message.split(" occurs")[0] for message in caplog.messages] == [
        f"{metrics}: [0].threshold", f"{gate}: dimensions"
    ]  # fmt: skip


def test_a_file_without_a_repeated_key_gives_no_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "s.evalset.json"
    path.write_text(json.dumps({"evalSetId": "s", "evalCases": [json.loads(CASE)]}))

    assert len(list(iter_cases(path))) == 1
    assert not caplog.messages
