"""Run an attack as a separate program, so that a crash, a hang or exhausted memory only affects that
program."""

import resource
import subprocess
import sys
from pathlib import Path


def attack(
    program: str, *arguments: str | Path, seconds: float = 60, gigabytes: float = 3, code: int = 0
) -> str:
    """Run the program; fail unless it ends in time, within the memory and with the code; its output."""

    def bound() -> None:
        size = int(gigabytes * (1 << 30))
        resource.setrlimit(resource.RLIMIT_AS, (size, size))

    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True, text=True, timeout=seconds, preexec_fn=bound,
    )  # fmt: skip
    assert done.returncode == code, (done.returncode, done.stdout[-1000:], done.stderr[-2000:])
    return done.stdout
