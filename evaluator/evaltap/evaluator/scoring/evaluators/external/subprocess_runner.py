"""Run a command with bytes as input and output, within limits.

The command belongs to the user and is trusted; the limits protect against accidents, not against attacks.
"""

import atexit
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import IO, Final

MAX_OUTPUT: Final = 1 << 20
MAX_ERRORS: Final = 64 << 20
QUOTED_ERRORS: Final = 500
"""The number of bytes at the end of standard error that a reason quotes."""
_CHECK_SECONDS: Final = 0.05
_RLIMIT_EXEC: Final = str(Path(__file__).with_name("rlimit_exec.py"))


class CommandError(Exception):
    """Report why a command returned no output; the message is shown to users as the reason."""


@dataclass(frozen=True, slots=True)
class Limits:
    seconds: float
    memory_bytes: int
    output_bytes: int = MAX_OUTPUT


def run_command(
    argv: Sequence[str], given: bytes, limits: Limits, environ: Mapping[str, str]
) -> bytes:
    """Run the command with `given` as standard input, and return its standard output.

    It runs in its own process group, which is always killed at the end, or when this process exits.  Raises
    CommandError if it takes too long, writes too much, exits with a code other than 0 or is killed by a
    signal.
    """
    limited = [sys.executable, "-I", "-S", _RLIMIT_EXEC, str(limits.memory_bytes)]
    # Files instead of pipes: a child process that outlives the command would keep pipes open
    # indefinitely.
    with TemporaryFile() as stdin, TemporaryFile() as stdout, TemporaryFile() as stderr:
        stdin.write(given)
        stdin.seek(0)
        process = subprocess.Popen(
            [*limited, str(ceil(limits.seconds) + 1), *argv],
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
            env=dict(environ),
        )
        # For a thread that does not see the end of the process, such as that of a receiver of alerts.
        kill = atexit.register(partial(_kill_group, process))
        try:
            broken = _wait(process, limits, stdout, stderr)
        finally:
            kill()
            atexit.unregister(kill)
            process.wait()
        if broken or process.returncode:
            raise CommandError(f"{broken or _ended(process.returncode)}{_quoted(stderr)}")
        stdout.seek(0)
        return stdout.read()


def _wait(
    process: "subprocess.Popen[bytes]", limits: Limits, stdout: IO[bytes], stderr: IO[bytes]
) -> str:
    """Wait until a process ends; return the limit that it exceeded, or an empty string.

    A thread checks the limits, because `Popen.wait` with a timeout polls and would notice the end up to 50 ms
    late.
    """
    ended, broken = Event(), ""
    deadline = time.monotonic() + limits.seconds
    bounds = ((stdout, limits.output_bytes), (stderr, MAX_ERRORS))

    def exceeded() -> str:
        for file, bound in bounds:
            if os.fstat(file.fileno()).st_size > bound:
                return f"wrote more than {bound} bytes and was killed"
        return ""

    def check() -> None:
        nonlocal broken
        while not broken and not ended.wait(_CHECK_SECONDS):
            broken = exceeded()
            if time.monotonic() >= deadline:
                broken = f"did not end within {limits.seconds:g} s and was killed"
        if broken:
            _kill_group(process)

    checker = Thread(target=check, name="evaltap-command", daemon=True)
    checker.start()
    process.wait()
    ended.set()
    checker.join()
    return broken or exceeded()


def _quoted(stderr: IO[bytes]) -> str:
    """Return the end of the command's standard error, for a reason."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - QUOTED_ERRORS))
    text = stderr.read().decode("utf-8", "replace").strip()
    return f"; standard error: {text}" if text else ""


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    # An empty process group is not found on Linux, and not permitted on macOS.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
