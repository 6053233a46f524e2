"""Spans of many frameworks and instrumentations result in the turns of the driving script."""

import json
from typing import Any

import pytest

from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.telemetry.otlp_json import decode_request
from evaltap.recorder.telemetry.spans import Span
from evaltap.recorder.traces.reader import observe_trace
from support.builders.span_builders import intermediate, words
from support.corpora.span_facts import SPANS

CAPTURES = SPANS.parent / "captures"
FILES = {path.stem: json.loads(path.read_text()) for path in sorted(CAPTURES.glob("*.json"))}
SHOWN = ("id", "name", "arguments", "result", "error", "capture")


@pytest.mark.parametrize(
    ("name", "scenario"), [(name, scenario) for name, file in FILES.items() for scenario in file]
)
def test_a_capture_gives_the_turns_of_its_script(name: str, scenario: str) -> None:
    capture = FILES[name][scenario]

    assert [facts(case) for case in cases_of_request(capture["request"])] == capture["turns"]


def cases_of_request(request: dict[str, Any]) -> list[dict[str, Any]]:
    spans = [item for item in decode_request(request) if isinstance(item, Span)]
    assembler = Assembler()
    cases = [
        case
        for trace_id in {span.trace_id for span in spans}
        for run in observe_trace([span for span in spans if span.trace_id == trace_id])
        for observation in run
        for case in assembler.feed(observation)
    ]
    return sorted(cases, key=lambda case: case["creationTimestamp"])


def facts(case: dict[str, Any]) -> dict[str, Any]:
    (turn,) = case["actualConversation"]
    capture = turn.get("capture", {})
    return {
        "session": None if "sessionId" in capture else case["evalId"],
        "user": words(turn, "userContent"),
        "final": words(turn, "finalResponse"),
        "tools": [
            {key: tool[key] for key in SHOWN if key in tool} for tool in turn.get("tools", [])
        ],
        "intermediate": intermediate(turn),
        "capture": capture,
        "status": turn["telemetry"]["status"],
        "inputTokens": turn["telemetry"].get("inputTokens"),
    }
