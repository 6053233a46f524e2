"""A repeated key in a file: the last value is used, as in Go, and a warning names the place.

So does a warning name a key that eval cases do not have, which nothing compares.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.schemas.files.documents import (
    iter_cases,
    read_eval_set,
    read_gate,
    read_metrics,
    repeated_key,
)
from support.builders.cases import RESPONSE, make_case, make_tool, make_turn

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


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (
            make_turn() | {"finalResponse": {"role": "model", "parts": [{"text": "x"}]}},
            "finalResponse.parts (`content` is the text of a message)",
        ),
        (make_turn() | {"tool": [make_tool()]}, "tool (did you mean 'tools'?)"),
        (
            make_turn(tools=[make_tool() | {"args": {}}, make_tool() | {"args": {}}]),
            "tools[].args (did you mean 'arguments'?)",
        ),
    ],
)
def test_a_key_of_a_turn_that_nothing_compares_is_named_once(
    turn: dict[str, Any], said: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (metrics := tmp_path / "m.json").write_text(json.dumps([RESPONSE]))
    case = make_case("c", [make_turn()], conversation=[turn])
    lines, whole = tmp_path / "c.jsonl", tmp_path / "c.evalset.json"
    lines.write_text(json.dumps(case) + "\n" + json.dumps(case | {"evalId": "d"}))
    whole.write_text(json.dumps({"evalSetId": "s", "evalCases": [case]}))

    main(["score", str(lines), str(whole), "--metrics", str(metrics)])

    assert sorted(caplog.messages) == [
        f"{path}: not a key of eval cases and not compared: conversation[].{said}"
        for path in (whole, lines)
    ]


@pytest.mark.slow
def test_workers_name_a_key_once_together(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (metrics := tmp_path / "m.json").write_text(json.dumps([RESPONSE]))
    cases = [
        make_case(f"c-{n}", [make_turn(answer="x" * 50_000) | {"tool": []}]) for n in range(200)
    ]
    (path := tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, cases)))

    main(["score", str(path), "--metrics", str(metrics), "--workers", "2"])

    assert len(caplog.messages) == 1
    assert "actualConversation[].tool (did you mean 'tools'?)" in caplog.text


@pytest.mark.parametrize("kept", [{"duration": 1.5, "appDetails": {}}, {"rubrics": []}])
def test_what_a_converted_set_preserves_is_not_named(
    kept: dict[str, Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    message = {"role": "user", "content": "text", "parts": [{"text": "text"}, {"inlineData": {}}]}
    case = make_case("c", [make_turn() | {"userContent": message} | kept])
    (path := tmp_path / "s.evalset.json").write_text(
        json.dumps({"evalSetId": "s", "evalCases": [case]})
    )

    assert len(list(iter_cases(path))) == 1
    assert not caplog.messages
