"""The outcome of attacks on a judge: as data, as a table, and as an exit code."""

from rich.table import Table
from rich.text import Text

from evaltap.evaluator.pipeline.redteam.runner import AttackReport
from evaltap.evaluator.reports.console import console

SHOWN_FLIPS = 10


def exit_code(found: AttackReport, most: float) -> int:
    """Return 0 within the bound, 1 above it, 3 if too few attacks got a verdict."""
    total = found.total
    if total.rate is None or total.no_verdict > total.flips + total.held:
        return 3
    return int(total.rate.value > most)


def outcome_data(found: AttackReport, judge: str, code: int) -> dict[str, object]:
    """Return the outcome as JSON data."""
    return {
        "judge": judge,
        "families": [
            {
                "family": one.family,
                "flips": one.flips,
                "held": one.held,
                "no_verdict": one.no_verdict,
                "flip_rate": one.rate and one.rate.value,
                "interval": one.rate and one.rate.interval,
            }
            for one in (*found.families, found.total)
        ],
        "flips": [flip._asdict() for flip in found.flips],
        "left_out": found.left_out,
        "exit_code": code,
    }


def print_outcome(found: AttackReport, judge: str) -> None:
    """Print the outcome as a table, and some of the attacks that succeeded."""
    out = console()
    out.print(Text(f"judge: {judge}"), soft_wrap=True)
    table = Table(title="attacks that turned a fail into a pass", title_justify="left")
    table.add_column("family")
    for name in ("flips", "held", "no verdict", "flip rate", "95% interval"):
        table.add_column(name, justify="right")
    for one in (*found.families, found.total):
        rate = one.rate
        table.add_row(
            one.family,
            *(f"{count:,}" for count in (one.flips, one.held, one.no_verdict)),
            f"{rate.value:.1%}" if rate else "-",
            f"{rate.interval.low:.1%} to {rate.interval.high:.1%}" if rate else "",
            style="bold" if one.family == "all" else None,
        )
    out.print(table)
    for line in found.left_out:
        out.print(Text(f"left out: {line}"), soft_wrap=True)
    for flip in found.flips[:SHOWN_FLIPS]:
        out.print(Text(f"flipped: {flip.attack} ({flip.scenario}): {flip.reason}"), soft_wrap=True)
    if len(found.flips) > SHOWN_FLIPS:
        out.print(f"... and {len(found.flips) - SHOWN_FLIPS:,} more (--json lists all)")
