"""Everything that a command prints is visible: what was recorded cannot steer a terminal.

Names, reasons and errors hold text that an agent or its user wrote.  So one filter stands before stdout
and stderr, and no message has to think of it.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from evaltap.evaluator.reports.safe_text import escaped, visible

_JSON = re.compile(r"\s*[\[{]")


class PatientStream:
    """A text stream whose reader (head, less) may leave: the command ends with its own exit code."""

    def __init__(self, raw: TextIO) -> None:
        self._raw = raw

    def write(self, text: str) -> int:
        """Write the text, to nowhere once nobody reads."""
        try:
            self._raw.write(text)
        except BrokenPipeError:
            self._say_no_more()
        return len(text)

    def flush(self) -> None:
        """Write what was held back."""
        try:
            self._raw.flush()
        except BrokenPipeError:
            self._say_no_more()

    def _say_no_more(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._raw.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> Any:  # whatever a stream has
        return getattr(self._raw, name)


class VisibleStream:
    """A text stream whose text is made visible; JSON keeps its meaning, with escapes of its own."""

    def __init__(self, raw: TextIO) -> None:
        self.raw: Any = PatientStream(raw)
        """Where the text goes, for who writes control codes on purpose."""

    def write(self, text: str) -> int:
        """Write the text."""
        self.raw.write(escaped(text) if _JSON.match(text) else visible(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:  # whatever a stream has
        return getattr(self.raw, name)


@contextmanager
def visible_output() -> Iterator[None]:
    """Make visible what the block prints."""
    before = sys.stdout, sys.stderr
    ours: Any = tuple(VisibleStream(stream) for stream in before)
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
