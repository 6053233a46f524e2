"""Run `evaltap` commands as separate processes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

_MAIN = "import sys; from evaltap.cli.main import main; sys.exit(main())"
STOP_SECONDS = 60.0


class Program:
    """A running `evaltap` command; its output is kept."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / f"{arguments[0]}-{len(list(folder.glob('*.out')))}.out"
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
            )

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self._output.read_text()

    def stop(self) -> int:
        """Stop it in good order and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_SECONDS)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running; it said:\n{self.output}") from None


def until(met: Callable[[], bool], program: Program) -> None:
    """Wait until something is so, as long as the program runs."""
    for _ in range(1_200):
        if met():
            return
        assert program.process.poll() is None, program.output
        time.sleep(0.05)
    raise AssertionError(program.output)
