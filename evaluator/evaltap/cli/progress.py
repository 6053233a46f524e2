"""Progress of commands: on a terminal, or once a minute."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_SECONDS: Final = 60.0


class MinuteLine:
    """Writes a line about the progress of long work once a minute."""

    def __init__(
        self,
        write: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._clock = clock
        self._next = clock() + _SECONDS

    def due(self, line: Callable[[], str]) -> None:
        """Write the line that `line` returns, unless it is empty, once a minute."""
        now = self._clock()
        if now >= self._next:
            self._next = now + _SECONDS
            if text := line():
                self._write(text)


@contextmanager
def progress(what: str, *, logged: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a running count: continuously on a terminal; otherwise, if `logged`, a line per minute."""
    if not sys.stderr.isatty():
        line = MinuteLine()

        def report(count: int) -> None:
            line.due(lambda: f"evaltap: {count:,} {what}")

        yield report if logged else lambda _: None
        return
    from evaltap.evaluator.reports.console import visible_console  # an optional package: rich

    with visible_console(sys.stderr).status(f"0 {what}") as status:
        yield lambda count: status.update(f"{count:,} {what}")
