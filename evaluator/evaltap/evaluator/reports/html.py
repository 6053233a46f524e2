"""One self-contained HTML file: overview with charts, every case, and the evidence of each on demand.

The page loads nothing.  Its policy only allows its own style and script, by their hashes, and no sink that
would turn text into markup.  The templates escape their input.  The script reads data from blocks of JSON and
puts it into text nodes, or clones `template` elements.
"""

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson
from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports import charts
from evaltap.evaluator.reports.diff_lines import lines_of
from evaltap.evaluator.reports.model import SEVERITY, CaseReport, Report, group_key
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.text import TraceUrl

DETAIL_BYTES: Final = 6_000_000
"""The maximum size of the evidence in the page, which has 10 MB at most: people send it to each other."""
_PAGE: Final = Path(__file__).parent / "page"
DIFF_STYLE: Final = _PAGE / "diff.css"
"""The style of `_diff.html.j2`."""
_CASES_PER_BLOCK: Final = 20
_REASON: Final = 240
_GROUPS: Final = 40


def html(
    report: Report, *, sections: Markup | None = None, trace_url: TraceUrl | None = None
) -> str:
    """Return the page; `sections` are inserted before the cases, and turns link to their traces."""
    style = stylesheet() + DIFF_STYLE.read_text("utf-8")
    script = (_PAGE / "report.js").read_text("utf-8")
    blocks, shown = _detail_blocks(report.cases, trace_url)
    notes = [*report.notes]
    if cut := sum(case.detailed for case in report.cases) - shown:
        notes.append(
            f"The evidence of {cut:,} more cases is left out to limit the size of this page; see `evaltap"
            " show` or the JSON report."
        )
    return (
        templates("evaltap.evaluator.reports")
        .get_template("report.html.j2")
        .render(
            sections=sections or "",
            report=report,
            verdict=charts.verdict(report),
            metrics=charts.metric_views(report),
            tiles=charts.tiles(report),
            groups=charts.group_views(report.reasons[:_GROUPS]),
            more_groups=max(0, len(report.reasons) - _GROUPS),
            statuses=charts.STATUS_WORDS,
            notes=notes,
            style=Markup(style),
            script=Markup(script),
            style_hash=policy_hash(style),
            script_hash=policy_hash(script),
            index=_script_data(_index(report, shown)),
            blocks=blocks,
        )
    )


def plain_page(headline: str, brand: str, sections: Markup) -> str:
    """Return a self-contained page of sections that need no script; it loads nothing."""
    style = stylesheet() + DIFF_STYLE.read_text("utf-8")
    return (
        templates("evaltap.evaluator.reports")
        .get_template("plain.html.j2")
        .render(
            headline=headline,
            brand=brand,
            sections=sections,
            style=Markup(style),
            style_hash=policy_hash(style),
        )
    )


def _finalize(value: object) -> object:
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def stylesheet() -> str:
    """Return the style of every page."""
    return (_PAGE / "report.css").read_text("utf-8")


def templates(package: str, folder: str = "page") -> Environment:
    """Return the templates in a folder of a package and those of the report, with autoescaping."""
    made = Environment(
        loader=ChoiceLoader(
            [PackageLoader(package, folder), PackageLoader("evaltap.evaluator.reports", "page")]
        ),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    made.filters["duration"] = charts.duration
    return made


def policy_hash(text: str) -> str:
    """Return the hash by which a page's policy allows the text of an element."""
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _index(report: Report, shown: int) -> dict[str, object]:
    """Return the data for the list of cases; it is kept small, because all of it is parsed at once."""
    names = [metric.metric_name for metric in report.metrics]
    places = {name: place for place, name in enumerate(names)}
    reasons: dict[str, int] = {"": 0}
    shown_groups = report.reasons[:_GROUPS]
    groups = {
        (one.metric_name, one.status, one.pattern): place for place, one in enumerate(shown_groups)
    }
    rows = []
    for case in report.cases:
        cells: list[Any] = [None] * len(names)
        for cell in case.cells:
            reason = "" if cell.status == "passed" else one_line(cell.reason, _REASON)
            number = reasons.setdefault(reason, len(reasons))
            cells[places[cell.metric_name]] = [
                SEVERITY.index(cell.status),
                None if cell.score is None else round(cell.score, 4),
                number,
                -1 if cell.status == "passed" else groups.get(group_key(cell), -1),
            ]
        rows.append(
            [
                case.eval_set_id,
                case.eval_id,
                SEVERITY.index(case.status),
                cells,
                case.cost_usd,
                case.latency_ms,
                case.opening,
                case.tools,
            ]
        )
    return {
        "metrics": names,
        "reasons": list(reasons),
        "cases": rows,
        "shown": shown,
        "perBlock": _CASES_PER_BLOCK,
    }


class _Block(NamedTuple):
    """The evidence of some cases."""

    data: Markup
    calls: Markup
    """Their tool calls, one template for each turn."""


def _detail_blocks(
    cases: Sequence[CaseReport], trace_url: TraceUrl | None
) -> tuple[list[_Block], int]:
    """Return blocks of evidence up to the size limit, and the number of included cases."""
    blocks: list[_Block] = []
    room, shown = DETAIL_BYTES, 0
    rest = iter([case for case in cases if case.detailed])
    diff = templates("evaltap.evaluator.reports").get_template("_diff.html.j2").module.diff  # type: ignore[attr-defined]  # a macro
    while chunk := list(islice(rest, _CASES_PER_BLOCK)):
        data = _script_data([_details(case, trace_url) for case in chunk])
        calls = Markup("").join(
            Markup('<template id="calls-{0}-{1}">{2}</template>').format(
                place,
                number,
                diff(
                    lines_of(turn.steps), turn.compared, number + 1, f"c{place}", turn.omitted_calls
                ),
            )
            for place, case in enumerate(chunk, start=shown)
            for number, turn in enumerate(case.evidence)
        )
        room -= len(data) + len(calls)
        if room < 0:
            break
        blocks.append(_Block(data, calls))
        shown += len(chunk)
    return blocks, shown


def _details(case: CaseReport, trace_url: TraceUrl | None) -> dict[str, object]:
    """Return the evidence of a case without empty values."""
    details = {
        "app": case.app_name,
        "note": case.evidence_note,
        "cells": [_filled(asdict(cell)) for cell in case.cells],
        "turns": [
            _filled(_turn(asdict(replace(turn, steps=())), trace_url)) for turn in case.evidence
        ],
    }
    return {name: value for name, value in details.items() if value}


def _turn(turn: dict[str, Any], trace_url: TraceUrl | None) -> dict[str, Any]:
    del turn["steps"], turn["compared"]  # the templates show the calls
    trace_id = turn.pop("trace_id")
    if trace_url is not None:
        turn["trace"] = trace_url.of(trace_id)
    # Values that are equal on both sides are written once.
    if turn["expected_answer"] == turn["answer"] and turn["answer"] is not None:
        turn["expected_answer"] = None
        turn["answer_as_expected"] = True
    return turn


def _filled(value: object) -> object:
    """Return data without empty values; zero and false are not empty."""
    if isinstance(value, Mapping):
        kept = ((name, item) for name, item in value.items() if item is not None and item != "")
        return {name: _filled(item) for name, item in kept if item != ()}
    return [_filled(item) for item in value] if isinstance(value, list | tuple) else value


def _script_data(value: object) -> Markup:
    """Return JSON that is safe in a script element: it cannot end or open one."""
    text = orjson.dumps(_visible(value)).decode()
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def _visible(value: object) -> object:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Mapping):
        return {visible(key): _visible(item) for key, item in value.items()}
    return [_visible(item) for item in value] if isinstance(value, list | tuple) else value
