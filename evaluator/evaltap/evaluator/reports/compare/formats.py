"""Write a comparison to a file; the extension of the file name selects the format."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from evaltap.evaluator.reports.compare import wording
from evaltap.evaluator.reports.compare.html import comparison_page
from evaltap.evaluator.reports.compare.model import (
    CaseChange,
    Comparison,
    Difference,
    MetricChange,
    comparison_data,
)
from evaltap.evaluator.reports.formats import format_of
from evaltap.evaluator.reports.junit import Suite, Test, class_part, junit_document
from evaltap.evaluator.reports.markdown import diff_block, escape, table
from evaltap.evaluator.reports.redaction import redacted
from evaltap.schemas.files.content import write_bytes
from evaltap.schemas.text import counted, some_of


def write_comparison(
    found: Comparison, path: Path, clean: Callable[[str], str] | None = None
) -> None:
    """Write a comparison with recorded texts as `clean` returns them.

    Raises InputError for an unknown extension or if writing fails.
    """
    if clean is not None:
        found = cleaned(found, clean)
    write_bytes(path, _WRITERS[format_of(path)](found).encode("utf-8", "replace"))


def cleaned(found: Comparison, clean: Callable[[str], str]) -> Comparison:
    """Return a comparison with recorded texts as `clean` returns them."""
    return replace(found, differences=tuple(redacted(one, clean) for one in found.differences))


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
_QUESTION: Final = 80
"""The number of characters shown of a question."""
_NAMES: Final = 20
_TABLE: Final = ("metric", "base", "head", "change, 95 % interval", "certainty", "trials")


def comparison_markdown(found: Comparison) -> str:
    """Return the verdict, metrics, and the cases with their reasons; omitted cases are counted."""
    head, tail = ("\n\n".join(filter(None, part)) for part in (_head(found), _tail(found)))
    budget = MAX_BYTES - len(head.encode()) - len(tail.encode()) - 500
    parts = [head]
    for group in wording.groups(found):
        parts.append(f"### {group.title.capitalize()} ({group.number:,})")
        left = group.number
        for reason in group.reasons:
            cases = counted(len(reason.cases), "case")
            lines = [f"**{escape(reason.reason)}** ({cases})"] if reason.reason else []
            for case in reason.cases[: max(_ROWS - group.number + left, 0)]:
                lines.append(_case(case))
                budget -= sum(len(line.encode()) + 1 for line in lines)
                if budget < 0:
                    break
                parts += lines
                left -= 1
                lines = []
        parts += _more(left)
    return "\n\n".join([*parts, tail]).rstrip() + "\n"


def _head(found: Comparison) -> Iterator[str]:
    yield f"## {_SIGNS[found.verdict]} {escape(wording.headline(found))}"
    yield escape(wording.sides(found))
    yield "\n".join(f"- {escape(reason)}" for reason in found.reasons)
    yield table(_TABLE, [*map(_metric_row, found.metrics[:_METRICS])], ("base", "head"))
    yield "\n".join(f"- **{use.name}**: {escape(wording.usage(use))}" for use in found.usage)
    if found.strata:
        yield f"### {wording.STRATA.capitalize()} ({len(found.strata):,})"
        slices = [
            f"- **{escape(wording.stratum_name(found, one))}**: {escape(wording.stratum(one))}"
            for one in found.strata[:_ROWS]
        ]
        yield "\n".join([*slices, *_more(len(found.strata) - _ROWS)])


def _tail(found: Comparison) -> Iterator[str]:
    for title, names in wording.listed(found):
        yield f"{title.capitalize()}: {some_of([*map(escape, names)], _NAMES)}"
    yield "\n".join(f"> {escape(note)}" for note in found.notes)


def _metric_row(metric: MetricChange) -> tuple[str, ...]:
    cells = (
        metric.metric,
        wording.rate(metric, metric.base),
        wording.rate(metric, metric.head),
        wording.difference(metric),
        wording.certainty(metric),
        wording.evidence(metric),
    )
    return tuple(map(escape, cells))


def _more(left: int) -> Sequence[str]:
    return [f"- and {left:,} more"] if left > 0 else []


def _case(one: Difference) -> str:
    """Return a case: a line, which opens if there is more to say."""
    title = f"{escape(one.name)}: {escape(wording.case_line(one))}"
    if not one.lines:
        return f"- {title}"
    asked = f" · {escape(one.question, _QUESTION)}" if one.question else ""
    reasons = [f"- {escape(reason)}" for reason in wording.reason_lines(one)]
    block = diff_block(one.lines)
    head = f"<details><summary>{title}{asked}</summary>"
    return "\n".join([head, "", *reasons, "", *block, "", "</details>"])


_SKIPPED: Final = ("flaky", "not_evaluated")


def comparison_junit(found: Comparison) -> str:
    suites = [Suite(metric.metric, [_whole(metric, found)]) for metric in found.metrics]
    suites.append(Suite("cases", _cases(found)))
    if over := _usage(found):
        suites.append(Suite("usage", over))
    return junit_document("evaltap compare", suites)


def _cases(found: Comparison) -> list[Test]:
    """Return a test for each case: a failure if it got worse under any metric."""
    said: dict[str, list[Difference]] = {}
    for one in found.differences:
        said.setdefault(one.name, []).append(one)
    every: dict[str, list[CaseChange]] = {}
    for metric in found.metrics:
        for case in metric.cases:
            every.setdefault(case.name, []).append(case)
    return [_case_test(changes, said.get(name, ())) for name, changes in every.items()]


def _case_test(changes: Sequence[CaseChange], said: Sequence[Difference]) -> Test:
    name, suite = changes[0].name, class_part(changes[0].key[1] or "cases")
    found = {one.change for one in changes}
    if (worse := next((one for one in said if one.outcome == "newly_failing"), None)) is not None:
        body = "\n".join(_body(worse))
        return Test(name, suite, "failure", "newly_failing", wording.case_line(worse), body)
    tag = "error" if "missing" in found else "skipped" if found & {*_SKIPPED} else None
    message = "; ".join(wording.case_line(one) for one in said)
    return Test(name, suite, tag, "missing" if tag == "error" else "", message)


def _body(one: Difference) -> Iterator[str]:
    if one.question:
        yield f"user: {one.question}"
    yield from wording.reason_lines(one)
    yield from one.lines


def _whole(metric: MetricChange, found: Comparison) -> Test:
    """Return the test of all cases of a metric together; its body names those that got worse."""
    others = {one.metric for one in found.metrics} | {one.name for one in found.usage}
    others.discard(metric.metric)
    # A reason without a name, such as lost cases, is one for all metrics.
    reasons = [
        one for one in found.reasons if not any(one.startswith(f"{name}: ") for name in others)
    ]
    tag = None
    if metric.decides and reasons and found.exit_code:
        tag = "failure" if found.exit_code == 1 else "error"
    message = "; ".join(reasons) or f"{wording.change(metric)}, {wording.certainty(metric)}"
    suite = f"compare.{class_part(metric.metric)}"
    body = "\n".join(_worse(metric, found))
    return Test("all cases", suite, tag, found.verdict, message, body)


def _worse(metric: MetricChange, found: Comparison) -> Iterator[str]:
    for one in found.differences:
        for finding in one.findings:
            if one.outcome == "newly_failing" and finding.metric == metric.metric:
                yield f"{one.name}: {finding.figures}: {one.crash or finding.reason}".rstrip(": ")


def _usage(found: Comparison) -> list[Test]:
    tests = []
    for use in found.usage:
        reasons = "; ".join(one for one in found.reasons if one.startswith(f"{use.name}: "))
        tag, message = "failure" if reasons else None, reasons or wording.usage(use)
        tests.append(Test(use.name, "compare.usage", tag, found.verdict, message))
    return tests


_WRITERS: Final[Mapping[str, Callable[[Comparison], str]]] = {
    "html": comparison_page,
    "json": lambda found: json.dumps(comparison_data(found), ensure_ascii=False, indent=1) + "\n",
    "junit": comparison_junit,
    "markdown": comparison_markdown,
}
