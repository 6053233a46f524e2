"""A summary in GitHub-flavoured Markdown, fit for `$GITHUB_STEP_SUMMARY` (at most 1 MiB).

All recorded text is escaped: it cannot become markup, a link, a mention or math.
"""

import re
from collections.abc import Collection, Sequence
from typing import Final

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.model import CaseReport, Cell, ReasonGroup, Report, Usage
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import MetricCounts, Summary, exit_code
from evaltap.evaluator.reports.terminal import crashed_line
from evaltap.evaluator.reports.text import difference_lines
from evaltap.evaluator.reports.usage import unknown
from evaltap.schemas.text import counted

MAX_BYTES: Final = 1_000_000
"""GitHub rejects a step summary of more than 1 MiB."""
_CASES: Final = 50
_GROUPS: Final = 20
_CELL: Final = 300
_OPENING: Final = 80
"""The number of characters shown of a user's first message."""
_MARKUP: Final = re.compile(
    r"[\\`*\[\]<>&|~@#!$^{}]|(?<![0-9A-Za-z])_|_(?![0-9A-Za-z])|:(?=//)|(?<=www)\.", re.I
)
_NUMBERS: Final = (
    "passed",
    "failed",
    "not evaluated",
    "errors",
    "pass rate",
    "95 % interval",
    "mean",
)
_SIGNS: Final = {
    "passed": "✅",
    "failed": "❌",
    "crashed": "💥",
    "error": "⚠️",
    "not_evaluated": "⏭️",
}


def markdown(report: Report) -> str:
    """Return the summary; omitted cases are counted at its end."""
    head = [
        f"## {_verdict(report)}",
        _origin(report),
        _metrics(report.summary),
        f"**{crashed}.**" if (crashed := crashed_line(report.summary)) else "",
        *_use("agent", report.agent),
        *(_use("judge", report.judge) if report.judge else ()),
        *_groups(report.reasons),
        *(f"> {escape(note)}" for note in report.notes),
    ]
    text = "\n\n".join(filter(None, head)) + "\n"
    return text + _cases(report, MAX_BYTES - len(text.encode()))


def escape(text: str, limit: int = _CELL) -> str:
    """Return recorded text on one line, with Markdown's special characters as entities."""
    line = one_line(visible(text), limit)
    return _MARKUP.sub(lambda found: f"&#{ord(found[0])};", line)


def _verdict(report: Report) -> str:
    counts, total = report.case_counts, report.total
    if not total:
        return "⏭️ No scores"
    sign = {0: "✅", 1: "❌"}.get(exit_code(report.summary), "⚠️")
    parts = [
        f"{counts[status]:,} {status.replace('_', ' ')}"
        for status in ("passed", "failed", "crashed", "error", "not_evaluated")
        if counts.get(status)
    ]
    cases = counted(total, "recorded case" if report.summary.weighted else "case")
    return f"{sign} {cases}: {', '.join(parts)}"


def _origin(report: Report) -> str:
    source = report.source
    if source.run_id is None:
        return f"The latest score of every case in {escape(source.database)}."
    return (
        f"Run {escape(source.run_id)} over {escape(source.cases_from)},"
        f" started {escape(source.started_at)} UTC."
    )


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], numbers: Collection[str]) -> str:
    """Return a table of escaped cells, `numbers` to the right; empty without rows."""
    rule = tuple("---:" if name in numbers else "---" for name in head)
    lines = [head, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) if rows else ""


def _metrics(summary: Summary) -> str:
    names = [*_NUMBERS]
    if crashed := bool(summary.crashed.count):
        names.insert(2, "crashed")
    rows = [_metric_row(row, crashed=crashed) for row in summary.metrics]
    return table(("metric", *names), rows, names)


def _metric_row(row: MetricCounts, *, crashed: bool) -> tuple[str, ...]:
    crashes, rate = (row.crashed,) if crashed else (), row.rate
    counts = (row.passed, row.failed, *crashes, row.not_evaluated, row.errors)
    return (
        escape(row.metric_name),
        *(f"{count:,}" for count in counts),
        "" if rate is None else f"{rate.value:.1%}",
        "" if rate is None else f"{rate.interval:.0%}",
        "" if row.mean_score is None else f"{row.mean_score:.3f}",
    )


def _use(name: str, use: Usage) -> list[str]:
    noun = "turn" if name == "agent" else "call"

    def of_known(told: str, known: int) -> str:
        missing = unknown(use, known, noun)
        return f"{told} ({missing})" if missing else told

    parts = []
    if use.cost_usd is not None:
        parts.append(of_known(f"{use.cost_usd:,.4g} USD", use.with_cost))
    if use.input_tokens is not None or use.output_tokens is not None:
        used = (use.input_tokens, use.output_tokens)
        into, out = ("?" if count is None else f"{count:,}" for count in used)
        parts.append(of_known(f"{into} tokens in, {out} out", use.with_tokens))
    if use.latency_p95_ms is not None:
        parts.append(
            f"latency {_ms(use.latency_p50_ms)} (median), {_ms(use.latency_p95_ms)} (95th percentile)"
        )
    about = counted(use.count, noun)
    if use.estimated_turns is not None:
        about = f"all traffic ({use.estimated_turns:,.0f} turns, {use.count:,} of them recorded)"
    return [f"**{name}**, {about}: {'; '.join(parts)}."] if parts else []


def _ms(value: float | None) -> str:
    return "?" if value is None else f"{value:,.0f} ms"


def _groups(groups: tuple[ReasonGroup, ...]) -> list[str]:
    if not groups:
        return []
    rows = [
        (
            f"{_SIGNS[group.status]} {escape(group.metric_name)}",
            f"{group.cases:,}",
            escape(group.example),
            escape(", ".join(group.eval_ids[:2])),
        )
        for group in groups[:_GROUPS]
    ]
    more = len(groups) - len(rows)
    found = table(("what went wrong", "cases", "example", "case"), rows, ("cases",))
    return ["### Reasons", found + (f"\n\n{counted(more, 'more reason')}." if more else "")]


def _cases(report: Report, budget: int) -> str:
    bad = [case for case in report.cases if case.status in ("crashed", "failed", "error")]
    if not bad:
        return ""
    parts = ["\n### Cases that did not pass\n"]
    for shown, case in enumerate(bad):
        part = _case(case)
        budget -= len(part.encode()) + 1
        if shown == _CASES or budget < 1_000:
            parts.append(f"{counted(len(bad) - shown, 'more case')} in the full report.\n")
            break
        parts.append(part)
    return "\n".join(parts)


def _case(case: CaseReport) -> str:
    cells = [cell for cell in case.cells if cell.status != "passed"]
    names = ", ".join(f"{_SIGNS[cell.status]} {escape(cell.metric_name)}" for cell in cells)
    opening = f" · {escape(case.opening, _OPENING)}" if case.opening else ""
    differences = difference_lines(case.evidence)
    lines = [
        f"<details><summary>{escape(case.eval_set_id)}/{escape(case.eval_id)}: {names}{opening}</summary>",
        "",
        *(f"- {_cell(cell)}" for cell in cells),
        *(["", *diff_block(differences), ""] if differences else []),
        "</details>",
        "",
    ]
    return "\n".join(lines)


def _cell(cell: Cell) -> str:
    score = "" if cell.score is None else f" {cell.score:.4g} of {cell.threshold:g}"
    return f"**{escape(cell.metric_name)}** {cell.status.replace('_', ' ')}{score}: {escape(cell.reason)}"


def diff_block(lines: Sequence[str]) -> list[str]:
    """Return lines as a fenced block that none of them can end."""
    shown = [visible(line).replace("\n", " ") for line in lines]
    longest = max((len(run) for line in shown for run in re.findall("`+", line)), default=0)
    fence = "`" * max(3, longest + 1)
    return [f"{fence}diff", *shown, fence]
