"""Rates of all traffic as a table on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from evaltap.evaluator.estimates.rates import Rate
from evaltap.evaluator.reports.safe_text import visible

if TYPE_CHECKING:
    from rich.console import Console

NARROW: Final = 80
"""Columns of a table where there is no terminal."""
DIGEST_WIDTH: Final = 8


def print_rates(rates: Sequence[Rate], by: Sequence[str], out: "Console") -> None:
    """Print a row for each slice and metric version."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    if not rates:
        return
    named = list(dict.fromkeys(map(_named, rates)))
    flagged = any(rate.flags for rate in rates)
    title = f"{named[0]}, {_about(rates)}" if len(named) == 1 else _about(rates)
    table = Table(title=Text(title), title_justify="left", box=box.SIMPLE, pad_edge=False)
    for name in by:
        table.add_column(name, overflow="fold")
    if len(named) > 1:
        # A name is broken before its version only: half of it names nothing.
        longest = max(len(word) for name in named for word in name.split(" "))
        table.add_column("metric", overflow="fold", min_width=longest)
    for name in ("rate", "95 %", "turns", "sessions"):
        table.add_column(name, justify="right", no_wrap=True)
    if flagged:
        table.add_column("flags", overflow="fold")
    for rate in rates:
        cells = ["-" if rate.slice[name] is None else _shown(rate.slice[name]) for name in by]
        table.add_row(
            *map(Text, cells),
            *([Text(_named(rate))] if len(named) > 1 else []),
            "-" if rate.rate is None else f"{rate.rate:.1%}",
            "" if rate.process is None else f"{rate.process.low:.1%} to {rate.process.high:.1%}",
            f"{rate.turns:,}",
            f"{rate.sessions:,}",
            *([Text(" ".join(rate.flags))] if flagged else []),
        )
    width = out.width if out.is_terminal else max(NARROW, out.measure(table).minimum)
    out.print(table, width=width)


def _named(rate: Rate) -> str:
    """Return the metric with its version, or the signal; a signal that looks at a metric has both."""
    if rate.metric is None:
        return rate.signal
    signal = "" if rate.signal == "pass_rate" else f"{rate.signal} "
    return f"{signal}{_shown(rate.metric)} {(rate.metric_digest or '')[:DIGEST_WIDTH]}"


def _about(rates: Sequence[Rate]) -> str:
    if any(abs(rate.estimated_turns - rate.turns) > 0.5 for rate in rates):
        return "of all traffic (weighted; turns and sessions as recorded)"
    return "of all turns"


def _shown(text: str | None) -> str:
    return visible(text or "")
