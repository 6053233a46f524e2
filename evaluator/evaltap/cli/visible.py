"""Make everything that a command prints visible, so that recorded text cannot control the terminal.

Names, reasons and errors contain text that an agent or its user wrote. One filter on stdout and stderr
covers them all, so messages need no escaping of their own.
"""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TextIO

from evaltap.evaluator.reports.safe_text import escaped, visible
from evaltap.schemas.errors import InputError

_JSON = re.compile(r"\s*[\[{]")


class PipeStream:
    """A text stream whose reader (head, less) may exit early; the command keeps its own exit code.

    Characters that the stream's encoding lacks are escaped. Raises InputError when the disk is full.
    """

    def __init__(self, raw: TextIO) -> None:
        self._raw = raw

    def write(self, text: str) -> int:
        """Write the text; discard it once the reader has closed the pipe."""
        try:
            self._raw.write(self._encodable(text))
        except BrokenPipeError:
            self._discard_output()
        except OSError as error:
            self._refuse(error)
        return len(text)

    def flush(self) -> None:
        """Write the buffered text."""
        try:
            self._raw.flush()
        except BrokenPipeError:
            self._discard_output()
        except OSError as error:
            self._refuse(error)

    def _encodable(self, text: str) -> str:
        encoding = self._raw.encoding or "utf-8"
        try:
            text.encode(encoding)
        except UnicodeEncodeError:
            return text.encode(encoding, "backslashreplace").decode(encoding)
        return text

    def _refuse(self, error: OSError) -> NoReturn:
        self._discard_output()  # or it would fail again when the process ends
        raise InputError(f"the output cannot be written ({error.strerror})") from None

    def _discard_output(self) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._raw.fileno())
        os.close(nowhere)

    def __getattr__(self, name: str) -> object:  # any attribute of a stream
        return getattr(self._raw, name)


class VisibleStream:
    """A text stream that makes control codes visible; in JSON it uses JSON escapes."""

    def __init__(self, raw: TextIO) -> None:
        self.raw: Any = PipeStream(raw)
        """The stream behind the filter, for code that writes control codes on purpose."""

    def write(self, text: str) -> int:
        """Write the text."""
        self.raw.write(escaped(text) if _JSON.match(text) else visible(text))
        return len(text)

    def writelines(self, lines: Iterator[str]) -> None:
        """Write the texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> object:  # any attribute of a stream
        return getattr(self.raw, name)


@contextmanager
def visible_output() -> Iterator[None]:
    """Make control codes visible in everything that the block prints."""
    before = sys.stdout, sys.stderr
    # A stream that is closed at the start is None, and the next file that is opened gets its number.
    nowhere = Path(os.devnull)
    ours: Any = tuple(
        VisibleStream(stream or nowhere.open("w", encoding="utf-8")) for stream in before
    )
    sys.stdout, sys.stderr = ours
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
