"""What commands print besides their result: progress on a terminal or once a minute, and the outcome."""

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager


def print_outcome(data: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Print the outcome of a command: as JSON on stdout for scripts, or as text on stderr."""
    if as_json:
        print(json.dumps(data, ensure_ascii=False))
    else:
        print(text, file=sys.stderr)


class MinuteLine:
    """Writes a line about the progress of long work once a minute."""

    def __init__(
        self,
        write: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
        *,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._seconds = seconds
        self._clock = clock
        self._next = clock() + seconds

    def due(self, line: Callable[[], str]) -> None:
        """Write the line that `line` returns, unless it is empty, once a minute."""
        now = self._clock()
        if now >= self._next:
            self._next = now + self._seconds
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
