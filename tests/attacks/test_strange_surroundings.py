"""Commands whose output, terminal, folder or settings file is unusual: a message, never a traceback."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from attacks.programs import attack
from evaltap.cli.main import main
from support.builders.cases import make_case, make_turn

PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"
SCORE = f"{sys.executable} -c '{PROGRAM}' score c.jsonl --metrics m.json"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    case = make_case("größe 😀")
    case["conversation"] = [make_turn("e-1", "другое")]
    (work / "c.jsonl").write_text(json.dumps(case) + "\n")
    metric = {
        "metricName": "final_response_avg_score",
        "threshold": 1,
        "criterion": {"finalResponse": {"text": {}}},
    }
    (work / "m.json").write_text(json.dumps([metric]))
    return work


SURROUNDINGS = {
    "stdout closed": (f"{SCORE} >&-", 1, ""),
    "stderr closed": (f"{SCORE} 2>&- >/dev/null", 1, ""),
    "both closed": (f"{SCORE} >&- 2>&-", 1, ""),
    "disk full": (f"{SCORE} > /dev/full", 2, "the output cannot be written (No space left on device)"),
    "ASCII": (f"PYTHONIOENCODING=ascii {SCORE}", 1, r"gr\xf6\xdfe \U0001f600"),
    "folder gone": (f"rm -r ../work; {SCORE}", 2, "change to another folder"),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", SURROUNDINGS)
def test_a_command_ends_as_it_should(folder: Path, name: str) -> None:
    command, code, expected = SURROUNDINGS[name]

    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=60)

    assert done.returncode == code, done.stderr
    assert expected in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "settings", ["a = " + "[" * 3_000 + "]" * 3_000, "a = 1" + "0" * 10_000], ids=["deep", "long"]
)
def test_a_settings_file_that_python_cannot_read_is_named(
    folder: Path, settings: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "evaltap.toml").write_text(settings)

    assert main(["score", "c.jsonl", "--metrics", "m.json"]) == 2
    assert "evaltap.toml: not valid TOML" in capsys.readouterr().err


def test_a_device_is_no_settings_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALTAP_CONFIG", "/dev/zero")
    arguments = ["score", "c.jsonl", "--metrics", "m.json"]

    attack(PROGRAM, *arguments, code=2)
