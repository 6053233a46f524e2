"""A summary of scores for a terminal."""

import os
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final, Literal

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import CaseRow, Difference, MetricCounts, Summary
from evaltap.evaluator.reports.text import summary_notes
from evaltap.schemas.text import PIPE_WIDTH, counted

REASON_WIDTH = 400
_UNBOUNDED = 10_000
"""A width at which every table fits, to measure the width that it needs."""
_OPENING = 60
"""The number of characters shown of a user's first message."""
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
    return _VisibleConsole(file=raw, highlight=False, width=width, color_system=system)


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


def print_summary(
    summary: Summary,
    out: Console,
    differences: Sequence[Difference] = (),
    *,
    store: str | None = None,
) -> None:
    """Print the metrics, the cases that did not pass, and the unscored ones.

    `store` are the words that name it in hints, empty or with a blank behind them; None: no hints.
    """
    out.print(Text(_about(summary)), soft_wrap=True)
    _print_metrics(summary, out)
    for note in summary_notes(summary):
        out.print(Text(visible(note)), soft_wrap=True)
    if crashed := crashed_line(summary):
        out.print(Text(crashed, style="red"))
    if summary.worst:
        out.print(Text(f"not passed, worst first{_of_all(summary)}", style="italic"))
        openings = {one.name: one.opening for one in differences}
        for case in summary.worst:
            opening = one_line(openings.get(case.name, ""), _OPENING)
            head = f"{shorten(case.name)}  {_verdict(case)}"
            _print_item(out, f"{head}  {opening}".rstrip(), case.reason)
    _print_differences([one for one in differences if one.lines], out)
    if summary.unscored:
        out.print(Text("not scored, with reasons", style="italic"))
        for gap in summary.unscored:
            status = gap.status.replace("_", " ")
            cases = f"{counted(gap.cases, 'case')}, e.g. {shorten(gap.example)}"
            _print_item(out, f"{gap.metric_name}  {status}  {cases}", gap.reason)
        unscored = sum(one.not_evaluated + one.errors for one in summary.metrics)
        if rest := unscored - sum(gap.cases for gap in summary.unscored):
            out.print(Text(f"  {counted(rest, 'more score')} with other reasons"))
    if summary.worst and store is not None:
        out.print(
            Text(
                f"next: evaltap show {store}{shlex.quote(shorten(summary.worst[0].name))}"
                f"\n      evaltap report {store}--out report.html"
            ),
            soft_wrap=True,
        )


def _print_differences(differences: Sequence[Difference], out: Console) -> None:
    if differences:
        title = (
            "tool calls of these cases: - expected, + made, ! different arguments, > out of order"
        )
        out.print(Text(title))
    for difference in differences:
        out.print(Text(shorten(difference.name), style="bold"))
        for line in difference.lines:
            out.print(Text(visible(f"  {line}"), style=COLOURS.get(line[:1], "")))


def _verdict(row: CaseRow) -> str:
    """Return the metric and the score; a crashed case is crashed under every metric."""
    if row.status == "crashed":
        return row.status
    return f"{row.metric_name}  {row.status if row.score is None else f'{row.score:.3f}'}"


def _of_all(summary: Summary) -> str:
    """Return how many failed scores and crashed cases are listed; empty if all are."""
    total = summary.crashed.count + sum(one.failed for one in summary.metrics)
    listed = len(summary.worst)
    return f": {listed} of {total:,}" if listed < total else ""


def _about(summary: Summary) -> str:
    if not summary.weighted:
        return counted(summary.cases, "case")
    cases = counted(summary.cases, "recorded case")
    return f"{cases}; rates, intervals and means are estimates for all traffic"


_COUNTS: Final = (
    ("passed", "passed", "green"),
    ("failed", "failed", "red"),
    ("crashed", "crashed", "red"),
    ("not_evaluated", "not evaluated", "yellow"),
    ("errors", "errors", "yellow"),
)
"""Field, heading and colour of the counts of a metric; counts that are 0 everywhere are omitted."""


def _print_metrics(summary: Summary, out: Console) -> None:
    """Print the table of metrics as wide as the terminal allows, without truncating names and counts."""
    for table in (
        _metrics(summary, 2, between=" "),
        _metrics(summary, 1, between=" "),
        _metrics(summary, 1, between="\n"),
        _metrics(summary, 1, between="\n", mean=False),
    ):
        needed = out.measure(table, options=out.options.update_width(_UNBOUNDED)).maximum
        if needed <= out.width:
            break
    table.width = needed  # otherwise, a table that does not fit would truncate its names
    out.print(table, crop=False)


def _metrics(summary: Summary, padding: int, *, between: str, mean: bool = True) -> Table:
    """Return the table of metrics, with `between` separating a rate from its interval."""
    table = plain_table(padding, edge=False)
    table.add_column("metric", no_wrap=True)
    shown = [
        (field, name, colour)
        for field, name, colour in _COUNTS
        if field in ("passed", "failed") or any(getattr(row, field) for row in summary.metrics)
    ]
    numbers = [name.replace(" ", "\n") for _, name, _ in shown]
    for name in (*numbers, "pass rate,\n95% interval", *(["mean"] if mean else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for row in summary.metrics:
        cells = [_rate(row, between)]
        if mean:
            cells.append("-" if row.mean_score is None else f"{row.mean_score:.3f}")
        counts = ((getattr(row, field), colour) for field, _, colour in shown)
        texts = (Text(f"{count:,}", style=colour if count else "") for count, colour in counts)
        table.add_row(Text(visible(row.metric_name)), *texts, *cells)
    return table


def _rate(row: MetricCounts, between: str) -> str:
    if row.rate is None:
        return "-"
    return f"{row.rate.value:.1%}{between}({row.rate.interval:.0%})"


def _print_item(out: Console, head: str, text: str) -> None:
    """Print a line with names, followed by a wrapped text."""
    out.print(Text(f"  {visible(head)}", style="bold"), soft_wrap=True)
    for line in textwrap.wrap(shorten(text), max(40, out.width - 6)):
        out.print(Text(f"      {line}"), soft_wrap=True)


def crashed_line(summary: Summary) -> str:
    """Return the number of cases with a failed run; empty if there are none."""
    crashed, share = summary.crashed, ""
    if not crashed.count:
        return ""
    if crashed.rate is not None:
        of_all = " of all cases" if summary.weighted else ""
        share = f" ({crashed.rate.value:.1%}{of_all}, 95 % interval {crashed.rate.interval:.0%})"
    return (
        f"crashed: {crashed.count:,} of {counted(crashed.cases, 'case')}{share};"
        " the agent's run failed, never ended or was cut off"
    )


def shorten(text: str) -> str:
    """Return recorded text for a terminal: one line of REASON_WIDTH, without control sequences."""
    return one_line(visible(text), REASON_WIDTH)
