"""Running a command with bytes in and bytes out, within limits, so that no accident of it harms us.

The command is its user's own and is trusted; the limits are against accidents, not against attacks.
"""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any, Final

MAX_OUTPUT: Final = 1 << 20
MAX_TOLD: Final = 500
"""Bytes of standard error, its end, that a reason quotes."""
_CHUNK: Final = 1 << 16
_LOOK_SECONDS: Final = 0.05
"""How often a command is looked at that has closed nothing and says nothing."""
_CONFINED: Final = str(Path(__file__).with_name("confined.py"))


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
    confined = [sys.executable, "-I", "-S", _CONFINED, str(limits.memory_bytes)]
    process = subprocess.Popen(
        [*confined, str(ceil(limits.seconds) + 1), *argv],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env=dict(environ),
    )
    pipes = _Pipes(process, given, limits)
    try:
        pipes.exchange()
    finally:
        _kill_group(process)
        process.wait()
        pipes.close()
    if process.returncode != 0:
        raise CommandError(f"{_ended(process.returncode)}{pipes.told()}")
    return bytes(pipes.output)


class _Pipes:
    """Feeds a process and drains it, until it has ended or broken a limit."""

    def __init__(self, process: "subprocess.Popen[bytes]", given: bytes, limits: Limits) -> None:
        self._process = process
        self._left = memoryview(given)
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self.output = bytearray()
        self._errors = bytearray()
        self._selector = selectors.DefaultSelector()
        self._files: list[Any] = [process.stdin, process.stdout, process.stderr]
        events = (selectors.EVENT_WRITE, selectors.EVENT_READ, selectors.EVENT_READ)
        for file, event in zip(self._files, events, strict=True):
            os.set_blocking(file.fileno(), False)
            self._selector.register(file, event)

    def exchange(self) -> None:
        """Go on until the process has ended and its pipes are empty; raise CommandError otherwise."""
        while True:
            left = self._deadline - time.monotonic()
            if left <= 0:
                raise CommandError(
                    f"did not end within {self._limits.seconds:g} s and was killed{self.told()}"
                )
            ended = self._process.poll() is not None
            ready = self._selector.select(0 if ended else min(left, _LOOK_SECONDS))
            for key, _ in ready:
                self._move(key.fileobj)
            # A child that it left behind may hold the pipes open for ever: what is in them counts.
            if ended and not any(key.fileobj is not self._process.stdin for key, _ in ready):
                return

    def told(self) -> str:
        """Return the end of what the command wrote to standard error, for a reason."""
        text = bytes(self._errors[-MAX_TOLD:]).decode("utf-8", "replace").strip()
        return f"; it said: {text}" if text else ""

    def close(self) -> None:
        """Close all pipes."""
        self._selector.close()
        for file in self._files:
            with suppress(BrokenPipeError):  # it need not read all of its input
                file.close()

    def _move(self, file: Any) -> None:
        if file is self._process.stdin:
            self._feed(file)
            return
        chunk = os.read(file.fileno(), _CHUNK)
        if not chunk:
            self._selector.unregister(file)
        elif file is self._process.stderr:
            self._errors = (self._errors + chunk)[-MAX_TOLD:]
        else:
            self.output += chunk
            if len(self.output) > self._limits.output_bytes:
                limit = self._limits.output_bytes
                raise CommandError(f"wrote more than {limit} bytes and was killed{self.told()}")

    def _feed(self, file: Any) -> None:
        try:
            written = os.write(file.fileno(), self._left[:_CHUNK]) if self._left else 0
        except BrokenPipeError:
            self._left = memoryview(b"")
        else:
            self._left = self._left[written:]
        if not self._left:
            self._selector.unregister(file)
            with suppress(BrokenPipeError):
                file.close()


def _kill_group(process: "subprocess.Popen[bytes]") -> None:
    # When nobody is left in it, Linux does not find it and macOS does not permit it.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _ended(code: int) -> str:
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"
