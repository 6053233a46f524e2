"""A summary of scores on a terminal."""

import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import Difference, Summary
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

REASON_WIDTH = 200
_COLOURS = {"-": "red", "+": "green", "!": "yellow", ">": "yellow"}


def console() -> "Console":
    """Return a console that is plain in a pipe and never cuts a reason short there."""
    found = visible_console(sys.stdout)
    return found if found.is_terminal else visible_console(sys.stdout, width=160)


def visible_console(stream: object, width: int | None = None) -> "Console":
    """Return a console for a stream in which every text is visible."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class VisibleConsole(Console):
        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterator[Segment]:
            for text, style, control in super().render(renderable, options):
                yield Segment(text if control else visible(text), style, control)

    raw: Any = getattr(stream, "raw", stream)  # the codes for colours are no recorded text
    return VisibleConsole(file=raw, highlight=False, width=width)


def print_summary(summary: Summary, out: "Console", differences: Sequence[Difference] = ()) -> None:
    """Print the tables of a summary, and the differences of the worst cases."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=counted(summary.cases, "case"), title_justify="left")
    table.add_column("metric")
    shown = ["passed", "failed", "crashed", "not evaluated", "errors"]
    if not summary.crashed.count:
        shown.remove("crashed")
    for name in (*shown, "pass rate", "95% interval", "mean score"):
        table.add_column(name, justify="right")
    for row in summary.metrics:
        table.add_row(
            _plain(row.metric_name),
            f"{row.passed:,}",
            f"{row.failed:,}",
            *([f"{row.crashed:,}"] if summary.crashed.count else ()),
            f"{row.not_evaluated:,}",
            f"{row.errors:,}",
            "-" if row.pass_rate is None else f"{row.pass_rate:.1%}",
            "-" if row.interval is None else f"{row.interval.low:.0%} to {row.interval.high:.0%}",
            "-" if row.mean_score is None else f"{row.mean_score:.3f}",
        )
    out.print(table)
    if crashed := crashed_line(summary):
        out.print(Text(crashed, style="red"))
    if summary.worst:
        worst = Table(title="did not pass, worst first", title_justify="left")
        for name in ("case", "metric", "score", "why"):
            worst.add_column(name, overflow="fold")
        for case in summary.worst:
            bare = case.score is None or case.status == "crashed"
            score = case.status if bare else f"{case.score:.3f}"
            worst.add_row(
                _plain(case.eval_id), _plain(case.metric_name), score, _plain(case.reason)
            )
        out.print(worst)
    if differences:
        out.print(
            Text("calls of these cases: - expected, + made, ! other arguments, > out of order")
        )
    for difference in differences:
        out.print(Text(visible(difference.eval_id), style="bold"))
        for line in difference.lines:
            out.print(Text(visible(f"  {line}"), style=_COLOURS.get(line[:1], "")))
    if summary.unscored:
        unscored = Table(title="not scored, and why", title_justify="left")
        for name in ("metric", "status", "cases", "for example", "why"):
            unscored.add_column(name, overflow="fold")
        for gap in summary.unscored:
            unscored.add_row(
                _plain(gap.metric_name),
                gap.status,
                f"{gap.cases:,}",
                _plain(gap.example),
                _plain(gap.reason),
            )
        out.print(unscored)


def crashed_line(summary: Summary) -> str:
    """Return how many cases had a run that failed; empty when none had."""
    crashed = summary.crashed
    if not crashed.count or crashed.rate is None:
        return ""
    interval = crashed.interval
    bounds = f", 95 % interval {interval.low:.0%} to {interval.high:.0%}" if interval else ""
    return (
        f"crashed: {crashed.count:,} of {counted(crashed.cases, 'case')} ({crashed.rate:.1%}{bounds});"
        " the agent's run failed, never ended or was cut off"
    )


def shorten(text: str) -> str:
    """Return recorded text for a terminal: one line of REASON_WIDTH, with nothing that could steer it."""
    return one_line(visible(text), REASON_WIDTH)


def _plain(text: str) -> "Text":
    from rich.text import Text

    return Text(shorten(text))
