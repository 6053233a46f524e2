"""Files of strangers in every command that reads files: an exit code and a message, never a traceback."""

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main

METRICS = [
    {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}},
    }
]
COMMANDS = {
    "score": "score FILE --metrics m.json",
    "score --metrics": "score ok.json --metrics FILE",
    "score --references": "score ok.json --references FILE --metrics m.json",
    "score --db": "score FILE --metrics m.json --db NEW.duckdb --result NEW",
    "compare base": "compare FILE ok.json",
    "compare head": "compare ok.json FILE",
    "gate": "gate FILE --gate g.json",
    "gate --gate": "gate ok.json --gate FILE",
    "gate --baseline": "gate ok.json --gate g.json --baseline FILE",
    "record otlp": "record otlp FILE --out NEW.evalset.json",
    "record cases": "record cases FILE --log NEW.log.db",
    "record claude-code": "record claude-code FILE --out NEW.evalset.json",
    "redact --check": "redact --check FILE",
    "redact": "redact FILE --out NEW.json",
    "convert": "convert FILE --out NEW.evalset.json",
    "doctor --log": "doctor --log FILE",
    "doctor --db": "doctor --log none.log.db --db FILE",
    "consume": "consume --log FILE --db NEW.duckdb --until-idle",
    "fmt": "set fmt --check FILE",
    "diff": "set diff FILE ok.json --content",
    "merge": "set merge FILE ok.json --out NEW.evalset.json",
    "calibrate": "calibrate --metrics m.json FILE --cases ok.json",
    "monitor": "monitor check FILE",
    "report": "report FILE",
    "show": "show FILE c-1",
    "coverage": "set coverage --set FILE none.duckdb",
}


def turn(**fields: Any) -> dict[str, Any]:
    return {
        "invocationId": "i-1",
        "userContent": {"role": "user", "content": "Hi"},
        "finalResponse": {"role": "assistant", "content": "Ho"},
        **fields,
    }


def eval_set(eval_id: str = "c-1", **fields: Any) -> str:
    session = {"appName": "a", "userId": "u"}
    case = {"evalId": eval_id, "evalMode": "trace", "conversation": [turn(**fields)],
            "actualConversation": [turn(**fields)], "sessionInput": session}  # fmt: skip
    return json.dumps({"evalSetId": "s", "evalCases": [case]})


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def tool(arguments: str) -> str:
    """Return an eval set with a tool call whose arguments are this JSON."""
    call = {"id": "t-1", "name": "f", "arguments": {"x": "ARGUMENTS"}}
    return eval_set(tools=[call]).replace('"ARGUMENTS"', arguments)


def line(extra: str) -> str:
    return '{"evalId": "c-1", "conversation": [], "x": ' + extra + "}\n"


FILES: dict[str, str | bytes] = {
    "lists.json": nested(1_000_000),
    "objects.json": '{"a":' * 100_000 + "1" + "}" * 100_000,
    "call-240.json": tool(nested(240)),
    "call-300.json": tool(nested(300)),
    "call-900.json": tool(nested(900)),
    "call-1500.json": tool(nested(1_500)),
    "lines-900.jsonl": line("1") + line(nested(900)),
    "lines-1500.jsonl": line("1") + line(nested(1_500)),
    "numbers.json": tool('[1e400, -1e308, 1e-400, 123456789012345678901234567890]'),
    "digits.json": tool("9" * 10_000),
    "surrogate-digits.json": tool('["\\ud800", ' + "9" * 10_000 + "]"),
    "surrogate-number.json": tool('["\\ud800", 123456789012345678901234567890]'),
    "time.json": eval_set(creationTimestamp=99_999_999_999_999),
    "surrogates.json": eval_set("c\ud800", finalResponse={"role": "assistant", "content": "\udfff"}),
    "nul.json": eval_set("c\0", userContent={"role": "user", "content": "a\0b"}),
    "controls.json": eval_set(
        "c\x1b[31m\u202e\u2066", userContent={"role": "user", "content": "\x1b]0;x\x07\u202e"}
    ),
    "paths.json": eval_set("../../../x").replace('"a"', '"../../a"').replace('"s"', '"/abs/../s"'),
    "types.json": '{"evalSetId": 5, "evalCases": [null, 1, "x", [], {"evalId": ["a"]}]}',
    "long.jsonl": '{"evalId": "' + "x" * 1_000_000 + '"}\n',
    "utf-16.json": eval_set().encode("utf-16"),
    "bytes.json": bytes(range(256)) * 8,
    "zeros.duckdb": bytes(5_000),
    "sqlite.log.db": b"SQLite format 3\0" + bytes(range(256)) * 8,
    "empty.json": "",
}  # fmt: skip
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("strange")
    (path / "m.json").write_text(json.dumps(METRICS))
    (path / "g.json").write_text(
        json.dumps({"dimensions": [{"name": "d", "threshold": 0.5, "metrics": METRICS}]})
    )
    (path / "ok.json").write_text(eval_set())
    for name, content in FILES.items():
        (path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_no_file_is_answered_with_a_traceback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.chdir(folder)
    for name in FILES:
        new = f"{command.replace(' ', '')}-{name.partition('.')[0]}"
        words = [
            word.replace("FILE", name).replace("NEW", new) for word in COMMANDS[command].split()
        ]
        try:
            code = main(words)
        except SystemExit as ended:
            code = int(str(ended.code))

        out, err = capsys.readouterr()
        assert code in (0, 1, 2, 3), name
        assert code in (0, 1) or out + err, name
        assert not UNSEEN.search(out + err), name
        assert len(err) < 5_000, name
    assert not (folder.parent / "a_s").exists()


@pytest.mark.parametrize("command", ["record claude-code", "convert"])
def test_pipes_in_a_folder_are_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "zero.jsonl").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path)

    code = main([*command.split(), str(tmp_path), "--out", str(tmp_path / "x.evalset.json")])

    assert code == 2
    assert "contains no" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["pipe", "/dev/zero"])
@pytest.mark.parametrize("command", ["doctor --log", "consume --db x.duckdb --until-idle --log"])
def test_a_pipe_or_device_is_no_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
    name: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")

    assert main([*command.split(), name]) == 2
    assert (
        f"{name} is a pipe or device; expected the file of a local log" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "command", ["record claude-code FILE --out x.evalset.json", "redact --check FILE"]
)
def test_a_device_is_not_read(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert main(command.replace("FILE", "/dev/zero").split()) == 2
    assert "/dev/zero: is a device; expected a file" in capsys.readouterr().err
