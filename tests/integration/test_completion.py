"""`evaltap completion`: real shells complete with the printed scripts."""

import shutil
import subprocess
from pathlib import Path

import pytest

from support.builders.commands import runner


def script(shell: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    code, said, _ = runner(capsys)("completion", shell)
    assert code == 0
    path = folder / f"completion.{shell}"
    path.write_text(said)
    return path


def completed_by_bash(path: Path, *words: str) -> list[str]:
    program = (
        f"source {path}; COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _shtab_evaltap;"
        ' printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_commands_actions_and_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script("bash", tmp_path, capsys)
    assert set(completed_by_bash(path, "evaltap", "cons")) == {"consume"}
    assert completed_by_bash(path, "evaltap", "consume", "--until") == ["--until-idle"]
    assert completed_by_bash(path, "evaltap", "record", "otlp", "--exp") == ["--explain"]


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_take_the_script(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = script(shell, tmp_path, capsys)
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    subprocess.run([shell, "-n", str(path)], check=True)


def test_an_unknown_shell_is_an_error_of_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, errors = runner(capsys)("completion", "bsh")
    assert code == 2
    assert "did you mean 'bash'?" in errors
