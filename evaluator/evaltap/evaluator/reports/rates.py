"""Rates of all traffic as a table on a terminal."""

from collections.abc import Sequence
from itertools import chain
from typing import Final

from rich.console import Console
from rich.text import Text

from evaltap.evaluator.analysis.estimates.rates import SliceRate
from evaltap.evaluator.analysis.stats.estimate import Estimate
from evaltap.evaluator.reports.cases import NARROW
from evaltap.evaluator.reports.console import plain_table
from evaltap.evaluator.reports.safe_text import visible

DIGEST_WIDTH: Final = 8


def _about(rates: Sequence[SliceRate]) -> str:
    known = [rate.estimate for rate in rates if rate.estimate]
    if any(abs(one.estimated_turns - one.rate.n) > 0.5 for one in known):
        return "of all traffic (weighted; turns and sessions as recorded)"
    return "of all turns"


def print_rates(rates: Sequence[SliceRate], by: Sequence[str], out: Console) -> None:
    """Print a row for each slice and metric version."""
    if not rates:
        return
    names = _names(rates)
    named = list(dict.fromkeys(names))
    flags = [*chain.from_iterable(rate.flags for rate in rates)]
    about = _about(rates)
    title = f"{named[0]}, {about}" if len(named) == 1 else about
    table = plain_table(1, Text(title), edge=False)
    for name in by:
        table.add_column(name, overflow="fold")
    if len(named) > 1:
        # Names are only broken before their version, because half a name is useless.
        longest = max(len(word) for name in named for word in name.split(" "))
        table.add_column("metric", overflow="fold", min_width=longest)
    for name in ("rate", "95 %", "turns", "sessions"):
        table.add_column(name, justify="right", no_wrap=True)
    if flags:
        table.add_column("flags", min_width=max(map(len, flags)))
    for rate, called in zip(rates, names, strict=True):
        cells = [_cell(rate.slice[name]) for name in by]
        table.add_row(
            *map(Text, cells),
            *([Text(called)] if len(named) > 1 else []),
            *_figures(rate.estimate),
            *([Text(" ".join(rate.flags))] if flags else []),
        )
    width = max(out.width if out.is_terminal else NARROW, out.measure(table).minimum)
    out.print(table, width=width, crop=False)


def _figures(found: Estimate | None) -> tuple[str, str, str, str]:
    if found is None:
        return "-", "", "0", "0"
    rate = found.rate
    return f"{rate.value:.1%}", f"{rate.interval:.1%}", f"{rate.n:,}", f"{found.sessions:,}"


def _names(rates: Sequence[SliceRate]) -> list[str]:
    """Return the signal or metric of each rate, with its version if a metric has several."""
    versions: dict[str, set[str | None]] = {}
    for rate in rates:
        versions.setdefault(_named(rate), set()).add(rate.metric_digest)
    return [
        f"{name} {(rate.metric_digest or '')[:DIGEST_WIDTH]}" if len(versions[name]) > 1 else name
        for rate, name in ((rate, _named(rate)) for rate in rates)
    ]


def _named(rate: SliceRate) -> str:
    """Return the signal, the metric, or both if the signal depends on a metric."""
    if rate.metric is None:
        return rate.signal
    signal = "" if rate.signal == "pass_rate" else f"{rate.signal} "
    return signal + visible(rate.metric or "")


def _cell(text: str | None) -> str:
    return "-" if text is None else visible(text)
