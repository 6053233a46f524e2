"""`evaltap record otlp --explain`: each turn, and which of its parts were omitted."""

import base64
import json
from pathlib import Path

import pytest

from evaltap.cli.main import main

PNG = b"\x89PNG\r\n\x1a\n" + bytes(200)


def test_explain_lists_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    blob = {
        "type": "blob",
        "modality": "image",
        "mime_type": "image/png",
        "content": base64.b64encode(PNG).decode(),
    }
    linked = {"type": "uri", "modality": "audio", "uri": "https://shop.example/a.mp3"}
    asked = {"role": "user", "parts": [{"type": "text", "content": "Where?"}, blob, linked]}
    thought = {"type": "reasoning", "content": "Hm."}
    said = {"role": "assistant", "parts": [thought, {"type": "text", "content": "There."}]}
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "s",
        "gen_ai.input.messages": json.dumps([asked]),
        "gen_ai.output.messages": json.dumps([said]),
    }
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "name": "chat m",
        "startTimeUnixNano": "1000",
        "endTimeUnixNano": "2000",
        "attributes": [{"key": key, "value": {"stringValue": one}} for key, one in attributes.items()],
    }  # fmt: skip
    file = tmp_path / "traces.otlp.json"
    file.write_text(json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))

    assert main(["record", "otlp", str(file), "--explain"]) == 0

    told = capsys.readouterr().err
    assert (
        "userContent.contentParts truncated, userContent: image/png of 208 bytes left out" in told
    )
    assert "mp3" not in told
    assert "the reasoning of 1 turn was left out; set EVALTAP_CAPTURE_REASONING=1" in told
