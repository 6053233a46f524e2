"""A replay as lines for a terminal, and as Markdown for a pull request.

Old, new on what is faithful, estimate and bounds always stand side by side under their own names.  Only the
verdict, which rests on the bounds, has a sign, and "not enough to tell" never has that of a success.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from evaltap.evaluator.analysis.forecast.forecast import LEAST_FAITHFUL
from evaltap.evaluator.analysis.forecast.machine import Change
from evaltap.evaluator.analysis.forecast.model import Forecast, Verdict
from evaltap.evaluator.analysis.stats.rate import Interval, Rate
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.compare.console import more, print_lines, wrapped
from evaltap.evaluator.reports.compare.wording import p_value, points, signed
from evaltap.evaluator.reports.console import shorten
from evaltap.evaluator.reports.markdown import diff_block, escape, table
from evaltap.experiments.replay.result import ForkedTool, ReplayResult
from evaltap.schemas.text import counted

MAX_BYTES: Final = 60_000
"""GitHub rejects comments of more than 65,536 characters."""
_SIGNS: Final[Mapping[Verdict, str]] = {"not_worse": "✅", "worse": "❌", "not_enough": "⚠️"}
_ROWS: Final = 20
_DIFFERENCES: Final = 10
_ARGUMENTS: Final = 80
_CLOSEST: Final = "as the closest recorded call"
_COUNTS: Final = (
    ("answered", ("hits",)),
    ("answered otherwise", ("real", "invented", "closest")),
    ("no result", ("misses",)),
    ("recorded, not made", ("unused",)),
)


def print_replay(found: ReplayResult) -> None:
    """Print the lines, the verdict in bold and differences of calls in colour."""
    print_lines(console_lines(found))


def console_lines(found: ReplayResult) -> Iterator[str]:
    """Yield the lines; omitted items of long lists are counted."""
    for line in _lines(found):
        yield from wrapped(line)


def replay_markdown(found: ReplayResult) -> str:
    """Return the verdict, a row for each metric, newly failing sessions, forks and drift."""
    parts = [
        f"## {_SIGNS[found.verdict]} {escape(headline(found))}",
        escape("; ".join(basis(found)) + "."),
        table(FIGURES, [_metric_row(*one) for one in found.metrics.items()], ()),
        "\n".join(f"- {escape(line)}" for line in remarks(found)),
        *_forks_markdown(found),
        *_drift_markdown(found),
        "\n".join(f"> {escape(note)}" for note in found.notes),
    ]
    text = "\n\n".join(filter(None, parts)) + "\n"
    return text + _cases_markdown(found, MAX_BYTES - len(text.encode()))


def headline(found: ReplayResult) -> str:
    """Return the verdict as a sentence, with the metric that decides it."""
    for name, one in found.metrics.items():
        if one.verdict == found.verdict:
            several = len(found.metrics) > 1 and found.verdict == "not_worse"
            subject = f"all {len(found.metrics)} metrics" if several else name
            return f"{subject}: {_verdict(one)}"
    return "not enough to tell: no metric"


def _verdict(one: Forecast) -> str:
    if one.verdict == "not_enough":
        return "not enough to tell"
    beyond = f" by more than {points(one.margin)}" if one.margin else ""
    return f"{one.verdict.replace('_', ' ')}{beyond}"


def basis(found: ReplayResult) -> Iterator[str]:
    """Yield what the figures rest on."""
    of = "" if found.recorded is None else f" of {found.recorded:,}"
    runs = "" if found.runs == 1 else f", {found.runs} runs of each"
    yield f"{counted(found.sessions, 'session')}{of}, {counted(found.turns, 'turn')}{runs}"
    if found.effective_sessions is not None:
        yield f"as much information as {found.effective_sessions:,.0f} equal sessions"
    if found.faithful is not None:
        yield f"{_rate(found.faithful)} of the traffic was replayed faithfully"
    if found.off_script:
        yield f"{counted(found.off_script, 'turn')} off script"
    if found.invalid:
        yield f"{counted(found.invalid, 'turn')} invalid"


def remarks(found: ReplayResult) -> Iterator[str]:
    """Yield why metrics have no estimate, and what would help to decide."""
    for name, one in found.metrics.items():
        subject = f"{name}: " if len(found.metrics) > 1 else ""
        if why := _no_estimate(one):
            yield f"{subject}no estimate, since {why}"
        if one.advice:
            yield f"{subject}{one.advice}"


def _no_estimate(one: Forecast) -> str:
    if one.unsupported is None:
        return ""
    share = f"{one.unsupported.share:.1%} of the traffic"
    tools = ", ".join(one.unsupported.tools)
    if one.faithful is not None and one.faithful.value >= LEAST_FAITHFUL:
        return (
            f"nothing speaks for {share}: sessions with {tools} almost always leave the recording"
        )
    also = f"; sessions with {tools} almost never were" if tools else ""
    return f"{share} was not replayed faithfully{also}"


# -- figures ---------------------------------------------------------------------------------------


def _rate(rate: Rate | None) -> str:
    return "-" if rate is None else f"{rate.value:.1%}{_within(rate.interval)}"


def _within(interval: Interval) -> str:
    return f" ({100 * interval.low:.1f} to {100 * interval.high:.1f})"


def _change(change: Change | None, *, p: bool = False) -> str:
    if change is None:
        return "-"
    ends = " to ".join(signed(100 * one, 1) for one in change.interval)
    certain = f", {p_value(change.p)}" if p else ""
    return f"{signed(100 * change.value, 1)} points ({ends}){certain}"


def _bounds(one: Forecast) -> str:
    low, high = one.bounds
    return f"{100 * low:.1f} to {high:.1%}{_within(one.bounds_interval)}"


def _bounds_of_change(one: Forecast) -> str:
    low, high = (signed(100 * end, 1) for end in one.difference_bounds)
    ends = " to ".join(signed(100 * end, 1) for end in one.difference_bounds_interval)
    return f"{low} to {high} points ({ends})"


# -- terminal --------------------------------------------------------------------------------------


def _lines(found: ReplayResult) -> Iterator[str]:
    yield headline(found).upper() if not found.metrics else _loud(found)
    yield from (f"  {line}" for line in basis(found))
    for name, one in found.metrics.items():
        yield ""
        yield f"{name}: {_verdict(one)}"
        yield from (f"  {line}" for line in _metric_lines(one))
    yield from _fork_lines(found.forks)
    yield from _case_lines(found)
    yield from _drift_lines(found.drift)
    if found.notes:
        yield ""
        yield from (f"note: {note}" for note in found.notes)


def _loud(found: ReplayResult) -> str:
    subject, verdict = headline(found).rsplit(": ", 1)
    return f"{verdict.upper()}: {subject}"


def _metric_lines(one: Forecast) -> Iterator[str]:
    if one.old is not None:
        yield f"old               {_rate(one.old)}"
    if one.new is not None:
        yield f"new, faithful     {_rate(one.new)}"
        yield f"  difference      {_change(one.difference, p=True)}"
    if one.estimate is not None:
        yield f"estimate          {_rate(one.estimate.rate)}"
        yield f"  difference      {_change(one.estimate.difference)}"
    elif why := _no_estimate(one):
        yield f"no estimate: {why}"
    if not one.chosen_by_outcome:
        yield f"bounds            {_bounds(one)}"
        yield f"  difference      {_bounds_of_change(one)}"
    if one.advice:
        yield one.advice


def _fork_lines(forks: Sequence[ForkedTool]) -> Iterator[str]:
    if not forks:
        return
    yield ""
    yield "forks: calls without a recorded result"
    for one in forks[:_ROWS]:
        yield f"  {one.tool}  {one.count:,}x, {one.share:.1%} of the traffic"
        yield f"    e.g. {example(one)}"
    yield from more(len(forks) - _ROWS)


def example(one: ForkedTool) -> str:
    """Return a call of the tool, and why it had no recorded result."""
    written = orjson.dumps(one.arguments, default=str).decode()
    return f"{one.tool}({one_line(written, _ARGUMENTS)})" + (f": {one.why}" if one.why else "")


class Listed(NamedTuple):
    """Sessions that changed."""

    title: str
    sessions: Mapping[str, Sequence[str]]
    """With the metrics under which they did."""


def listed_sessions(found: ReplayResult) -> Iterator[Listed]:
    """Yield the newly failing and the newly passing sessions, if there are any."""
    for title in ("newly failing", "newly passing"):
        sessions: dict[str, list[str]] = {}
        for name, one in found.metrics.items():
            listed = one.newly_failing if title == "newly failing" else one.newly_passing
            for session in listed:
                sessions.setdefault(session, []).append(name)
        if sessions:
            yield Listed(title, sessions)


def _case_lines(found: ReplayResult) -> Iterator[str]:
    for listed in listed_sessions(found):
        yield ""
        yield f"{listed.title} ({len(listed.sessions):,})"
        left = _DIFFERENCES
        for session, metrics in [*listed.sessions.items()][:_ROWS]:
            under = f"  {', '.join(metrics)}" if len(found.metrics) > 1 else ""
            yield f"  {shorten(session)}{under}"
            if (lines := found.differences.get(session)) and left:
                left -= 1
                yield from (f"    {line}" for line in lines)
        yield from more(len(listed.sessions) - _ROWS)


def _drift_lines(drift: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    if not drift:
        return
    yield ""
    yield "tool calls of the new agent"
    for name, one in drift.items():
        yield f"  {name}  {', '.join(_drift_parts(one))}"
        yield from (f"    {line}" for line in changed_arguments(one))


def _drift_parts(one: Mapping[str, Any]) -> Iterator[str]:
    yield f"{one.get('hits', 0):,} answered"
    if one.get("misses"):
        yield f"{one['misses']:,} without a recorded result"
    for key, how in (("real", "run for real"), ("invented", "invented"), ("closest", _CLOSEST)):
        if one.get(key):
            yield f"{one[key]:,} {how}"
    if one.get("unused"):
        yield f"{counted(one['unused'], 'recorded call')} not made"


def call_counts(one: Mapping[str, Any]) -> dict[str, int]:
    """Return how many calls of a tool got what, under the titles of a table."""
    return {title: sum(one.get(key, 0) for key in keys) for title, keys in _COUNTS}


def changed_arguments(one: Mapping[str, Any]) -> Iterator[str]:
    """Yield how arguments of a tool differ from the recorded ones, most frequent first."""
    for change in one.get("changed_arguments") or ():
        yield f"{change['difference']} ({change['count']:,}x)"


# -- Markdown --------------------------------------------------------------------------------------

FIGURES: Final = ("metric", "old", "new, faithful", "difference", "estimate", "bounds", "verdict")


def figures(name: str, one: Forecast) -> tuple[str, ...]:
    """Return the texts under `FIGURES`, the verdict in words."""
    estimate = one.estimate and f"{_rate(one.estimate.rate)}; {_change(one.estimate.difference)}"
    bounds = "-" if one.chosen_by_outcome else f"{_bounds(one)}; {_bounds_of_change(one)}"
    return (
        name,
        _rate(one.old),
        _rate(one.new),
        _change(one.difference, p=True),
        estimate or "none",
        bounds,
        _verdict(one),
    )


def _metric_row(name: str, one: Forecast) -> tuple[str, ...]:
    *cells, verdict = map(escape, figures(name, one))
    return (*cells, f"{_SIGNS[one.verdict]} {verdict}")


def _forks_markdown(found: ReplayResult) -> Iterator[str]:
    if not found.forks:
        return
    yield "### Forks: calls without a recorded result"
    rows = [
        (escape(one.tool), f"{one.count:,}", f"{one.share:.1%}", escape(example(one)))
        for one in found.forks[:_ROWS]
    ]
    shown = table(("tool", "runs", "traffic", "example"), rows, ("runs", "traffic"))
    left = len(found.forks) - _ROWS
    yield shown + (f"\n\n{counted(left, 'more tool')}." if left > 0 else "")


def _drift_markdown(found: ReplayResult) -> Iterator[str]:
    if not found.drift:
        return
    rows = [
        (
            escape(name),
            *(f"{count:,}" for count in call_counts(one).values()),
            escape("; ".join(changed_arguments(one))),
        )
        for name, one in [*found.drift.items()][:_ROWS]
    ]
    head = ("tool", *call_counts({}), "changed arguments")
    left = len(found.drift) - _ROWS
    yield "### Tool calls of the new agent"
    yield table(head, rows, head[1:-1]) + (f"\n\n{counted(left, 'more tool')}." if left > 0 else "")


def _cases_markdown(found: ReplayResult, budget: int) -> str:
    parts = []
    for listed in listed_sessions(found):
        title = f"\n### {listed.title.capitalize()} ({len(listed.sessions):,})\n"
        parts.append(title)
        budget -= len(title.encode()) + 60  # the last line counts what is left out
        for shown, (session, metrics) in enumerate(listed.sessions.items()):
            part = _case_markdown(session, metrics, found.differences.get(session, ()))
            budget -= len(part.encode()) + 1
            if budget < 0:
                parts.append(f"- and {len(listed.sessions) - shown:,} more")
                break
            parts.append(part)
    return "\n".join([*parts, ""]) if parts else ""


def _case_markdown(session: str, metrics: Sequence[str], lines: Sequence[str]) -> str:
    title = f"{escape(session)}: {', '.join(map(escape, metrics))}"
    if not lines:
        return f"- {title}"
    head = f"<details><summary>{title}</summary>"
    return "\n".join([head, "", *diff_block(lines), "", "</details>", ""])
