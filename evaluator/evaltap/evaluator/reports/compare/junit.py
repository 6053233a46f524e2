"""A comparison as JUnit XML: one test case for each eval case and metric.

Only certain regressions fail: a regressed case is a failure, a suspect or flaky case is skipped with its
counts, and a case without a verdict on one side is an error.  A verdict that no single case explains becomes
a test case of the metric.
"""

import io
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.model import Comparison, MetricChange
from evaltap.evaluator.reports.safe_text import visible

_TAGS: Final = {
    "regressed": "failure",
    "suspect": "skipped",
    "flaky": "skipped",
    "newly_flaky": "skipped",
    "not_evaluated": "skipped",
    "missing": "error",
}


class _Test(NamedTuple):
    name: str
    suite: str
    tag: str | None
    kind: str
    message: str
    body: str = ""


def comparison_junit(found: Comparison) -> str:
    """Return the comparison as JUnit XML."""
    text = io.StringIO()
    xml = XMLGenerator(text, "UTF-8", short_empty_elements=True)
    suites = [(metric.metric, _tests(metric, found)) for metric in found.metrics]
    if over := _usage(found):
        suites.append(("usage", over))
    every = [test for _, tests in suites for test in tests]
    xml.startDocument()
    counts = _counts(every)
    del counts["skipped"]  # the root element has no such attribute
    xml.startElement("testsuites", AttributesImpl({"name": "evaltap compare", **counts}))
    for name, tests in suites:
        xml.startElement("testsuite", AttributesImpl({"name": visible(name), **_counts(tests)}))
        for test in tests:
            _write(xml, test)
        xml.endElement("testsuite")
    xml.endElement("testsuites")
    xml.endDocument()
    return text.getvalue() + "\n"


def _tests(metric: MetricChange, found: Comparison) -> list[_Test]:
    calls = {one.name: "\n".join(one.lines) for one in found.differences}
    tests = [_whole(metric, found)]
    for case in metric.cases:
        suite = f"{_part(case.key[1] or 'cases')}.{_part(metric.metric)}"
        tag = _TAGS.get(case.change)
        body = calls.get(case.name, "")
        tests.append(_Test(case.name, suite, tag, case.change, wording.figures(case), body))
    return tests


def _whole(metric: MetricChange, found: Comparison) -> _Test:
    """Return the test of all cases of a metric together."""
    reasons = [one for one in found.reasons if one.startswith(f"{metric.metric}: ")]
    tag = None
    if metric.decides and reasons and found.exit_code:
        tag = "failure" if found.exit_code == 1 else "error"
    message = "; ".join(reasons) or f"{wording.change(metric)}, {wording.certainty(metric)}"
    name = "all cases"
    return _Test(name, f"compare.{_part(metric.metric)}", tag, found.verdict, message)


def _usage(found: Comparison) -> list[_Test]:
    tests = []
    for use in found.usage:
        reasons = [one for one in found.reasons if one.startswith(f"{use.name}: ")]
        tag = "failure" if reasons else None
        message = "; ".join(reasons) or wording.usage(use)
        tests.append(_Test(use.name, "compare.usage", tag, found.verdict, message))
    return tests


def _write(xml: XMLGenerator, test: _Test) -> None:
    attributes = {"name": visible(test.name), "classname": test.suite}
    xml.startElement("testcase", AttributesImpl(attributes))
    if test.tag is not None:
        kind = {} if test.tag == "skipped" else {"type": test.kind}
        xml.startElement(test.tag, AttributesImpl({"message": visible(test.message), **kind}))
        if test.tag != "skipped" and test.body:
            xml.characters(visible(test.body))
        xml.endElement(test.tag)
    xml.endElement("testcase")


def _counts(tests: Sequence[_Test]) -> dict[str, str]:
    tags = [test.tag for test in tests]
    return {
        "tests": str(len(tags)),
        "failures": str(tags.count("failure")),
        "errors": str(tags.count("error")),
        "skipped": str(tags.count("skipped")),
    }


def _part(name: str) -> str:
    """Return a name without dots, which would divide the class name."""
    return visible(name).replace(".", "_")
