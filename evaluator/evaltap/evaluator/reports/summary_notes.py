"""Sentences about a summary of scores: its gate, its units, and the traffic behind its rates."""

from collections.abc import Iterator

from evaltap.evaluator.analysis.stats.rate import Rate
from evaltap.evaluator.reports.summary import GateCounts, MetricCounts, Summary
from evaltap.schemas.text import counted


def summary_notes(summary: Summary) -> list[str]:
    """Return a gate's verdict, and notes on the rates of sampled traffic."""
    names = {row.metric_name for row in summary.metrics}
    notes = [
        one if one.partition(":")[0] in names else one[0].upper() + one[1:] for one in summary.notes
    ]
    if summary.gate is not None:
        notes.insert(0, f"{_gate_line(summary.gate)}.")
    both = [line for row in summary.metrics for line in _both_units(row)]
    if not summary.weighted:
        return [*both, *notes]
    about = (
        "Not all turns were recorded and scored. Pass rates, intervals and means are estimates for all turns"
        " of the traffic, weighted by one over the inclusion probability; counts are of recorded cases."
    )
    behind = [line for row in summary.metrics if (line := _traffic_line(row))]
    return [about, *behind, *both, *notes]


def sampled_line(cases: int) -> str:
    """Return a note on the rates of files whose cases were sampled."""
    return (
        f"{counted(cases, 'case')} of the files went through sampling (inclusion probability below 1):"
        " pass rates and intervals describe these cases, not all traffic; for that, land"
        " and score the log (`evaltap consume`)."
    )


def _gate_line(gate: GateCounts) -> str:
    others = [
        f"{count:,} {name}"
        for name, count in (("failed", gate.failed), ("incomplete", gate.incomplete))
        if count
    ]
    passed = f"{gate.passed:,} of {counted(gate.results, 'case')} passed the gate"
    return ", ".join([passed, *others])


def _both_units(row: MetricCounts) -> Iterator[str]:
    """Yield the rates of cases and of turns where they differ, and that of the traffic of a curated set."""
    cases, turns = row.cases, row.turns
    if cases and turns and abs(cases.value - turns.value) > 0.0005:
        yield f"{row.metric_name}: {_share(cases)} of the cases passed, {_share(turns)} of the turns."
    if row.represented is not None:
        yield (
            f"{row.metric_name}: {_share(row.represented)} of the traffic that these"
            f" {counted(row.represented.n, 'curated case')} represent, by their weights"
            f" ({row.represented_turns:,.0f} turns)."
        )


def _share(rate: Rate) -> str:
    return f"{rate.value:.1%} ({rate.interval:.0%})"


def _traffic_line(row: MetricCounts) -> str:
    """Return the basis of the estimated rate of all traffic; empty if it was not estimated."""
    found = row.traffic.estimate if row.traffic and row.weighted else None
    if found is None:
        return ""
    raw = f", {row.sample.value:.1%} of the recorded cases" if row.sample else ""
    flags = f" ({', '.join(row.flags)})" if row.flags else ""
    return (
        f"{row.metric_name}: {found.rate.value:.1%} of all traffic ({found.rate.interval:.0%}){raw}; from"
        f" {found.rate.n:,} turns in {found.sessions:,} sessions, which represent"
        f" {found.estimated_turns:,.0f} turns and carry as much information as"
        f" {found.rate.effective_n:,.0f} independent ones{flags}."
    )
