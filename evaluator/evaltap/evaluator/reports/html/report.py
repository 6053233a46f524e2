"""One self-contained HTML file: the overview, and every case with its evidence, by the templates of the page.

The file loads nothing.  Its policy only allows its own style and script, by their hashes, and no sink that
would turn text into markup.  Without its script it shows the first cases only, and cannot be searched.
"""

import base64
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any, Final

import orjson
from markupsafe import Markup

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.figures import amount, duration, money, percent
from evaltap.evaluator.reports.html.case import views_of
from evaltap.evaluator.reports.html.charts import Tile, histogram
from evaltap.evaluator.reports.html.rendering import KEYS, STATIC, templates
from evaltap.evaluator.reports.model import SEVERITY, CaseReport, Cell, Report, Usage, group_key
from evaltap.evaluator.reports.summary import exit_code
from evaltap.evaluator.reports.text import TraceUrl
from evaltap.evaluator.reports.usage import unknown
from evaltap.schemas.text import counted

FILE_BYTES: Final = 9_200_000
"""The maximum size of the list of cases: the file has 10 MB at most, because people send it to each other."""
EVIDENCE_BYTES: Final = 6_000_000
"""The maximum size of the evidence in it."""
_REASON: Final = 240
_GROUPS: Final = 40
_AT_ONCE: Final = 100
"""The number of cases that the list shows; `report.js` adds as many."""


def html(
    report: Report, *, sections: Markup | None = None, trace_url: TraceUrl | None = None
) -> str:
    """Return the file; `sections` are inserted before the cases, and turns link to their traces."""
    lines = _within(FILE_BYTES, _lines(report))
    room = min(EVIDENCE_BYTES, FILE_BYTES - sum(map(_size, lines)))
    bodies = _within(room, _bodies(report.cases[: len(lines)], trace_url))
    notes = [*report.notes]
    if cut := len(report.cases) - len(lines):
        notes.append(f"{counted(cut, 'more case')} left out to limit the size of this file.")
    if cut := sum(case.detailed for case in report.cases) - len(bodies):
        notes.append(
            f"The evidence of {cut:,} more cases is left out to limit the size of this file; see `evaltap"
            " show` or the JSON report."
        )
    by_name = {row.metric_name: row for row in report.summary.metrics}
    metrics = [
        (of, by_name[of.metric_name], histogram(of.histogram, of.thresholds, of.outside))
        for of in report.metrics
    ]
    metrics.sort(key=lambda one: 2.0 if one[1].rate is None else one[1].rate.value)
    return _document(
        "report.html.j2",
        headline=headline(report),
        brand="report",
        sections=sections or "",
        script=_static("keys.js") + _static("report.js"),
        version=report.source.evaltap_version,
        report=report,
        app=_only_app(report),
        tiles=tiles(report),
        metrics=metrics,
        most_groups=_GROUPS,
        notes=notes,
        entries=[*zip_longest(lines, bodies)],
        at_once=_AT_ONCE,
    )


def plain_page(headline: str, brand: str, sections: Markup) -> str:
    """Return a self-contained page of sections that need no script; it loads nothing."""
    return _document(
        "document.html.j2", headline=headline, brand=brand, sections=sections, script="", version=""
    )


def _document(template: str, *, script: str, **content: object) -> str:
    style = _static("style.css")
    page = templates().get_template(template)
    return page.render(
        **content,
        keys=KEYS,
        script=Markup(script),
        script_hash=_policy_hash(script),
        style=Markup(style),
        style_hash=_policy_hash(style),
    )


@cache
def _static(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _policy_hash(text: str) -> str:
    """Return the hash by which a page's policy allows the text of an element."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


# -- the overview -----------------------------------------------------------------------------------


def headline(report: Report) -> str:
    total = report.total
    bad = sum(report.case_counts.get(status, 0) for status in ("failed", "crashed"))
    errors = report.case_counts.get("error", 0)
    if not total:
        return "No scores yet"
    if bad:
        found = (
            "The case did not pass" if total == 1 else f"{bad:,} of {total:,} cases did not pass"
        )
        return f"{found}, {errors:,} could not be scored" if errors else found
    if errors:
        return f"Nothing failed, but {errors:,} of {counted(total, 'case')} could not be scored"
    if exit_code(report.summary):
        return "Nothing failed, but some cases were not evaluated"
    return "The case passed" if total == 1 else f"All {total:,} cases passed"


def tiles(report: Report) -> list[Tile]:
    """Return the figures of the overview; unknown ones are omitted."""
    counts, total = report.case_counts, report.total
    evaluated = sum(counts.get(status, 0) for status in ("passed", "failed", "crashed"))
    found = [Tile("cases", f"{total:,}", counted(len(report.metrics), "metric"))]
    if evaluated:
        rate, remark = counts.get("passed", 0) / evaluated, "cases without a failure"
        if report.summary.weighted and report.summary.passing_rate is None:
            remark = f"scored {remark}, not of all traffic"
        elif report.summary.passing_rate is not None:
            remark = f"of all traffic, {remark}; {percent(rate)} of the recorded ones"
            rate = report.summary.passing_rate
        found.append(Tile("pass rate", percent(rate), remark))
    crashed, remark = report.summary.crashed, ""
    if crashed.rate is not None:
        low, high = crashed.rate.interval
        cases = "all traffic" if report.summary.weighted else "the cases"
        ends = f"{100 * low:.1f} to {percent(high)}"
        remark = f"{percent(crashed.rate.value)} of {cases}, 95 % interval {ends}"
    if crashed.count:
        found.append(Tile("crashed", f"{crashed.count:,}", remark))
    if errors := sum(row.errors for row in report.summary.metrics):
        found.append(Tile("errors", f"{errors:,}", "scores that could not be computed"))
    if gaps := sum(row.not_evaluated for row in report.summary.metrics):
        found.append(Tile("not evaluated", f"{gaps:,}", "scores; reasons below"))
    found += _use_tiles("agent", report.agent, "turn")
    if report.judge:
        found += _use_tiles("judge", report.judge, "call")
    return found


def _use_tiles(name: str, use: Usage, noun: str) -> list[Tile]:
    found: list[Tile] = []
    if use.latency_p95_ms is not None and use.latency_p50_ms is not None:
        remark = f"median {duration(use.latency_p50_ms)}, {counted(use.with_latency, noun)}{_of_all(use)}"
        found.append(Tile(f"{name} latency, p95", duration(use.latency_p95_ms), remark))
    if use.cost_usd is not None:
        remark = unknown(use, use.with_cost, noun) or counted(use.count, noun)
        remark += f", {use.cached:,} from the cache" if use.cached else ""
        if use.recorded is not None and use.recorded.cost_usd is not None:
            remark += f"; all traffic, {money(use.recorded.cost_usd)} of it recorded"
        found.append(Tile(f"{name} cost", money(use.cost_usd), remark))
    if use.input_tokens is not None or use.output_tokens is not None:
        tokens = (use.input_tokens or 0) + (use.output_tokens or 0)
        used = (use.input_tokens, use.output_tokens)
        into, out = ("?" if count is None else amount(count) for count in used)
        remark = f"{into} in, {out} out"
        if missing := unknown(use, use.with_tokens, noun):
            remark += f", {missing}"
        remark += _of_all(use)
        found.append(Tile(f"{name} tokens", amount(tokens), remark))
    return found


def _of_all(use: Usage) -> str:
    return "" if use.recorded is None else "; of all traffic"


# -- the cases --------------------------------------------------------------------------------------


def _lines(report: Report) -> Iterator[Markup]:
    names = [metric.metric_name for metric in report.metrics]
    groups = {
        (one.metric_name, one.status, one.pattern): place
        for place, one in enumerate(report.reasons[:_GROUPS])
    }
    line, shows_app = _macros().line, not _only_app(report)
    for case in report.cases:
        of = {cell.metric_name: cell for cell in case.cells}
        cells = [_cell(of[name], groups) if name in of else None for name in names]
        worst = sorted(case.cells, key=lambda cell: SEVERITY.index(cell.status))
        reasons = (one_line(one.reason, _REASON) for one in worst if one.status != "passed")
        data, reason = orjson.dumps(cells).decode(), next(filter(None, reasons), "")
        yield line(case, data, reason, shows_app=shows_app, open=len(report.cases) == 1)


def _only_app(report: Report) -> str:
    """Return the application of all cases; empty if there are several."""
    names = {case.app_name for case in report.cases}
    return names.pop() if len(names) == 1 else ""


def _cell(cell: Cell, groups: Mapping[tuple[str, str, str], int]) -> tuple[int, float | None, int]:
    """Return the place of the status in SEVERITY, the score, and the group of the reason, for the script."""
    group = -1 if cell.status == "passed" else groups.get(group_key(cell), -1)
    score = None if cell.score is None else round(cell.score, 4)
    return SEVERITY.index(cell.status), score, group


def _bodies(cases: Sequence[CaseReport], trace_url: TraceUrl | None) -> Iterator[Markup]:
    """Yield the turns and verdicts of each case with evidence."""
    body = _macros().body
    for number, case in enumerate(cases):
        if not case.detailed:
            return  # detailed ones come first
        turns, verdicts = views_of(case, within=f"c{number}", trace_url=trace_url)
        yield body(turns, verdicts, case.evidence_note, f"c{number}")


def _macros() -> Any:  # a module of macros
    return templates().get_template("_entry.html.j2").module


def _within(room: int, parts: Iterator[Markup]) -> list[Markup]:
    """Return as many of the parts as there is room for."""
    kept = []
    for part in parts:
        room -= _size(part)
        if room < 0:
            break
        kept.append(part)
    return kept


def _size(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
