"""The process of the agent, as the experiment sees it: units in, their ends out, and its death."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Protocol

from evaltap.experiments.agents.base import Abilities, Unit
from evaltap.experiments.worker import UnitEnd, WorkerSettings
from evaltap.schemas.errors import InputError

START_SECONDS: Final = 120.0
LAST_LINES: Final = 5
_LONGEST_LINE: Final = 200


class AgentEnd(Protocol):
    """Where units run: the experiment's end of an agent."""

    running: dict[tuple[str, str], Unit]
    """The units that the agent has, by run and eval id."""
    begun: set[tuple[str, str]]
    """Those of them that it has begun; the others wait for their turn there."""
    has_ended: bool
    """Whether it can run no more units."""
    abilities: Abilities

    def start(self, unit: Unit) -> None:
        """Give the agent a unit."""

    def take(self, seconds: float) -> list[tuple[Unit, UnitEnd]]:
        """Return the units that have ended, waiting for the first."""
        ...

    def finish(self) -> None:
        """Say that no more units come."""

    def close(self) -> None:
        """Release it; an agent that still runs is ended."""

    def death(self) -> str:
        """Say how it ended, when `has_ended` although units were left."""
        ...


class AgentProcess(AgentEnd):
    """Starts the agent's process; `units` go in, `messages` come out of it in order.

    Raises InputError if the agent cannot be imported or adapted.  What the agent prints goes to `output`.
    """

    def __init__(self, settings: WorkerSettings, output: Path) -> None:
        if not hasattr(os, "killpg"):  # Windows
            raise InputError(
                "the agent's process needs pipes and process groups of a POSIX system; on Windows, run this"
                " in WSL"
            )
        self.running = {}
        self.begun = set()
        self._output = output
        self._messages: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        units, self._units = Pipe(duplex=False)
        told, telling = Pipe(duplex=False)
        theirs = units.fileno(), telling.fileno()
        with output.open("ab") as printed:
            self._printed_before = printed.tell()  # by processes that have died
            self._process = subprocess.Popen(
                [sys.executable, "-m", "evaltap.experiments.worker", *map(str, theirs)],
                pass_fds=theirs,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                # The agent's own plugins, if it has any, write nothing to the log of production.
                env={**os.environ, "PYTHONUNBUFFERED": "1", "EVALTAP_DISABLED": "1"},
                start_new_session=True,  # Ctrl-C is for the experiment, which ends the agent in order
            )
        units.close()
        telling.close()
        threading.Thread(
            target=self._receive, args=(told,), name="evaltap-agent-process", daemon=True
        ).start()
        self._send(settings)
        self.has_ended = False
        self.abilities = self._started()

    def _started(self) -> Abilities:
        try:
            first = self._messages.get(timeout=START_SECONDS)
        except queue.Empty:
            self.kill()
            raise InputError(
                f"the agent did not start within {START_SECONDS:g} s; see {self._output}"
            ) from None
        if first is not None and "ready" in first:
            abilities: Abilities = first["ready"]
            return abilities
        while first is not None and "failed" not in first:
            first = self._messages.get()
        self.kill()
        if first is None:
            raise InputError(f"the agent's process {self.death()} while it started")
        raise InputError(first["failed"])

    def start(self, unit: Unit) -> None:
        """Give the agent a unit."""
        self.running[unit.run, unit.eval_id] = unit
        self._send(unit)

    def take(self, seconds: float) -> list[tuple[Unit, UnitEnd]]:
        """Return the units that have ended, waiting for the first; sets `has_ended` when the process has."""
        ended = []
        try:
            message = self._messages.get(timeout=seconds)
            while True:
                if message is None:
                    self.has_ended = True
                    break
                if "begins" in message:
                    self.begun.add(tuple(message["begins"]))
                if "end" in message:
                    end: UnitEnd = message["end"]
                    self.begun.discard((end.run, end.eval_id))
                    ended.append((self.running.pop((end.run, end.eval_id)), end))
                message = self._messages.get_nowait()
        except queue.Empty:
            pass
        return ended

    def finish(self) -> None:
        """Say that no more units come: the agent's process ends after the last one."""
        self._send(None)

    def kill(self) -> None:
        """End the process and what it has started, at once."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Wait for the end of the process, or enforce it."""
        self._units.close()  # it ends itself when it has nothing left to do
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self.kill()

    def death(self) -> str:
        """Say how the process ended, with the last lines that it printed."""
        code = self._process.wait()
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else f"exited with code {code}"
        )
        said = _last_lines(self._output, self._printed_before)
        return f"{how}; it printed last: {' / '.join(said)}" if said else how

    def _send(self, message: Unit | WorkerSettings | None) -> None:
        with contextlib.suppress(OSError):  # it has died; `take` tells
            self._units.send(message)

    def _receive(self, told: Connection) -> None:
        with told, contextlib.suppress(EOFError, OSError):  # it has died, perhaps within a message
            while True:
                for message in told.recv():
                    self._messages.put(message)
        self._messages.put(None)


def _last_lines(path: Path, begin: int) -> Sequence[str]:
    """Return the last lines of a file from an offset on; of a long one its beginning."""
    with path.open("rb") as file:
        file.seek(max(begin, path.stat().st_size - 4_000))
        text = file.read().decode(errors="replace")
    last = deque(filter(None, map(str.strip, text.splitlines())), LAST_LINES)
    return [one if len(one) <= _LONGEST_LINE else f"{one[:_LONGEST_LINE]}…" for one in last]
