"""Running a command with bytes in and bytes out, within limits, so that its accidents do no harm here.

The command is its user's own and is trusted; the limits protect against accidents, not against attacks.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from tempfile import TemporaryFile
from threading import Event, Thread
from typing import IO, Final

MAX_OUTPUT: Final = 1 << 20
MAX_ERRORS: Final = 64 << 20
QUOTED_ERRORS: Final = 500
"""Bytes of standard error, its end, that a reason quotes."""
_CHECK_SECONDS: Final = 0.05
_RLIMIT_EXEC: Final = str(Path(__file__).with_name("rlimit_exec.py"))


class CommandError(Exception):
    """Report why a command gave no output; its message is a reason for people."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a run may use."""

    seconds: float
    memory_bytes: int
    output_bytes: int = MAX_OUTPUT


def run_command(
    argv: Sequence[str], given: bytes, limits: Limits, environ: Mapping[str, str]
) -> bytes:
    """Return what the command wrote to its standard output, given bytes on its standard input.

    It runs in a process group of its own, which is killed at the end whatever happened.  Raises
    CommandError when it takes too long, writes too much, ends with another code than 0 or by a signal.
    """
    limited = [sys.executable, "-I", "-S", _RLIMIT_EXEC, str(limits.memory_bytes)]
    # Files, not pipes: a child process that outlives the command would keep pipes open for ever.
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
        try:
            broken = _wait(process, limits, stdout, stderr)
        finally:
            _kill_group(process)
            process.wait()
        if broken or process.returncode:
            raise CommandError(f"{broken or _ended(process.returncode)}{_quoted(stderr)}")
        stdout.seek(0)
        return stdout.read()


def _wait(
    process: "subprocess.Popen[bytes]", limits: Limits, stdout: IO[bytes], stderr: IO[bytes]
) -> str:
    """Wait for the end of a process; return which limit it broke, empty for none.

    A thread checks the limits: `Popen.wait` with a timeout polls, and would notice the end up to 50 ms late.
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
    """Return the end of what the command wrote to standard error, for a reason."""
    stderr.seek(max(0, stderr.seek(0, os.SEEK_END) - QUOTED_ERRORS))
    text = stderr.read().decode("utf-8", "replace").strip()
    return f"; it said: {text}" if text else ""


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    # An empty group is not found on Linux, and not permitted on macOS.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
