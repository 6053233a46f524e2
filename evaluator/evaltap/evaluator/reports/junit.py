"""JUnit XML: one test case for each eval case and metric.

A suite is a metric, and a test case's class name is `<eval set>.<metric>`: tools that group by suite show
each metric with its failures, tools that group by package and class show eval set and metric, and a test
keeps its name from build to build.  Its time is the agent's latency for the case.
"""

import io
from collections.abc import Mapping
from typing import Final
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.model import CaseReport, Cell, Report
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.summary import MetricCounts
from evaltap.evaluator.reports.text import difference_lines, turn_lines

_MESSAGE: Final = 300
GATE: Final = "gate"
"""The suite of a gate's verdicts, next to those of its dimensions."""
_GATE_STATUSES: Final = {"passed": "passed", "failed": "failed", "incomplete": "error"}
_TAGS: Final = {
    "failed": "failure",
    "error": "error",
    "crashed": "error",
    "not_evaluated": "skipped",
}
_Cells = list[tuple[CaseReport, Cell]]


def junit_xml(report: Report) -> str:
    """Return the report as JUnit XML."""
    suites: dict[str, _Cells] = {metric.metric_name: [] for metric in report.metrics}
    for case in report.cases:
        for cell in case.cells:
            suites[cell.metric_name].append((case, cell))
        if case.gate is not None:
            verdict = Cell(GATE, _GATE_STATUSES[case.gate.status], None, 0, case.gate.feedback)
            suites.setdefault(GATE, []).append((case, verdict))
    text = io.StringIO()
    xml = XMLGenerator(text, "UTF-8", short_empty_elements=True)
    xml.startDocument()
    every = [pair for cells in suites.values() for pair in cells]
    counts = _counts(every)
    del counts["skipped"]  # the root element has no such attribute
    xml.startElement("testsuites", AttributesImpl({"name": "evaltap", **counts}))
    for name, cells in suites.items():
        _suite(xml, name, cells, report)
    xml.endElement("testsuites")
    xml.endDocument()
    return text.getvalue() + "\n"


def _suite(xml: XMLGenerator, name: str, cells: _Cells, report: Report) -> None:
    times = [case.latency_ms for case, _ in cells if case.latency_ms is not None]
    timestamp = report.source.started_at or report.generated_at
    attributes = {
        "name": visible(name),
        "timestamp": timestamp[:19].replace(" ", "T"),
        **_counts(cells),
        **({"time": _seconds(sum(times))} if times else {}),
    }
    xml.startElement("testsuite", AttributesImpl(attributes))
    properties = {"cases_not_listed": float(report.total - len(report.cases)) or None}
    for row in report.summary.metrics:
        if report.summary.weighted and row.metric_name == name:
            properties |= _estimates(row)
    _properties(xml, properties)
    for case, cell in cells:
        _test_case(xml, case, cell)
    xml.endElement("testsuite")


def _estimates(row: MetricCounts) -> dict[str, float | None]:
    """Return the estimates for all traffic from the metric's cases; the counts are of recorded cases."""
    found = row.traffic.estimate if row.traffic and row.weighted else None
    return {
        "pass_rate": row.rate.value if row.rate else None,
        "pass_rate_low": row.rate.interval.low if row.rate else None,
        "pass_rate_high": row.rate.interval.high if row.rate else None,
        "mean_score": row.mean_score,
        "sample_pass_rate": row.sample.value if row.sample else None,
        "effective_turns": found.rate.effective_n if found else None,
        "estimated_turns": found.estimated_turns if found else None,
        "covered": row.traffic.covered if row.traffic else None,
    }


def _properties(xml: XMLGenerator, values: Mapping[str, float | None]) -> None:
    known = {key: value for key, value in values.items() if value is not None}
    if not known:
        return
    xml.startElement("properties", AttributesImpl({}))
    for key, value in known.items():
        xml.startElement("property", AttributesImpl({"name": key, "value": f"{value:.6g}"}))
        xml.endElement("property")
    xml.endElement("properties")


def _test_case(xml: XMLGenerator, case: CaseReport, cell: Cell) -> None:
    attributes = {
        "name": visible(case.eval_id),
        "classname": f"{_part(case.eval_set_id or 'cases')}.{_part(cell.metric_name)}",
    }
    if case.latency_ms is not None:
        attributes["time"] = _seconds(case.latency_ms)
    xml.startElement("testcase", AttributesImpl(attributes))
    if cell.status in _TAGS:
        _outcome(xml, _TAGS[cell.status], case, cell)
    xml.endElement("testcase")


def _outcome(xml: XMLGenerator, tag: str, case: CaseReport, cell: Cell) -> None:
    message = one_line(visible(cell.reason), _MESSAGE)
    if cell.score is not None:
        message = f"score {cell.score:.4g}, threshold {cell.threshold:g}" + (
            message and f": {message}"
        )
    kind = {} if tag == "skipped" else {"type": cell.status}
    xml.startElement(tag, AttributesImpl({"message": message, **kind}))
    if tag != "skipped":
        xml.characters(visible("\n".join(_body(case, cell))))
    xml.endElement(tag)


def _body(case: CaseReport, cell: Cell) -> list[str]:
    user = [f"user: {case.opening}"] if case.opening else []
    lines = [*user, cell.reason, *turn_lines(cell)]
    return [*lines, *difference_lines(case.evidence)] if cell.status == "failed" else lines


def _counts(cells: _Cells) -> dict[str, str]:
    statuses = [cell.status for _, cell in cells]
    return {
        "tests": str(len(statuses)),
        "failures": str(statuses.count("failed")),
        "errors": str(statuses.count("error") + statuses.count("crashed")),
        "skipped": str(statuses.count("not_evaluated")),
    }


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.3f}"


def _part(name: str) -> str:
    """Return a name without dots, which would divide the class name."""
    return visible(name).replace(".", "_")
