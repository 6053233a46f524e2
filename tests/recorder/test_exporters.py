"""Zero code: an unchanged program records if the environment configures it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.schemas.wire.record import DecodedCase, decode_record

APP = """
import json
from opentelemetry import trace
messages = lambda role, text: json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])
tracer = trace.get_tracer("app")
with tracer.start_as_current_span("invoke_agent support", attributes={
    "gen_ai.operation.name": "invoke_agent", "gen_ai.conversation.id": "s-1",
    "gen_ai.input.messages": messages("user", "hi"),
}) as run:
    with tracer.start_as_current_span("execute_tool ping", attributes={
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "ping", "gen_ai.tool.call.id": "c-1",
        "gen_ai.tool.call.arguments": "{}", "gen_ai.tool.call.result": '"pong"'}):
        pass
    run.set_attribute("gen_ai.output.messages", messages("assistant", "hello"))
"""
# What the command `opentelemetry-instrument` does before it runs the program.
CONFIGURED = (
    "from opentelemetry.sdk._configuration import _OTelSDKConfigurator as C; C().configure()\n"
)


@pytest.mark.parametrize("logs", ["none", "evaltap"])
def test_a_program_is_recorded_by_environment_variables_alone(tmp_path: Path, logs: str) -> None:
    (tmp_path / "app.py").write_text(CONFIGURED + APP)
    environment = {
        **os.environ,
        "OTEL_TRACES_EXPORTER": "evaltap",
        "OTEL_LOGS_EXPORTER": logs,
        "OTEL_METRICS_EXPORTER": "none",
        "EVALTAP_LOG": "log.db",
    }

    done = subprocess.run(
        [sys.executable, "app.py"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
    source = LocalLogSource(tmp_path / "log.db")
    found = [decode_record(item.record) for item in source.poll(10, 0).records]
    source.close()
    (case,) = [item.case for item in found if isinstance(item, DecodedCase)]
    turn = case["actualConversation"][0]
    assert case["evalId"] == "s-1"
    assert turn["finalResponse"]["content"] == "hello"
    assert [tool["result"] for tool in turn["tools"]] == ["pong"]
    assert json.dumps(turn["telemetry"])
