"""Commands as agents: a process for each unit, JSON lines over its standard input and output.

For each turn it reads `{"messages": [...], "session_id": text}`, with `"state"` if the case has one, and
prints one line (see `plain`). What it has to say besides goes to standard error.  Where tool calls are
answered from a recording, EVALTAP_MOCKS_URL is their address (see `mocks.served`).
"""

import asyncio
import json
import os
import shlex
import shutil
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

from evaltap.experiments.agents.base import Abilities, AgentError, AgentSession, Asked, Unit
from evaltap.experiments.agents.plain import Reported, recorded, reported, served_mocks, shown
from evaltap.experiments.mocks.served import MOCKS_URL
from evaltap.recorder import Recorder
from evaltap.schemas.errors import InputError

PREFIX: Final = "command:"
_LONGEST_LINE: Final = 16 * 1024 * 1024
_SECOND_ANSWER_SECONDS: Final = 0.005
"""How long a second answer is waited for; one that comes later is found before the next turn."""
_END_SECONDS: Final = 1.0
_LAST_LINES: Final = 3


class CommandAgent:
    """A command line, started for each unit."""

    abilities = Abilities(state=True, context=True, served_mocks=True)

    def __init__(self, text: str, recorder: Recorder) -> None:
        try:
            self._words = shlex.split(text.removeprefix(PREFIX))
        except ValueError as error:
            raise InputError(f"--agent {text}: {error}") from error
        if not self._words:
            raise InputError(f"--agent {text}: names no command, e.g. command:node agent.js")
        if shutil.which(self._words[0]) is None:
            raise InputError(f"--agent {text}: there is no program {self._words[0]!r}")
        self._recorder = recorder

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Start the process, and end it with the block."""
        with served_mocks() as url:
            # In the group of this process: whoever kills the agent's process kills these too.
            process = await asyncio.create_subprocess_exec(
                *self._words,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                limit=_LONGEST_LINE,
                env={**os.environ, MOCKS_URL: url} if url else None,
            )
            session = _CommandSession(process, self._recorder)
            try:
                yield session
                await session.finish()
            finally:
                await session.close()


class _CommandSession:
    def __init__(self, process: asyncio.subprocess.Process, recorder: Recorder) -> None:
        self._process, self._recorder = process, recorder
        self._lines: deque[bytes] = deque()
        """What it printed and nobody has read."""
        self._news = asyncio.Event()
        self._is_silent = ""
        """Why no more lines come."""
        self._complaints: deque[str] = deque(maxlen=_LAST_LINES)
        self._readers = [
            asyncio.create_task(self._read_answers()),
            asyncio.create_task(self._read_complaints()),
        ]

    async def answer(self, asked: Asked) -> str | None:
        return await recorded(self._recorder, asked, self._reply(asked))

    async def _reply(self, asked: Asked) -> Reported:
        self._refuse_more()
        question: dict[str, Any] = {
            "messages": [*asked.messages],
            "session_id": asked.unit.session_id,
        }
        if asked.unit.state:
            question["state"] = dict(asked.unit.state)
        assert self._process.stdin is not None  # a pipe was asked for
        with suppress(ConnectionError):  # it has died, which the missing answer tells
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            await self._process.stdin.drain()
        while not self._lines and not self._is_silent:
            self._news.clear()
            await self._news.wait()
        if not self._lines:
            raise AgentError(f"the command {self._is_silent}")
        line = self._lines.popleft()
        try:
            data = json.loads(line)
        except ValueError:
            raise AgentError(
                f"the command printed {_text(line)}; expected an answer as one line of JSON (other output"
                " belongs on standard error)"
            ) from None
        said = reported(data)
        await asyncio.sleep(_SECOND_ANSWER_SECONDS)
        self._refuse_more()
        return said

    def _refuse_more(self) -> None:
        if self._lines:
            more = _text(self._lines.popleft())
            raise AgentError(f"the command answered twice, the second time {more}")

    async def finish(self) -> None:
        """Let it end by itself; an answer that nobody asked for is an error."""
        assert self._process.stdin is not None  # a pipe was asked for
        self._process.stdin.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_END_SECONDS):
                await self._process.wait()
                await asyncio.gather(*self._readers)
        self._refuse_more()

    async def close(self) -> None:
        """End it, whatever it does."""
        for reader in self._readers:
            reader.cancel()
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _read_answers(self) -> None:
        assert self._process.stdout is not None  # a pipe was asked for
        try:
            async for line in self._process.stdout:
                self._lines.append(line)
                self._news.set()
            self._is_silent = await self._death()
        except ValueError:
            self._is_silent = f"printed a line of more than {_LONGEST_LINE} bytes"
        self._news.set()

    async def _death(self) -> str:
        """Wait for the end of a command that has closed its output, and describe it."""
        complaints = self._readers[1]
        try:
            async with asyncio.timeout(_END_SECONDS):
                code = await self._process.wait()
                await complaints
        except TimeoutError:
            return "closed its output without an answer"
        how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
        said = " / ".join(self._complaints)
        return f"{how} without an answer" + (f"; it printed last: {said}" if said else "")

    async def _read_complaints(self) -> None:
        assert self._process.stderr is not None  # a pipe was asked for
        with suppress(ValueError):  # a line too long
            async for line in self._process.stderr:
                text = line.decode(errors="replace")
                sys.stderr.write(text)
                if text.strip():
                    self._complaints.append(text.strip()[:500])


def _text(line: bytes) -> str:
    return shown(line.decode(errors="replace"))
