"""Transcripts and eval sets with parts of other types: skipped and counted, never a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from support.builders.cases import make_case

ODD: list[Any] = [None, 5, True, [], [[]], {}, {"a": None}, "", "x"]
PLACES = [
    (line, path)
    for line, paths in {
        0: ["uuid", "sessionId", "timestamp", "message", "message.content"],
        1: ["uuid", "parentUuid", "type", "timestamp", "message", "message.id", "message.model",
            "message.usage", "message.content", "message.content.0", "message.content.0.text",
            "message.content.0.type", "message.content.1.id", "message.content.1.name",
            "message.content.1.input", "message.content.1.input.subagent_type"],
        2: ["message.content.0.tool_use_id", "message.content.0.content", "toolUseResult"],
    }.items()
    for path in paths
]  # fmt: skip


def transcript() -> list[dict[str, Any]]:
    spoken = {"type": "text", "text": "I look."}
    call = {"type": "tool_use", "id": "c-1", "name": "Task", "input": {"subagent_type": "a"}}
    returned = {"type": "tool_result", "tool_use_id": "c-1", "content": [spoken]}
    answer = {
        "id": "m-1",
        "model": "claude",
        "usage": {"input_tokens": 1},
        "content": [spoken, call],
    }
    lines = [
        {"type": "user", "message": {"role": "user", "content": "hi"}},
        {"type": "assistant", "message": answer},
        {"type": "user", "message": {"role": "user", "content": [returned]}, "toolUseResult": {}},
        {"type": "assistant", "message": {**answer, "id": "m-2", "content": [spoken]}},
    ]
    given = {"sessionId": "s", "timestamp": "2025-01-01T00:00:00Z"}
    return [
        {**given, "uuid": f"u-{n}", "parentUuid": f"u-{n - 1}", **line}
        for n, line in enumerate(lines)
    ]


def replaced(value: Any, path: str, odd: object) -> None:
    *steps, last = (int(step) if step.isdigit() else step for step in path.split("."))
    for step in steps:
        value = value[step]
    value[last] = odd


@pytest.mark.parametrize(("line", "path"), PLACES)
def test_a_transcript_with_an_odd_part_is_read(
    tmp_path: Path, line: int, path: str, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = [{**one, "sessionId": "other", "uuid": f"o-{one['uuid']}"} for one in transcript()]
    for odd in ODD:
        lines = transcript()
        replaced(lines[line], path, odd)
        file, out = tmp_path / "t.jsonl", tmp_path / "o.evalset.json"
        file.write_text("\n".join(map(json.dumps, [*lines, *honest])))

        assert main(["record", "claude-code", str(file), "--out", str(out)]) == 0
        assert any(case["evalId"] == "other" for case in json.loads(out.read_text())["evalCases"])


def test_an_eval_set_with_an_absent_turn_is_scored(tmp_path: Path) -> None:
    (tmp_path / "m.json").write_text(json.dumps([{"metricName": "tool_trajectory_avg_score"}]))
    cases = [{**make_case(name), "actualConversation": [None]} for name in ("a", "a")]
    path = tmp_path / "s.evalset.json"
    path.write_text(json.dumps({"evalSetId": "s", "evalCases": cases}))

    assert main(["score", str(path), "--metrics", str(tmp_path / "m.json")]) in (1, 2, 3)
