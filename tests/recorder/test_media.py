"""Images, audio and files in messages: the recorded properties, and the absence of their bytes."""

import base64
import hashlib
import json
from typing import Any

import pytest

from evaltap.recorder import MemorySink, Recorder
from evaltap.recorder.media import MAX_DIGESTED_BYTES, MAX_PARTS
from evaltap.schemas.formats.case import EvalCase
from support.builders.span_builders import TraceBuilder

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200))
BASE64 = base64.b64encode(PNG).decode()
SEEN = {
    "type": "image",
    "mime_type": "image/png",
    "size_bytes": len(PNG),
    "sha256": hashlib.sha256(PNG).hexdigest(),
}
URL = "https://shop.example/a.png"


def recorded(parts: Any, **settings: Any) -> dict[str, Any]:
    sink = MemorySink()
    recorder = Recorder(sink=sink, **settings)
    with recorder.turn(session_id="s", user="Where is A-1?", parts=parts) as turn:
        turn.respond("There.")
    assert recorder.close()
    assert recorder.counters().faults == 0
    (case,) = sink.cases
    assert EvalCase.model_validate(case)
    recorded: dict[str, Any] = case["actualConversation"][0]
    return recorded


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image", "mime_type": "image/png", "data": PNG},
        {"type": "blob", "modality": "image", "mime_type": "image/png", "content": BASE64},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{BASE64}"}},
        {"type": "input_image", "image_url": f"data:image/png;base64,{BASE64}", "detail": "auto"},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}},
        {"inline_data": {"mime_type": "image/png", "data": PNG}},
        {"inlineData": {"mimeType": "image/png", "data": BASE64}},
        {"type": "image", "base64": BASE64, "mime_type": "image/png"},
        {"type": "binary", "media_type": "image/png", "content": BASE64},
        {"type": "image", "image": BASE64, "mediaType": "image/png"},
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"type": "media", "mime_type": "image/png", "data": BASE64.replace("+", "-")},
    ],
)
def test_bytes_become_size_and_digest_in_every_shape(part: dict[str, Any]) -> None:
    turn = recorded([{"type": "text", "text": "Where is A-1?"}, part])

    assert turn["userContent"]["content_parts"] == [SEEN]
    assert turn["capture"] == {"userContent.contentParts": "truncated"}
    assert BASE64[:40] not in json.dumps(turn)


@pytest.mark.parametrize(
    ("part", "seen"),
    [
        ({"type": "image_url", "image_url": {"url": URL}}, {"type": "image", "image": {"url": URL}}),
        ({"type": "image", "source": {"type": "url", "url": URL}}, {"type": "image", "image": {"url": URL}}),
        ({"type": "uri", "modality": "audio", "uri": URL}, {"type": "audio", "audio": {"url": URL}}),
        ({"type": "image", "image": URL}, {"type": "image", "image": {"url": URL}}),
        (
            {"file_data": {"file_uri": "gs://b/a.pdf", "mime_type": "application/pdf"}},
            {"type": "file", "file": {"url": "gs://b/a.pdf"}, "mime_type": "application/pdf"},
        ),
        (
            {"type": "input_file", "file_id": "file-1", "filename": "a.pdf"},
            {"type": "file", "file": {"filename": "a.pdf", "file_id": "file-1"}},
        ),
        (
            {"document": {"format": "pdf", "name": "a", "source": {"location": {"uri": "s3://b/a"}}}},
            {"type": "file", "file": {"filename": "a", "url": "s3://b/a"}},
        ),
    ],
)  # fmt: skip
def test_what_is_named_by_url_or_id_is_recorded_whole(part: Any, seen: Any) -> None:
    turn = recorded([part])

    assert turn["userContent"]["content_parts"] == [seen]
    assert "capture" not in turn


def test_a_recording_in_a_format_and_a_file_of_plain_text() -> None:
    wav = base64.b64encode(b"RIFF").decode()
    audio = {"type": "input_audio", "input_audio": {"data": wav, "format": "wav"}}
    text = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "Orders: é"},
    }

    turn = recorded([audio, text, b"raw"])

    first, second, third = turn["userContent"]["content_parts"]
    assert (first["type"], first["mime_type"], first["size_bytes"]) == ("audio", "audio/wav", 4)
    assert (second["type"], second["size_bytes"]) == ("file", 10)
    assert (third["type"], third["size_bytes"]) == ("file", 3)


def test_of_too_many_and_too_large_parts_less_is_known_and_nothing_waits() -> None:
    large = bytes(MAX_DIGESTED_BYTES + 1)

    turn = recorded([large, *[PNG] * (MAX_PARTS + 5)])

    parts = turn["userContent"]["content_parts"]
    assert len(parts) == MAX_PARTS
    assert parts[0] == {"type": "file", "size_bytes": len(large)}
    assert turn["capture"] == {
        "userContent": "truncated",  # five parts are not there at all
        "userContent.contentParts": "truncated",
    }


def test_an_answer_may_be_a_picture_alone() -> None:
    sink = MemorySink()
    recorder = Recorder(sink=sink)
    with recorder.turn(session_id="s", user="Draw.") as turn:
        turn.respond(None, parts=[{"type": "image", "mime_type": "image/png", "data": PNG}])
    recorder.close()

    (case,) = sink.cases
    (data,) = case["actualConversation"]
    assert data["finalResponse"] == {"role": "assistant", "content": "", "content_parts": [SEEN]}
    assert data["capture"] == {"finalResponse": "truncated"}


def test_no_part_can_disturb_the_agent() -> None:
    class Odd(dict[str, Any]):
        def get(self, *_: Any) -> Any:
            raise SystemExit("not the agent's")

    turn = recorded([object(), Odd(type="image"), {"type": "image", "source": Odd()}, None, {}])

    assert [part["type"] for part in turn["userContent"]["content_parts"]][-1] == "file"
    assert turn["capture"] == {"userContent.contentParts": "truncated"}


def test_without_content_nothing_of_a_part_is_written() -> None:
    part = {"type": "image", "mime_type": "image/png", "url": URL, "filename": "passport.png"}

    off, hashed = (
        recorded([part], capture_content=False),
        recorded([part], redaction_policy="userContent=hash"),
    )

    assert "passport" not in json.dumps([off, hashed])
    assert "shop.example" not in json.dumps([off, hashed])
    assert off["capture"]["userContent"] == "redacted"
    (kept,) = hashed["userContent"]["content_parts"]
    assert (kept["type"], kept["mime_type"]) == ("image", "image/png")


def test_the_url_of_a_part_is_redacted_like_the_text() -> None:
    turn = recorded([{"type": "image", "url": f"{URL}?token=ghp_{'a1B2' * 9}"}])

    assert "ghp_" not in json.dumps(turn)


BLOB = {"type": "blob", "modality": "image", "mime_type": "image/png", "content": BASE64}


def test_parts_of_otel_messages() -> None:
    trace = TraceBuilder()
    asked = [{"role": "user", "parts": [{"type": "text", "content": "Where is A-1?"}, BLOB]}]
    drawn = {"role": "assistant", "parts": [{"type": "text", "content": "There."}, BLOB]}
    run = trace.span("invoke_agent a", None, {"gen_ai.operation.name": "invoke_agent"})
    trace.span(
        "chat m",
        run,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(asked),
            "gen_ai.output.messages": json.dumps([drawn]),
        },
    )

    turn = trace.turn()

    assert turn["userContent"] == {
        "role": "user",
        "content": "Where is A-1?",
        "content_parts": [SEEN],
    }
    assert turn["finalResponse"]["content_parts"] == [SEEN]
    assert {key for key, state in turn["capture"].items() if state == "truncated"} == {
        "userContent.contentParts",
        "finalResponse.contentParts",
    }


def test_parts_of_openinference_messages() -> None:
    prefix = "llm.input_messages.0.message"
    trace = TraceBuilder()
    agent = trace.span("agent", None, {"openinference.span.kind": "AGENT"})
    trace.span(
        "llm",
        agent,
        {
            "openinference.span.kind": "LLM",
            f"{prefix}.role": "user",
            f"{prefix}.contents.0.message_content.type": "text",
            f"{prefix}.contents.0.message_content.text": "Where is A-1?",
            f"{prefix}.contents.1.message_content.type": "image",
            f"{prefix}.contents.1.message_content.image.image.url": URL,
            f"{prefix}.contents.2.message_content.type": "image",
            f"{prefix}.contents.2.message_content.image.image.url": "__REDACTED__",
            "llm.output_messages.0.message.role": "assistant",
            "llm.output_messages.0.message.content": "There.",
        },
    )

    turn = trace.turn()

    assert turn["userContent"]["content_parts"] == [
        {"type": "image", "image": {"url": URL}},
        {"type": "image"},
    ]
    assert turn["capture"]["userContent.contentParts"] == "truncated"
