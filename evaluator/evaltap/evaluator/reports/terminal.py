"""A summary of scores for a terminal."""

import shlex
import textwrap
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.console import COLOURS, plain_table, shorten
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import CaseRow, Difference, MetricCounts, Summary
from evaltap.evaluator.reports.summary_notes import summary_notes
from evaltap.schemas.text import counted

_UNBOUNDED = 10_000
"""A width at which every table fits, to measure the width that it needs."""
_OPENING = 60
"""The number of characters shown of a user's first message."""


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
