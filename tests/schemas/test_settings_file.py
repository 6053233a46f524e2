"""evaltap.toml: its allowed content, and the settings that it represents."""

from pathlib import Path

import pytest

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.files.settings import find_settings, read_settings

RECORDER = ("log", "sample_rate", "sample_rules", "tags", "redaction_policy", "redaction_key")


def read(folder: Path, text: str) -> dict[str, str]:
    path = folder / "evaltap.toml"
    path.write_text(text)
    return dict(read_settings(path, RECORDER).variables)


def test_settings_stand_for_variables_and_paths_are_relative_to_the_file(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        """
        log = "kafka://broker:9092/cases"
        store = "data/cases.duckdb"
        [recorder]
        sample_rate = 0.1
        tags = ["canary", "eu"]
        sample_rules = [{ when = "error", keep = 1 }]
        redaction_policy = { toolResults = "hash", userId = "drop" }
        [score]
        allow_agent_errors = true
        thresholds = { trajectory_f1 = 0.8 }
        [judge]
        budget_usd = 1.5
        """,
    )
    assert found == {
        "EVALTAP_LOG": "kafka://broker:9092/cases",
        "EVALTAP_STORE": str(tmp_path / "data/cases.duckdb"),
        "EVALTAP_SAMPLE_RATE": "0.1",
        "EVALTAP_TAGS": "canary,eu",
        "EVALTAP_SAMPLE_RULES": '[{"when": "error", "keep": 1}]',
        "EVALTAP_REDACTION_POLICY": "toolResults=hash,userId=drop",
        "EVALTAP_ALLOW_AGENT_ERRORS": "1",
        "EVALTAP_THRESHOLDS": "trajectory_f1=0.8",
        "EVALTAP_JUDGE_BUDGET_USD": "1.5",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stor = 'x'", "stor: unknown setting; did you mean 'store'?"),
        ("[recorder]\nsample_rte = 1", "recorder.sample_rte: unknown setting; did you mean 'sample_rate'"),
        ("[recorder]\nlog = 'x'", "recorder.log: unknown setting"),
        ("[recorder]\nredaction_key = 'x'", "a secret does not belong in a file"),
        ("[judge]\napi_key = 'x'", "a secret does not belong in a file"),
        ("[judge]\nbase_url = 'http://x'", "it decides where keys are sent"),
        ("[score]\nallow_code = true", "whoever runs the command decides that"),
        ("score = 1", "score: found 1; expected a table, [score]"),
        ("log = 1", "log: found 1; expected a path in quotes"),
        ("log = ", "not valid TOML"),
        ("[score]\np95_ms = 2026-01-01", "score.p95_ms: found"),
    ],
)  # fmt: skip
def test_what_a_settings_file_may_not_say_is_an_error_that_names_it(
    tmp_path: Path, text: str, said: str
) -> None:
    with pytest.raises(ConfigurationError, match=r"evaltap\.toml") as raised:
        read(tmp_path, text)
    assert said in str(raised.value)


def test_the_nearest_file_counts_up_to_the_root_of_the_checkout(tmp_path: Path) -> None:
    inner = tmp_path / "repo" / "agent"
    inner.mkdir(parents=True)
    (tmp_path / "evaltap.toml").touch()
    (tmp_path / "repo" / ".git").mkdir()
    assert find_settings(inner, {}) is None
    (tmp_path / "repo" / "evaltap.toml").touch()
    assert find_settings(inner, {}) == tmp_path / "repo" / "evaltap.toml"
    assert find_settings(inner, {"EVALTAP_CONFIG": "other.toml"}) == Path("other.toml")
