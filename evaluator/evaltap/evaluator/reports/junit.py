"""JUnit XML: one test case for each eval case and metric.

A suite is a metric, and a test case's class name is `<eval set>.<metric>`: tools that group by suite show
each metric with its failures, tools that group by package and class show eval set and metric, and a test
keeps its name from build to build.  Its time is the agent's latency for the case.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element, SubElement, tostring

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


class Test(NamedTuple):
    name: str
    class_name: str
    tag: str | None
    """failure, error or skipped; None: it passed."""
    kind: str
    message: str
    body: str = ""
    latency_ms: float | None = None


class Suite(NamedTuple):
    """Test cases with a name; `properties` are figures about them, of which unknown ones are omitted."""

    name: str
    tests: Sequence[Test]
    timestamp: str = ""
    properties: Mapping[str, float | None] = MappingProxyType({})


def junit_document(name: str, suites: Sequence[Suite]) -> str:
    """Return suites as JUnit XML, with every text made visible."""
    counts = _counts([test for suite in suites for test in suite.tests])
    del counts["skipped"]  # the root element has no such attribute
    root = Element("testsuites", {"name": name, **counts})
    root.extend(map(_suite, suites))
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{tostring(root, "unicode")}\n'


def _suite(suite: Suite) -> Element:
    times = [test.latency_ms for test in suite.tests if test.latency_ms is not None]
    attributes = {
        "name": visible(suite.name),
        **({"timestamp": suite.timestamp} if suite.timestamp else {}),
        **_counts(suite.tests),
        **({"time": _seconds(sum(times))} if times else {}),
    }
    made = Element("testsuite", attributes)
    known = {key: value for key, value in suite.properties.items() if value is not None}
    if known:
        properties = SubElement(made, "properties")
        for key, value in known.items():
            SubElement(properties, "property", {"name": key, "value": f"{value:.6g}"})
    made.extend(map(_test_case, suite.tests))
    return made


def _test_case(test: Test) -> Element:
    made = Element("testcase", {"name": visible(test.name), "classname": test.class_name})
    if test.latency_ms is not None:
        made.set("time", _seconds(test.latency_ms))
    if test.tag is not None:
        kind = {} if test.tag == "skipped" else {"type": test.kind}
        outcome = SubElement(made, test.tag, {"message": visible(test.message), **kind})
        if test.tag != "skipped":
            outcome.text = visible(test.body)
    return made


def _counts(tests: Sequence[Test]) -> dict[str, str]:
    tags = [test.tag for test in tests]
    return {
        "tests": str(len(tags)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
    }


def _seconds(milliseconds: float) -> str:
    return f"{milliseconds / 1000:.3f}"


def class_part(name: str) -> str:
    """Return a name without dots, which would divide the class name."""
    return visible(name).replace(".", "_")


def junit_xml(report: Report) -> str:
    suites: dict[str, list[Test]] = {metric.metric_name: [] for metric in report.metrics}
    for case in report.cases:
        for cell in case.cells:
            suites[cell.metric_name].append(_test(case, cell))
        if case.gate is not None:
            verdict = Cell(GATE, _GATE_STATUSES[case.gate.status], None, 0, case.gate.feedback)
            suites.setdefault(GATE, []).append(_test(case, verdict))
    timestamp = (report.source.started_at or report.generated_at)[:19].replace(" ", "T")
    unlisted = {"cases_not_listed": float(report.total - len(report.cases)) or None}
    rows = report.summary.metrics if report.summary.weighted else ()
    estimates = {row.metric_name: _estimates(row) for row in rows}
    return junit_document(
        "evaltap",
        [
            Suite(name, tests, timestamp, unlisted | estimates.get(name, {}))
            for name, tests in suites.items()
        ],
    )


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


def _test(case: CaseReport, cell: Cell) -> Test:
    message = one_line(visible(cell.reason), _MESSAGE)
    if cell.score is not None:
        message = f"score {cell.score:.4g}, threshold {cell.threshold:g}" + (
            message and f": {message}"
        )
    user = [f"user: {case.opening}"] if case.opening else []
    calls = difference_lines(case.evidence) if cell.status == "failed" else []
    return Test(
        case.eval_id,
        f"{class_part(case.eval_set_id or 'cases')}.{class_part(cell.metric_name)}",
        _TAGS.get(cell.status),
        cell.status,
        message,
        "\n".join([*user, cell.reason, *turn_lines(cell), *calls]),
        case.latency_ms,
    )
