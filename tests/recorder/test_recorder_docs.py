"""The recorder's pages describe the actual behaviour of the code."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.sources.local_log import LocalLogSource
from evaltap.recorder import PatternRedactor, RecorderConfig
from evaltap.schemas.wire.record import DecodedCase, Reason, decode_record
from support.programs.reference import settings_page

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_every_setting_has_a_variable_a_default_and_a_sentence() -> None:
    for item in fields(RecorderConfig):
        assert item.metadata["variable"] == f"EVALTAP_{item.name.upper()}"
        assert item.metadata["meaning"].endswith(".")
        assert f"| `{item.name}` |" in settings_page()


def test_the_script_of_record_your_loop_runs_and_leaves_a_readable_log(tmp_path: Path) -> None:
    (script,) = blocks("how-to/record-your-loop.md", "python")

    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], cwd=tmp_path, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stderr
    assert "delivered=1" in done.stdout
    source = LocalLogSource(tmp_path / "agent.log.db")
    decoded = decode_record(source.poll(10, 0).records[0].record)
    source.close()
    assert isinstance(decoded, DecodedCase)
    first, second = decoded.case["actualConversation"][0]["tools"]
    assert first["result"]["status"] == "shipped"
    assert second["error"]["type"] == "KeyError"


def test_the_redactor_of_the_page_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code = blocks("how-to/redact.md", "python")
    scope: dict[str, object] = {}

    (own,) = (block for block in code if "hr-assistant" in block)
    exec(own, scope)
    exec(code[-1], scope)

    redact = scope["redact"]
    assert callable(redact)
    assert redact({"sessionInput": {"appName": "hr-assistant"}}) is None
    assert isinstance(scope["default"], PatternRedactor)


def test_the_policies_and_rules_of_the_page_can_be_used() -> None:
    code = blocks("how-to/redact.md", "python")

    shown = [block for block in code if "redaction_" in block]

    assert len(shown) == 4
    for block in shown:
        scope: dict[str, object] = {
            "Recorder": lambda log, **given: RecorderConfig(log=log, **given)
        }
        exec(block, scope)
        assert isinstance(scope["recorder"], RecorderConfig)


def test_the_wire_page_lists_every_reason() -> None:
    page = (DOCS / "reference/wire.md").read_text()

    for reason in Reason:
        assert f"| `{reason}` |" in page
