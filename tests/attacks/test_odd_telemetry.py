"""Telemetry with odd numbers, or nested hundreds of levels: refused where it stands, and named."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from attacks.collecting import CASE, collect
from evaltap.cli.main import main

NESTED = '{"a":' * 600 + "1" + "}" * 600
DEEPER = '{"a":' * 1020 + "1" + "}" * 1020
ODD_NUMBERS = ["²", "9" * 5_000, "٣", "--5", "1e5", 1e308]


def attributes(**values: object) -> list[dict[str, object]]:
    given = {name.replace("__", "."): value for name, value in values.items()}
    return [{"key": key, "value": {"stringValue": value}} for key, value in given.items()]


def request_of(*spans: dict[str, object]) -> bytes:
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}).encode()


def agent_span(trace: str, **fields: object) -> dict[str, object]:
    return {
        "traceId": trace * 32,
        "spanId": "1" * 16,
        "startTimeUnixNano": "1700000000000000000",
        "endTimeUnixNano": "1700000001000000000",
        "attributes": attributes(
            gen_ai__operation__name="invoke_agent", gen_ai__conversation__id="s"
        ),
        **fields,
    }


def tool_span(trace: str, arguments: str) -> dict[str, object]:
    given = attributes(
        gen_ai__operation__name="execute_tool", gen_ai__tool__name="t",
        gen_ai__tool__call__id="c", gen_ai__tool__call__arguments=arguments,
    )  # fmt: skip
    ids = {"spanId": "2" * 16, "parentSpanId": "1" * 16}
    return {**agent_span(trace), **ids, "attributes": given}


def test_no_number_is_an_error_of_collect(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        for odd in ODD_NUMBERS:
            counted = {"key": "gen_ai.usage.input_tokens", "value": {"intValue": odd}}
            spans: list[dict[str, Any]] = [
                agent_span("a", startTimeUnixNano=odd),
                agent_span("b", attributes=[counted]),
            ]
            assert {server.post(request_of(span)) for span in spans} <= {200, 400}
        assert server.post(CASE.read_bytes()) == 200
        _, said = server.stop()

    assert "Traceback" not in said


@pytest.mark.parametrize("wrong", ["+" + "1" * 31, "0x" + "1" * 30, "1_" * 16, "²" * 32])
def test_what_python_takes_for_a_number_is_no_trace_id(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "spans.json"
    path.write_bytes(request_of(agent_span("a", traceId=wrong)))

    assert main(["record", "otlp", str(path), "--out", str(tmp_path / "o.evalset.json")]) == 2


@pytest.mark.parametrize("text", [NESTED, DEEPER], ids=["nested", "deeper"])
def test_arguments_nested_hundreds_of_levels_stay_text(tmp_path: Path, text: str) -> None:
    path, out = tmp_path / "spans.json", tmp_path / "o.evalset.json"
    path.write_bytes(request_of(agent_span("a"), tool_span("a", text), agent_span("b")))

    assert main(["record", "otlp", str(path), "--no-redaction", "--out", str(out)]) == 0

    turns = [
        turn
        for case in json.loads(out.read_text())["evalCases"]
        for turn in case["actualConversation"]
    ]
    assert len(turns) == 2
    (call,) = (call for turn in turns for call in turn.get("tools", ()))
    assert call["arguments"] == text


TIMES = '"start_time":"2024-01-01T00:00:00Z","end_time":"2024-01-01T00:00:01Z"'
IDS = f'"trace_id":"0x{"a" * 32}","span_id":"0x{"b" * 16}"'
EXPORTS = {
    "SDK": f'[{{"context":{{{IDS}}},"name":"n",{TIMES},"attributes":{{"x":DEEP}}}}]',
    "Langfuse": '[{"id":"a","traceId":"t","type":"GENERATION","name":"n","startTime":'
    '"2024-01-01T00:00:00Z","endTime":"2024-01-01T00:00:01Z","input":DEEP,"output":"x"}]',
    "LangSmith": f'[{{"id":"a","trace_id":"t","run_type":"tool","name":"n",{TIMES},"inputs":DEEP,'
    '"outputs":{},"dotted_order":"x","session_id":"s"}]',
}


@pytest.mark.parametrize("product", EXPORTS)
def test_an_export_nested_too_deeply_is_named(
    tmp_path: Path, product: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "export.json"
    path.write_text(EXPORTS[product].replace("DEEP", DEEPER))

    code = main(["record", "otlp", str(path), "--out", str(tmp_path / "o.evalset.json")])

    # Since 3.12, `json` writes the values that other exports than the SDK's become.
    if product == "SDK" or sys.version_info < (3, 12):
        assert code == 2
        assert f"{path}: nested too deeply" in capsys.readouterr().err
    else:
        assert code == 0


@pytest.mark.parametrize("options", [["--check"], ["--out", "o.jsonl"]])
def test_redact_names_a_line_nested_too_deeply(
    tmp_path: Path, options: list[str], monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    levels = 1020 if "--check" in options else 300
    Path("c.jsonl").write_text("{}\n" + "[" * levels + '"a"' + "]" * levels + "\n")

    assert main(["redact", "c.jsonl", *options]) == 2
    assert "c.jsonl: line 2" in capsys.readouterr().err
