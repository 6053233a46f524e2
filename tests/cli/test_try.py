"""`evaltap try`: each supported format is recognised by its content, read, scored and shown."""

import gzip
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaltap.cli.main import main
from evaltap.cli.recognising import recognise
from evaltap.schemas.data import CaseData

DATA = Path(__file__).parents[1] / "data" / "try"
QUESTION, ANSWER = "Is order 12 paid?", "Yes."
FORMATS = {
    "adk-session.json": "ADK session",
    "bedrock-invocations.jsonl": "model calls",
    "bedrock.jsonl": "chat messages",
    "chat-ai-sdk.json": "chat messages",
    "chat-anthropic.json": "chat messages",
    "chat-gemini.json": "chat messages",
    "chat-openai.json": "chat messages",
    "chat-responses.json": "chat messages",
    "claude-code.jsonl": "Claude Code transcript",
    "claude-stream.jsonl": "Claude Code stream",
    "cloudwatch-events.json": "CloudWatch records",
    "cloudwatch-logs.json": "CloudWatch records",
    "codex-exec.jsonl": "Codex session",
    "codex-rollout.jsonl": "Codex session",
    "copilot-events.jsonl": "Copilot CLI session",
    "datadog-export.json": "Datadog spans",
    "datadog-payload.json": "Datadog spans",
    "flat-spans.json": "flat spans",
    "gemini-session.json": "Gemini CLI session",
    "gemini-session.jsonl": "Gemini CLI session",
    "gemini-stream.jsonl": "Gemini CLI session",
    "langfuse-blob.jsonl": "Langfuse observations",
    "langfuse-trace.json": "Langfuse traces",
    "langsmith-batch.json": "LangSmith runs",
    "langsmith-runs.json": "LangSmith runs",
    "logfire-columns.json": "Logfire rows",
    "logfire-rows.json": "Logfire rows",
    "mlflow-rest.json": "MLflow traces",
    "mlflow-trace.json": "MLflow traces",
    "n8n-database.json": "n8n executions",
    "n8n-execution.json": "n8n executions",
    "openhands-benchmark.jsonl": "OpenHands events",
    "openhands-sdk.json": "OpenHands events",
    "openhands-trajectory.json": "OpenHands events",
    "opik-spans.json": "Opik spans",
    "opik-trace.json": "Opik traces",
    "otlp.json": "OTLP",
    "phoenix-spans.json": "Phoenix spans",
    "tau2-results.json": "tau2 results",
    "tau2-simulation.json": "tau2 results",
}
"""Each file has the same turn: a question, a call that returns, one that fails, and an answer."""
WITHOUT_STATUS = {"bedrock.jsonl", "chat-anthropic.json", "chat-openai.json"}
WITHOUT_QUESTION = {"claude-stream.jsonl", "codex-exec.jsonl"}
WITHOUT_SESSION = {
    *("bedrock-invocations.jsonl", "chat-ai-sdk.json", "chat-gemini.json", "chat-responses.json"),
    *("openhands-sdk.json", "openhands-trajectory.json", "opik-spans.json"),
}


def test_the_table_has_every_file() -> None:
    assert sorted(FORMATS) == sorted(path.name for path in DATA.iterdir())


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_recognised_by_its_content_and_its_turn_is_read(
    name: str, tmp_path: Path
) -> None:
    unnamed = tmp_path / "download"
    shutil.copy(DATA / name, unnamed)

    found = recognise([unnamed])

    (file,) = found.files
    assert (file.format, file.skipped, file.notes) == (FORMATS[name], None, [])
    (case,) = found.cases
    (turn,) = case["actualConversation"]
    capture = turn.get("capture", {})
    if name in WITHOUT_QUESTION:
        assert capture["userContent"] == "missing"
    else:
        assert turn["userContent"]["content"] == QUESTION
    assert turn["finalResponse"]["content"] == ANSWER
    made = [(call["name"], call["arguments"]) for call in turn["tools"]]
    assert made == [("get_order", {"id": 12}), ("refund", {"id": 12, "amount": 5})]
    paid, refund = turn["tools"]
    result = paid["result"]
    assert (json.loads(result) if isinstance(result, str) else result) == {"paid": True}
    assert "error" not in paid
    assert "not allowed" in refund["error"]["message"]
    status = turn.get("telemetry", {}).get("status")
    assert status == (None if name in WITHOUT_STATUS else "ok")
    assert ("sessionId" in capture) == (name in WITHOUT_SESSION)


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "rollout.gz"
    file.write_bytes(gzip.compress((DATA / "codex-rollout.jsonl").read_bytes()))

    (read,) = recognise([file]).files

    assert (read.format, read.skipped) == ("Codex session", None)


def test_spans_of_a_trace_in_two_files_are_one_turn(tmp_path: Path) -> None:
    rows = json.loads((DATA / "flat-spans.json").read_text())
    one, other = tmp_path / "one", tmp_path / "other"
    one.write_text(json.dumps(rows[:1]))
    other.write_text("\n".join(map(json.dumps, rows[1:])))

    (case,) = recognise([other, one]).cases

    assert len(case["actualConversation"][0]["tools"]) == 2


def turn_of(name: str) -> CaseData:
    """Return the turn of a file."""
    (case,) = recognise([DATA / name]).cases
    turn: CaseData = case["actualConversation"][0]
    return turn


def test_tokens_cost_and_model_are_read_where_a_format_has_them() -> None:
    codex, tau2 = turn_of("codex-rollout.jsonl"), turn_of("tau2-results.json")

    usage = codex["telemetry"]["usage"]
    used = {"inputTokens": 220, "outputTokens": 12, "cachedTokens": 140}
    assert usage == [{"model": "gpt-5-codex", **used}]
    assert codex["telemetry"]["latencyMs"] == 3000
    assert tau2["telemetry"]["costUsd"] == pytest.approx(0.005)
    assert tau2["contextMessages"][0]["content"] == "Hi! How can I help you today?"


def test_a_format_without_times_has_no_latency_and_no_start() -> None:
    turn = turn_of("codex-exec.jsonl")

    assert "creationTimestamp" not in turn
    assert "latencyMs" not in turn["telemetry"]


def lines(*payloads: dict[str, Any]) -> str:
    """Return a rollout of Codex with these items, a second apart."""
    items = [
        {"timestamp": f"2026-03-01T10:00:{n:02}Z", "type": "response_item", "payload": one}
        for n, one in enumerate(payloads)
    ]
    return "".join(json.dumps(item) + "\n" for item in items)


def said(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": [{"type": "input_text", "text": text}]}


CALL = {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c"}
RETURN = {"type": "function_call_output", "call_id": "c", "output": "done"}


@pytest.mark.parametrize(
    ("items", "statuses", "answers"),
    [
        ([said("user", "a"), said("assistant", "b")], ["ok"], ["b"]),
        (
            [said("user", "a"), said("assistant", "b"), said("user", "c"), said("assistant", "d")],
            ["ok", "ok"],
            ["b", "d"],
        ),
        ([said("user", "a"), said("user", "b"), said("assistant", "c")], ["ok"], ["c"]),
        ([said("user", "a"), said("assistant", "wait"), CALL], ["incomplete"], [None]),
        ([said("user", "a"), CALL, RETURN], ["incomplete"], [None]),
        ([said("user", "a"), CALL, RETURN, said("assistant", "b")], ["ok"], ["b"]),
        ([said("user", "a")], ["incomplete"], [None]),
    ],
    ids=["answered", "two turns", "asked twice", "called", "returned", "whole", "unanswered"],
)
def test_messages_become_turns(
    items: list[dict[str, Any]],
    statuses: list[str],
    answers: list[str | None],
    tmp_path: Path,
) -> None:
    file = tmp_path / "rollout.jsonl"
    file.write_text(lines(*items))

    turns = [case["actualConversation"][0] for case in recognise([file]).cases]

    assert [turn["telemetry"]["status"] for turn in turns] == statuses
    assert [turn.get("finalResponse", {}).get("content") for turn in turns] == answers


@pytest.mark.parametrize(
    ("output", "error"),
    [
        ("a.txt", None),
        ("Exit code: 0\nWall time: 0.1 seconds\nOutput:\nExit code: 1", None),
        ("Exit code: 2\nWall time: 0.1 seconds\nOutput:\nno file", "exit code 2"),
        ("Wall time: 0.1 seconds\nProcess exited with code 1\nOutput:\n", "exit code 1"),
        ('{"output": "no", "metadata": {"exit_code": 3}}', "exit code 3"),
        ('{"success": false, "content": "denied"}', None),
    ],
)
def test_a_command_of_codex_failed_if_its_exit_code_says_so(
    output: str, error: str | None, tmp_path: Path
) -> None:
    file = tmp_path / "rollout.jsonl"
    file.write_text(lines(said("user", "a"), CALL, {**RETURN, "output": output}))

    (case,) = recognise([file]).cases

    (call,) = case["actualConversation"][0]["tools"]
    assert call.get("error", {}).get("type") == error
    assert ("error" in call) == (error is not None or "denied" in output)


def run(*arguments: str | Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Run the command; return its exit code and what it printed."""
    code = main(["try", *map(str, arguments)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def flat(text: str) -> str:
    """Return a text with single blanks."""
    return " ".join(text.split())


def test_a_folder_is_shown_on_one_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(DATA / "codex-rollout.jsonl", tmp_path / "one")
    shutil.copy(DATA / "langfuse-trace.json", tmp_path / "two")
    (tmp_path / "notes.txt").write_text("not JSON")

    code, out, _ = run(tmp_path, capsys=capsys)

    assert code == 0
    for told in (
        "one Codex session (1 session)",
        "two Langfuse traces (3 spans)",
        "notes.txt skipped: line 1, column 1: not valid JSON",
        "2 turns in 2 sessions, 4 tool calls",
        "0 of 2 turns failed, 0 did not end",
        "2 of 2",
        "trajectory_error_recovery: not made up for: refund (call 2)",
        "not recorded tokens (1 of 2)",
        "next: evaltap try",
    ):
        assert told in flat(out)
    assert len(out.splitlines()) <= 40


def test_a_file_that_is_named_twice_is_read_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "one"
    shutil.copy(DATA / "codex-rollout.jsonl", file)
    (tmp_path / "link").symlink_to(file)

    code, out, _ = run(tmp_path, file, "--json", capsys=capsys)

    assert (code, json.loads(out)["turns"]) == (0, 1)


def test_many_files_are_counted_by_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(13):
        shutil.copy(DATA / "chat-openai.json", tmp_path / f"chat-{number}.json")
        (tmp_path / f"other-{number}.json").write_text("{}")

    code, out, _ = run(tmp_path, capsys=capsys)

    assert code == 0
    assert out.startswith("13 files  chat messages\nother-0.json  skipped")
    assert "3 more files skipped; --json lists them" in out
    assert "13 turns in 13 sessions" in out


def test_the_store_is_kept_and_can_be_read_by_other_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    db = tmp_path / "cases.duckdb"
    code, out, _ = run(DATA / "opik-trace.json", "--db", db, capsys=capsys)
    assert (code, f"next: evaltap ui {db}" in out) == (0, True)

    assert main(["show", str(db), "s-opik"]) == 0
    assert QUESTION in capsys.readouterr().out


def test_unknown_amounts_are_null_and_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = run(DATA / "chat-openai.json", "--json", capsys=capsys)

    data = json.loads(out)
    assert code == 0
    assert (data["cost_usd"], data["tokens"], data["slowest"]) == (None, None, [])
    assert data["status_unknown"] == 1
    assert {"what": "cost", "without": 1, "of": 1} in data["missing"]
    assert data["files"][0]["format"] == "chat messages"


def test_a_loop_and_a_crash_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = [one for _ in range(4) for one in (CALL, RETURN)]
    file = tmp_path / "loop.jsonl"
    file.write_text(lines(said("user", "a"), *calls, said("assistant", "b")))
    failed = {"type": "error", "message": "stream disconnected"}
    crash = tmp_path / "crash.jsonl"
    event = {"timestamp": "2026-03-01T10:00:09Z", "type": "event_msg", "payload": failed}
    crash.write_text(lines(said("user", "a")) + json.dumps(event) + "\n")

    code, out, _ = run(file, crash, "--json", capsys=capsys)

    data = json.loads(out)
    assert code == 0
    assert (data["turns"], data["failed"], data["looping"]) == (2, 1, 1)
    assert any("stream disconnected" in case["reason"] for case in data["worst"])


@pytest.mark.slow
def test_texts_are_redacted_unless_told_otherwise(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "chat.json"
    asked = {"role": "user", "content": "I am ann.smith@example.com"}
    file.write_text(json.dumps([asked, {"role": "assistant", "content": "Hi."}]))

    for options, kept in (((), False), (("--no-redaction",), True)):
        db = tmp_path / f"{kept}.duckdb"
        run(file, "--db", db, *options, capsys=capsys)
        main(["show", str(db), "chat"])
        assert ("ann.smith@example.com" in capsys.readouterr().out) == kept


def test_standard_input_is_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (DATA / "gemini-session.json").read_bytes()
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))

    code, out, _ = run("-", capsys=capsys)

    assert code == 0
    assert "stdin  Gemini CLI session (1 session)" in out


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "the file is empty"),
        (b'[{"role": "user"', "not valid JSON"),
        (b"\x89PNG\r\n\x1a\n", "not valid JSON"),
        (b"[" * 5000 + b"]" * 5000, "not valid JSON"),
        (b'{"a": 1, "b": []}', "not recognised: found an object with the keys a, b"),
        (b"[1, 2]", "not recognised: found 2 items, the first the number 1"),
        (b'[{"role": "assistant", "content": "Hi."}]', "at least one message of the user"),
        (b'[{"role": "user", "content": "Hi."}]', "no recorded turns, only questions to run"),
        (
            b'[{"id": "1", "traceId": "t", "type": "EVENT", "startTime": "2026-03-01T10:00:00Z"}]',
            "but no agent run among the spans",
        ),
        (
            b'{"sessionId": "g", "messages": [{"type": "gemini"}]}',
            "Gemini CLI session, but without",
        ),
    ],
    ids=[
        "empty",
        "cut",
        "picture",
        "deep",
        "other",
        "numbers",
        "greeting",
        "asked",
        "event",
        "no user",
    ],
)
def test_a_file_that_cannot_be_read_is_explained(
    content: bytes, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)

    code, out, error = run(file, capsys=capsys)

    assert (code, out) == (2, "")
    assert error.startswith("evaltap try: no turns found; file: ")
    assert told in flat(error)


def test_a_named_file_that_was_skipped_is_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other.json"
    other.write_text("{}")

    assert run(DATA / "chat-openai.json", other, capsys=capsys)[0] == 3


HOSTILE = [
    None, True, 0, -1, 1.5, 10**30, "", "x", [], {}, [None], {"a": None}, "0001-01-01T00:00:00",
    "9" * 100_000, json.loads("[" * 300 + "]" * 300), {"role": 5}, '{"a":', "\ud83d",
]  # fmt: skip


def replaced(value: Any, path: list[int], by: object) -> Any:
    """Return JSON with the value at a path replaced; a path turns into each level by its number."""
    if not path or not isinstance(value, list | dict) or not value:
        return by
    keys = [*value] if isinstance(value, dict) else range(len(value))
    key = keys[path[0] % len(keys)]
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = replaced(value[key], path[1:], by)
    return copy


@pytest.mark.slow
@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.sampled_from(sorted(FORMATS)),
    st.lists(st.integers(0, 20), min_size=1, max_size=8),
    st.sampled_from(HOSTILE),
)
def test_no_value_anywhere_makes_reading_fail(
    tmp_path: Path, name: str, path: list[int], by: object
) -> None:
    text = (DATA / name).read_text()
    is_lines = name.endswith(".jsonl")
    document = [json.loads(line) for line in text.splitlines()] if is_lines else json.loads(text)
    document = replaced(document, path, by)
    file = tmp_path / "file"
    written = map(json.dumps, document) if is_lines else [json.dumps(document)]
    file.write_text("\n".join(written))

    (read,) = recognise([file]).files

    assert read.skipped or read.format
