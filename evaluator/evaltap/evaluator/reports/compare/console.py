"""A comparison as lines of text for a terminal of 80 columns; only very long names are truncated."""

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.text import Text

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.model import Comparison, Difference
from evaltap.evaluator.reports.console import COLOURS, console, shorten
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.text import counted

WIDTH: Final = 80
_ROWS: Final = 20
_DETAILED: Final = 10
"""Cases of an outcome with their calls and answers."""
_REASON: Final = 200


def console_lines(found: Comparison) -> Iterator[str]:
    """Yield the lines; omitted items of long lists are counted."""
    for line in _lines(found):
        yield from wrapped(line)


def print_comparison(found: Comparison) -> None:
    """Print the lines, the sign of a line in colour."""
    print_lines(console_lines(found))


def print_lines(lines: Iterable[str]) -> None:
    """Print lines of which the first is the verdict; differences of calls are indented by four."""
    out = console()
    for number, line in enumerate(lines):
        style = COLOURS.get(line.strip()[:1], "") if line.startswith("    ") else ""
        out.print(Text(line, style="bold" if number == 0 else style), soft_wrap=True)


def wrapped(line: str) -> Sequence[str]:
    """Return a line as lines of the width, with hidden characters visible."""
    line = visible(line)
    if len(line) <= WIDTH:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    return textwrap.wrap(
        line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _lines(found: Comparison) -> Iterator[str]:
    yield wording.HEADLINES[found.verdict].upper()
    yield f"  {wording.sides(found)}"
    yield from (f"  {reason}" for reason in found.reasons)
    for metric in found.metrics:
        yield ""
        yield metric.metric
        yield f"  {wording.change(metric)}, {wording.certainty(metric)}"
        yield f"  {wording.evidence(metric)}"
        yield from (f"  undecided: {reason}" for reason in metric.undecided)
    if found.usage:
        yield ""
    for use in found.usage:
        yield f"{use.name}, {counted(use.ratio.n, 'case')}"
        yield f"  {wording.usage(use)}"
    if found.strata:
        yield ""
        yield f"{wording.STRATA} ({len(found.strata):,})"
        for one in found.strata[:_ROWS]:
            yield from _row(wording.stratum_name(found, one), wording.stratum(one))
        yield from more(len(found.strata) - _ROWS)
    for group in wording.groups(found):
        yield from _group(group)
    for title, names in wording.listed(found):
        yield ""
        yield f"{title} ({len(names):,})"
        yield from (f"  {shorten(name)}" for name in names[:_ROWS])
        yield from more(len(names) - _ROWS)
    if found.notes:
        yield ""
        yield from (f"note: {note}" for note in found.notes)


def _group(group: wording.CaseGroup) -> Iterator[str]:
    yield ""
    yield f"{group.title} ({group.number:,})"
    cases = [(reason, one) for reason in group.reasons for one in reason.cases]
    for number, (reason, case) in enumerate(cases[:_ROWS]):
        if reason.reason and case is reason.cases[0]:
            yield f"  {one_line(reason.reason, _REASON)} ({counted(len(reason.cases), 'case')})"
        yield from _row(shorten(case.name), wording.case_line(case))
        if number < _DETAILED:
            yield from _details(case)
    yield from more(group.number - _ROWS)


def _row(name: str, figures: str) -> Iterator[str]:
    """Yield a name and its figures on one line, or on two if the line is too long."""
    if len(name) + len(figures) + 4 <= WIDTH:
        yield f"  {name:<24}  {figures}" if len(figures) <= WIDTH - 28 else f"  {name}  {figures}"
        return
    yield f"  {name}"
    yield f"    {figures}"


def _details(one: Difference) -> Iterator[str]:
    if one.question:
        yield f"    user: {one.question}"
    if len(one.findings) > 1:
        yield from (f"    {reason}" for reason in wording.reason_lines(one))
    yield from (f"    {line}" for line in one.lines)


def more(left: int) -> Iterator[str]:
    """Yield how many items of a list were omitted."""
    if left > 0:
        yield f"  and {left:,} more (--json lists all)"
