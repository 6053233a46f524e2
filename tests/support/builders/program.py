"""Run `evaltap` commands as separate processes."""

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from support.builders.waiting import wait_for

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

    def wait_for(self, met: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait until something is so, as long as the program runs."""

        def found() -> bool:
            if met():
                return True
            assert self.process.poll() is None, self.output
            return False

        wait_for(found, seconds, lambda: self.output)

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
