"""A comparison for a pull request, in GitHub-flavoured Markdown of at most 60 kB."""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.model import Comparison, Difference
from evaltap.evaluator.reports.markdown import escape
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.text import counted

MAX_BYTES: Final = 60_000
"""GitHub rejects comments of more than 65,536 characters."""
_SIGNS: Final = {
    "regression": "❌",
    "below_minimum": "❌",
    "inconclusive": "⚠️",
    "improvement": "✅",
    "pass": "✅",
}
_ROWS: Final = 50
_METRICS: Final = 100
_NAMES: Final = 20
_TABLE: Final = (
    "| metric | base | head | change, 95 % interval | certainty | trials |",
    "| --- | ---: | ---: | --- | --- | --- |",
)


def comparison_markdown(found: Comparison) -> str:
    """Return the verdict, metrics, changed cases and their calls; omitted differences are counted."""
    text = "\n\n".join(filter(None, _head(found))) + "\n"
    budget = MAX_BYTES - len(text.encode()) - 200
    parts, left = [], len(found.differences)
    for one in found.differences:
        part = _difference(one)
        budget -= len(part.encode()) + 1
        if budget < 0:
            break
        parts.append(part)
        left -= 1
    if parts:
        text += "\n### Calls and answers\n\n" + "\n".join(parts)
    return text + (f"\n{counted(left, 'more case')} in the full report.\n" if left else "")


def _head(found: Comparison) -> Iterator[str]:
    yield f"## {_SIGNS[found.verdict]} {escape(wording.headline(found))}"
    yield escape(wording.sides(found))
    yield "\n".join(f"- {escape(reason)}" for reason in found.reasons)
    yield "\n".join([*_TABLE, *_metrics(found)])
    yield "\n".join(f"- **{use.name}**: {escape(wording.usage(use))}" for use in found.usage)
    if found.strata:
        yield f"### {wording.STRATA.capitalize()} ({len(found.strata):,})"
        slices = [
            f"- **{escape(wording.stratum_name(found, one))}**: {escape(wording.stratum(one))}"
            for one in found.strata[:_ROWS]
        ]
        yield "\n".join([*slices, *_more(len(found.strata) - _ROWS)])
    for group in wording.groups(found):
        rows = [
            f"- **{escape(row.case.name)}** ({escape(row.metric)}): {escape(row.figures)}"
            for row in group.rows[:_ROWS]
        ]
        yield f"### {group.title.capitalize()} ({len(group.rows):,})"
        yield "\n".join([*rows, *_more(len(group.rows) - _ROWS)])
    for title, names in wording.listed(found):
        more = len(names) - _NAMES
        shown = ", ".join(escape(name) for name in names[:_NAMES])
        yield f"{title.capitalize()}: {shown}" + (f", and {more:,} more" if more > 0 else "")
    yield "\n".join(f"> {escape(note)}" for note in found.notes)


def _metrics(found: Comparison) -> Iterator[str]:
    for metric in found.metrics[:_METRICS]:
        cells = (
            metric.metric,
            wording.rate(metric, metric.base),
            wording.rate(metric, metric.head),
            wording.difference(metric),
            wording.certainty(metric),
            wording.evidence(metric),
        )
        yield f"| {' | '.join(map(escape, cells))} |"


def _more(left: int) -> Sequence[str]:
    return [f"- and {left:,} more"] if left > 0 else []


def _difference(one: Difference) -> str:
    lines = [visible(line).replace("\n", " ") for line in one.lines]
    longest = max((len(run) for line in lines for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    title = f"{escape(one.name)}: {one.outcome.replace('_', ' ')}"
    head = f"<details><summary>{title}</summary>"
    return "\n".join([head, "", f"{fence}diff", *lines, fence, "", "</details>", ""])
