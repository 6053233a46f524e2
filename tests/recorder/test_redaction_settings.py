"""Settings of redaction: unreadable values record less, and unknown names are reported."""

import logging
import re
from pathlib import Path
from typing import Any

import pytest

from evaltap.recorder import RecorderConfig
from evaltap.recorder.config import unknown_variables
from evaltap.recorder.diagnostics import diagnose


@pytest.mark.parametrize(
    ("variable", "text", "setting", "holds"),
    [
        ("EVALTAP_REDACTION", "flase", "redaction", True),
        ("EVALTAP_REDACTION", "", "redaction", True),
        ("EVALTAP_CAPTURE_CONTENT", "flase", "capture_content", False),
        ("EVALTAP_CAPTURE_CONTENT", "none", "capture_content", False),
        ("EVALTAP_DISABLED", "ture", "disabled", True),
        ("EVALTAP_SAMPLE_RATE", "0,01", "sample_rate", 0.0),
        ("EVALTAP_SAMPLE_RATE", "1%", "sample_rate", 0.0),
        ("EVALTAP_SAMPLE_RATE", "2", "sample_rate", 0.0),
        ("EVALTAP_SAMPLE_RATE", "nan", "sample_rate", 0.0),
        ("EVALTAP_REDACTION_ENTROPY", "si", "redaction_entropy", True),
    ],
)
def test_a_switch_that_cannot_be_read_records_less_and_says_so(
    variable: str, text: str, setting: str, holds: Any,
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv(variable, text)

    config = RecorderConfig(log="log.db")

    assert getattr(config, setting) == holds
    assert (variable in caplog.text) is bool(text)


def test_a_variable_that_nothing_reads_is_said_once_with_what_was_meant(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("EVALTAP_CAPTURE_CONTENTS", "0")
    caplog.set_level(logging.WARNING)

    for _ in range(3):
        RecorderConfig(log="log.db")

    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "EVALTAP_CAPTURE_CONTENTS is not a variable of evaltap" in told[0]
    assert "did you mean 'EVALTAP_CAPTURE_CONTENT'?" in told[0]


def test_a_misspelt_variable_of_another_part_is_unknown() -> None:
    found = unknown_variables(["EVALTAP_JUDGE_MODLE", "EVALTAP_UI_TOKENS", "EVALTAP_COLLECT_TOKEN"])

    assert found == {"EVALTAP_JUDGE_MODLE": "did you mean 'EVALTAP_JUDGE_MODEL'?",
                     "EVALTAP_UI_TOKENS": "did you mean 'EVALTAP_UI_TOKEN_FILE'?"}  # fmt: skip


def test_variables_of_other_parts_are_known() -> None:
    names = [
        "EVALTAP_LOG",
        "EVALTAP_SPOOL_DIR",
        "EVALTAP_JUDGE_MODEL",
        "EVALTAP_KAFKA_SSL_CAFILE",
        "PATH",
    ]

    assert unknown_variables(names) == {}


def test_the_doctor_calls_an_unknown_variable_a_problem() -> None:
    found = [one for one in diagnose({"EVALTAP_DISABLE": "1"}) if one.about == "EVALTAP_DISABLE"]

    (told,) = found
    assert told.severity == "problem"
    assert "EVALTAP_DISABLED" in told.remedy


def test_every_variable_that_a_part_of_evaltap_reads_is_known() -> None:
    root = Path(__file__).parents[2]
    named = re.compile(r"""["'](EVALTAP_[A-Z0-9_]*[A-Z0-9])["']""")
    read = {
        name
        for part in ("recorder", "evaluator", "schemas")
        for path in (root / part).rglob("*.py")
        for name in named.findall(path.read_text())
    }

    assert len(read) > 30
    assert unknown_variables(read | {"EVALTAP_GATE_SAFETY", "EVALTAP_PYTHON"}) == {}
