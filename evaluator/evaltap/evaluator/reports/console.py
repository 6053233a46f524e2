"""Tables and recorded text for a terminal, a pipe or a file."""

import os
import re
import sys
from collections.abc import Iterator
from typing import Any, Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.text import PIPE_WIDTH

REASON_WIDTH = 400
COLOURS = {"-": "red", "+": "green", "!": "yellow", ">": "yellow"}
"""By the sign of a line of a difference."""


def console() -> Console:
    """Return a console for the terminal; in a pipe, a plain one with the width of COLUMNS."""
    found = visible_console(sys.stdout)
    if found.is_terminal or os.environ.get("COLUMNS", "").isdigit():
        return found
    return visible_console(sys.stdout, width=PIPE_WIDTH)


def visible_console(stream: object, width: int | None = None) -> Console:
    """Return a console for a stream that makes hidden characters visible."""
    raw: Any = getattr(stream, "raw", stream)  # the codes for colours are not recorded text
    if not raw.isatty():
        raw = _Trimmed(raw)
    # With NO_COLOR, rich drops colours but not bold and dim; here nothing is styled then.
    system: Literal["auto"] | None = None if os.environ.get("NO_COLOR") else "auto"
    # In a notebook, rich would show the text in the cell instead of writing it to the stream.
    return _VisibleConsole(
        file=raw, highlight=False, width=width, color_system=system, force_jupyter=False
    )


def plain_table(padding: int, title: str | Text | None = None, *, edge: bool = True) -> Table:
    """Return an empty table without lines between rows, with blanks between its columns."""
    gaps = (0, padding, 0, 0)
    return Table(
        title=title,
        title_justify="left",
        box=box.SIMPLE,
        show_edge=edge,
        pad_edge=False,
        padding=gaps,
    )


class _VisibleConsole(Console):
    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)


class _Trimmed:
    """A stream for a pipe or file: lines are written without the blanks that fill a table's width."""

    def __init__(self, stream: Any) -> None:  # any text stream
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text without blanks at the ends of its lines."""
        self._stream.write(re.sub(r" +(?=\n)", "", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:  # whatever rich looks up
        return getattr(self._stream, name)


def shorten(text: str) -> str:
    """Return recorded text for a terminal: one line of REASON_WIDTH, without control sequences."""
    return one_line(visible(text), REASON_WIDTH)
